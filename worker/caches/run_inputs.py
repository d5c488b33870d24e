"""What a run was given for its current turn, kept by the process: every node of the run would read it again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from store.db.transaction import Transaction
from store.runs import run_rows
from store.runs.activations import Claim
from worker.caches.lru_cache import Kept, weight_of

MOST = 8 * 2**20  # of what a process keeps, as weights are counted: some 50 MB at most


@dataclass(frozen=True, slots=True)
class Given:
    """request: query, inputs, files, webhook_payload of the turn; base: the globals and values the run began with."""

    request: Mapping[str, Any]
    base: Mapping[str, Any]


_KEPT: Kept[tuple[UUID, UUID], Given] = Kept(MOST)


def given(tx: Transaction, claim: Claim) -> Callable[[], Given]:
    """Ask for what a claim's run was given. It is written before a turn's first node is ready, and stays."""
    key = claim.run_id, claim.message_id
    known = _KEPT.find(key)
    if known is not None:
        return lambda: known
    asked = tx.later(run_rows.GIVEN, of_run=claim.run_id)

    def found() -> Given:
        ((request, base),) = asked.rows()
        new = Given(request, base)
        _KEPT.keep(key, new, weight_of([request, base], MOST))
        return new

    return found
