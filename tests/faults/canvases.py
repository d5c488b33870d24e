"""Canvases to be disturbed: one of each kind that keeps state between its steps, and acts on the world meanwhile.

Each says in its answer what it was asked, so that an answer that belongs to another run, or lacks a part, shows.
"""

from collections.abc import Mapping
from typing import Any

from tests.builders import says
from tests.faults.outside import FACTORY
from tests.integration.engine import dsl_of

ITEMS = ["a", "b", "c", "d"]
FIELD = {"order": {"name": "order", "type": "line", "optional": False}}


def model(text: str, name: str = "m", **more: Any) -> dict[str, Any]:
    """A node that asks a model."""
    return {"llm_id": f"{name}@{FACTORY}", "prompts": [{"role": "user", "content": text}], **more}


def posts(url: str, *refs: str) -> dict[str, Any]:
    """A node that acts: what it sends are these references, and the question."""
    sent = [{"key": f"it{number}", "ref": ref} for number, ref in enumerate(("sys.query", *refs))]
    return {
        "component": "Invoke",
        "url": f"{url}/effects/post",
        "method": "post",
        "datatype": "formdata",
        "variables": sent,
        "max_retries": 0,
    }


def canvases(url: str) -> Mapping[str, dict[str, Any]]:
    """All of them by name; `url` is where the world outside is."""
    post = posts(url)
    return {
        "line": dsl_of(
            "begin -> model1 -> model2 -> say",
            model1=model("first {sys.query}"),
            model2=model("then {model1@content}"),
            say=says("Heard: {model2@content}."),
        ),
        "fan": dsl_of(
            "begin -> model1, model2, post; model1, model2, post -> say",
            model1=model("left {sys.query}"),
            model2=model("right {sys.query}"),
            post=post,
            say=says("{model1@content} and {model2@content} and {post@result}"),
        ),
        "in order": dsl_of(
            "begin -> each -> say",
            "each: item -> post",
            variables={"items": ITEMS},
            each={"items_ref": "env.items", "max_concurrency": 1, "outputs": {"all": {"ref": "post@result"}}},
            post=posts(url, "item@item"),
            say=says("{sys.query}: {each@all}"),
        ),
        "side by side": dsl_of(
            "begin -> each -> say",
            "each: item -> model1 -> post",
            variables={"items": ITEMS},
            each={"items_ref": "env.items", "max_concurrency": 3, "outputs": {"all": {"ref": "model1@content"}}},
            model1=model("{sys.query} of {item@item}"),
            post=posts(url, "model1@content"),
            say=says("{sys.query}: {each@all}"),
        ),
        "rounds": dsl_of(
            "begin -> loop -> say",
            "loop: visit -> post -> note",
            loop={
                "loop_variables": [{"variable": "n", "type": "number", "input_mode": "constant", "value": 0}],
                "loop_termination_condition": [{"variable": "loop@n", "operator": "≥", "value": 3}],
                "maximum_loop_count": 9,
            },
            post=posts(url, "loop@n"),
            note={
                "component": "VariableAssigner",
                "variables": [{"variable": "loop@n", "operator": "+=", "parameter": 1}],
            },
            say=says("{sys.query} in {loop@n} rounds"),
        ),
        "two ways": dsl_of(
            "begin -> way; way -> left, pick; left -> say1; pick -> post, say2; post -> say1",
            way={
                "component": "Categorize",
                "llm_id": f"router@{FACTORY}",
                "category_description": {
                    "left": {"description": "one way", "to": ["left"]},
                    "right": {"description": "the other", "to": ["pick"]},
                },
            },
            left=posts(url),
            pick={
                "conditions": [
                    {
                        "logical_operator": "and",
                        "items": [{"cpn_id": "sys.query", "operator": "contains", "value": "twice"}],
                        "to": ["post"],
                    }
                ],
                "end_cpn_ids": ["say2"],
            },
            post=post,
            say1=says("posted for {sys.query}"),
            say2=says("nothing for {sys.query}"),
        ),
        "form": dsl_of(
            "begin -> before -> form -> after -> say",
            before=posts(url),
            form={"inputs": FIELD, "tips": "Which order?"},
            after=posts(url, "form@order"),
            say=says("{sys.query}: order {form@order}, {after@result}"),
        ),
        "agent": dsl_of(
            "begin -> agent -> say",
            agent={
                **model("{sys.query}", "agent"),
                "component": "Agent",
                "sys_prompt": "You search.",
                "tools": [
                    {"component_name": "SearXNG", "name": "Search", "params": {"searxng_url": f"{url}/searx"}},
                ],
            },
            say=says("{agent@content}"),
        ),
        "slow speech": dsl_of(
            "begin -> model1 -> say",
            model1=model("{sys.query}", "slow"),
            say=says("{sys.query}: {model1@content}"),
        ),
    }


def question(number: int) -> str:
    """What run `number` is asked; three kinds of them, for "two ways"."""
    return f"q{number:04}{(' to the left', ' twice', '')[number % 3]}"


ANSWER = {"inputs": {"order": {"value": "A-17", "type": "line"}}}
"""What a person answers to the form."""
