"""The Answer node on real rows: a conversation in a cycle, with one run for all its turns (components 3.19)."""

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
def _register_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "COMPONENTS", {**registry.COMPONENTS, "answer": answer})


def send_query(run: Run, query: Any = "", **more: Any) -> Started:
    started = run.bench.lifecycle.resume_run(run.bench.tenant_id, run.id, RunRequest(query=query, **more))
    run.bench.play()
    return started


def stream_texts(run: Run) -> list[str]:
    return [stream.text for stream in run.streams]


def set_replies(bench: Bench, *nodes: str) -> list[str]:
    """Let these nodes reply to the query; return the list of their queries."""
    queries: list[str] = []

    def reply(ctx: Any) -> Finished:
        queries.append(ctx.lookup("sys.query"))
        return Finished(outputs={"content": f"{ctx.node_id}: {queries[-1]}"})

    bench.does(**dict.fromkeys(nodes, reply))
    return queries


QUERY = {"script": "{sys.query}"}


def test_answer_node_after_begin_waits_for_the_next_query(bench: Bench):
    queries = set_replies(bench, "reply")
    run = bench.start("begin -> talk -> reply", talk=TALK, reply=QUERY, query="first")
    bench.play()
    assert run.status == "waiting"
    assert stream_texts(run) == []
    assert run.events[-1].body == {"inputs": {}, "tips": "", "forms": {"talk": {"inputs": {}, "tips": ""}}}

    send_query(run, "Hello")

    assert run.status == "succeeded"
    assert queries == ["Hello"]
    assert run.outputs("talk") == {"answer": "Hello", "content": "Hello"}


def test_answer_node_in_a_cycle_streams_each_reply_once_and_keeps_it_in_the_transcript(bench: Bench):
    set_replies(bench, "reply")
    run = bench.start("begin -> talk -> reply -> talk", talk=TALK, reply=QUERY)
    bench.play()

    for query in ("one", "two", "two"):
        send_query(run, query)
        assert run.status == "waiting"

    assert stream_texts(run) == ["reply: one", "reply: two", "reply: two"]
    assert [row.ordinal for row in run.activations if row.node_id == "talk"] == [0, 1, 2, 3]
    assert run.event_names.count("user_inputs") == 4
    assert len({event.activation for event in run.events if event.name == "message_end"}) == 3


def test_answer_node_streams_only_the_reply_of_the_chosen_branch(bench: Bench):
    set_replies(bench, "left", "right")
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
        send_query(run, query)

    assert stream_texts(run) == ["left: l", "right: r", "left: l"]


def test_answer_node_asks_again_after_a_turn_without_a_query(bench: Bench):
    run = bench.start("begin -> talk -> end", talk=TALK)
    bench.play()

    send_query(run)
    assert run.event_names.count("user_inputs") == 2
    send_query(run, inputs={"somebody": "else"})

    assert run.status == "waiting"
    assert run.event_names.count("node_started") == 2
    send_query(run, "Hello")
    assert run.status == "succeeded"


def test_answer_node_beside_a_form_consumes_the_query_and_leaves_the_form_open(bench: Bench):
    fields = {"a": {"type": "line"}, "b": {"type": "line"}}
    run = bench.start("begin -> talk, form; talk -> end", talk=TALK, form={"inputs": fields})
    bench.play()

    send_query(run, "Hello")
    assert run.status == "waiting"
    assert run.statuses["end"] == "done"
    send_query(run, inputs={"a": "1", "b": "2"})

    assert run.status == "succeeded"
    assert run.outputs("talk")["answer"] == "Hello"
    assert run.outputs("form").keys() & {"a", "b", "query"} == {"a", "b"}
