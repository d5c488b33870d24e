"""Agents and conversations for lists that show them briefly: without documents, with their latest run."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Text, Uuid, bindparam, text

from canvas.ids import ActivationId, CanvasId, RunId, SessionId, TenantId
from store.db.transaction import Transaction

MAX_RECENT_RUNS = 10_000  # that are counted of one agent

AGENTS = text("""
    select c.id, c.title, c.tags, c.description, c.updated_at,
        exists (select from versions v where v.canvas_id = c.id and v.released and v.deleted_at is null) as published,
        last.id as run_id, last.status as run_status, last.created_at as run_created_at, recent.runs, recent.failed
    from (
        select c.* from canvases c
        where c.tenant_id = :tenant_id and (cast(:canvas_id as uuid) is null or c.id = cast(:canvas_id as uuid))
            and (:pattern is null or c.title ilike :pattern or c.description ilike :pattern)
            and (:tag is null or lower(:tag) = any(string_to_array(lower(c.tags), ',')))
            and (cast(:after as uuid) is null or (c.updated_at, c.id) < (
                select o.updated_at, o.id from canvases o where o.id = cast(:after as uuid) and o.tenant_id = :tenant_id
            ))
        order by c.updated_at desc, c.id desc limit :most
    ) c
    left join lateral (
        select r.id, r.status, r.created_at from runs r where r.canvas_id = c.id and r.tenant_id = c.tenant_id
        order by r.id desc limit 1
    ) last on true
    cross join lateral (
        select count(*) as runs, count(*) filter (where status = 'failed') as failed from (
            select r.status from runs r where r.canvas_id = c.id and r.tenant_id = c.tenant_id
                and r.created_at > now() - interval '1 day' limit :most_recent
        ) r
    ) recent
    order by c.updated_at desc, c.id desc
""").bindparams(
    bindparam("canvas_id", type_=Uuid),
    bindparam("pattern", type_=Text),
    bindparam("tag", type_=Text),
    bindparam("after", type_=Uuid),
)
CONVERSATIONS = text("""
    select k.id, k.canvas_id, c.title, k.name, k.user_id, k.source, k.messages, k.rounds, k.active_run, k.last_run,
        k.error, k.created_at, k.updated_at
    from (
        select k.* from conversations k
        where k.tenant_id = :tenant_id and (cast(:canvas_id as uuid) is null or k.canvas_id = cast(:canvas_id as uuid))
            and k.source <> 'debug' and (:pattern is null or k.name ilike :pattern)
            and (cast(:before as uuid) is null or (k.updated_at, k.id) < (
                select o.updated_at, o.id from conversations o
                where o.id = cast(:before as uuid) and o.tenant_id = :tenant_id
            ))
        order by k.updated_at desc, k.id desc limit :most
    ) k left join canvases c on c.id = k.canvas_id and c.tenant_id = k.tenant_id
    order by k.updated_at desc, k.id desc
""").bindparams(bindparam("canvas_id", type_=Uuid), bindparam("pattern", type_=Text), bindparam("before", type_=Uuid))
MESSAGES = text("""
    select m.number, m.role, m.run_id, m.activation_id, m.node_id, m.created_at, m.content, v.outputs, v.large
    from conversation_messages m
    join conversations k on k.id = m.conversation_id and k.tenant_id = :tenant_id
    left join node_values v
        on v.run_id = m.run_id and v.activation_id = m.activation_id and v.node_id = m.node_id
    where m.conversation_id = :conversation_id and m.number < :before
    order by m.number desc limit :most
""")


class AgentOverview(NamedTuple):
    """An agent without its document. Runs of the last day are counted up to MAX_RECENT_RUNS."""

    id: CanvasId
    title: str
    tags: str
    description: str | None
    updated_at: datetime
    is_published: bool
    run_id: RunId | None
    run_status: str | None
    run_created_at: datetime | None
    recent_runs: int
    recent_failed: int


class ConversationOverview(NamedTuple):
    """A conversation without its messages."""

    id: SessionId
    canvas_id: CanvasId
    agent_title: str | None
    name: str
    user_id: str
    source: str
    messages: int
    rounds: int
    active_run: RunId | None
    last_run: RunId | None
    error: str
    created_at: datetime
    updated_at: datetime


class BriefMessage(NamedTuple):
    """A message. An assistant's has the outputs of a node, or once retention has deleted them their text as `content`.

    `large`: the outputs that are in files.
    """

    number: int
    role: str
    run_id: RunId | None
    activation_id: ActivationId | None
    node_id: str | None
    created_at: datetime
    content: Any
    outputs: dict[str, Any] | None
    large: dict[str, Any] | None


def list_agents(
    tx: Transaction,
    tenant_id: TenantId,
    *,
    canvas_id: CanvasId | None = None,
    words: str = "",
    tag: str = "",
    after: UUID | None = None,
    limit: int = 30,
) -> tuple[Sequence[AgentOverview], bool]:
    """Return a page of a tenant's agents, the last changed first, and whether there are more.

    `canvas_id`: only this agent. `words`: a part of the title or description, in any case. `after`: the last agent of
    the page before.
    """
    rows = tx.rows(
        AGENTS,
        tenant_id=tenant_id,
        canvas_id=canvas_id,
        pattern=_pattern(words),
        tag=tag or None,
        after=after,
        most=limit + 1,
        most_recent=MAX_RECENT_RUNS,
    )
    return [AgentOverview(*row) for row in rows[:limit]], len(rows) > limit


def list_conversations(
    tx: Transaction,
    tenant_id: TenantId,
    *,
    canvas_id: CanvasId | None = None,
    words: str = "",
    before: UUID | None = None,
    limit: int = 30,
) -> tuple[Sequence[ConversationOverview], bool]:
    """Return a page of a tenant's conversations, the last changed first, and whether there are more.

    `words`: a part of the name, in any case. `before`: the last conversation of the page before.
    """
    rows = tx.rows(
        CONVERSATIONS,
        tenant_id=tenant_id,
        canvas_id=canvas_id,
        pattern=_pattern(words),
        before=before,
        most=limit + 1,
    )
    return [ConversationOverview(*row) for row in rows[:limit]], len(rows) > limit


def read_messages(
    tx: Transaction, tenant_id: TenantId, conversation_id: SessionId, *, before: int, limit: int
) -> tuple[Sequence[BriefMessage], bool]:
    """Return the last messages before a number in order, and whether there are earlier ones. Reads no files."""
    rows = tx.rows(MESSAGES, tenant_id=tenant_id, conversation_id=conversation_id, before=before, most=limit + 1)
    return [BriefMessage(*row) for row in reversed(rows[:limit])], len(rows) > limit


def _pattern(words: str) -> str | None:
    """Return the pattern of texts that contain the words; None for none."""
    for special in ("\\", "%", "_"):
        words = words.replace(special, f"\\{special}")
    return f"%{words.strip()}%" if words.strip() else None
