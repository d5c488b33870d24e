"""Canonical order: order keys compare like the target positions that led to them, and so do their bytes."""

from hypothesis import given
from hypothesis import strategies as st

from canvas.state.order_key import OrderKey, from_json, merge, to_json

target_positions = st.lists(st.integers(0, 3), max_size=6)
regions = st.sampled_from((b"", OrderKey(2).item_region(0), OrderKey(2).item_region(1)))


def order_key_of(positions: list[int], region: bytes = b"") -> OrderKey:
    """Return the order key of the node reached over these target positions."""
    order_key = OrderKey(0, (), region)
    for position in positions:
        order_key = order_key.child(position)
    return order_key


order_keys = st.builds(order_key_of, target_positions, regions)


def test_order_key_of_a_chain_has_no_branch_path():
    order_key = order_key_of([0] * 1000)

    assert order_key == OrderKey(1000)


def test_earlier_level_comes_first_whatever_its_branch_path():
    assert order_key_of([3, 3]) < order_key_of([0, 0, 0])


def test_first_target_of_the_first_node_comes_first_within_a_level():
    assert order_key_of([0, 0, 1]) < order_key_of([0, 1, 0]) < order_key_of([0, 1, 2]) < order_key_of([1, 0, 0])


@given(target_positions, target_positions)
def test_order_keys_of_one_level_compare_like_their_target_positions(one: list[int], other: list[int]):
    length = min(len(one), len(other))

    is_earlier = order_key_of(one[:length]) < order_key_of(other[:length])

    assert is_earlier == (one[:length] < other[:length])


@given(order_keys, order_keys)
def test_bytes_compare_like_order_keys(one: OrderKey, other: OrderKey):
    assert (one.key < other.key) == (one < other)
    assert (one.key == other.key) == (one == other)


@given(order_keys, order_keys, order_keys)
def test_order_key_of_a_join_does_not_depend_on_the_order_of_arrival(a: OrderKey, b: OrderKey, c: OrderKey):
    assert merge(merge(merge(None, a), b), c) == merge(merge(merge(None, c), b), a) == merge(a, merge(b, c))


def test_join_follows_the_first_node_of_its_last_level():
    early, first, second = order_key_of([3, 0]), order_key_of([0, 1, 0]), order_key_of([0, 2, 0])

    assert merge(merge(early, second), first) == first


def test_parallel_items_follow_their_container_in_item_order_at_any_level():
    container = order_key_of([0, 1])
    first, second = (OrderKey(9, (), container.item_region(0)), OrderKey(0, (), container.item_region(1)))

    assert container < first < second < order_key_of([0, 2]) < order_key_of([0, 0, 0])


@given(order_keys)
def test_order_key_survives_json(order_key: OrderKey):
    assert from_json(to_json(order_key)) == order_key


@given(order_keys)
def test_keys_of_a_level_are_at_or_after_its_level_key(order_key: OrderKey):
    assert order_key.level_key <= order_key.key
    assert order_key.key < OrderKey(order_key.level + 1, (), order_key.region).level_key
