"""What a turn begins with: globals, the outputs that earlier turns left, and the user's message (engine 3).

A run starts from what the conversation's previous run left: variables keep their values, outputs of nodes that ran are
null, others stay. A first run starts from a full reset. `sys.history` and `sys.files` are not copied from run to run;
a reader puts them together from the conversation's messages and the run's files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from canvas.document import defaults
from canvas.document.document import Document
from canvas.errors import NotFound
from scheduler.coordinator.version_cache import VersionCache
from store.agents import conversation_runs
from store.db.transaction import Transaction
from store.runs import run_rows, values
from store.runs.run_rows import RunRow

NEVER_STORED = frozenset({"custom_header"})
"""Options that may hold secrets of the caller's (components E15)."""

DATE = "%Y-%m-%d %H:%M:%S"


class ConversationDeleted(NotFound):
    """A run is to begin whose conversation was deleted."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller gave for one turn (engine 3)."""

    query: Any = ""
    inputs: Mapping[str, Any] | None = None
    files: tuple[Mapping[str, Any], ...] = ()
    user_id: str = ""
    webhook_payload: Mapping[str, Any] | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # cancel_on_disconnect, ...

    def to_json(self) -> dict[str, Any]:
        """The run's `request` column."""
        return {
            "query": self.query,
            "inputs": self.inputs,
            "files": list(self.files),
            "user_id": self.user_id,
            "webhook_payload": self.webhook_payload,
            "chat_template_kwargs": self.chat_template_kwargs,
            "options": {name: value for name, value in self.options.items() if name not in NEVER_STORED},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Request":
        """The inverse of `to_json`."""
        known: dict[str, Any] = {**data, "files": tuple(data["files"])}
        return Request(**known)


def baseline(tx: Transaction, document: Document, previous: Mapping[str, Any] | None) -> dict[str, Any]:
    """The `base` column of a run: {"globals", "values", "files", "inputs"}, as the previous run left them.

    `inputs` are Begin's, the only ones that stay (engine 3.4).
    """
    if previous is None:
        fresh = defaults.fresh_globals(document)
        del fresh["sys.history"], fresh["sys.files"]
        return {"globals": fresh, "values": {}, "files": [], "inputs": {}}
    base = previous["base"]
    left = values.final(tx, previous["id"], is_whole=False)
    kept_globals = dict(base["globals"])
    kept_values = {node: dict(outputs) for node, outputs in base["values"].items()}
    for node, (outputs, _) in left.outputs.items():
        kept_values[node] = {name: None for name in outputs if not name.startswith("_")}
    for name, (value, _) in left.variables.items():
        node, at, root = name.partition("@")
        if not at:
            kept_globals[name] = value
        elif node not in left.outputs:
            kept_values.setdefault(node, {})[root] = value
    inputs = values.inputs_of(tx, previous["id"], "begin") or base.get("inputs", {})
    return {"globals": kept_globals, "values": kept_values, "files": base.get("files", []), "inputs": inputs}


def turn_globals(base: Mapping[str, Any], request: Request, now: datetime) -> dict[str, Any]:
    """The globals a turn sets: only arguments that are truthy replace what is there (engine 3.6)."""
    changed: dict[str, Any] = {
        "sys.date": now.strftime(DATE),
        "sys.conversation_turns": _turns(base["globals"]) + 1,
    }
    if request.query:
        changed["sys.query"] = request.query
    if request.user_id:
        changed["sys.user_id"] = request.user_id
    if request.chat_template_kwargs:
        changed["sys.chat_template_kwargs"] = dict(request.chat_template_kwargs)
    return changed


def _turns(known: Mapping[str, Any]) -> int:
    turns = known.get("sys.conversation_turns")
    return turns if isinstance(turns, int) else 0


def occupy_conversation(
    tx: Transaction, row: RunRow, versions: VersionCache, conversation: Mapping[str, Any] | None = None
) -> RunRow | None:
    """Fill in what a queued run begins with, once its conversation is its own; None while it is not.

    `conversation`: its row, if the caller holds it. Raises SessionGone for a conversation that was deleted.
    """
    conversation = conversation or conversation_runs.lock(tx, row.tenant_id, row.conversation_id)
    if conversation is None:
        raise ConversationDeleted("Session not found!")
    active, is_first = conversation["active_run"], conversation["last_run"] is None
    if active is None and not is_first and conversation["has_queue"]:  # it is free, and others may come before this run
        active = conversation_runs.next_queued(tx, row.conversation_id)
    if active not in (None, row.id):
        return None
    previous_id: UUID | None = conversation["last_run"] if conversation["last_run"] != row.id else None
    previous = run_rows.read(tx, row.tenant_id, previous_id) if previous_id is not None else None
    document = versions.get(tx, row.version_id).document  # a run without it leaves nothing to go on from
    conversation_runs.set_active_run(tx, row.conversation_id, row.id)
    assert row.request is not None, "the whole row was read"
    request = Request.from_json(row.request)
    base = baseline(tx, document, previous)
    base["globals"] |= turn_globals(base, request, datetime.now())  # local time, as upstream (engine 3.2)
    if request.files:
        base["files"] = list(request.files)
    number = conversation_runs.append_user_message(tx, conversation, row.conversation_id, row.id, request.query)
    run_rows.set_base(tx, row.id, base=base, previous_run=previous_id, history_upto=number)
    return replace(row, baseline=base, previous_run=previous_id, history_upto=number)
