"""Refused starts: a row among the runs for a start that another service requested and that was not accepted.

The row has the status `refused` and the reason. It is found under the id that the sender chose, and is deleted with its
week like any run. An external id has one such row however often its start is refused, and an accepted start takes the
row's place (`external_ids.claim`).
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, func, insert, literal_column, update

from canvas.ids import CanvasId, RunId, TenantId
from canvas.state.checkpoint import run_to_json
from canvas.state.run_state import RULES_VERSION, RunState, RunStatus
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.runs import external_ids
from store.tables.runs import runs

NO_ID = UUID(int=0)
"""Stands in place of the ids that only a run has."""

_REFUSED = literal_column(f"'{RunStatus.REFUSED}'")

ADD = insert(runs).values(status=_REFUSED, created_at=func.clock_timestamp(), finished_at=func.clock_timestamp())
UPDATE_REFUSAL = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"), runs.c.status == _REFUSED)
    .values(
        canvas_id=bindparam("new_canvas"),
        request=bindparam("new_request"),
        error=bindparam("new_error"),
        finished_at=func.clock_timestamp(),
    )
)


def save_refusal(
    tx: Transaction,
    tenant_id: TenantId,
    external_id: str,
    canvas_id: CanvasId | None,
    request: Mapping[str, Any],
    reason: str,
) -> RunId | None:
    """Store that a start was refused; return the id of the row, None if there is a run with this external id.

    `request`: what lists show of the request.
    """
    while True:
        existing = tx.one_or_none(external_ids.LOCK, of_tenant=tenant_id, of_key=external_ids.key_of(external_id))
        if existing is not None:
            return _update_refusal(tx, existing, canvas_id, request, reason)
        if external_ids.started_run(tx, tenant_id, external_id) is not None:
            return None
        row_id = RunId(new_id())
        key = external_ids.key_of(external_id)
        if tx.scalar(external_ids.ADD, tenant_id=tenant_id, key=key, run_id=row_id, digest=None) is None:
            continue  # another message with this id inserted it first
        tx.execute(
            ADD,
            id=row_id,
            tenant_id=tenant_id,
            canvas_id=canvas_id or NO_ID,
            version_id=NO_ID,
            conversation_id=NO_ID,
            message_id=row_id,
            rules_version=RULES_VERSION,
            state=run_to_json(RunState(row_id, RunStatus.REFUSED)),
            request=request,
            baseline={},
            usage={},
            error=reason,
            external_id=external_id,
        )
        return row_id


def _update_refusal(
    tx: Transaction, existing: Mapping[str, Any], canvas_id: CanvasId | None, request: Mapping[str, Any], reason: str
) -> RunId | None:
    if existing["digest"] is not None:
        return None
    changed = {"new_canvas": canvas_id or NO_ID, "new_request": request, "new_error": reason}
    tx.execute(UPDATE_REFUSAL, of_run=existing["run_id"], **changed)
    return existing["run_id"]
