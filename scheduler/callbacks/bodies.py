"""The body of a callback: {type, timestamp, data}. Small, without outputs unless the callback includes them.

What happened is taken from the facts that the trigger stored with the event, since the run may have gone on meanwhile.
"""

from collections.abc import Mapping
from typing import Any

from canvas.budget import budget_stop, usage_json
from canvas.events.stream_sequencer import markers_to_tags
from canvas.state.run_state import RunStatus
from scheduler.coordinator.version_cache import VersionCache
from scheduler.views import run_view
from scheduler.views.json_values import hex_of, iso
from store.agents import canvases
from store.db.transaction import Transaction
from store.primitives.json_codec import encode
from store.runs import run_rows
from store.runs.passwords import load_mask
from store.tenants.callback_deliveries import DueDelivery
from store.tenants.callbacks import TEST, CallbackEvent, Include

MAX_OUTPUT = 16_384  # characters of an answer
MAX_ERROR = 2_000  # characters


def body_of(tx: Transaction, versions: VersionCache, delivery: DueDelivery, public_url: str | None) -> str:
    """Return the body of a delivery as JSON text. `public_url`: where browsers find the pages; None: nowhere."""
    data = {"callback_id": delivery.callback_id.hex} if delivery.event == TEST else _data(tx, delivery, public_url)
    if Include.OUTPUT in delivery.include and delivery.event != CallbackEvent.WAITING and delivery.run_id is not None:
        data |= _output(tx, versions, delivery)
    return encode({"type": delivery.event, "timestamp": iso(delivery.occurred_at), "data": data})


def _data(tx: Transaction, delivery: DueDelivery, public_url: str | None) -> dict[str, Any]:
    assert delivery.run_id is not None, "every event but a test is about a run"
    facts = delivery.facts or {}
    status = RunStatus(delivery.event.removeprefix("run."))
    return {
        "run_id": delivery.run_id.hex,
        "session_id": hex_of(delivery.conversation_id),
        "agent_id": hex_of(delivery.canvas_id),
        "status": status.value,
        "title": canvases.find_title(tx, delivery.tenant_id, delivery.canvas_id) if delivery.canvas_id else None,
        "error": _error(facts) if status is RunStatus.FAILED else None,
        "waits_for": _waits_for(facts) if status is RunStatus.WAITING else None,
        "run_url": f"{public_url.rstrip('/')}/runs/{delivery.run_id.hex}" if public_url is not None else None,
        "usage": usage_json(facts.get("usage") or {}),
    }


def _error(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the error of a failed run, and its code; `run_failed` if no node has one (canvas/state/checkpoint.py)."""
    failing = facts.get("failing")
    code = failing[4] if failing and failing[4] else "run_failed"
    return {"code": code, "message": str(facts.get("error") or "")[:MAX_ERROR]}


def _waits_for(facts: Mapping[str, Any]) -> str:
    stops = [budget_stop(form[3]) for form in (facts.get("forms") or {}).values()]
    return "budget" if stops and all(stop is not None for stop in stops) else "person"


def _output(tx: Transaction, versions: VersionCache, delivery: DueDelivery) -> dict[str, Any]:
    """Return the text of the answer, with passwords masked, and whether it was cut."""
    assert delivery.run_id is not None
    row = run_rows.read(tx, delivery.tenant_id, delivery.run_id)
    if row is None:  # deleted meanwhile
        return {"output": None, "output_is_cut": False}
    canvas = versions.get_or_empty(tx, row["version_id"]).canvas
    mask = load_mask(tx, canvas, delivery.tenant_id, delivery.run_id)
    text = markers_to_tags(mask.text(run_view.answer_text(tx, row)))
    return {"output": text[:MAX_OUTPUT], "output_is_cut": len(text) > MAX_OUTPUT}
