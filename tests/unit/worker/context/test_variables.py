"""Which iteration a reader shares with a node that it has waited for."""

import pytest

from tests.builders import canvas_of
from worker.context.variables import shared_iteration

NESTED = ("begin -> eacho -> after", "eacho: itemo -> first -> each", "each: item -> work")
SCOPE = (("eacho", 0, 3), ("each", 1, 7))


@pytest.mark.parametrize(
    ("node", "expected"), [("after", ("", 0)), ("first", ("eacho#0", 3)), ("work", ("eacho#0.3/each#1", 7))]
)
def test_reader_in_nested_iterations_shares_the_item_of_the_container_of_the_node(node: str, expected: tuple[str, int]):
    assert shared_iteration(canvas_of(*NESTED), SCOPE, node) == expected


def test_reader_outside_of_a_container_shares_no_item_with_its_nodes():
    assert shared_iteration(canvas_of(*NESTED), (), "work") is None
