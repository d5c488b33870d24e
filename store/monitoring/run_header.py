"""What the head of a run's page shows beside the run's row: names, digests, its failure, and its first request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text

from canvas.document.document import BEGIN
from canvas.ids import ActivationId, RunId, TenantId
from store.db.transaction import Transaction
from store.runs import values

MAX_WARNED = 200  # activations whose warnings are read

HEADER = text("""
    select r.revision, r.rules_version, r.previous_run, r.expires_at, now() as now, c.title as agent_title,
        encode(sha256(convert_to(cast(c.draft as text), 'UTF8')), 'hex') as draft_digest,
        v.title as version_title, encode(v.digest, 'hex') as version_digest,
        (
            select count(*) from versions n where n.tenant_id = v.tenant_id and n.canvas_id = v.canvas_id
                and (n.created_at, n.id) <= (v.created_at, v.id)
        ) as version_number,
        (
            select count(*) from run_shares h where h.tenant_id = r.tenant_id and h.run_id = r.id
                and h.revoked_at is null and h.expires_at > now()
        ) as shares,
        k.name as conversation_name, r.baseline -> 'globals' -> 'sys.query' as first_query
    from runs r
    left join canvases c on c.id = r.canvas_id and c.tenant_id = r.tenant_id
    left join versions v on v.id = r.version_id and v.tenant_id = r.tenant_id
    left join conversations k on k.id = r.conversation_id and k.tenant_id = r.tenant_id
    where r.id = :run_id and r.tenant_id = :tenant_id
""")
FAILED_ACTIVATION = text("""
    select id, scope from activations
    where run_id = :run_id and node_id = :node_id and order_key = decode(:order_key, 'hex') limit 1
""")
WARNED = text("""
    select node_id, outcome from activations
    where run_id = :run_id and strpos(cast(outcome as text), '"warnings"') > 0 order by order_key, id limit :most
""")


@dataclass(frozen=True, slots=True)
class RunHeader:
    """Names and digests of a run, as of now; None where the agent, version or session is gone."""

    revision: int
    rules_version: int
    previous_run: RunId | None
    expires_at: datetime | None  # of open forms
    now: datetime
    agent_title: str | None
    draft_digest: str | None  # hex
    version_title: str | None
    version_digest: str | None  # hex
    version_number: int  # among the versions of the agent that exist, from 1 on; 0 if it is gone
    conversation_name: str | None
    shares: int  # that are not over
    first_query: Any  # of the first turn of the session in this run


def load_header(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> RunHeader | None:
    """Return the header of a tenant's run; None if the tenant has no such run."""
    row = tx.one_or_none(HEADER, run_id=run_id, tenant_id=tenant_id)
    return RunHeader(**row) if row is not None else None


def load_first_inputs(tx: Transaction, run_id: RunId) -> Mapping[str, Any] | None:
    """Return the form values that the first turn of a run began with; None if Begin has not stored them yet."""
    return values.load_inputs(tx, run_id, BEGIN)


def find_activation(tx: Transaction, run_id: RunId, node_id: str, order_key: str) -> tuple[ActivationId, str] | None:
    """Return the id and scope of a node's activation with this order key in hex; None if there is none."""
    rows = tx.rows(FAILED_ACTIVATION, run_id=run_id, node_id=node_id, order_key=order_key)
    return (rows[0][0], rows[0][1]) if rows else None


def load_warned(tx: Transaction, run_id: RunId) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Return (node id, outcome) of the first activations with warnings, in canonical order."""
    return [(row[0], row[1]) for row in tx.rows(WARNED, run_id=run_id, most=MAX_WARNED)]
