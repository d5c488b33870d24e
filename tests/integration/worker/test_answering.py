"""Answer on real rows: a conversation in a circle, one run for all of its turns (components 3.19)."""

from typing import Any

import pytest

from canvas.outcome import Finished
from components import registry
from components.nodes.flow.answer import answer
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import Started
from tests.integration.engine import Bench, Run

TALK = {"component": "Answer"}


@pytest.fixture(autouse=True)
def _answer_is_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "COMPONENTS", {**registry.COMPONENTS, "answer": answer})


def next_turn(run: Run, query: Any = "", **given: Any) -> Started:
    started = run.bench.lifecycle.resume_run(run.bench.tenant_id, run.id, RunRequest(query=query, **given))
    run.bench.play()
    return started


def heard(run: Run) -> list[str]:
    return [turn.text for turn in run.turns]


def replying(bench: Bench, *nodes: str) -> list[str]:
    """Nodes that reply to the query; the queries they were given."""
    queries: list[str] = []

    def reply(ctx: Any) -> Finished:
        queries.append(ctx.lookup("sys.query"))
        return Finished(outputs={"content": f"{ctx.node_id}: {queries[-1]}"})

    bench.does(**dict.fromkeys(nodes, reply))
    return queries


QUERY = {"script": "{sys.query}"}


def test_an_answer_behind_begin_waits_for_the_next_query(bench: Bench):
    queries = replying(bench, "reply")
    run = bench.start("begin -> talk -> reply", talk=TALK, reply=QUERY, query="first")
    bench.play()
    assert run.status == "waiting"
    assert heard(run) == []
    assert run.events[-1].body == {"inputs": {}, "tips": "", "forms": {"talk": {"inputs": {}, "tips": ""}}}

    next_turn(run, "Hello")

    assert run.status == "succeeded"
    assert queries == ["Hello"]
    assert run.outputs("talk") == {"answer": "Hello", "content": "Hello"}


def test_each_text_of_a_circle_is_said_once_and_stays_in_the_transcript(bench: Bench):
    replying(bench, "reply")
    run = bench.start("begin -> talk -> reply -> talk", talk=TALK, reply=QUERY)
    bench.play()

    for query in ("one", "two", "two"):
        next_turn(run, query)
        assert run.status == "waiting"

    assert heard(run) == ["reply: one", "reply: two", "reply: two"]
    assert [row.ordinal for row in run.activations if row.node_id == "talk"] == [0, 1, 2, 3]
    assert run.told.count("user_inputs") == 4
    assert len({event.activation for event in run.events if event.name == "message_end"}) == 3


def test_only_the_branch_that_was_taken_has_something_new_to_say(bench: Bench):
    replying(bench, "left", "right")
    run = bench.start(
        "begin -> talk -> pick -> left, right; left, right -> talk",
        talk=TALK, left=QUERY, right=QUERY,
        pick={
            "conditions": [{"items": [{"cpn_id": "sys.query", "operator": "=", "value": "l"}], "to": ["left"]}],
            "end_cpn_ids": ["right"],
        },
    )  # fmt: skip
    bench.play()

    for query in ("l", "r", "l"):
        next_turn(run, query)

    assert heard(run) == ["left: l", "right: r", "left: l"]


def test_a_turn_without_a_query_is_asked_again(bench: Bench):
    run = bench.start("begin -> talk -> end", talk=TALK)
    bench.play()

    next_turn(run)
    assert run.told.count("user_inputs") == 2
    next_turn(run, inputs={"somebody": "else"})

    assert run.status == "waiting"
    assert run.told.count("node_started") == 2
    next_turn(run, "Hello")
    assert run.status == "succeeded"


def test_an_answer_beside_a_form_takes_the_query_and_leaves_the_form_open(bench: Bench):
    fields = {"a": {"type": "line"}, "b": {"type": "line"}}
    run = bench.start("begin -> talk, form; talk -> end", talk=TALK, form={"inputs": fields})
    bench.play()

    next_turn(run, "Hello")
    assert run.status == "waiting"
    assert run.statuses["end"] == "done"
    next_turn(run, inputs={"a": "1", "b": "2"})

    assert run.status == "succeeded"
    assert run.outputs("talk")["answer"] == "Hello"
    assert run.outputs("form").keys() & {"a", "b", "query"} == {"a", "b"}
