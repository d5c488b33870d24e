"""The output cache of a process: complete outputs, in copies, and small ones only."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.state.order_key import OrderKey
from store.runs.activations import Claim
from store.runs.values import ReadView, StoredValue
from worker.caches.outputs import ENTRY_OVERHEAD, MAX_OUTPUTS_SIZE, OutputCache

REGION = b"\x00"
ORDER_KEY = OrderKey(3, (), REGION)
TEXT = 'ab0é\u2028\U0001f600\x00"\\'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(TEXT, max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(TEXT, max_size=4), inner, max_size=3),
    max_leaves=10,
)


def a_view(run_id: UUID | None = None, *, order_key: OrderKey = ORDER_KEY, revision: int = 5) -> ReadView:
    return ReadView(run_id or uuid4(), order_key, ((order_key.region, revision),))


def stored_value(value: Any) -> StoredValue:
    return StoredValue(b"\x01", uuid4(), value)


@given(st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.text(TEXT, max_size=4), JSON, max_size=3)))
def test_outputs_that_one_reader_read_are_cached_for_another(by_node: Mapping[str, Any]):
    output_cache = OutputCache()
    view, stored = a_view(), {node: stored_value(outputs) for node, outputs in by_node.items()}

    output_cache.put_read(view, stored)

    assert output_cache.get_visible(view, "abc") == stored


def test_changing_cached_outputs_changes_no_other_copy():
    output_cache = OutputCache()
    view, first = a_view(), {"a": stored_value({"list": [1, {"b": 2}]})}
    output_cache.put_read(view, first)

    first["a"].value["list"].append("before it was asked for")
    copy = output_cache.get_visible(view, "a")["a"].value
    copy["list"][1]["b"] = "changed"
    copy["more"] = True

    assert output_cache.get_visible(view, "a")["a"].value == {"list": [1, {"b": 2}]}


@pytest.mark.parametrize(
    "outputs",
    [{"text": "x" * MAX_OUTPUTS_SIZE}, {"list": list(range(MAX_OUTPUTS_SIZE // 8))}, {"x" * MAX_OUTPUTS_SIZE: 1}],
)
def test_small_outputs_are_cached_and_large_ones_are_not(outputs: dict[str, Any]):
    output_cache, view = OutputCache(), a_view()

    output_cache.put_read(
        view, {"large": stored_value(outputs), "small": stored_value({"text": "x" * (MAX_OUTPUTS_SIZE - 100)})}
    )

    assert set(output_cache.get_visible(view, ["large", "small"])) == {"small"}


@pytest.mark.parametrize(
    "other",
    [
        ReadView(UUID(int=2), ORDER_KEY, ((REGION, 5),)),
        ReadView(UUID(int=1), ORDER_KEY, ((REGION, 6),)),
        ReadView(UUID(int=1), OrderKey(4, (), REGION), ((REGION, 5),)),
        ReadView(UUID(int=1), OrderKey(3, (), b"\x01"), ((b"\x01", 5),)),
    ],
    ids=["of another run", "of a later revision", "of a later level", "of another region"],
)
def test_cached_outputs_are_not_found_with_another_view(other: ReadView):
    output_cache = OutputCache()
    output_cache.put_read(ReadView(UUID(int=1), ORDER_KEY, ((REGION, 5),)), {"a": stored_value({"x": 1})})

    assert output_cache.get_visible(other, "a") == {}


def test_outputs_are_not_cached_for_readers_in_parallel_items():
    output_cache = OutputCache()
    view = ReadView(uuid4(), ORDER_KEY, ((b"", 2), (REGION, 5)))

    output_cache.put_read(view, {"a": stored_value({"x": 1})})

    assert output_cache.get_visible(view, "a") == {}


def test_least_recently_used_outputs_are_removed_first():
    output_cache, view = OutputCache(3 * ENTRY_OVERHEAD), a_view()
    output_cache.put_read(view, {"a": stored_value({}), "b": stored_value({})})
    output_cache.get_visible(view, "a")

    output_cache.put_read(view, {"c": stored_value({})})

    assert set(output_cache.get_visible(view, "abc")) == {"a", "c"}


@pytest.mark.parametrize(
    ("ordinal", "scope", "is_cached"),
    [(0, (), True), (0, (("loop", 0, 7),), True), (1, (), False), (0, (("loop", 1, 0), ("each", 0, 2)), False)],
    ids=["first visit", "a later pass", "second visit", "second visit of the outer container"],
)
def test_continuation_finds_outputs_of_a_first_visit_in_the_cache(
    ordinal: int, scope: tuple[tuple[str, int, int], ...], is_cached: bool
):
    output_cache, reader, writer = OutputCache(), uuid4(), uuid4()
    row = {"node_id": "a", "region": REGION, "order_key": b"\x00", "activation_id": writer, "outputs": {"x": 1}}

    output_cache.put_written(a_view(reader), a_claim(reader, ordinal=ordinal, scope=scope), [row])

    by_node = output_cache.get_visible(a_view(reader), "a")
    assert by_node == ({"a": StoredValue(b"\x00", writer, {"x": 1})} if is_cached else {})


def test_a_cache_of_size_0_caches_nothing():
    output_cache, view, reader = OutputCache(0), a_view(), uuid4()
    row = {"node_id": "a", "region": REGION, "order_key": b"\x00", "activation_id": uuid4(), "outputs": {"x": 1}}

    output_cache.put_read(view, {"a": stored_value({})})
    output_cache.put_written(a_view(reader), a_claim(reader), [row])

    assert output_cache.get_visible(view, "a") == {}
    assert output_cache.get_visible(a_view(reader), "a") == {}


def a_claim(run_id: UUID, **fields: Any) -> Claim:
    known = {"run_id": run_id, "order_key": ORDER_KEY, "limits": ((REGION, 5),), "ordinal": 0, "scope": (), **fields}
    return Claim(**{name: known.get(name) for name in Claim.__slots__})
