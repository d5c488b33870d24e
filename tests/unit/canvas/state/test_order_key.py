"""Canonical order: a place compares like the tree of targets it grew from, and its bytes compare like the place."""

from hypothesis import given
from hypothesis import strategies as st

from canvas.state.order_key import OrderKey, from_json, merge, to_json

walks = st.lists(st.integers(0, 3), max_size=6)
regions = st.sampled_from((b"", OrderKey(2).item_region(0), OrderKey(2).item_region(1)))


def walked(steps: list[int], region: bytes = b"") -> OrderKey:
    """The place that taking the n-th target at each step leads to."""
    place = OrderKey(0, (), region)
    for step in steps:
        place = place.child(step)
    return place


places = st.builds(walked, walks, regions)


def test_a_chain_leaves_no_trail():
    place = walked([0] * 1000)

    assert place == OrderKey(1000)


def test_earlier_level_comes_first_whatever_its_branch_path():
    assert walked([3, 3]) < walked([0, 0, 0])


def test_in_one_wave_the_first_target_of_the_first_node_comes_first():
    assert walked([0, 0, 1]) < walked([0, 1, 0]) < walked([0, 1, 2]) < walked([1, 0, 0])


@given(walks, walks)
def test_in_one_wave_places_compare_like_the_walks_that_led_there(one: list[int], other: list[int]):
    length = min(len(one), len(other))

    is_earlier = walked(one[:length]) < walked(other[:length])

    assert is_earlier == (one[:length] < other[:length])


@given(places, places)
def test_bytes_compare_like_places(one: OrderKey, other: OrderKey):
    assert (one.key < other.key) == (one < other)
    assert (one.key == other.key) == (one == other)


@given(places, places, places)
def test_the_place_of_a_join_does_not_depend_on_who_arrives_first(a: OrderKey, b: OrderKey, c: OrderKey):
    assert merge(merge(merge(None, a), b), c) == merge(merge(merge(None, c), b), a) == merge(a, merge(b, c))


def test_a_join_stands_below_its_last_wave_and_in_it_below_the_first_node():
    early, first, second = walked([3, 0]), walked([0, 1, 0]), walked([0, 2, 0])

    assert merge(merge(early, second), first) == first


def test_side_by_side_items_follow_their_container_in_item_order_whatever_their_waves():
    container = walked([0, 1])
    first, second = (OrderKey(9, (), container.item_region(0)), OrderKey(0, (), container.item_region(1)))

    assert container < first < second < walked([0, 2]) < walked([0, 0, 0])


@given(places)
def test_a_place_survives_json(place: OrderKey):
    assert from_json(to_json(place)) == place


@given(places)
def test_keys_of_a_level_are_at_or_after_its_level_key(place: OrderKey):
    assert place.level_key <= place.key
    assert place.key < OrderKey(place.level + 1, (), place.region).level_key
