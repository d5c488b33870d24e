"""Cache of node outputs: what an attempt of this process has just written, and what other readers of a run have read.

What a reader sees of a node, outside of parallel Iteration items, follows from its region, the node and the revision in
which the reader was activated, and never changes. So a second reader with the same key gets the same value without a
statement. Values are cached as JSON, because a reader may change the value that it gets.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from canvas.ids import ActivationId, RunId
from store.primitives.json_codec import decode, encode
from store.runs.activations import Claim
from store.runs.values import ReadView, StoredValue
from worker.caches.lru_cache import LruCache, size_of

MAX_SIZE = 16 * 2**20  # code points of JSON in all, about
MAX_OUTPUTS_SIZE = 64 * 2**10  # of one node's outputs; larger ones are read from the database
ENTRY_OVERHEAD = 500  # what an entry takes besides

_Key = tuple[RunId, str, bytes, bytes, int]


class OutputCache:
    """Outputs by run, node and what a reader sees. `max_size` is in code points of JSON, about; 0 caches nothing."""

    def __init__(self, max_size: int = MAX_SIZE) -> None:
        self._entries: LruCache[_Key, tuple[bytes, ActivationId, str]] = LruCache(max_size)

    def get_visible(self, view: ReadView, nodes: Iterable[str]) -> dict[str, StoredValue]:
        """Return the cached ones of some nodes' latest outputs, as a reader sees them."""
        found: dict[str, StoredValue] = {}
        if len(view.limits) != 1:
            return found
        for node_id in nodes:
            entry = self._entries.get(_key(view, node_id))
            if entry is not None:
                found[node_id] = StoredValue(entry[0], entry[1], decode(entry[2]))
        return found

    def put_read(self, view: ReadView, found: Mapping[str, StoredValue]) -> None:
        """Cache what a reader has read, for other readers with the same view."""
        if len(view.limits) == 1:
            for node_id, written in found.items():
                self._put(view, node_id, written.order_key, written.activation, written.value)

    def put_written(self, view: ReadView, writer: Claim, rows: Sequence[Mapping[str, Any]]) -> None:
        """Cache outputs just written, for the activation that the same advance made ready and that sees `view`.

        Only for a node's first visit: in a cycle, a later visit may finish out of order.
        """
        if len(view.limits) != 1 or writer.ordinal or any(ordinal for _, ordinal, _ in writer.scope):
            return
        for row in rows:
            if (
                "large" not in row
                and row["region"] == view.order_key.region
                and row["order_key"] <= view.order_key.level_key
            ):
                self._put(view, row["node_id"], row["order_key"], row["activation_id"], row["outputs"])

    def _put(self, view: ReadView, node_id: str, order_key: bytes, activation: ActivationId, outputs: Any) -> None:
        size = size_of(outputs, MAX_OUTPUTS_SIZE) + ENTRY_OVERHEAD
        if size <= min(MAX_OUTPUTS_SIZE + ENTRY_OVERHEAD, self._entries.max_size):
            self._entries.put(_key(view, node_id), (order_key, activation, encode(outputs)), size)


def read_view_of(reader: Claim) -> ReadView:
    """Return what the attempt of a claim sees of its run."""
    return ReadView(reader.run_id, reader.order_key, reader.limits)


def _key(view: ReadView, node_id: str) -> _Key:
    ((region, revision),) = view.limits
    return view.run_id, node_id, region, view.order_key.level_key, revision
