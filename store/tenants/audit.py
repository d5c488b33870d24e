"""The audit log: who changed, published, deleted or cancelled what.

A row is written in the transaction of the change, so there is a row for each change that was committed and for no
other. It says who and what, and has no values of users and no secrets. Saves of one draft by one caller within ten
minutes share a row, which counts them, since an editor saves every few seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Text, bindparam, text

from canvas.ids import TenantId
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.primitives.json_codec import encode

JOINED_FOR = timedelta(minutes=10)  # saves of a draft
MAX_DETAIL_CHARS = 200  # of one text
MAX_REQUEST_ID_CHARS = 128
BATCH = 500
LAST_ID = UUID(int=(1 << 128) - 1)


class Action(StrEnum):
    """What was done; the part before the dot says to what."""

    AGENT_CREATED = "agent.created"
    AGENT_CHANGED = "agent.changed"
    AGENT_PUBLISHED = "agent.published"
    AGENT_DELETED = "agent.deleted"
    AGENT_RESTORED = "agent.restored"  # a version became the draft
    DRAFT_SAVED = "agent.draft_saved"
    VERSION_DELETED = "version.deleted"
    RUN_CANCELLED = "run.cancelled"
    RUN_RESUMED = "run.resumed"
    RUN_RERUN = "run.rerun"
    RUN_FORKED = "run.forked"
    SESSION_DELETED = "session.deleted"
    TOKEN_CREATED = "token.created"  # noqa: S105 (not a password)
    TOKEN_CHANGED = "token.changed"  # noqa: S105
    TOKEN_REVOKED = "token.revoked"  # noqa: S105
    SHARE_CREATED = "share.created"
    SHARE_REVOKED = "share.revoked"
    BUDGET_SET = "budget.set"
    BUDGET_REMOVED = "budget.removed"
    KNOWLEDGE_BASE_DELETED = "knowledge_base.deleted"
    DOCUMENT_DELETED = "document.deleted"
    CHUNKS_DELETED = "document.chunks_deleted"
    MEMORY_DELETED = "memory.deleted"
    MCP_SERVER_ADDED = "mcp_server.added"
    MCP_SERVER_CHANGED = "mcp_server.changed"
    MCP_SERVER_DELETED = "mcp_server.deleted"

    @property
    def object_kind(self) -> str:
        """What the action was done to."""
        return self.value.partition(".")[0]


ACTORS = ("token", "sign_in", "share_link", "share", "command_line")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something. `kind` is one of ACTORS; `id` that of the token, sign-in or share; `name` without a token."""

    kind: str
    id: UUID | None = None
    token_id: UUID | None = None
    name: str = ""
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A row of the log. `times`: how many saves share it, from `at` to `last_at`."""

    id: UUID
    at: datetime
    last_at: datetime
    times: int
    actor: str
    actor_id: UUID | None
    token_id: UUID | None
    actor_name: str
    action: str
    object_id: str
    details: Mapping[str, Any]
    request_id: str | None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which rows to list; None does not filter. `actor`: one of ACTORS, or the id of a token, sign-in or share."""

    actions: Sequence[str] | None = None
    object_id: str | None = None
    actors: Sequence[str] | None = None
    actor_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None


INSERT = text("""
    insert into audit_log (id, tenant_id, actor, actor_id, token_id, actor_name, action, object_id, details, request_id)
    select :id, :tenant_id, :actor, cast(:actor_id as uuid), cast(:token_id as uuid), coalesce(
        (select name from tokens where id = cast(:token_id as uuid) and tenant_id = :tenant_id), :actor_name
      ), :action, :object_id, cast(:details as json), :request_id
""").bindparams(bindparam("request_id", type_=Text))
JOIN = text("""
    update audit_log set times = times + 1, last_at = now(), request_id = :request_id
    where id = (
        select id from audit_log
        where tenant_id = :tenant_id and object_id = :object_id and action = :action and actor = :actor
            and actor_id is not distinct from cast(:actor_id as uuid) and at > now() - cast(:joined_for as interval)
        order by id desc limit 1
    ) and tenant_id = :tenant_id
""").bindparams(bindparam("request_id", type_=Text))
_FILTERS: Mapping[str, str] = {
    "actions": "action = any(cast(:actions as text[]))",
    "object_id": "object_id = :object_id",
    "actors": "actor = any(cast(:actors as text[]))",
    "actor_id": "(actor_id = cast(:actor_id as uuid) or token_id = cast(:actor_id as uuid))",
    "since": "last_at >= cast(:since as timestamptz)",
    "until": "at < cast(:until as timestamptz)",
}
DELETE_OLD = text("""
    delete from audit_log where id = any(array(
        select id from audit_log where last_at < :before order by last_at limit :most for update skip locked
    ))
""")


def record(
    tx: Transaction,
    tenant_id: TenantId,
    actor: Actor,
    action: Action,
    object_id: UUID | str | None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Add a row with the commit of this transaction. Names in `details` are cut to 200 characters."""
    tx.send(INSERT, id=new_id(), details=encode(_short(details or {})), **_key(tenant_id, actor, action, object_id))


def record_save(tx: Transaction, tenant_id: TenantId, actor: Actor, canvas_id: UUID) -> None:
    """Count a save of a draft in the caller's row of the last ten minutes, or add one.

    The transaction has locked the draft, so there are no two of them at once.
    """
    key = _key(tenant_id, actor, Action.DRAFT_SAVED, canvas_id)
    joined = {name: value for name, value in key.items() if name not in ("token_id", "actor_name")}
    if not tx.execute(JOIN, joined_for=JOINED_FOR, **joined):
        tx.send(INSERT, id=new_id(), details="{}", **key)


def list_entries(
    tx: Transaction, tenant_id: TenantId, chosen: AuditFilter, *, before: UUID = LAST_ID, limit: int
) -> Sequence[AuditEntry]:
    """Return rows of a tenant's log before one of them, the newest first."""
    values = {name: value for name in _FILTERS if (value := getattr(chosen, name)) is not None}
    conditions = " and ".join(("tenant_id = :tenant_id", "id < :before", *(_FILTERS[name] for name in values)))
    columns = ", ".join(AuditEntry.__dataclass_fields__)
    statement = text(f"select {columns} from audit_log where {conditions} order by id desc limit :most")  # noqa: S608 (constants only)
    return [AuditEntry(*row) for row in tx.rows(statement, tenant_id=tenant_id, before=before, most=limit, **values)]


def delete_old(tx: Transaction, before: datetime) -> int:
    """Delete up to 500 rows of all tenants that are older; return how many."""
    return tx.execute(DELETE_OLD, before=before, most=BATCH)


def _key(tenant_id: TenantId, actor: Actor, action: Action, object_id: UUID | str | None) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "actor": actor.kind,
        "actor_id": actor.id,
        "token_id": actor.token_id,
        "actor_name": actor.name,
        "action": action.value,
        "object_id": object_id.hex if isinstance(object_id, UUID) else object_id or "",
        "request_id": actor.request_id,
    }


def _short(details: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value[:MAX_DETAIL_CHARS] if isinstance(value, str) else value
        for name, value in details.items()
        if value is not None
    }
