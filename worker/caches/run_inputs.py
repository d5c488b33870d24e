"""Cache of a run's inputs for its current turn, which every node of the run reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from canvas.ids import RunId
from store.db.transaction import Transaction
from store.runs import run_rows
from store.runs.activations import Claim
from worker.caches.lru_cache import LruCache, size_of

MAX_SIZE = 8 * 2**20  # as `size_of` counts; some 50 MB at most


@dataclass(frozen=True, slots=True)
class RunInputs:
    """request: query, inputs, files, webhook_payload of the turn; base: the globals and values the run began with."""

    request: Mapping[str, Any]
    base: Mapping[str, Any]


class RunInputsCache:
    """Inputs by run and turn. `max_size` is in units of `size_of`; 0 caches nothing."""

    def __init__(self, max_size: int = MAX_SIZE) -> None:
        self._entries: LruCache[tuple[RunId, UUID], RunInputs] = LruCache(max_size)

    def load(self, tx: Transaction, claim: Claim) -> Callable[[], RunInputs]:
        """Request the inputs of a claim's run, with other statements of `tx`; call the result to get them.

        They are written before a turn's first node is ready, and never change.
        """
        key = claim.run_id, claim.message_id
        cached = self._entries.get(key)
        if cached is not None:
            return lambda: cached
        pending = tx.send(run_rows.SELECT_INPUTS, of_run=claim.run_id)

        def receive() -> RunInputs:
            ((request, base),) = pending.rows()
            inputs = RunInputs(request, base)
            self._entries.put(key, inputs, size_of([request, base], MAX_SIZE))
            return inputs

        return receive
