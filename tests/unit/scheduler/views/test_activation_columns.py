"""Activations as compact rows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import InvalidRequest
from canvas.state.run_state import ActivationStatus
from scheduler.views.activation_columns import COLUMNS, StringTable, order_key_text, stored_status, to_columns
from store.runs.activation_list import MAX_ERROR_LENGTH, ActivationListRow

ROW = ActivationListRow(
    id="a" * 32, node_id="LLM:0", component="LLM", scope="", ordinal=0, order_key=b"\0\0\0\1", status="done", attempt=1,
    crash_count=0, created_at=1_000, not_before=0, enqueued_at=1_001, started_at=1_002, finished_at=1_003, worker="w",
    effect=None, usage={"calls": 2, "prompt_tokens": 7, "completion_tokens": 3, "cost_USD": 500_000_000}, stream=None,
    cancel_requested=False, outcome="Chose", error=None, code=None, routed_to=["Message:0"], item_count=None,
)  # fmt: skip


def shown(row: ActivationListRow, last_finished: int | None = None) -> dict[str, Any]:
    """Return a row as an object, with texts in place of their numbers."""
    strings = StringTable()
    (values,) = to_columns([row], {row.id: last_finished} if last_finished is not None else {}, strings)
    made = dict(zip(COLUMNS, values, strict=True))
    texts = {"node_id", "component", "scope", "status", "outcome", "worker", "code"}
    return {name: strings.texts[v] if name in texts and v is not None else v for name, v in made.items()}


@given(st.lists(st.binary(max_size=40), min_size=2, max_size=20))
def test_texts_of_order_keys_sort_like_the_keys(keys: list[bytes]) -> None:
    assert sorted(map(order_key_text, keys)) == [order_key_text(key) for key in sorted(keys)]


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_texts_of_different_order_keys_differ(one: bytes, other: bytes) -> None:
    assert (order_key_text(one) == order_key_text(other)) == (one == other)


def test_finished_activation_has_its_times_usage_and_outcome() -> None:
    found = shown(ROW)

    assert (found["status"], found["outcome"], found["routed_to"]) == ("done", "Routed", ["Message:0"])
    assert (found["calls"], found["tokens_in"], found["tokens_out"], found["cost"]) == (2, 7, 3, {"USD": 0.5})
    assert (found["started_at"], found["finished_at"], found["ended_at"]) == (1_002, 1_003, None)


@pytest.mark.parametrize("status", ["ready", "queued"])
def test_activation_that_has_not_begun_again_has_no_times_of_its_earlier_attempt(status: str) -> None:
    found = shown(ROW._replace(status=status))

    assert (found["started_at"], found["finished_at"]) == (None, None)


def test_activation_that_is_due_at_once_has_no_due_time() -> None:
    assert shown(ROW)["not_before"] is None
    assert shown(ROW._replace(not_before=5_000))["not_before"] == 5_000


def test_container_has_the_end_of_its_last_activation() -> None:
    assert shown(ROW, 9_000)["ended_at"] == 9_000


def test_statuses_are_those_of_the_glossary() -> None:
    assert shown(ROW._replace(status="saying"))["status"] == "awaiting_stream"
    assert {stored_status(each.name.lower()) for each in ActivationStatus} == {each.value for each in ActivationStatus}


def test_unknown_status_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="awaiting_stream"):
        stored_status("saying")


def test_repeated_texts_are_stored_once() -> None:
    strings = StringTable()

    rows = to_columns([ROW, ROW._replace(id="b" * 32)], {}, strings)

    assert rows[0][1] == rows[1][1]
    assert len(strings.texts) == len(set(strings.texts))


def test_long_error_is_cut_with_an_ellipsis() -> None:
    exact, cut = "x" * MAX_ERROR_LENGTH, "x" * (MAX_ERROR_LENGTH + 1)

    assert shown(ROW._replace(error=exact))["error"] == exact
    assert shown(ROW._replace(error=cut))["error"] == "x" * (MAX_ERROR_LENGTH - 1) + "…"
