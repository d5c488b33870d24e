"""Loop repeats its body until a condition holds, which it checks before each iteration."""

from typing import Any

import pytest

from canvas.errors import NodeFailure, UnresolvedReference
from canvas.outcome import ContainerExited, ContainerOpened, Finished, NextIteration
from components.nodes.flow.loop import exit_loop, loop, loop_item
from tests.fakes import FakeContext, run


def variable(name: str, value: Any, mode: str = "constant", kind: str = "number") -> dict[str, Any]:
    return {"variable": name, "input_mode": mode, "type": kind, "value": value}


def condition(name: str, operator: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"variable": name, "operator": operator, "value": value, **more}


def visit(*conditions: dict[str, Any], passes: int = 0, maximum: Any = 10, **params: Any) -> Any:
    ctx = FakeContext(
        globals={"env.c": 3, "env.goal": 3},
        values={"Loop:L": {"n": 1}},
        parent_id="Loop:L",
        parent={
            "loop_variables": [variable("n", 1)],
            "loop_termination_condition": list(conditions),
            "maximum_loop_count": maximum,
            **params,
        },
        parent_outputs={"n": 1},
        scope_item=passes,
    )
    return run(loop_item, {}, ctx)


EXITED = ContainerExited(container={"n": 1})


def test_loop_variables_start_with_constants_or_values():
    rows = [
        variable("x", 0),
        variable("y", "sys.query", "variable"),
        variable("log", "", kind="string"),
        variable("", ""),
    ]

    outcome = run(loop, {"loop_variables": rows}, FakeContext(globals={"sys.query": "q"}))

    assert outcome == ContainerOpened(count=None, outputs={"x": 0, "y": "q", "log": ""})


@pytest.mark.parametrize(
    "row", [variable("x", None), variable("x", "", "variable"), variable("x", 1, "weird"), variable("x", 1, kind="")]
)
def test_an_incomplete_loop_variable_fails(row: dict[str, Any]):
    with pytest.raises(NodeFailure, match="not complete"):
        run(loop, {"loop_variables": [row]}, FakeContext())


def test_condition_that_does_not_hold_starts_an_iteration():
    assert visit(condition("env.c", "≥", 4)) == NextIteration()


def test_condition_that_holds_ends_the_loop_before_the_iteration():
    assert visit(condition("{env.c}", "≥", 3)) == EXITED


@pytest.mark.parametrize("maximum", [0, None, "", 2, "2"])
def test_maximum_count_ends_the_loop_without_a_check_of_its_conditions(maximum: Any):
    assert visit(condition("env.c", "no such operator", 1), passes=2, maximum=maximum) == EXITED


@pytest.mark.parametrize("maximum", ["many", "nan", "inf", [1]])
def test_maximum_that_is_not_a_number_fails(maximum: Any):
    with pytest.raises(NodeFailure, match="maximum loop count"):
        visit(maximum=maximum)


def test_loop_without_conditions_ends_at_once_with_and_but_not_with_or():
    assert visit(logical_operator="and") == EXITED
    assert visit(logical_operator=None) == EXITED
    assert visit(logical_operator="or") == NextIteration()


@pytest.mark.parametrize(("operator", "outcome"), [("and", NextIteration()), ("or", EXITED)])
def test_conditions_are_combined(operator: str, outcome: Any):
    assert visit(condition("env.c", "=", 3), condition("env.c", "=", 4), logical_operator=operator) == outcome


def test_a_condition_may_compare_with_a_variable():
    assert visit(condition("env.c", "=", "env.goal", input_mode="variable")) == EXITED


def test_a_bare_name_is_a_variable_of_the_loop():
    assert visit(condition("n", "=", 1)) == EXITED
    with pytest.raises(UnresolvedReference):
        visit(condition("m", "=", 1))


@pytest.mark.parametrize(
    ("broken", "params"),
    [
        (condition("env.c", "", 1), {}),
        (condition("", "=", 1), {}),
        (condition("env.c", "=", 1, input_mode="weird"), {}),
        (condition("env.c", "is", 3), {}),
        (condition("env.c", "=", 1), {"logical_operator": "xor"}),
    ],
)
def test_a_broken_condition_fails_the_item_node(broken: dict[str, Any], params: dict[str, Any]):
    with pytest.raises(NodeFailure):
        visit(broken, **params)


def test_exit_loop_leaves_the_loop_around_it_and_does_nothing_elsewhere():
    inside = FakeContext(parent_id="Loop:L", components={"Loop:L": "Loop"}, parent_outputs={"n": 1})
    elsewhere = FakeContext(parent_id="Iteration:L", components={"Iteration:L": "Iteration"})

    assert run(exit_loop, {}, inside) == EXITED
    assert run(exit_loop, {}, elsewhere) == Finished()
    assert run(exit_loop, {}, FakeContext()) == Finished()
