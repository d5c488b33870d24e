"""The critical path: which steps it has, and where its time went."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.graph.canvas import Canvas
from canvas.ids import RunId
from canvas.state.run_state import activation_id, scope_key
from scheduler.views.critical_path import PARTS, find_chain, measure
from store.runs.step_times import AttemptTimes, StepTimes
from tests.builders import RUN_ID, canvas_of

NOW = 1_000


def step(
    node: str, created: int, ready: int, started: int | None, finished: int | None, scope: str = "", **more: Any
) -> StepTimes:
    """Return a step that is done; its place in canonical order is the time of its activation."""
    id_ = activation_id(RunId(RUN_ID), node, scope_key(scope), more.get("ordinal", 0)).hex
    values: dict[str, Any] = {
        "ordinal": 0, "order_key": created.to_bytes(8, "big"), "status": "done", "attempt": 1, "has_stream": False,
    } | more  # fmt: skip
    return StepTimes(
        id=id_, node_id=node, scope=scope, created_at=created, ready_at=ready, started_at=started,
        finished_at=finished, **values,
    )  # fmt: skip


def instant(node: str, created: int, finished: int, scope: str = "", **more: Any) -> StepTimes:
    """Return a step that began as soon as it was activated."""
    return step(node, created, created, created, finished, scope, **more)


def nodes_of(chain: list[StepTimes]) -> list[str]:
    return [f"{each.node_id}{f' in {each.scope}' if each.scope else ''}" for each in chain]


def parts_of(chain: list[StepTimes], ended_at: int | None, *attempts: AttemptTimes, waits: Any = None) -> Any:
    path = measure(chain, attempts, waits or {}, now=NOW, ended_at=ended_at)
    assert sum(path.parts.values()) == path.ms
    return {kind: ms for kind, ms in path.parts.items() if ms}


def test_path_goes_over_the_branch_that_ended_last() -> None:
    canvas = canvas_of("begin -> fast, slow; fast, slow -> join")
    rows = [
        instant("begin", 0, 10),
        instant("fast", 10, 20),
        instant("slow", 10, 90),
        instant("join", 90, 100),
    ]

    chain = find_chain(canvas, rows, NOW)

    assert nodes_of(chain) == ["begin", "slow", "join"]
    assert parts_of(chain, 100) == {"work": 100}


def test_path_leaves_out_a_predecessor_that_ended_after_the_step_was_activated() -> None:
    canvas = canvas_of("begin -> first, late; first, late -> merge")
    rows = [instant("begin", 0, 10), instant("first", 10, 20), instant("late", 10, 50), instant("merge", 20, 60)]

    assert nodes_of(find_chain(canvas, rows, NOW)) == ["begin", "first", "merge"]


def test_waits_of_a_step_are_told_apart() -> None:
    canvas = canvas_of("begin -> work -> say")
    work = step("work", 10, 30, 45, 95)
    rows = [instant("begin", 0, 10), work, instant("say", 100, 110, has_stream=True)]

    chain = find_chain(canvas, rows, NOW)

    expected = {"run_slot": 20, "queue": 15, "rate_limit": 12, "work": 10 + 38 + 10, "rest": 5, "stream_wait": 20}
    assert parts_of(chain, 130, waits={(work.id, 1): 12}) == expected


def test_earlier_attempts_wait_for_a_person_a_limit_or_nothing_known() -> None:
    canvas = canvas_of("begin -> form")
    form = step("form", 0, 300, 310, 320, attempt=4)
    attempts = [
        AttemptTimes(form.id, 1, 0, 10, 20, "waited_for_input"),
        AttemptTimes(form.id, 2, 120, 130, 140, "postponed"),
        AttemptTimes(form.id, 3, 180, 190, 200, "worker_lost"),
    ]

    parts = parts_of(find_chain(canvas, [form], NOW), 320, *reversed(attempts))

    assert parts == {"queue": 40, "work": 40, "person": 100, "rate_limit": 40, "rest": 100}


@pytest.mark.parametrize(
    ("status", "more", "expected"),
    [
        ("queued", {"started": None, "finished": None}, {"run_slot": 900}),
        ("ready", {"started": None, "finished": None}, {"run_slot": 100, "queue": 800}),
        ("running", {"started": 300, "finished": None}, {"run_slot": 100, "queue": 100, "work": 700}),
        ("waiting", {"started": 300, "finished": 400}, {"run_slot": 100, "queue": 100, "work": 100, "person": 600}),
    ],
)
def test_step_that_has_not_ended_is_measured_until_now(
    status: str, more: Mapping[str, Any], expected: Mapping[str, int]
) -> None:
    canvas = canvas_of("begin -> work")
    rows = [instant("begin", 0, 100), step("work", 100, 200, **more, status=status)]

    chain = find_chain(canvas, rows, NOW)

    assert nodes_of(chain) == ["begin", "work"]
    assert parts_of(chain, None) == {"work": 100 + expected.get("work", 0)} | {
        kind: ms for kind, ms in expected.items() if kind != "work"
    }


def test_step_that_is_due_later_does_not_wait_for_a_worker() -> None:
    canvas = canvas_of("begin")
    retried = step("begin", 0, NOW + 500, 10, 20, status="ready")
    attempt = AttemptTimes(retried.id, 1, 0, 10, 20, "postponed")

    assert parts_of([retried], None, attempt) == {"queue": 10, "work": 10, "rate_limit": NOW - 20}
    assert nodes_of(find_chain(canvas, [retried], NOW)) == ["begin"]


ITERATION = canvas_of("begin -> each -> say", "each: item -> ask")


def test_container_counts_by_the_item_that_ended_last() -> None:
    rows = [
        instant("begin", 0, 10),
        instant("each", 10, 20),
        instant("item", 20, 21, "each#0.0"),
        instant("ask", 21, 80, "each#0.0"),
        instant("item", 20, 22, "each#0.1"),
        instant("ask", 22, 60, "each#0.1"),
        instant("say", 80, 100),
    ]

    chain = find_chain(ITERATION, rows, NOW)

    assert nodes_of(chain) == ["begin", "each", "item in each#0.0", "ask in each#0.0", "say"]


def test_item_that_began_when_another_one_ended_comes_after_it() -> None:
    rows = [
        instant("begin", 0, 10),
        instant("each", 10, 20),
        instant("item", 20, 21, "each#0.0"),
        instant("ask", 21, 50, "each#0.0"),
        instant("item", 50, 51, "each#0.1"),
        instant("ask", 51, 90, "each#0.1"),
        instant("say", 90, 100),
    ]

    chain = find_chain(ITERATION, rows, NOW)

    assert nodes_of(chain)[1:-1] == [
        "each", "item in each#0.0", "ask in each#0.0", "item in each#0.1", "ask in each#0.1",
    ]  # fmt: skip
    assert parts_of(chain, 100) == {"work": 100}


def test_container_without_items_counts_itself() -> None:
    rows = [instant("begin", 0, 10), instant("each", 10, 20), instant("say", 20, 30)]

    assert nodes_of(find_chain(ITERATION, rows, NOW)) == ["begin", "each", "say"]


def test_open_container_leads_to_the_step_that_is_at_work() -> None:
    rows = [
        instant("begin", 0, 10),
        instant("each", 10, 20, status="open"),
        instant("item", 20, 21, "each#0.0"),
        step("ask", 21, 21, 30, None, "each#0.0", status="running"),
    ]

    assert nodes_of(find_chain(ITERATION, rows, NOW)) == ["begin", "each", "item in each#0.0", "ask in each#0.0"]


def test_cycle_is_followed_by_its_passes() -> None:
    canvas = canvas_of("begin -> ask -> check; check -> ask, say")
    rows = [
        instant("begin", 0, 10),
        instant("ask", 10, 20),
        instant("check", 20, 30),
        instant("ask", 30, 40, ordinal=1),
        instant("check", 40, 50, ordinal=1),
        instant("say", 50, 60),
    ]

    chain = find_chain(canvas, rows, NOW)

    assert [(each.node_id, each.ordinal) for each in chain] == [
        ("begin", 0), ("ask", 0), ("check", 0), ("ask", 1), ("check", 1), ("say", 0),
    ]  # fmt: skip


def test_steps_in_the_same_millisecond_keep_canonical_order() -> None:
    canvas = canvas_of("begin -> ask -> check; check -> ask, say")
    names = [("begin", 0), ("ask", 0), ("check", 0), ("ask", 1), ("check", 1), ("say", 0)]
    rows = [
        instant(node, 5, 5, ordinal=ordinal, order_key=bytes([place])) for place, (node, ordinal) in enumerate(names)
    ]

    assert [(each.node_id, each.ordinal) for each in find_chain(canvas, rows, NOW)] == names


def test_run_without_steps_has_an_empty_path() -> None:
    assert find_chain(ITERATION, [], NOW) == []
    assert measure([], [], {}, now=NOW, ended_at=None).ms == 0


# -- properties -------------------------------------------------------------------------------------------------------
CANVASES = (
    canvas_of("begin -> a, b; a -> c; b, c -> d"),
    canvas_of("begin -> a -> b; b -> a, c"),
    canvas_of("begin -> each -> say", "each: item -> ask -> more"),
    canvas_of("begin -> loop -> say", "loop: visit -> ask; ask -> exit"),
)
STATUSES = ("done", "done", "done", "queued", "ready", "running", "waiting", "saying", "open", "closed")
times = st.integers(0, 60)


@st.composite
def runs_at_random(draw: st.DrawFn) -> tuple[Canvas, list[StepTimes], list[AttemptTimes], dict[tuple[str, int], int]]:
    """Return a canvas, rows with any times at all, earlier attempts, and waits."""
    canvas = draw(st.sampled_from(CANVASES))
    rows: dict[str, StepTimes] = {}
    attempts: list[AttemptTimes] = []
    waits: dict[tuple[str, int], int] = {}
    for number in range(draw(st.integers(0, 12))):
        node = draw(st.sampled_from(canvas.nodes))
        container = canvas.nodes[node.parent].id if node.parent is not None else None
        scope = f"{container}#0.{draw(st.integers(0, 2))}" if container is not None else ""
        row = step(
            node.id, draw(times), draw(times), draw(st.none() | times), draw(st.none() | times), scope,
            ordinal=draw(st.integers(0, 2)), status=draw(st.sampled_from(STATUSES)), attempt=draw(st.integers(0, 3)),
            has_stream=draw(st.booleans()), order_key=bytes([number]),
        )  # fmt: skip
        rows[row.id] = row
        for attempt in range(1, row.attempt):
            reason = draw(st.sampled_from(("waited_for_input", "postponed", "worker_lost", "released")))
            when = (draw(st.none() | times), draw(st.none() | times), draw(st.none() | times))
            attempts.append(AttemptTimes(row.id, attempt, *when, reason))
        waits[row.id, row.attempt] = draw(times)
    return canvas, list(rows.values()), attempts, waits


@given(runs_at_random(), st.none() | times)
def test_parts_add_up_to_the_time_of_the_path_and_none_is_negative(
    run: tuple[Canvas, list[StepTimes], list[AttemptTimes], dict[tuple[str, int], int]], ended_at: int | None
) -> None:
    canvas, rows, attempts, waits = run
    chain = find_chain(canvas, rows, NOW)

    path = measure(chain, attempts, waits, now=NOW, ended_at=ended_at)

    assert set(path.parts) == set(PARTS)
    assert all(ms >= 0 for ms in path.parts.values())
    assert sum(path.parts.values()) == path.ms
    if chain:
        last = ended_at if ended_at is not None else NOW
        assert path.ms >= last - chain[0].created_at


@given(runs_at_random())
def test_path_is_a_chain_back_from_the_step_that_ended_last(
    run: tuple[Canvas, list[StepTimes], list[AttemptTimes], dict[tuple[str, int], int]],
) -> None:
    canvas, rows, _, _ = run

    chain = find_chain(canvas, rows, NOW)

    assert len({each.id for each in chain}) == len(chain)
    for before, after in pairwise(chain):
        scope = scope_key(after.scope)
        is_same_scope = before.scope == after.scope
        is_around = scope and before.node_id == scope[-1][0] and before.scope == ""
        is_inside = bool(scope_key(before.scope))  # the last step of a container that comes before, or of another item
        assert is_same_scope or is_around or is_inside
        if is_same_scope and not scope:
            assert canvas.numbers[after.node_id] in canvas.node(before.node_id).targets


@given(runs_at_random(), st.randoms(use_true_random=False))
def test_path_does_not_depend_on_the_order_of_the_rows(run: Any, random: Any) -> None:
    canvas, rows, _, _ = run
    shuffled = list(rows)
    random.shuffle(shuffled)

    assert find_chain(canvas, shuffled, NOW) == find_chain(canvas, rows, NOW)
