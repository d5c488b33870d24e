"""Canvases for fault tests: one of each kind that has state between its steps and side effects.

Each answer contains the question, so that an answer of another run, or one that lacks a part, is detected.
"""

from collections.abc import Mapping
from typing import Any

from tests.builders import content
from tests.faults.outside import FACTORY
from tests.integration.engine import dsl_of

ITEMS = ["a", "b", "c", "d"]
FIELD = {"order": {"name": "order", "type": "line", "optional": False}}


def llm_params(text: str, name: str = "m", **more: Any) -> dict[str, Any]:
    """Parameters of a node that calls a model."""
    return {"llm_id": f"{name}@{FACTORY}", "prompts": [{"role": "user", "content": text}], **more}


def post_params(url: str, *refs: str) -> dict[str, Any]:
    """A node with a side effect: it posts these references and the question."""
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
    """All canvases by name; `url` is that of the external services."""
    post = post_params(url)
    return {
        "line": dsl_of(
            "begin -> model1 -> model2 -> say",
            model1=llm_params("first {sys.query}"),
            model2=llm_params("then {model1@content}"),
            say=content("Heard: {model2@content}."),
        ),
        "fan": dsl_of(
            "begin -> model1, model2, post; model1, model2, post -> say",
            model1=llm_params("left {sys.query}"),
            model2=llm_params("right {sys.query}"),
            post=post,
            say=content("{model1@content} and {model2@content} and {post@result}"),
        ),
        "in order": dsl_of(
            "begin -> each -> say",
            "each: item -> post",
            variables={"items": ITEMS},
            each={"items_ref": "env.items", "max_concurrency": 1, "outputs": {"all": {"ref": "post@result"}}},
            post=post_params(url, "item@item"),
            say=content("{sys.query}: {each@all}"),
        ),
        "side by side": dsl_of(
            "begin -> each -> say",
            "each: item -> model1 -> post",
            variables={"items": ITEMS},
            each={"items_ref": "env.items", "max_concurrency": 3, "outputs": {"all": {"ref": "model1@content"}}},
            model1=llm_params("{sys.query} of {item@item}"),
            post=post_params(url, "model1@content"),
            say=content("{sys.query}: {each@all}"),
        ),
        "rounds": dsl_of(
            "begin -> loop -> say",
            "loop: visit -> post -> note",
            loop={
                "loop_variables": [{"variable": "n", "type": "number", "input_mode": "constant", "value": 0}],
                "loop_termination_condition": [{"variable": "loop@n", "operator": "≥", "value": 3}],
                "maximum_loop_count": 9,
            },
            post=post_params(url, "loop@n"),
            note={
                "component": "VariableAssigner",
                "variables": [{"variable": "loop@n", "operator": "+=", "parameter": 1}],
            },
            say=content("{sys.query} in {loop@n} rounds"),
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
            left=post_params(url),
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
            say1=content("posted for {sys.query}"),
            say2=content("nothing for {sys.query}"),
        ),
        "form": dsl_of(
            "begin -> before -> form -> after -> say",
            before=post_params(url),
            form={"inputs": FIELD, "tips": "Which order?"},
            after=post_params(url, "form@order"),
            say=content("{sys.query}: order {form@order}, {after@result}"),
        ),
        "agent": dsl_of(
            "begin -> agent -> say",
            agent={
                **llm_params("{sys.query}", "agent"),
                "component": "Agent",
                "sys_prompt": "You search.",
                "tools": [
                    {"component_name": "SearXNG", "name": "Search", "params": {"searxng_url": f"{url}/searx"}},
                ],
            },
            say=content("{agent@content}"),
        ),
        "slow speech": dsl_of(
            "begin -> model1 -> say",
            model1=llm_params("{sys.query}", "slow"),
            say=content("{sys.query}: {model1@content}"),
        ),
    }


def question(number: int) -> str:
    """Return the query of run `number`: one of three kinds, for "two ways"."""
    return f"q{number:04}{(' to the left', ' twice', '')[number % 3]}"


ANSWER = {"inputs": {"order": {"value": "A-17", "type": "line"}}}
"""The answer to the form."""
