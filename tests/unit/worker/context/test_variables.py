"""Which iteration a reader shares with a node that it has waited for."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import canvas_of
from worker.context.variables import NodeVariables

NESTED = ("begin -> eacho -> after", "eacho: itemo -> first -> each", "each: item -> work")
SCOPE = (("eacho", 0, 3), ("each", 1, 7))


@pytest.mark.parametrize(
    ("node", "expected"), [("after", ("", 0)), ("first", ("eacho#0", 3)), ("work", ("eacho#0.3/each#1", 7))]
)
def test_reader_in_nested_iterations_shares_the_item_of_the_container_of_the_node(node: str, expected: tuple[str, int]):
    compiled, claim = SimpleNamespace(canvas=canvas_of(*NESTED)), SimpleNamespace(scope=SCOPE)
    reader: Any = SimpleNamespace(_compiled=compiled, _claim=claim)

    assert NodeVariables._shared_pass(reader, node) == expected


def test_reader_outside_of_a_container_shares_no_item_with_its_nodes():
    reader: Any = SimpleNamespace(
        _compiled=SimpleNamespace(canvas=canvas_of("begin -> each -> after", "each: item -> work")),
        _claim=SimpleNamespace(scope=()),
    )

    assert NodeVariables._shared_pass(reader, "work") is None
