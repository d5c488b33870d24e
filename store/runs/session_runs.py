"""What a list of conversations shows of their runs: files that users sent, the nodes of the last run, and sums."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from canvas.ids import RunId, SessionId, TenantId
from store.db.transaction import Transaction

MAX_PATH = 2_000  # nodes of a path

FILES = text("""
    select id, coalesce(baseline -> 'first_request' -> 'files', request -> 'files') as first,
        request -> 'files' as last
    from runs
    where tenant_id = :tenant_id and id = any(cast(:run_ids as uuid[]))
      and (json_array_length(coalesce(baseline -> 'first_request' -> 'files', '[]')) > 0
        or json_array_length(coalesce(request -> 'files', '[]')) > 0)
""")
PATH = text("""
    select a.node_id from activations a join runs r on r.id = a.run_id
    where r.tenant_id = :tenant_id and a.run_id = :run_id and a.status = 'done'
    order by a.order_key, a.id limit :most
""")
TOTALS = text("""
    select conversation_id, coalesce(sum(cast(usage ->> 'total_tokens' as int8)), 0),
        coalesce(sum(extract(epoch from finished_at - started_at)), 0)
    from runs
    where tenant_id = :tenant_id and conversation_id = any(cast(:session_ids as uuid[]))
    group by conversation_id
""")

FileDescriptors = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TurnFiles:
    """The files of a run's first and of its last message; they are the same if it had one message."""

    first: FileDescriptors
    last: FileDescriptors


@dataclass(frozen=True, slots=True)
class SessionTotals:
    """The sums over all runs of a conversation. `seconds`: the duration of those that are over."""

    tokens: int = 0
    seconds: float = 0.0


def load_files(tx: Transaction, tenant_id: TenantId, run_ids: Sequence[RunId]) -> dict[RunId, TurnFiles]:
    """Return the files that users sent, of the runs that have some."""
    rows = tx.rows(FILES, tenant_id=tenant_id, run_ids=list(run_ids))
    return {run_id: TurnFiles(first or (), last or ()) for run_id, first, last in rows}


def load_path(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> list[str]:
    """Return the nodes that a run has finished, in canonical order, MAX_PATH at most."""
    return [node_id for (node_id,) in tx.rows(PATH, tenant_id=tenant_id, run_id=run_id, most=MAX_PATH)]


def load_totals(
    tx: Transaction, tenant_id: TenantId, session_ids: Sequence[SessionId]
) -> dict[SessionId, SessionTotals]:
    """Return the sums of the conversations that have runs."""
    rows = tx.rows(TOTALS, tenant_id=tenant_id, session_ids=list(session_ids))
    return {session_id: SessionTotals(int(tokens), float(seconds)) for session_id, tokens, seconds in rows}
