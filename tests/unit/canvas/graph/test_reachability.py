"""What can still reach a node: over edges, out of containers, back along circles, and by reference."""

import time

from hypothesis import given
from hypothesis import strategies as st

from canvas.graph.canvas import Canvas, bits
from canvas.graph.reachability import compute_reachability
from tests.builders import canvas_of, goto, reads


def above(canvas: Canvas, node: str, *, forward: bool = False) -> set[str]:
    reach = canvas.reachability.above_forward if forward else canvas.reachability.above
    return {canvas.nodes[number].id for number in bits(reach[canvas.numbers[node]])}


def test_every_branch_of_a_router_and_every_way_out_of_a_failure_counts():
    canvas = canvas_of("begin -> pick -> left, right; rescue -> end", left=goto("rescue"))

    assert above(canvas, "end") == {"begin", "pick", "left", "rescue"}


def test_a_container_stands_for_its_body():
    canvas = canvas_of("begin -> each -> end", "each: item -> a", "rescue", a=goto("rescue"))

    assert above(canvas, "a") == {"item"}
    assert above(canvas, "rescue") == {"begin", "each"}
    assert above(canvas, "end") == {"begin", "each"}


def test_an_edge_to_the_item_node_ends_a_pass_and_makes_no_circle():
    canvas = canvas_of("begin -> loop", "loop: visit -> a -> visit")

    assert above(canvas, "visit") == set()
    assert above(canvas, "a") == {"visit"}


def test_an_edge_back_is_left_out_of_the_forward_order():
    canvas = canvas_of("begin -> a -> b -> pick -> a, end")

    assert above(canvas, "a") == {"begin", "a", "b", "pick"}
    assert above(canvas, "a", forward=True) == {"begin"}
    assert above(canvas, "end", forward=True) == {"begin", "a", "b", "pick"}


def test_a_node_on_two_circles_is_above_itself_once_and_never_forward():
    canvas = canvas_of("begin -> a -> b -> a; b -> c -> a; a -> a")

    assert "a" in above(canvas, "a")
    assert all(node.id not in above(canvas, node.id, forward=True) for node in canvas.nodes)


def test_a_node_beside_a_circle_is_entangled_with_its_head_where_both_lead_to_one_end():
    canvas = canvas_of("begin -> a -> pick -> a; begin -> apart; pick -> end; begin -> side -> end")

    entangled = canvas.reachability.descendant_sharers

    assert {canvas.nodes[number].id for number in bits(entangled[canvas.numbers["a"]])} == {
        "begin",
        "a",
        "pick",
        "side",
        "end",
    }
    assert not entangled[canvas.numbers["end"]]


def test_a_reference_to_a_sibling_is_a_soft_dependency():
    canvas = canvas_of("begin -> a, b", a=reads("b"))

    assert above(canvas, "a") == {"begin", "b"}
    assert above(canvas, "a", forward=True) == {"begin", "b"}


def test_what_follows_a_soft_dependency_waits_for_it_too():
    canvas = canvas_of("begin -> a, slow; slow -> b; a -> end", a=reads("b"))

    assert above(canvas, "end") == {"begin", "a", "slow", "b"}


def test_a_reference_to_what_comes_later_is_no_dependency():
    canvas = canvas_of("begin -> a -> b", a=reads("b", "a"))

    assert above(canvas, "a") == {"begin"}


def test_of_two_that_refer_to_each_other_only_one_waits():
    canvas = canvas_of("begin -> a, b", a=reads("b"), b=reads("a"))

    waits = [node for node, other in (("a", "b"), ("b", "a")) if other in above(canvas, node)]
    assert len(waits) == 1


def test_three_that_refer_to_each_other_in_a_circle_leave_one_free():
    canvas = canvas_of("begin -> a, b, c", a=reads("b"), b=reads("c"), c=reads("a"))

    assert [node for node in "abc" if above(canvas, node) == {"begin"}] == ["c"]


def test_a_reference_into_a_body_waits_for_the_container():
    canvas = canvas_of("begin -> each, reader", "each: item -> a", reader=reads("a"))

    assert above(canvas, "reader") == {"begin", "each"}


def test_a_reference_out_of_a_body_makes_the_container_wait():
    canvas = canvas_of("begin -> each, other", "each: item -> a", a=reads("other", "item", "each"))

    assert above(canvas, "each") == {"begin", "other"}


def test_a_canvas_of_two_thousand_nodes_compiles_in_a_blink():
    chain = " -> ".join(f"n{number}" for number in range(1000))
    fan = ", ".join(f"m{number}" for number in range(1000))

    canvas = canvas_of(f"begin -> {chain} -> {fan} -> end")

    assert len(above(canvas, "end")) == 2001


def test_a_canvas_of_thousands_of_circles_compiles_in_a_time_that_grows_as_its_sets_do():
    def circles(count: int) -> float:
        ways = [*([number + 1, max(0, number - 1)] for number in range(count - 1)), [count - 2]]
        began = time.process_time()
        reach = compute_reachability(
            parents=[None] * count, targets=ways, roots=[0], items=frozenset(), mentions=[()] * count
        )
        took = time.process_time() - began
        assert reach.above[0] == reach.descendant_sharers[0] == 2**count - 1
        return took

    small, large = (min(circles(count) for _ in range(3)) for count in (1500, 6000))

    assert large < 16 * small * 2  # sets of four times the members, four times as many; a cubic way would take 64 times


def test_tens_of_thousands_of_references_between_siblings_compile_in_a_moment():
    siblings = 1000
    mentions = [[(node * 7 + step * 13) % siblings for step in range(25)] for node in range(siblings)]
    began = time.process_time()

    reach = compute_reachability(
        parents=[None] * siblings, targets=[()] * siblings, roots=[0], items=frozenset(), mentions=mentions
    )

    assert sum(1 for waits in reach.soft_dependencies if waits) > siblings // 2
    assert time.process_time() - began < 1.5


@given(
    edges=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=14),
    mentions=st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=10, max_size=10),
)
def test_a_node_is_above_another_just_if_edges_and_references_lead_to_it(
    edges: list[tuple[int, int]], mentions: list[list[int]]
):
    targets = [[end for source, end in edges if source == node] for node in range(10)]

    reach = compute_reachability(parents=[None] * 10, targets=targets, roots=[0], items=frozenset(), mentions=mentions)

    ways = [*edges, *((writer, reader) for reader in range(10) for writer in bits(reach.soft_dependencies[reader]))]
    for node in range(10):
        assert set(bits(reach.above[node])) == _leading_to(node, ways)
        assert not reach.above_forward[node] >> node & 1


def _leading_to(node: int, ways: list[tuple[int, int]]) -> set[int]:
    """From where the ways lead to a node, step by step."""
    found: set[int] = set()
    new = {node}
    while new:
        new = {source for source, end in ways if end in new} - found
        found |= new
    return found
