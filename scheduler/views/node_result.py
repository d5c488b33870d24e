"""The result of a run of one node alone: its outputs, the variables that it wrote, its usage and its tool calls.

It is also the result of a run that is not over: what there is so far.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from canvas.budget import usage_json
from canvas.errors import NotFound
from canvas.events.run_events import CANCELLED_TEXT
from canvas.ids import RunId, SessionId, TenantId
from canvas.state.run_state import RunStatus
from scheduler.coordinator.version_cache import VersionCache
from scheduler.views import run_view
from scheduler.views.run_view import DeclaredOutputs
from store.db.transaction import Transaction
from store.runs import attempt_records, run_queries, run_rows, values
from store.runs.passwords import load_mask

ERROR = "_ERROR"


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What a run of one node has come to.

    outputs: those of the node, `_ERROR` if it failed. variables: name -> value, of what it wrote. waiting: its open
    forms by node. tool_calls: [{component_id, trace: [{tool_name, arguments, result, ...}]}].
    """

    run_id: RunId
    conversation_id: SessionId
    message_id: UUID
    status: RunStatus
    error: str
    outputs: Mapping[str, Any] = field(repr=False)
    variables: Mapping[str, Any] = field(repr=False)
    waiting: Mapping[str, Any] | None
    usage: Mapping[str, Any]
    started_at: datetime | None
    finished_at: datetime | None
    tool_calls: list[dict[str, Any]] = field(repr=False)

    @property
    def elapsed_ms(self) -> int | None:
        """The milliseconds from the start of the run to its end; None if it is not over."""
        if self.started_at is None or self.finished_at is None:
            return None
        return round((self.finished_at - self.started_at).total_seconds() * 1000)

    def to_json(self) -> dict[str, Any]:
        """Return the result without the outputs."""
        return {
            "run_id": self.run_id.hex,
            "session_id": self.conversation_id.hex,
            "message_id": self.message_id.hex,
            "status": self.status.value,
            "error": self.error or None,
            "variables": dict(self.variables),
            "waiting": self.waiting,
            "usage": self.usage,
            "elapsed_ms": self.elapsed_ms,
            "tool_calls": self.tool_calls,
        }


def read_node_result(
    tx: Transaction,
    versions: VersionCache,
    tenant_id: TenantId,
    run_id: RunId,
    node_id: str,
    declared: DeclaredOutputs,
) -> NodeResult:
    """Return the result of a run of one node. `declared` returns the outputs that a node has before it runs.

    Raises NotFound for a run of another tenant.
    """
    row = run_rows.read(tx, tenant_id, run_id)
    run = run_queries.get_summary(tx, tenant_id, run_id)
    if row is None or run is None:
        raise NotFound(f"There is no run {run_id.hex}.", run_id=run_id.hex)
    status = RunStatus(run.status)
    canvas = versions.get_or_empty(tx, row["version_id"]).canvas
    mask = load_mask(tx, canvas, tenant_id, run_id)
    outputs = run_view.outputs_of(tx, versions, row, declared).get(node_id, {})
    error = run.error or (CANCELLED_TEXT if status is RunStatus.CANCELLED else "")
    if error and not outputs.get(ERROR):
        outputs = {**outputs, ERROR: error}
    return NodeResult(
        run_id=run_id,
        conversation_id=run.conversation_id,
        message_id=run.message_id,
        status=status,
        error=error,
        outputs=outputs,
        variables={name: mask.value(value) for name, (value, _) in values.load_final(tx, run_id).variables.items()},
        waiting=mask.value(run_view.open_forms(canvas, row["state"])) if status is RunStatus.WAITING else None,
        usage=usage_json(run.usage),
        started_at=run.started_at,
        finished_at=run.finished_at,
        tool_calls=attempt_records.find_tool_calls(tx, tenant_id, run_id, run.message_id),
    )
