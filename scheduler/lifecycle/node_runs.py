"""Runs of one node alone, for the author of a canvas: the start of such a run.

It is a run like any other, of a hidden version that has only this node (`canvas/document/single_node.py`), in a
conversation of its own that lists of conversations leave out. It begins with the given values. Neither the draft nor
its versions and conversations change. The caller starts the run.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from canvas.budget import parse_limits
from canvas.document import defaults
from canvas.document.document import BEGIN, Document
from canvas.document.single_node import NodeInputs, isolate
from canvas.ids import CanvasId, RunId, TenantId
from scheduler.coordinator.run_start import DATE_FORMAT, GIVEN, RunRequest
from scheduler.lifecycle.accept import DEBUG, RunCopy, Start
from store.agents import conversations, versions
from store.db.transaction import Transaction

"""The kind of such a run in its `origin`."""


def plan_node_run(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    document: Document,
    node_id: str,
    inputs: NodeInputs,
    new_run: RunId,
    *,
    title: str,
    user_id: str = "",
    budget: Mapping[str, Any] | None = None,
    idempotency: tuple[str, str, bytes] | None = None,
) -> Start:
    """Return the start of a run of one node of a document. Stores the hidden version.

    budget: limits of the run as in a request. Raises InvalidRequest for an invalid limit.
    """
    limits = parse_limits(budget) if budget is not None else {}
    version = versions.insert_hidden(tx, tenant_id, canvas_id, isolate(document, node_id, inputs), title=title)
    request = RunRequest(
        query=inputs.globals.get("sys.query", ""),
        inputs=inputs.answers or None if node_id == BEGIN else None,
        files=tuple(inputs.files or ()),
        user_id=user_id,
    )
    origin = {"kind": DEBUG, "from": [node_id], "edits": list(inputs.names)}
    return Start(
        tenant_id=tenant_id,
        canvas_id=canvas_id,
        version_id=version.id,
        request=request,
        run_id=new_run,
        conversation_name=node_id[:250],
        conversation_source=conversations.DEBUG_SOURCE,
        idempotency=idempotency,
        budget=limits,
        copy=RunCopy(None, None, origin, _baseline(document, inputs, user_id)),
    )


def _baseline(document: Document, inputs: NodeInputs, user_id: str) -> dict[str, Any]:
    fresh = defaults.initial_globals(document)
    del fresh["sys.history"], fresh["sys.files"]
    turn = {"sys.date": datetime.now().strftime(DATE_FORMAT), "sys.conversation_turns": 1}  # local time, as upstream
    return {
        "globals": {**fresh, **turn, **({"sys.user_id": user_id} if user_id else {}), **inputs.globals},
        "values": {node: dict(outputs) for node, outputs in inputs.outputs.items()},
        "files": list(inputs.files or ()),
        "inputs": {},
        GIVEN: list(inputs.outputs),
    }
