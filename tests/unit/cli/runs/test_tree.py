"""A run's activations as a tree."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from canvas.document import parsing
from canvas.graph.canvas import compile_canvas
from cli.runs import tree
from store.runs.run_queries import ActivationRow

STARTED_AT = datetime(2026, 1, 2, tzinfo=UTC)


def step(node_id: str, scope: str = "", *, status: str = "done", at: float = 0.0, **more: Any) -> ActivationRow:
    fields: dict[str, Any] = {
        "id": UUID(int=1), "node_id": node_id, "component": "X", "scope": scope, "ordinal": 0, "status": status,
        "attempt": 1, "outcome": None, "usage": None, "created_at": STARTED_AT,
        "started_at": STARTED_AT + timedelta(seconds=at), "finished_at": STARTED_AT + timedelta(seconds=at + 1),
    }  # fmt: skip
    return ActivationRow(**{**fields, **more})


def test_items_are_printed_below_their_container_in_item_order():
    canvas = compile_canvas(
        parsing.parse({"components": {"begin": {"obj": {"component_name": "Begin", "params": {}}}}})
    )
    steps = [
        step("begin"),
        step("Iteration:A", at=1),
        step("IterationItem:A", "Iteration:A#0.1", at=3),
        step("IterationItem:A", "Iteration:A#0.0", at=2),
        step("Loop:B", "Iteration:A#0.0", at=2.5),
        step("LoopItem:B", "Iteration:A#0.0/Loop:B#0.0", at=2.75),
        step("Message:0", at=5, status="running", finished_at=None, attempt=2),
    ]

    lines = list(tree.lines(steps, canvas, STARTED_AT))

    assert lines == [
        "✓  begin  +0.00 s, 1.0 s",
        "✓  Iteration:A  +1.00 s, 1.0 s",
        "  item 0",
        "    ✓  IterationItem:A  +2.00 s, 1.0 s",
        "    ✓  Loop:B  +2.50 s, 1.0 s",
        "      item 0",
        "        ✓  LoopItem:B  +2.75 s, 1.0 s",
        "  item 1",
        "    ✓  IterationItem:A  +3.00 s, 1.0 s",
        "▸  Message:0  running  attempt 2  +5.00 s",
    ]


def test_a_failure_shows_its_reason():
    canvas = compile_canvas(
        parsing.parse({"components": {"begin": {"obj": {"component_name": "Begin", "params": {}}}}})
    )
    failed = step("begin", outcome={"is": "Failed", "error": "no account", "code": "model_error"})

    assert list(tree.lines([failed], canvas, STARTED_AT)) == ["✗  begin  +0.00 s, 1.0 s  error: no account"]
    assert tree.rows([failed])[0]["error"] == "no account"


def test_warning_of_a_step_is_printed_below_it_and_in_its_json():
    canvas = compile_canvas(
        parsing.parse({"components": {"begin": {"obj": {"component_name": "Begin", "params": {}}}}})
    )
    warned = {"is": "Finished", "warnings": [{"code": "tools_not_offered", "message": "no tools"}]}

    shown = list(tree.lines([step("Agent:0", outcome=warned)], canvas, STARTED_AT))

    assert shown == ["✓  Agent:0  +0.00 s, 1.0 s", "  ! tools_not_offered: no tools"]
    assert tree.rows([step("Agent:0", outcome=warned)])[0]["warnings"] == warned["warnings"]
    assert tree.rows([step("begin")])[0]["warnings"] == []


def test_activation_that_was_taken_over_is_shown_without_times():
    canvas = compile_canvas(
        parsing.parse({"components": {"begin": {"obj": {"component_name": "Begin", "params": {}}}}})
    )
    taken = step("begin", outcome={"is": "Finished", "reused": True})

    assert list(tree.lines([taken], canvas, STARTED_AT)) == ["✓  begin  reused"]
    assert tree.rows([taken])[0]["reused"] is True
