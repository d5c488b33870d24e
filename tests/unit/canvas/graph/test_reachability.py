"""Reachability: which nodes are above a node, over edges, containers, cycles and references."""

import time

from hypothesis import given
from hypothesis import strategies as st

from canvas.graph.canvas import Canvas, bits
from canvas.graph.reachability import compute_reachability
from tests.builders import canvas_of, goto, reads


def above(canvas: Canvas, node: str, *, forward: bool = False) -> set[str]:
    reach = canvas.reachability.above_forward if forward else canvas.reachability.above
    return {canvas.nodes[number].id for number in bits(reach[canvas.numbers[node]])}


def test_router_branches_and_goto_targets_are_above_the_nodes_they_lead_to():
    canvas = canvas_of("begin -> pick -> left, right; rescue -> end", left=goto("rescue"))

    assert above(canvas, "end") == {"begin", "pick", "left", "rescue"}


def test_container_is_above_the_nodes_that_its_body_leads_to():
    canvas = canvas_of("begin -> each -> end", "each: item -> a", "rescue", a=goto("rescue"))

    assert above(canvas, "a") == {"item"}
    assert above(canvas, "rescue") == {"begin", "each"}
    assert above(canvas, "end") == {"begin", "each"}


def test_edge_to_the_item_node_does_not_create_a_cycle():
    canvas = canvas_of("begin -> loop", "loop: visit -> a -> visit")

    assert above(canvas, "visit") == set()
    assert above(canvas, "a") == {"visit"}


def test_back_edge_is_left_out_of_the_forward_order():
    canvas = canvas_of("begin -> a -> b -> pick -> a, end")

    assert above(canvas, "a") == {"begin", "a", "b", "pick"}
    assert above(canvas, "a", forward=True) == {"begin"}
    assert above(canvas, "end", forward=True) == {"begin", "a", "b", "pick"}


def test_node_on_two_cycles_is_above_itself_but_not_in_forward_order():
    canvas = canvas_of("begin -> a -> b -> a; b -> c -> a; a -> a")

    assert "a" in above(canvas, "a")
    assert all(node.id not in above(canvas, node.id, forward=True) for node in canvas.nodes)


def test_node_beside_a_cycle_shares_descendants_with_the_cycle_head():
    canvas = canvas_of("begin -> a -> pick -> a; begin -> apart; pick -> end; begin -> side -> end")

    sharers = canvas.reachability.descendant_sharers

    assert {canvas.nodes[number].id for number in bits(sharers[canvas.numbers["a"]])} == {
        "begin",
        "a",
        "pick",
        "side",
        "end",
    }
    assert not sharers[canvas.numbers["end"]]


def test_a_reference_to_a_sibling_is_a_soft_dependency():
    canvas = canvas_of("begin -> a, b", a=reads("b"))

    assert above(canvas, "a") == {"begin", "b"}
    assert above(canvas, "a", forward=True) == {"begin", "b"}


def test_successors_inherit_the_soft_dependencies_of_a_node():
    canvas = canvas_of("begin -> a, slow; slow -> b; a -> end", a=reads("b"))

    assert above(canvas, "end") == {"begin", "a", "slow", "b"}


def test_reference_to_a_later_node_is_not_a_dependency():
    canvas = canvas_of("begin -> a -> b", a=reads("b", "a"))

    assert above(canvas, "a") == {"begin"}


def test_only_one_of_two_nodes_that_refer_to_each_other_depends_on_the_other():
    canvas = canvas_of("begin -> a, b", a=reads("b"), b=reads("a"))

    depends = [node for node, other in (("a", "b"), ("b", "a")) if other in above(canvas, node)]
    assert len(depends) == 1


def test_one_of_three_nodes_that_refer_to_each_other_in_a_cycle_has_no_dependency():
    canvas = canvas_of("begin -> a, b, c", a=reads("b"), b=reads("c"), c=reads("a"))

    assert [node for node in "abc" if above(canvas, node) == {"begin"}] == ["c"]


def test_reference_into_a_body_is_a_dependency_on_the_container():
    canvas = canvas_of("begin -> each, reader", "each: item -> a", reader=reads("a"))

    assert above(canvas, "reader") == {"begin", "each"}


def test_reference_out_of_a_body_is_a_dependency_of_the_container():
    canvas = canvas_of("begin -> each, other", "each: item -> a", a=reads("other", "item", "each"))

    assert above(canvas, "each") == {"begin", "other"}


def test_canvas_of_two_thousand_nodes_compiles():
    chain = " -> ".join(f"n{number}" for number in range(1000))
    fan = ", ".join(f"m{number}" for number in range(1000))

    canvas = canvas_of(f"begin -> {chain} -> {fan} -> end")

    assert len(above(canvas, "end")) == 2001


def test_compile_time_of_thousands_of_cycles_grows_less_than_cubically():
    def compile_cycles(count: int) -> float:
        edges_and_references = [*([number + 1, max(0, number - 1)] for number in range(count - 1)), [count - 2]]
        began = time.process_time()
        reach = compute_reachability(
            parents=[None] * count, targets=edges_and_references, roots=[0], items=frozenset(), mentions=[()] * count
        )
        took = time.process_time() - began
        assert reach.above[0] == reach.descendant_sharers[0] == 2**count - 1
        return took

    small, large = (min(compile_cycles(count) for _ in range(3)) for count in (1500, 6000))

    # Four times as many sets with four times the members each; a cubic algorithm would take 64 times as long.
    assert large < 16 * small * 2


def test_reachability_of_25000_sibling_references_is_computed_within_seconds():
    siblings = 1000
    mentions = [[(node * 7 + step * 13) % siblings for step in range(25)] for node in range(siblings)]
    began = time.process_time()

    reach = compute_reachability(
        parents=[None] * siblings, targets=[()] * siblings, roots=[0], items=frozenset(), mentions=mentions
    )

    assert sum(1 for depends in reach.soft_dependencies if depends) > siblings // 2
    assert time.process_time() - began < 1.5


@given(
    edges=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=14),
    mentions=st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=10, max_size=10),
)
def test_node_is_above_another_only_if_edges_and_references_lead_to_it(
    edges: list[tuple[int, int]], mentions: list[list[int]]
):
    targets = [[end for source, end in edges if source == node] for node in range(10)]

    reach = compute_reachability(parents=[None] * 10, targets=targets, roots=[0], items=frozenset(), mentions=mentions)

    edges_and_references = [
        *edges,
        *((writer, reader) for reader in range(10) for writer in bits(reach.soft_dependencies[reader])),
    ]
    for node in range(10):
        assert set(bits(reach.above[node])) == _ancestors(node, edges_and_references)
        assert not reach.above_forward[node] >> node & 1


def _ancestors(node: int, edges: list[tuple[int, int]]) -> set[int]:
    """Return the nodes from which edges lead to a node, found step by step."""
    found: set[int] = set()
    new = {node}
    while new:
        new = {source for source, end in edges if end in new} - found
        found |= new
    return found
