"""What a rerun or fork reads of its source run: the activations, its files, and the message that started it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, select, text

from canvas.graph.reuse import SourceActivation
from canvas.ids import ActivationId, RunId, SessionId, TenantId
from canvas.state.run_state import scope_key
from store.db.transaction import Transaction
from store.tables.runs import activations, runs, variables

_columns = (
    "id", "node_id", "component", "scope", "ordinal", "order_key", "region", "limits", "status", "attempt", "effect",
    "answers", "activated_rev", "applied_rev", "outcome", "usage", "started_at", "finished_at",
)  # fmt: skip
ACTIVATIONS = (
    select(*(activations.c[name] for name in _columns))
    .join(runs, runs.c.id == activations.c.run_id)
    .where(activations.c.run_id == bindparam("of_run"), runs.c.tenant_id == bindparam("of_tenant"))
)
VARIABLES = (
    select(variables.c.activation_id, func.array_agg(variables.c.name))
    .where(variables.c.run_id == bindparam("of_run"))
    .group_by(variables.c.activation_id)
)
FIRST_MESSAGE = text("""
    select min(number) from conversation_messages where conversation_id = :conversation_id and run_id = :of_run
""")
FILES_EXIST = text("""
    select id from files where tenant_id = :tenant_id and id = any(cast(:ids as uuid[]))
""")


@dataclass(frozen=True, slots=True)
class SourceStep:
    """An activation of a source run, with what a preview shows of it."""

    activation: SourceActivation
    component: str
    status: str
    attempt: int
    effect: str | None
    has_answers: bool
    outcome: Mapping[str, Any] | None
    usage: Mapping[str, int]
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def milliseconds(self) -> int:
        """How long its last attempt took; 0 if it has not ended."""
        if self.started_at is None or self.finished_at is None:
            return 0
        return max(0, int((self.finished_at - self.started_at).total_seconds() * 1000))


def load_steps(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> list[SourceStep]:
    """Return all activations of a tenant's run."""
    rows = tx.send(ACTIVATIONS, of_run=run_id, of_tenant=tenant_id)
    names: dict[ActivationId, Sequence[str]] = dict(map(tuple, tx.rows(VARIABLES, of_run=run_id)))
    return [_step(row, names.get(row.id, ())) for row in rows.rows()]


def _step(row: Any, names: Sequence[str]) -> SourceStep:
    outcome: Mapping[str, Any] | None = row.outcome
    found = SourceActivation(
        id=row.id,
        node_id=row.node_id,
        scope=scope_key(row.scope),
        ordinal=row.ordinal,
        order_key=bytes(row.order_key),
        region=bytes(row.region),
        regions={bytes.fromhex(region): revision for region, revision in row.limits or ()},
        activated_rev=row.activated_rev,
        applied_rev=row.applied_rev,
        is_exit=outcome is not None and outcome.get("is") == "Left",
        variables=names,
    )
    return SourceStep(
        activation=found,
        component=row.component,
        status=row.status,
        attempt=row.attempt,
        effect=row.effect,
        has_answers=row.answers is not None,
        outcome=outcome,
        usage=row.usage or {},
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def find_first_message(tx: Transaction, conversation_id: SessionId, run_id: RunId) -> int | None:
    """Return the number of the message that started a run; None if it or its conversation was deleted."""
    return tx.scalar(FIRST_MESSAGE, conversation_id=conversation_id, of_run=run_id)


def missing_files(tx: Transaction, tenant_id: TenantId, ids: Sequence[Any]) -> list[Any]:
    """Return those ids of files that the tenant does not have any more."""
    known = {row[0] for row in tx.rows(FILES_EXIST, tenant_id=tenant_id, ids=list(ids))} if ids else set[Any]()
    return [each for each in ids if each not in known]
