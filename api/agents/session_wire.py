"""Serialize conversations as RAGFlow's sessions: their messages, and the document with its current state."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from api.http.replies import date
from api.requests.dependencies import ApiContext
from canvas.document import defaults
from canvas.document.document import Document
from canvas.events.stream_sequencer import markers_to_tags
from canvas.ids import RunId, SessionId, TenantId
from components import registry
from scheduler.views import run_view
from scheduler.views.json_values import milliseconds
from store.agents import conversations
from store.agents.conversations import Conversation, ConversationMessage
from store.db.transaction import Transaction
from store.runs import attempt_records, run_queries, run_rows, session_runs
from store.runs.passwords import load_mask
from store.runs.session_runs import SessionTotals, TurnFiles


@dataclass(frozen=True, slots=True)
class SessionMessages:
    """The messages of a session, the sources that its runs may cite, files that users sent, and sums."""

    messages: Sequence[ConversationMessage]
    run_ids: Sequence[RunId]
    answers: Mapping[RunId, str]
    citations: Mapping[RunId, Mapping[str, Any]]
    files: Mapping[RunId, TurnFiles]
    totals: SessionTotals


def load_messages(
    tx: Transaction, tenant_id: TenantId, session_ids: Sequence[SessionId]
) -> dict[SessionId, SessionMessages]:
    """Return messages and sources of sessions of a tenant. The number of statements does not depend on theirs."""
    found = conversations.list_messages_of(tx, tenant_id, session_ids)
    runs_of = {
        session: list(dict.fromkeys(message.run_id for message in messages if message.run_id is not None))
        for session, messages in found.items()
    }
    run_ids = sorted({run_id for those in runs_of.values() for run_id in those})
    answers, cited = run_queries.load_answer_texts(tx, run_ids), attempt_records.citations_of_runs(tx, run_ids)
    files = session_runs.load_files(tx, tenant_id, run_ids)
    totals = session_runs.load_totals(tx, tenant_id, session_ids)
    return {
        session: SessionMessages(
            messages,
            runs_of[session],
            _stored_answers(messages) | {run_id: answers[run_id] for run_id in runs_of[session] if run_id in answers},
            {run_id: cited[run_id] for run_id in runs_of[session] if run_id in cited},
            {run_id: files[run_id] for run_id in runs_of[session] if run_id in files},
            totals.get(session, SessionTotals()),
        )
        for session, messages in found.items()
    }


def session_item(
    tx: Transaction,
    context: ApiContext,
    session: Conversation,
    *,
    with_dsl: bool = True,
    spoken: SessionMessages | None = None,
) -> dict[str, Any]:
    """Return a session as lists show it."""
    spoken = spoken or _load_messages(tx, session)
    shown = {
        "id": session.id.hex,
        "agent_id": session.canvas_id.hex,
        "name": session.name,
        "user_id": session.user_id,
        "source": session.source,
        "exp_user_id": session.user_id,
        "message": messages_of(tx, context, session, spoken),
        "round": session.rounds,
        "tokens": spoken.totals.tokens,
        "duration": spoken.totals.seconds,
        "thumb_up": 0,
        "errors": session.error,
        "version_title": session.version_title,
        "create_time": milliseconds(session.created_at),
        "create_date": date(session.created_at),
        "update_time": milliseconds(session.updated_at),
        "update_date": date(session.updated_at),
    }
    return {**shown, "dsl": dsl_of(tx, context, session, spoken)} if with_dsl else shown


def session_row(tx: Transaction, context: ApiContext, session: Conversation) -> dict[str, Any]:
    """Return a session like RAGFlow's database row."""
    spoken = _load_messages(tx, session)
    shown = session_item(tx, context, session, spoken=spoken)
    agent = shown.pop("agent_id")
    return {**shown, "dialog_id": agent, "reference": _references(spoken)}


def messages_of(
    tx: Transaction, context: ApiContext, session: Conversation, spoken: SessionMessages
) -> list[dict[str, Any]]:
    """Return the messages of both sides. A run's answer is all its text, with thoughts, after the last user message."""
    messages, answers, cited = spoken.messages, spoken.answers, spoken.citations
    of_users = [message for message in messages if message.role == "user"]
    last_to = {message.run_id: message.number for message in of_users}
    first_to = {message.run_id: message.number for message in reversed(of_users)}
    shown = [_prologue(tx, context, session)] if session.source == "agent" else []
    for message in messages:
        if message.run_id is None:
            shown.append(_message_json(message, _text(message.content)))
        elif message.role == "user":
            shown.append(_message_json(message, _text(message.content)))
            sent = spoken.files.get(message.run_id)
            is_first, is_last = first_to[message.run_id] == message.number, last_to[message.run_id] == message.number
            if sent is not None and (is_first or is_last):
                shown[-1]["files"] = list(sent.first if is_first else sent.last)
            answer = answers.get(message.run_id)
            if answer and is_last:
                shown.append(_message_json(message, markers_to_tags(answer)) | {"role": "assistant"})
                if message.run_id in cited:
                    shown[-1]["reference"] = _number_chunks(cited[message.run_id])
    return shown


def _load_messages(tx: Transaction, session: Conversation) -> SessionMessages:
    return load_messages(tx, session.tenant_id, [session.id])[session.id]


def _stored_answers(messages: Sequence[ConversationMessage]) -> dict[RunId, str]:
    """Return the answers that a conversation has stored of deleted runs, which have no activations any more."""
    return {
        message.run_id: str(message.content.get("content") or "")
        for message in messages
        if message.role == "assistant" and message.run_id is not None and message.activation_id is None
        if isinstance(message.content, dict)
    }


def _number_chunks(references: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the chunks that an answer may cite, each with its citation number."""
    return [{**chunk, "citation_id": number} for number, chunk in references["chunks"].items()]


def _references(spoken: SessionMessages) -> list[Mapping[str, Any]]:
    """Return the sources of each turn."""
    nothing: dict[str, Any] = {"chunks": {}, "doc_aggs": {}}
    return [spoken.citations.get(run, nothing) for run in spoken.run_ids]


def dsl_of(
    tx: Transaction, context: ApiContext, session: Conversation, spoken: SessionMessages | None = None
) -> dict[str, Any]:
    """Return the session's document with the values, globals, history, sources and path of its last run."""
    compiled = context.versions.get_or_empty(tx, session.version_id)
    document = compiled.document
    composed = copy.deepcopy(dict(defaults.reset_by_type(document).raw))
    composed = context.canvas_secrets(session.tenant_id, session.canvas_id).mask_document(composed)
    row = run_rows.read(tx, session.tenant_id, session.last_run) if session.last_run else None
    if row is None or not row["baseline"]:
        return composed
    passwords = load_mask(tx, compiled.canvas, session.tenant_id, row["id"])
    composed["globals"] = passwords.value(run_view.globals_of(tx, row))
    composed["history"] = run_view.history_of(tx, row)
    composed["retrieval"] = _references(spoken or _load_messages(tx, session))
    composed["path"] = session_runs.load_path(tx, session.tenant_id, row["id"])
    _fill(composed, run_view.outputs_of(tx, context.versions, row, registry.default_outputs))
    return composed


def _fill(composed: dict[str, Any], outputs: Mapping[str, Mapping[str, Any]]) -> None:
    for node_id, entry in composed["components"].items():
        declared = entry["obj"]["params"].get("outputs")
        if not isinstance(declared, dict):
            continue
        for name, value in outputs.get(node_id, {}).items():
            if isinstance(declared.get(name), dict):
                declared[name]["value"] = value


def _prologue(tx: Transaction, context: ApiContext, session: Conversation) -> dict[str, Any]:
    document = context.versions.get_or_empty(tx, session.version_id).document
    return {"role": "assistant", "content": prologue_of(document)}


def prologue_of(document: Document) -> str:
    """Return the text with which an agent opens a conversation; "" if it is switched off."""
    params = document.begin_params
    return str(params.get("prologue") or "") if params.get("enablePrologue", True) else ""


def _message_json(message: ConversationMessage, content: Any) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": content,
        "id": (message.run_id or UUID(int=message.number)).hex,
        "created_at": message.created_at.timestamp(),
    }


def _text(content: Any) -> Any:
    """Return the content of a message; of an answer that is an object, its text."""
    return content["content"] if isinstance(content, dict) and set(content) == {"content"} else content
