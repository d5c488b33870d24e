"""The calls of an attempt: when they are handed over for storing, and of which no bodies are stored."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from providers.models.recording.model_calls import ModelCall, journal_place
from providers.models.types.chat import ChatRequest, ModelSpec
from store.primitives.ids import new_id
from store.runs.activations import Claim
from worker.context import model_calls
from worker.context.model_calls import CallLog, CallPolicy

CLAIM = cast(Claim, SimpleNamespace(id=new_id(), node_id="Agent:0", component="Agent", attempt=2))
SPEC = ModelSpec("m@F", "m", "F", None, api_key="sk-0123456789")


def a_call(text: str = "Hi", *, ended: bool = True) -> ModelCall:
    call = ModelCall("chat", SPEC, ChatRequest([{"role": "user", "content": text}]))
    if ended:
        call.end("ok", "", {"content": "Hello"})
    return call


def a_log(**policy: Any) -> CallLog:
    return CallLog(CLAIM, CallPolicy(**policy))


def test_calls_that_have_not_ended_wait_for_the_report_which_ends_them():
    log, running = a_log(), a_call(ended=False)
    log.add(a_call())
    log.add(running)

    first, second, third = log.take_ended(), log.take_all(), log.take_all()

    assert first is not None
    assert second is not None
    assert third is None
    assert [row.status for row in (*first.rows, *second.rows)] == ["ok", "cancelled"]


def test_parts_that_are_stored_are_not_sent_again():
    log = a_log()
    log.add(a_call("Hi"))
    first = log.take_ended()
    assert first is not None
    log.mark_stored(first)
    log.add(a_call("Hi"))
    second = log.take_ended()

    assert second is not None
    assert (len(first.parts), len(second.parts)) == (2, 0)
    assert first.rows[0].request == second.rows[0].request


def test_restored_calls_are_taken_again_before_later_ones():
    log = a_log()
    log.add(a_call("first"))
    failed = log.take_ended()
    assert failed is not None
    log.add(a_call("second"))

    log.restore(failed)
    again = log.take_all()

    assert again is not None
    assert again.rows[0] == failed.rows[0]
    assert len(again.rows) == 2


def test_discarded_call_is_not_stored():
    log, call = a_log(), a_call(ended=False)
    log.add(call)
    log.discard(call)

    assert log.take_all() is None


@pytest.mark.parametrize(
    ("hidden", "is_stored"),
    [("Agent:0", False), ("Agent", False), ("Retrieval", False), ("Agent:1", True), ("LLM", True)],
)
def test_bodies_of_hidden_nodes_components_and_tools_are_not_stored(hidden: str, is_stored: bool):
    log = a_log(hidden=frozenset({hidden}))
    with journal_place("call:0:1", inside="0:1", component="Retrieval"):
        log.add(a_call())

    batch = log.take_ended()

    assert batch is not None
    assert bool(batch.parts) == is_stored
    assert (batch.rows[0].request == '{"hidden":true}') == (not is_stored)


def test_journal_key_of_a_call_in_a_sub_agent_has_the_place_of_its_tool_call():
    with journal_place("round:0"):
        outer = a_call()
        with journal_place("call:0:1", inside="0:1", component="Agent"):
            tool = a_call()
            with journal_place("round:2"):
                inner = a_call()
    after = a_call()

    assert [call.place.key for call in (outer, tool, inner, after)] == ["round:0", "call:0:1", "0:1/round:2", None]


def test_bodies_of_a_batch_that_would_be_too_large_are_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_calls, "MAX_BATCH_BYTES", 10_000)
    log = a_log()
    for number in range(3):
        log.add(a_call(f"{number}" * 6_000))

    batch = log.take_all()

    assert batch is not None
    assert ["$cut" in str(row.request) for row in batch.rows] == [False, True, True]
    assert sum(map(len, batch.parts.values())) <= 10_000


def test_number_of_recorded_calls_is_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_calls, "MAX_CALLS", 2)
    log = a_log()
    for _ in range(4):
        log.add(a_call())

    batch = log.take_all()

    assert batch is not None
    assert len(batch.rows) == 2


def test_error_of_a_call_has_no_key_of_its_account():
    log, call = a_log(), a_call(ended=False)
    log.add(call)
    call.end("failed", "Invalid key sk-0123456789.")

    batch = log.take_all()

    assert batch is not None
    assert batch.rows[0].error == "Invalid key ***."
