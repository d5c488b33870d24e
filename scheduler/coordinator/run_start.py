"""What a run begins with: globals, the outputs of earlier turns of its conversation, and the user's message.

A run starts from what the conversation's previous run left: variables keep their values, outputs of nodes that ran are
null, others stay. A first run starts from a full reset. `sys.history` and `sys.files` are not copied from run to run;
a reader composes them from the conversation's messages and the run's files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from canvas.document import defaults
from canvas.document.document import Document
from canvas.errors import NotFound
from canvas.graph.canvas import Canvas
from canvas.ids import RunId
from scheduler.coordinator.version_cache import VersionCache
from store.agents import conversation_runs
from store.db.transaction import Transaction
from store.runs import run_rows, values
from store.runs.run_rows import RunRow

UNSTORED_OPTIONS = frozenset({"custom_header"})
"""Options that may hold secrets of the caller."""

DATE_FORMAT = "%Y-%m-%d %H:%M:%S"

GIVEN = "given"
"""Key in the baseline of a run of one node alone: the nodes whose outputs are given, which count as having run."""


class ConversationDeleted(NotFound):
    """The conversation of a run was deleted before the run could start."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a caller gives for one turn."""

    query: Any = ""
    inputs: Mapping[str, Any] | None = None
    files: tuple[Mapping[str, Any], ...] = ()
    user_id: str = ""
    webhook_payload: Mapping[str, Any] | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # cancel_on_disconnect, ...
    date: str = ""  # `sys.date` of the turn; "": now. A replay gives it; it is not stored with the request

    def to_json(self) -> dict[str, Any]:
        """Return the value of the run's `request` column."""
        return {
            "query": self.query,
            "inputs": self.inputs,
            "files": list(self.files),
            "user_id": self.user_id,
            "webhook_payload": self.webhook_payload,
            "chat_template_kwargs": self.chat_template_kwargs,
            "options": {name: value for name, value in self.options.items() if name not in UNSTORED_OPTIONS},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "RunRequest":
        """Return the request of a `request` column: the inverse of `to_json`."""
        known: dict[str, Any] = {**data, "files": tuple(data["files"])}
        return RunRequest(**known)


def baseline(tx: Transaction, document: Document, previous: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the `baseline` column of a run: {"globals", "values", "files", "inputs"}, as the previous run left them.

    `inputs` are those of Begin, the only ones that are carried over. `previous` is None for a first run.
    """
    if previous is None:
        fresh = defaults.initial_globals(document)
        del fresh["sys.history"], fresh["sys.files"]
        return {"globals": fresh, "values": {}, "files": [], "inputs": {}}
    base = previous["baseline"]
    left = values.load_final(tx, previous["id"], with_large=False)
    globals_ = dict(base["globals"])
    outputs_by_node = {node: dict(outputs) for node, outputs in base["values"].items()}
    for node, (outputs, _) in left.outputs.items():
        outputs_by_node[node] = {name: None for name in outputs if not name.startswith("_")}
    for name, (value, _) in left.variables.items():
        node, at, root = name.partition("@")
        if not at:
            globals_[name] = value
        elif node not in left.outputs:
            outputs_by_node.setdefault(node, {})[root] = value
    inputs = values.load_inputs(tx, previous["id"], "begin") or base.get("inputs", {})
    return {"globals": globals_, "values": outputs_by_node, "files": base.get("files", []), "inputs": inputs}


def turn_globals(base: Mapping[str, Any], request: RunRequest, now: datetime) -> dict[str, Any]:
    """Return the globals that a turn sets. As upstream, empty arguments do not replace the globals of `base`."""
    changed: dict[str, Any] = {
        "sys.date": request.date or now.strftime(DATE_FORMAT),
        "sys.conversation_turns": _turn_count(base["globals"]) + 1,
    }
    if request.query:
        changed["sys.query"] = request.query
    if request.user_id:
        changed["sys.user_id"] = request.user_id
    if request.chat_template_kwargs:
        changed["sys.chat_template_kwargs"] = dict(request.chat_template_kwargs)
    return changed


def _turn_count(known: Mapping[str, Any]) -> int:
    turns = known.get("sys.conversation_turns")
    return turns if isinstance(turns, int) else 0


def occupy_conversation(
    tx: Transaction, row: RunRow, versions: VersionCache, conversation: Mapping[str, Any] | None = None
) -> tuple[RunRow, Canvas] | None:
    """Make a queued run the active run of its conversation, and write what it begins with.

    Returns its row as it is then, and its canvas, which is read once: the version may be deleted at any moment. None:
    another run is active or comes first. `conversation`: its row, if the caller has locked it. Raises
    ConversationDeleted and VersionGone, before anything is written.
    """
    conversation = conversation or conversation_runs.lock(tx, row.tenant_id, row.conversation_id)
    if conversation is None:
        raise ConversationDeleted("Session not found!")
    active, is_first = conversation["active_run"], conversation["last_run"] is None
    if active is None and not is_first and conversation["has_queue"]:  # it is free, but other runs may come first
        active = conversation_runs.find_next_queued(tx, row.conversation_id)
    if active not in (None, row.id):
        return None
    previous_id: RunId | None = conversation["last_run"] if conversation["last_run"] != row.id else None
    previous = run_rows.read(tx, row.tenant_id, previous_id) if previous_id is not None else None
    version = versions.get(tx, row.version_id)
    conversation_runs.set_active_run(tx, row.conversation_id, row.id)
    assert row.request is not None, "the whole row was read"
    request = RunRequest.from_json(row.request)
    if row.baseline:  # of a rerun or fork
        base = dict(row.baseline)
    else:
        base = baseline(tx, version.document, previous)
        base["globals"] |= turn_globals(base, request, datetime.now())  # local time, as upstream
        if request.files:
            base["files"] = list(request.files)
    number = conversation_runs.append_user_message(tx, conversation, row.conversation_id, row.id, request.query)
    run_rows.set_baseline(tx, row.id, baseline=base, previous_run=previous_id, history_upto=number)
    return row._replace(baseline=base, previous_run=previous_id, history_upto=number), version.canvas
