"""The outputs that a container collects from the passes of its body."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from canvas.graph.container_outputs import collect, collected_children, output_refs, outputs_per_item

ALL = {"all": ("work", "result")}


def test_output_ref_names_a_child_and_the_path_of_its_output():
    params = {"outputs": {"all": {"ref": "Agent:0@content"}, "deep": {"ref": "{Code:1@a.b}"}, "own": {"value": 1}}}

    assert output_refs(params) == {"all": ("Agent:0", "content"), "deep": ("Code:1", "a.b")}
    assert collected_children(output_refs(params)) == ["Agent:0", "Code:1"]


def test_outputs_without_a_ref_collect_nothing():
    for outputs in (None, [], {"a": None}, {"a": {"ref": ""}}, {"a": {"ref": 7}}):
        assert output_refs({"outputs": outputs}) == {}


def test_results_are_collected_in_item_order():
    passes = [("work", item, {"result": item * 10}) for item in range(3)]

    assert collect(ALL, passes, 3, {}) == {"all": [0, 10, 20]}


def test_last_of_several_activations_in_a_pass_is_collected():
    passes = [("work", 0, {"result": "first"}), ("work", 0, {"result": "second"})]

    assert collect(ALL, passes, 1, {}) == {"all": ["second"]}


def test_child_that_did_not_run_contributes_its_earlier_value():
    passes = [("work", 1, {"result": "one"})]

    assert collect(ALL, passes, 3, {"work": {"result": "earlier"}}) == {"all": ["earlier", "one", "one"]}


def test_a_child_that_never_ran_contributes_an_empty_text():
    assert collect(ALL, [], 2, {}) == {"all": ["", ""]}


def test_child_that_did_not_run_in_a_parallel_item_contributes_null():
    passes = [("work", 1, {"result": "one"})]

    assert collect(ALL, passes, 3, None) == {"all": [None, "one", None]}


def test_empty_list_is_collected_from_no_items_only_if_items_are_parallel():
    assert collect(ALL, [], 0, {}) == {}
    assert collect(ALL, [], 0, None) == {"all": []}


def test_outputs_are_grouped_by_item():
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
def test_collected_results_do_not_depend_on_the_order_in_which_items_end(results: list[int], random: Any):
    passes = [("work", item, {"result": result}) for item, result in enumerate(results)]
    shuffled = random.sample(passes, len(passes))

    assert collect(ALL, shuffled, len(results), None) == collect(ALL, passes, len(results), None) == {"all": results}
