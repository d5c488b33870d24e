"""The routing function as a whole: facts in, decision out."""

import json
from pathlib import Path
from typing import Any

import pytest

from canvas.document import parsing
from canvas.errors import StateError
from canvas.graph.canvas import Canvas, NodeKind, compile_canvas
from canvas.outcome import ContainerExited, ContainerOpened, Failed, Finished, NextIteration, Outcome, Routed
from canvas.routing.decide import begin, decide, finish_stopping
from canvas.state.run_state import ActivationStatus, RunState, RunStatus
from tests.builders import (
    RUN_ID,
    TOP,
    NodeAttempt,
    Script,
    canvas_of,
    failed,
    items,
    report,
    running,
    script_of,
    seeded_random,
)
from tests.listener import check_events
from tests.player import Player

CASES = Path(__file__).parents[3] / "recordings" / "cases"


def test_begin_activates_the_begin_node_and_emits_the_first_events():
    canvas = canvas_of("begin -> a")

    decision = begin(canvas, RunState(RUN_ID, RunStatus.RUNNING), {"query": "hi"})

    assert decision.activated_nodes == ["begin"]
    assert [(event.name, event.node_id) for event in decision.events] == [
        ("workflow_started", None),
        ("node_started", "begin"),
    ]
    assert decision.events[0].body == {"inputs": {"query": "hi"}}
    assert decision.run.in_flight == 1


def test_a_chain_is_activated_step_by_step():
    player = Player(canvas_of("begin -> a -> b"), check_determinism=True).begin()

    assert player.busy_nodes == ["begin"]
    assert player.report("begin").busy_nodes == ["a"]
    assert player.report("a").busy_nodes == ["b"]
    assert player.report("b").status is RunStatus.SUCCEEDED
    assert player.last_node == "b"
    check_events(player)


def test_run_of_a_canvas_with_only_a_begin_node_finishes():
    assert Player(canvas_of("begin")).play().short_events == [
        "workflow_started",
        "+begin",
        "-begin",
        "workflow_finished",
    ]


def test_the_same_facts_give_the_same_decision_ids_included():
    canvas = canvas_of("begin -> a, b -> end")

    one, other = (
        decide(canvas, running(canvas, active=["a", "b"]), [report("a", Finished()), report("b", Finished())])
        for _ in range(2)
    )

    assert one == other
    assert one.activated[0].id == other.activated[0].id


def test_five_reports_are_applied_in_one_decision():
    player = Player(canvas_of("begin -> a, b, c, d, e -> end")).begin().report("begin")
    revision = player.revision

    player.report("a", "b", "c", "d", "e")

    assert player.revision == revision + 1
    assert player.busy_nodes == ["end"]


def test_new_activations_come_in_canonical_order():
    player = Player(canvas_of("begin -> a, b; a -> c; b -> d"), max_running=4).begin().report("begin")

    player.report("b", "a")

    assert list(player.rows)[-2:] == [player.row("c").id, player.row("d").id]


def test_report_from_a_scope_that_is_not_open_is_a_state_error():
    canvas = canvas_of("begin -> each", "each: item -> a")

    with pytest.raises(StateError, match="not open"):
        decide(canvas, running(canvas), [report("a", Finished(), scope=(("each", 0, 7),))])


def test_an_idle_run_without_an_open_form_is_a_state_error():
    canvas = canvas_of("begin -> a, form -> end")
    state = running(canvas, active=["form", "a"])
    state.scopes[TOP].idle = canvas.node("form").bit

    with pytest.raises(StateError, match="no active work and no open form"):
        decide(canvas, state, [report("a", Finished())])


def test_last_node_in_canonical_order_gives_the_answer_in_any_report_order():
    player = Player(canvas_of("begin -> a -> b -> c; begin -> d"), script_of()).begin()

    player.report("begin").report("a").report("b").report("c").report("d")

    assert player.last_node == "c"
    assert player.events[-1].node_id == "c"


def test_parallel_items_read_as_of_the_revision_at_which_their_container_opened():
    canvas = canvas_of("begin -> each", "each: item -> a")
    player = Player(canvas, script_of(each=items(3, at_once=2))).begin().report("begin").report("each")
    player.report("item", scope=(("each", 0, 0),)).report("a", scope=(("each", 0, 0),))

    limits = {key[0][2]: scope.limits for key, scope in player.load().scopes.items() if key}

    assert limits.keys() >= {1, 2}
    assert limits[1] == limits[2]


@pytest.mark.parametrize("count", [1, 3])
def test_node_after_parallel_items_has_the_level_that_it_has_after_sequential_items(count: int):
    canvas = canvas_of("begin -> each -> end", "each: item -> a -> b")

    levels = [
        Player(canvas, script_of(each=items(count, at_once=at_once))).play().row("end").order_key.level
        for at_once in (1, 3)
    ]

    assert levels[0] == levels[1] > 3 * count


def test_cancel_closes_unclaimed_activations_and_waits_for_running_ones():
    player = Player(canvas_of("begin -> a, b; a -> c"), max_running=2).begin().report("begin")
    player.claim("a")

    player.cancel()
    assert player.row("b").status is ActivationStatus.CLOSED
    assert player.status is RunStatus.STOPPING
    player.report("a")

    assert player.status is RunStatus.CANCELLED
    assert "c" not in player.path
    assert player.events[-1].body == {"outputs": "Task has been canceled"}


def test_cancel_ends_a_run_without_running_activations_at_once():
    player = Player(canvas_of("begin -> form -> end")).play()

    player.cancel()

    assert player.status is RunStatus.CANCELLED
    assert player.row("form").status is ActivationStatus.CLOSED
    check_events(player)


def test_a_join_that_only_waited_for_a_cancelled_branch_does_not_start():
    player = Player(canvas_of("begin -> a, b -> end")).begin().report("begin").report("a")
    player.claim("b")

    player.cancel().report("b")

    assert "end" not in player.path


def test_cancelled_run_does_not_retry_a_lost_activation():
    player = Player(canvas_of("begin -> a"), script_of(a=failed("lease lost", retryable=True))).begin().report("begin")
    player.claim("a")

    player.cancel().report("a")

    assert player.status is RunStatus.CANCELLED


def test_stopping_run_does_not_end_while_an_activation_is_busy():
    canvas = canvas_of("begin -> a")
    state = running(canvas, active=["a"])
    state.status, state.is_cancel_requested = RunStatus.STOPPING, True

    assert not finish_stopping(canvas, state, busy=1).is_over
    assert finish_stopping(canvas, state, busy=0).is_over


def test_finish_stopping_does_not_end_a_run_that_is_not_stopping():
    canvas = canvas_of("begin -> a")

    decision = finish_stopping(canvas, running(canvas, active=["a"]), busy=0)

    assert not decision.is_over
    assert decision.events == []


# -- recorded runs ---------------------------------------------------------------------------------------------------
def successful_recordings() -> list[Any]:
    """Return the successful runs of the reference, each with the path that ours must equal."""
    parameters: list[Any] = []
    for file in sorted(CASES.glob("*.json")):
        case = json.loads(file.read_text())
        run = case["expect"]["runs"][0] if len(case["expect"]["runs"]) == 1 else None
        if run and "dsl" in case and not case["deviations"] and not (run["error"] or run["raised"] or run["waiting"]):
            parameters.append(pytest.param(case["dsl"], run, id=file.stem))
    return parameters


def recorded_script(canvas: Canvas, run: Any) -> Script:
    """Return a script of what each node did, visit by visit, in a recorded run."""
    finished: dict[str, list[Any]] = {}
    for event in run["events"]:
        if event["event"] == "node_finished":
            finished.setdefault(event["data"]["component_id"], []).append(event["data"])

    def script(at: NodeAttempt) -> Outcome:
        node = canvas.node(at.node)
        if node.kind.is_container:
            return ContainerOpened()
        if node.kind.is_item:
            return NextIteration() if at.item < run["path"].count(at.node) - 1 else ContainerExited()
        data = finished[at.node].pop(0)
        if data["error"] and (node.kind is not NodeKind.MODEL or node.failure.has_goto):
            return Failed(data["error"])
        return Routed(tuple(data["outputs"]["_next"])) if "_next" in data["outputs"] else Finished()

    return script


@pytest.mark.parametrize(("document", "run"), successful_recordings())
def test_a_recorded_run_takes_the_same_path(document: Any, run: Any):
    canvas = compile_canvas(parsing.parse(document))

    for seed in range(2):
        player = Player(canvas, recorded_script(canvas, run), seeded_random(seed)).play()

        assert player.path == run["path"]
        check_events(player)
