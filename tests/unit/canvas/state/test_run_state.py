"""Statuses, their legal moves as documented, and the storage of scopes and runs as JSON."""

import json
import re
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.state.checkpoint import fill_run, run_to_json, scope_from_json, scope_to_json
from canvas.state.order_key import OrderKey
from canvas.state.run_state import (
    ACTIVATION_MOVES,
    RUN_MOVES,
    ActivationStatus,
    Container,
    DeferredNodeFinished,
    MessageStreamState,
    OpenForm,
    RunFailure,
    RunState,
    RunStatus,
    Scope,
    ScopeKey,
    activation_id,
    container_entry,
    scope_key,
    scope_text,
)
from tests.builders import RUN_ID

DOCUMENT = Path(__file__).parents[4] / "docs" / "state-machine.md"

keys = st.lists(st.tuples(st.text("aZ:%/#.2F", min_size=1), st.integers(0, 9), st.integers(0, 99)), max_size=3)
numbers = st.integers(0, 1 << 70)
order_keys = st.builds(OrderKey, st.integers(0, 99), st.just(((-3, 1), (-7, 2))), st.sampled_from((b"", b"\x00\xff")))
by_number = st.dictionaries(st.integers(0, 200), order_keys, max_size=3)
ids = st.uuids()

containers = st.builds(
    Container,
    ids,
    st.integers(0, 9),
    order_keys,
    st.none() | st.integers(0, 9),
    st.integers(1, 4),
    next_item=st.integers(0, 9),
    idle_items=st.integers(0, 9),
    failed_item=st.integers(-1, 9),
    error=st.text(),
    failed_at=st.tuples(st.integers(0, 9), st.text("0f")),
)
scopes = st.builds(
    Scope,
    key=keys.map(tuple),
    region=st.binary(max_size=6),
    limits=st.lists(st.tuples(st.text("0f"), st.integers(0, 9)), max_size=2).map(tuple),
    container_key=order_keys,
    last_level=st.integers(0, 9),
    active=numbers,
    idle=numbers,
    reached=by_number,
    order_keys=by_number,
    ordinals=st.dictionaries(st.integers(0, 200), st.integers(0, 1000), max_size=3),
    containers=st.dictionaries(st.integers(0, 200), containers, max_size=2),
    exit_key=st.none() | order_keys,
    exited_by=st.none() | ids,
    has_escaped=st.booleans(),
    is_counted_idle=st.booleans(),
)
streams = st.builds(
    MessageStreamState,
    ids,
    st.integers(0, 99),
    keys.map(tuple),
    order_key=st.none() | order_keys,
    has_started=st.booleans(),
    is_open=st.booleans(),
    is_complete=st.booleans(),
    error=st.none() | st.text(),
    end=st.just({"status": 200, "downloads": [{"doc_id": "d"}]}),
    deferred_finished=st.lists(
        st.builds(DeferredNodeFinished, ids, st.text(), st.none() | st.text(), st.text("0f")), max_size=2
    ),
)
forms = st.builds(OpenForm, st.text(), st.text("0f"), keys.map(tuple), st.just({"name": {"type": "line"}}), st.text())
runs = st.builds(
    RunState,
    st.just(RUN_ID),
    st.just(RunStatus.RUNNING),
    in_flight=st.integers(0, 9),
    queued=st.integers(0, 9),
    max_running=st.integers(1, 9),
    streams=st.lists(streams, max_size=2),
    forms=st.dictionaries(ids, forms, max_size=2),
    failure=st.none() | st.builds(RunFailure, st.integers(0, 9), st.text("0f"), st.text(), st.text(), st.text()),
    last_node=st.none() | st.tuples(st.text("0f"), ids, st.text()),
)


def documented_moves(title: str) -> dict[str, set[str]]:
    """Read the table under a heading of the document: status -> statuses it may move to."""
    section = DOCUMENT.read_text().split(f"## {title}", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", section, re.MULTILINE)
    return {status: set(re.findall(r"`(\w+)`", moves)) for status, moves in rows}


def drawn_moves(title: str) -> dict[str, set[str]]:
    """Read the diagram under a heading of the document."""
    section = DOCUMENT.read_text().split(f"## {title}", 1)[1].split("\n## ", 1)[0]
    found: dict[str, set[str]] = {}
    for source, target in re.findall(r"^\s*(\w+) --> (\w+)", section, re.MULTILINE):
        found.setdefault(source, set()).add(target)
    return found


@pytest.mark.parametrize(("title", "moves"), [("A run", RUN_MOVES), ("An activation", ACTIVATION_MOVES)])
def test_documented_and_drawn_moves_equal_the_legal_moves(title: str, moves: dict[str, frozenset[str]]):
    legal = {str(status): {str(next_) for next_ in following} for status, following in moves.items()}

    assert documented_moves(title) == legal
    assert drawn_moves(title) == {status: following for status, following in legal.items() if following}


def test_only_final_statuses_have_no_further_moves():
    assert {status for status, following in RUN_MOVES.items() if not following} == {s for s in RunStatus if s.is_over}
    assert {status for status, following in ACTIVATION_MOVES.items() if not following} == {
        ActivationStatus.DONE,
        ActivationStatus.CLOSED,
    }


@given(keys)
def test_scope_text_is_parsed_back_into_the_same_scope_key(steps: list[tuple[str, int, int]]):
    assert scope_key(scope_text(tuple(steps))) == tuple(steps)


def test_scope_text_is_readable():
    key: ScopeKey = (("Loop:B", 1, 0), ("Iteration:A", 0, 3))

    assert scope_text(()) == ""
    assert scope_text(key) == "Loop:B#1.0/Iteration:A#0.3"
    assert container_entry(key) == "Loop:B#1.0/Iteration:A#0"


@given(keys, keys, st.text(), st.text(), st.integers(0, 3), st.integers(0, 3))
def test_different_activations_have_different_ids(
    one: list[tuple[str, int, int]], other: list[tuple[str, int, int]], a: str, b: str, first: int, second: int
):
    same = (tuple(one), a, first) == (tuple(other), b, second)

    ids_are_same = activation_id(RUN_ID, a, tuple(one), first) == activation_id(RUN_ID, b, tuple(other), second)

    assert ids_are_same == same or "\n" in a + b


def test_activation_ids_differ_between_runs():
    assert activation_id(RUN_ID, "a", (), 0) != activation_id(UUID(int=1), "a", (), 0)


@given(scopes)
def test_scope_survives_storage_as_json(scope: Scope):
    assert scope_from_json(scope.key, json.loads(json.dumps(scope_to_json(scope)))) == scope


@given(runs)
def test_run_state_survives_storage_as_json(run: RunState):
    data = json.loads(json.dumps(run_to_json(run)))

    assert fill_run(RunState(run.run_id, run.status), data) == run


def test_json_of_an_empty_scope_is_small():
    assert scope_to_json(Scope(key=())) == {"trail": [0, [], ""], "alive": "0"}
