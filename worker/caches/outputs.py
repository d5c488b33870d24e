"""Outputs that a process has at hand: what one of its attempts wrote last, and what siblings read before.

What a reader sees of a node outside of side-by-side items follows from its region, its edge and the revision it was
activated in, and stays: so whoever asks the same gets the same, without a statement. Kept as JSON, since those who are
given a value may change it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from store.primitives.json_codec import decode, encode
from store.runs.activations import Claim
from store.runs.values import ReadView, StoredValue
from worker.caches.lru_cache import LruCache, size_of

MOST = 16 * 2**20  # code points of JSON in all, about
LARGEST = 64 * 2**10  # of one node's outputs; larger ones are read
OF_AN_ENTRY = 500  # what an entry takes besides

_Key = tuple[UUID, str, bytes, bytes, int]
_SEEN: LruCache[_Key, tuple[bytes, UUID, str]] = LruCache(MOST)


def get_visible(view: ReadView, nodes: Iterable[str]) -> dict[str, StoredValue]:
    """What is at hand of some nodes' latest outputs, as a reader sees them."""
    found: dict[str, StoredValue] = {}
    if len(view.limits) != 1:
        return found
    for node_id in nodes:
        seen = _SEEN.find(_key(view, node_id))
        if seen is not None:
            found[node_id] = StoredValue(seen[0], seen[1], decode(seen[2]))
    return found


def put_read(view: ReadView, found: Mapping[str, StoredValue]) -> None:
    """What a reader has found, for its siblings."""
    if len(view.limits) == 1:
        for node_id, written in found.items():
            _keep(view, node_id, written.place, written.activation, written.value)


def put_written(reader: Claim, writer: Claim, rows: Sequence[Mapping[str, Any]]) -> None:
    """What was just written, for a reader that was activated by that very step.

    Of a node's first visit only: one that a circle leads to again may end after a visit that stands behind it.
    """
    view = read_view_of(reader)
    if len(view.limits) != 1 or writer.ordinal or any(ordinal for _, ordinal, _ in writer.scope):
        return
    for row in rows:
        if "large" not in row and row["region"] == reader.place.region and row["place"] <= reader.place.wave_key:
            _keep(view, row["node_id"], row["place"], row["activation_id"], row["outputs"])


def read_view_of(reader: Claim) -> ReadView:
    """Whose eyes a claim's attempt reads with."""
    return ReadView(reader.run_id, reader.place, reader.limits)


def _keep(view: ReadView, node_id: str, place: bytes, activation: UUID, outputs: Any) -> None:
    weight = size_of(outputs, LARGEST)
    if weight <= LARGEST:
        _SEEN.keep(_key(view, node_id), (place, activation, encode(outputs)), weight + OF_AN_ENTRY)


def _key(view: ReadView, node_id: str) -> _Key:
    ((region, revision),) = view.limits
    return view.run_id, node_id, region, view.place.wave_key, revision
