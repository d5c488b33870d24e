"""What a process has at hand of outputs: whole, its own, and no more than what is small."""

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
PLACE = OrderKey(3, (), REGION)
TEXT = 'ab0é\u2028\U0001f600\x00"\\'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(TEXT, max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(TEXT, max_size=4), inner, max_size=3),
    max_leaves=10,
)


def a_view(run_id: UUID | None = None, *, place: OrderKey = PLACE, revision: int = 5) -> ReadView:
    return ReadView(run_id or uuid4(), place, ((place.region, revision),))


def written(value: Any) -> StoredValue:
    return StoredValue(b"\x01", uuid4(), value)


@given(st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.text(TEXT, max_size=4), JSON, max_size=3)))
def test_outputs_that_one_reader_read_are_cached_for_another(found: Mapping[str, Any]):
    output_cache = OutputCache()
    view, stored = a_view(), {node: written(outputs) for node, outputs in found.items()}

    output_cache.put_read(view, stored)

    assert output_cache.get_visible(view, "abc") == stored


def test_changing_cached_outputs_changes_no_other_copy():
    output_cache = OutputCache()
    view, first = a_view(), {"a": written({"list": [1, {"b": 2}]})}
    output_cache.put_read(view, first)

    first["a"].value["list"].append("before it was asked for")
    given = output_cache.get_visible(view, "a")["a"].value
    given["list"][1]["b"] = "changed"
    given["more"] = True

    assert output_cache.get_visible(view, "a")["a"].value == {"list": [1, {"b": 2}]}


@pytest.mark.parametrize(
    "outputs",
    [{"text": "x" * MAX_OUTPUTS_SIZE}, {"list": list(range(MAX_OUTPUTS_SIZE // 8))}, {"x" * MAX_OUTPUTS_SIZE: 1}],
)
def test_small_outputs_are_cached_and_large_ones_are_not(outputs: dict[str, Any]):
    output_cache, view = OutputCache(), a_view()

    output_cache.put_read(view, {"large": written(outputs), "small": written({"text": "x" * (MAX_OUTPUTS_SIZE - 100)})})

    assert set(output_cache.get_visible(view, ["large", "small"])) == {"small"}


@pytest.mark.parametrize(
    "other",
    [
        ReadView(UUID(int=2), PLACE, ((REGION, 5),)),
        ReadView(UUID(int=1), PLACE, ((REGION, 6),)),
        ReadView(UUID(int=1), OrderKey(4, (), REGION), ((REGION, 5),)),
        ReadView(UUID(int=1), OrderKey(3, (), b"\x01"), ((b"\x01", 5),)),
    ],
    ids=["of another run", "of a later revision", "of a later wave", "of another region"],
)
def test_cached_outputs_are_not_found_with_another_view(other: ReadView):
    output_cache = OutputCache()
    output_cache.put_read(ReadView(UUID(int=1), PLACE, ((REGION, 5),)), {"a": written({"x": 1})})

    assert output_cache.get_visible(other, "a") == {}


def test_outputs_are_not_cached_for_readers_in_parallel_items():
    output_cache = OutputCache()
    view = ReadView(uuid4(), PLACE, ((b"", 2), (REGION, 5)))

    output_cache.put_read(view, {"a": written({"x": 1})})

    assert output_cache.get_visible(view, "a") == {}


def test_least_recently_used_outputs_are_removed_first():
    output_cache, view = OutputCache(3 * ENTRY_OVERHEAD), a_view()
    output_cache.put_read(view, {"a": written({}), "b": written({})})
    output_cache.get_visible(view, "a")

    output_cache.put_read(view, {"c": written({})})

    assert set(output_cache.get_visible(view, "abc")) == {"a", "c"}


@pytest.mark.parametrize(
    ("ordinal", "scope", "is_at_hand"),
    [(0, (), True), (0, (("loop", 0, 7),), True), (1, (), False), (0, (("loop", 1, 0), ("each", 0, 2)), False)],
    ids=["first visit", "a later pass", "second visit", "second visit of what is around"],
)
def test_continuation_finds_outputs_of_a_first_visit_in_the_cache(
    ordinal: int, scope: tuple[tuple[str, int, int], ...], is_at_hand: bool
):
    output_cache, reader, writer = OutputCache(), uuid4(), uuid4()
    row = {"node_id": "a", "region": REGION, "place": b"\x00", "activation_id": writer, "outputs": {"x": 1}}

    output_cache.put_written(a_claim(reader), a_claim(reader, ordinal=ordinal, scope=scope), [row])

    found = output_cache.get_visible(a_view(reader), "a")
    assert found == ({"a": StoredValue(b"\x00", writer, {"x": 1})} if is_at_hand else {})


def test_a_cache_of_size_0_caches_nothing():
    output_cache, view, reader = OutputCache(0), a_view(), uuid4()
    row = {"node_id": "a", "region": REGION, "place": b"\x00", "activation_id": uuid4(), "outputs": {"x": 1}}

    output_cache.put_read(view, {"a": written({})})
    output_cache.put_written(a_claim(reader), a_claim(reader), [row])

    assert output_cache.get_visible(view, "a") == {}
    assert output_cache.get_visible(a_view(reader), "a") == {}


def a_claim(run_id: UUID, **given: Any) -> Claim:
    known = {"run_id": run_id, "order_key": PLACE, "limits": ((REGION, 5),), "ordinal": 0, "scope": (), **given}
    return Claim(**{name: known.get(name) for name in Claim.__slots__})
