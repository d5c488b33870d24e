"""Conversations: what a user and an agent have said across runs (`session_id` on the wire).

This module creates, reads, lists and deletes them. Messages and the active run are written together with a run, in
`store/agents/conversation_runs.py`. An assistant's message has no text of its own: it names the activation whose
outputs it shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Text, and_, bindparam, cast, exists, func, or_, select, true

from canvas.errors import NotFound
from canvas.ids import ActivationId, CanvasId, RunId, SessionId, TenantId, VersionId
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.tables.runs import node_values, runs
from store.tables.tenants import conversation_messages as entries
from store.tables.tenants import conversations
from store.tables.tenants import versions as version_rows

DEBUG_SOURCE = "debug"
"""The source of the conversation of a run of one node alone. Lists leave such conversations out."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation. `messages` is the number of its last message, `rounds` the number of its completed turns."""

    id: SessionId
    tenant_id: TenantId
    canvas_id: CanvasId
    version_id: VersionId
    version_title: str
    user_id: str
    name: str
    source: str  # workflow | agent | debug
    active_run: RunId | None
    last_run: RunId | None
    messages: int
    rounds: int
    error: str
    created_at: datetime
    updated_at: datetime
    token_id: UUID | None = None  # the share link that began it


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    """A message of one side. An assistant's `content` is the outputs of a node; None once retention has deleted it."""

    number: int
    role: str
    content: Any = field(repr=False)
    run_id: RunId | None
    activation_id: ActivationId | None
    node_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ConversationFilter:
    """Which conversations of a canvas to list; an empty field does not filter. `since` and `until` are included."""

    ids: Sequence[SessionId] = ()
    user_id: str = ""
    keywords: str = ""  # in id, name or the text of a message, in any case
    since: datetime | None = None
    until: datetime | None = None


ORDERS = {
    "create_time": conversations.c.created_at,
    "create_date": conversations.c.created_at,
    "update_time": conversations.c.updated_at,
    "update_date": conversations.c.updated_at,
    "name": conversations.c.name,
    "user_id": conversations.c.user_id,
}

_version_title = select(version_rows.c.title).where(version_rows.c.id == conversations.c.version_id).scalar_subquery()
_columns = tuple(
    func.coalesce(_version_title, "").label(name) if name == "version_title" else conversations.c[name]
    for name in Conversation.__dataclass_fields__
)
_of_canvas = and_(
    conversations.c.tenant_id == bindparam("tenant_id"), conversations.c.canvas_id == bindparam("canvas_id")
)
_messages_with_values = sa.outerjoin(
    entries,
    node_values,
    and_(
        node_values.c.run_id == entries.c.run_id,
        node_values.c.activation_id == entries.c.activation_id,
        node_values.c.node_id == entries.c.node_id,
    ),
)
_content = func.coalesce(entries.c.content, node_values.c.outputs).label("content")

INSERT = sa.insert(conversations).values(
    {
        name: bindparam(name)
        for name in ("id", "tenant_id", "canvas_id", "version_id", "user_id", "name", "source", "token_id")
    }
    | {"has_queue": sa.false()}
)
CONVERSATION = select(*_columns).where(
    conversations.c.tenant_id == bindparam("tenant_id"), conversations.c.id == bindparam("conversation_id")
)
OF_LINK = select(conversations.c.id).where(
    conversations.c.tenant_id == bindparam("tenant_id"),
    conversations.c.token_id == bindparam("token_id"),
    or_(
        conversations.c.id == bindparam("of"),
        conversations.c.id == select(runs.c.conversation_id).where(runs.c.id == bindparam("of")).scalar_subquery(),
    ),
)
_listed = and_(_of_canvas, conversations.c.source != DEBUG_SOURCE)
PAGE = select(*_columns).where(_listed)
COUNT = select(func.count()).select_from(conversations).where(_listed)
MESSAGES = (
    select(
        entries.c.conversation_id,
        entries.c.number,
        entries.c.role,
        _content,
        entries.c.run_id,
        entries.c.activation_id,
        entries.c.node_id,
        entries.c.created_at,
        node_values.c.large,
    )
    .select_from(_messages_with_values.join(conversations, conversations.c.id == entries.c.conversation_id))
    .where(
        conversations.c.tenant_id == bindparam("tenant_id"),
        conversations.c.id == func.any(bindparam("some", type_=sa.ARRAY(sa.Uuid))),
    )
    .order_by(entries.c.conversation_id, entries.c.number)
)
HISTORY = (
    select(entries.c.role, _content, entries.c.node_id, node_values.c.large)
    .select_from(_messages_with_values)
    .where(entries.c.conversation_id == bindparam("conversation_id"), entries.c.number <= bindparam("upto"))
    .order_by(entries.c.number.desc())
    .limit(bindparam("most"))
)
OPEN_RUNS = (
    select(runs.c.id)
    .where(
        runs.c.tenant_id == bindparam("tenant_id"),
        runs.c.canvas_id == bindparam("canvas_id"),
        sa.text("status in ('queued', 'running', 'waiting', 'stopping')"),  # as in the partial index
    )
    .order_by(runs.c.created_at.desc(), runs.c.id.desc())
)
OPEN_RUNS_OF_SOME = OPEN_RUNS.where(runs.c.conversation_id == func.any(bindparam("some")))
DELETE = (
    sa.delete(conversations)
    .where(_of_canvas, conversations.c.id == func.any(bindparam("some")))
    .returning(conversations.c.id)
)
DELETE_ALL = sa.delete(conversations).where(_of_canvas)


def create(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    version_id: VersionId,
    user_id: str = "",
    name: str = "",
    source: str = "workflow",
    *,
    conversation_id: SessionId | None = None,
    token_id: UUID | None = None,
) -> SessionId:
    """Create a conversation on a version; return its id (a new one unless the caller gives one).

    `token_id`: the share link that begins it.
    """
    created = conversation_id or SessionId(new_id())
    tx.send(
        INSERT,
        id=created,
        tenant_id=tenant_id,
        canvas_id=canvas_id,
        version_id=version_id,
        user_id=user_id,
        name=name,
        source=source,
        token_id=token_id,
    )
    return created


def get(
    tx: Transaction, tenant_id: TenantId, conversation_id: SessionId, canvas_id: CanvasId | None = None
) -> Conversation:
    """Return a conversation, of that canvas if one is given. Raises NotFound, also for one of another tenant."""
    row = tx.one_or_none(CONVERSATION, tenant_id=tenant_id, conversation_id=conversation_id)
    if row is None or (canvas_id is not None and row["canvas_id"] != canvas_id):
        raise NotFound("Session not found!")
    return Conversation(**row)


def is_of_link(tx: Transaction, tenant_id: TenantId, of: UUID, token_id: UUID) -> bool:
    """Return whether this is the id of a conversation that a share link began, or of a run of such a conversation."""
    return tx.scalar(OF_LINK, tenant_id=tenant_id, of=of, token_id=token_id) is not None


def page(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    filters: ConversationFilter,
    *,
    order_by: str = "update_time",
    descending: bool = True,
    limit: int = 30,
    offset: int = 0,
) -> tuple[list[Conversation], int]:
    """Return one page of a canvas's conversations, and the number of conversations on all pages.

    The times of `filters` apply to the last change if the order is by change, else to the creation. An unknown order
    means `update_time`.
    """
    conditions = _conditions(filters, order_by)
    order = ORDERS.get(order_by, conversations.c.updated_at)
    by = (order, conversations.c.id)
    rows = tx.rows(
        PAGE.where(*conditions)
        .order_by(*(column.desc() if descending else column for column in by))
        .limit(limit)
        .offset(offset),
        tenant_id=tenant_id,
        canvas_id=canvas_id,
    )
    total = tx.scalar(COUNT.where(*conditions), tenant_id=tenant_id, canvas_id=canvas_id)
    return [Conversation(*row) for row in rows], total


def list_messages(tx: Transaction, tenant_id: TenantId, conversation_id: SessionId) -> list[ConversationMessage]:
    """Return all messages in order; none for an unknown conversation or another tenant's."""
    return list_messages_of(tx, tenant_id, [conversation_id])[conversation_id]


def list_messages_of(
    tx: Transaction, tenant_id: TenantId, conversation_ids: Sequence[SessionId]
) -> dict[SessionId, list[ConversationMessage]]:
    """Return all messages of some conversations in order; none for unknown conversations or another tenant's."""
    by_conversation: dict[SessionId, list[ConversationMessage]] = {
        conversation_id: [] for conversation_id in conversation_ids
    }
    for conversation_id, *row, large in tx.rows(MESSAGES, tenant_id=tenant_id, some=list(conversation_ids)):
        message = ConversationMessage(*row)
        content = tx.large.outputs(str(message.node_id), message.content, large)
        by_conversation[conversation_id].append(replace(message, content=content) if large else message)
    return by_conversation


def load_history(tx: Transaction, conversation_id: SessionId, upto: int, limit: int) -> list[Mapping[str, Any]]:
    """Return the last `limit` messages up to number `upto`, oldest first: {role, content}; none for a limit below 1.

    A user's content is as it was stored; an assistant's is the outputs of the node that answered.
    """
    if limit < 1:
        return []
    rows = tx.rows(HISTORY, conversation_id=conversation_id, upto=upto, most=limit)
    return [
        {"role": role, "content": tx.large.outputs(str(node_id), content, large)}
        for role, content, node_id, large in reversed(rows)
    ]


def list_open_runs(
    tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, conversation_ids: Sequence[SessionId] | None = None
) -> list[RunId]:
    """Return the open runs of the ids conversations or of all, including deleted ones.

    Newest first: if they are stopped in this order, none of the queued ones starts meanwhile.
    """
    ids = {"tenant_id": tenant_id, "canvas_id": canvas_id}
    if conversation_ids is None:
        return [run_id for (run_id,) in tx.rows(OPEN_RUNS, **ids)]
    return [run_id for (run_id,) in tx.rows(OPEN_RUNS_OF_SOME, **ids, some=list(conversation_ids))]


def delete(
    tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, conversation_ids: Sequence[SessionId]
) -> set[SessionId]:
    """Delete conversations of a canvas with their messages; return the ids that existed. Their runs stay."""
    rows = tx.rows(DELETE, tenant_id=tenant_id, canvas_id=canvas_id, some=list(conversation_ids))
    return {conversation_id for (conversation_id,) in rows}


def delete_all(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> int:
    """Delete all conversations of a canvas; return how many there were."""
    return tx.execute(DELETE_ALL, tenant_id=tenant_id, canvas_id=canvas_id)


def _conditions(filters: ConversationFilter, order_by: str) -> list[ColumnElement[bool]]:
    at = conversations.c.updated_at if order_by.startswith("update_") else conversations.c.created_at
    return [
        conversations.c.id == func.any(list(filters.ids)) if filters.ids else true(),
        conversations.c.user_id == filters.user_id if filters.user_id else true(),
        at >= filters.since if filters.since else true(),
        at <= filters.until if filters.until else true(),
        _mentions(filters.keywords.strip()) if filters.keywords.strip() else true(),
    ]


def _mentions(keywords: str) -> ColumnElement[bool]:
    """Return whether the id (with or without hyphens), the name or the text of a message contains the words."""
    in_user_text = entries.c.content.op("#>>")(cast([], sa.ARRAY(Text)))
    in_answer = node_values.c.outputs.op("->>")("content")
    id_text = cast(conversations.c.id, Text)
    return or_(
        id_text.icontains(keywords, autoescape=True),
        func.replace(id_text, "-", "").icontains(keywords, autoescape=True),
        conversations.c.name.icontains(keywords, autoescape=True),
        exists()
        .select_from(_messages_with_values)
        .where(
            entries.c.conversation_id == conversations.c.id,
            or_(
                sa.type_coerce(in_user_text, Text).icontains(keywords, autoescape=True),
                sa.type_coerce(in_answer, Text).icontains(keywords, autoescape=True),
            ),
        ),
    )
