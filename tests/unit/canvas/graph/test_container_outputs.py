"""What a container's outputs collect from the passes of its body."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from canvas.graph.container_outputs import collect, collected_children, output_refs, outputs_per_item

ALL = {"all": ("work", "result")}


def test_an_output_names_a_child_and_what_of_it_is_collected():
    params = {"outputs": {"all": {"ref": "Agent:0@content"}, "deep": {"ref": "{Code:1@a.b}"}, "own": {"value": 1}}}

    assert output_refs(params) == {"all": ("Agent:0", "content"), "deep": ("Code:1", "a.b")}
    assert collected_children(output_refs(params)) == ["Agent:0", "Code:1"]


def test_outputs_that_name_nothing_collect_nothing():
    for outputs in (None, [], {"a": None}, {"a": {"ref": ""}}, {"a": {"ref": 7}}):
        assert output_refs({"outputs": outputs}) == {}


def test_results_stand_in_item_order():
    passes = [("work", item, {"result": item * 10}) for item in range(3)]

    assert collect(ALL, passes, 3, {}) == {"all": [0, 10, 20]}


def test_of_several_activations_in_one_pass_the_last_counts():
    passes = [("work", 0, {"result": "first"}), ("work", 0, {"result": "second"})]

    assert collect(ALL, passes, 1, {}) == {"all": ["second"]}


def test_a_child_that_did_not_run_contributes_what_it_held_before():
    passes = [("work", 1, {"result": "one"})]

    assert collect(ALL, passes, 3, {"work": {"result": "earlier"}}) == {"all": ["earlier", "one", "one"]}


def test_a_child_that_never_ran_contributes_an_empty_text():
    assert collect(ALL, [], 2, {}) == {"all": ["", ""]}


def test_side_by_side_a_child_that_did_not_run_contributes_nothing_of_another_item():
    passes = [("work", 1, {"result": "one"})]

    assert collect(ALL, passes, 3, None) == {"all": [None, "one", None]}


def test_no_items_leave_what_was_collected_before_unless_they_ran_side_by_side():
    assert collect(ALL, [], 0, {}) == {}
    assert collect(ALL, [], 0, None) == {"all": []}


def test_what_each_item_did_stands_together():
    passes: list[tuple[str, int, dict[str, Any]]] = [
        ("item", 0, {"item": "a", "index": 0, "_elapsed_time": 1}),
        ("work", 0, {"result": "A", "_elapsed_time": 1}),
        ("item", 1, {"item": "b", "index": 1}),
        ("item", 2, {}),  # the visit that ended the container
    ]

    assert outputs_per_item(passes, "item", 2) == [
        {"item": "a", "index": 0, "work": {"result": "A"}},
        {"item": "b", "index": 1},
    ]


@given(st.lists(st.integers(), max_size=8), st.randoms(use_true_random=False))
def test_the_order_in_which_items_end_leaves_no_trace(results: list[int], random: Any):
    passes = [("work", item, {"result": result}) for item, result in enumerate(results)]
    shuffled = random.sample(passes, len(passes))

    assert collect(ALL, shuffled, len(results), None) == collect(ALL, passes, len(results), None) == {"all": results}
