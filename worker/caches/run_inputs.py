"""What a run was given for its current turn, kept by the process: every node of the run would read it again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from store.db.transaction import Transaction
from store.runs import run_rows
from store.runs.activations import Claim
from worker.caches.lru_cache import LruCache, size_of

MOST = 8 * 2**20  # of what a process keeps, as weights are counted: some 50 MB at most


@dataclass(frozen=True, slots=True)
class RunInputs:
    """request: query, inputs, files, webhook_payload of the turn; base: the globals and values the run began with."""

    request: Mapping[str, Any]
    base: Mapping[str, Any]


_KEPT: LruCache[tuple[UUID, UUID], RunInputs] = LruCache(MOST)


def load_run_inputs(tx: Transaction, claim: Claim) -> Callable[[], RunInputs]:
    """Ask for what a claim's run was given. It is written before a turn's first node is ready, and stays."""
    key = claim.run_id, claim.message_id
    known = _KEPT.find(key)
    if known is not None:
        return lambda: known
    asked = tx.later(run_rows.SELECT_INPUTS, of_run=claim.run_id)

    def found() -> RunInputs:
        ((request, base),) = asked.rows()
        new = RunInputs(request, base)
        _KEPT.keep(key, new, size_of([request, base], MOST))
        return new

    return found
