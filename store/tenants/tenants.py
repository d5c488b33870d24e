"""Tenants and their API tokens. Only the SHA-256 of a token is stored; its text is shown once, when it is created.

A token with fewer rights than its kind, by its scopes or since it opens one agent, has a text that begins with
SCOPED_PREFIX, and its hash is computed in another way: an earlier release, which does not know about scopes, does not
find it, and so does not accept it with the rights of its kind.
"""

import hashlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ARRAY, Interval, Uuid, and_, any_, bindparam, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert

from canvas.errors import Conflict, InvalidRequest, NotFound
from canvas.ids import CanvasId, TenantId
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.runs.external_ids import uuid_of
from store.tables.tenants import canvases, tenants, tokens
from store.tenants.scopes import KINDS, TokenScope, in_order, kind_of, scopes_of

PREFIX = "easel_"
SCOPED_PREFIX = "easel_scoped_"
SHOWN_CHARS = 4  # of the random part of a token that lists show
LISTED_AFTER_END = timedelta(days=30)  # lists of pages show tokens that are over for so long
LAST_ID = UUID(int=(1 << 128) - 1)
_TOKEN_BYTES = 32

SHARE_LINK = "beta"


@dataclass(frozen=True, slots=True)
class Tenant:
    """An owner of canvases and runs: both the user and the tenant in RAGFlow's API."""

    id: TenantId
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its text. `kind` is `api`, `admin`, `viewer` (reads only) or `beta` (share links).

    `canvas_id` is the only agent that the token gives access to; a share link without it gives access to nothing.
    `may_share`: the token may share runs, as those with the scope `admin` always may. `prefix`: how its text begins;
    None for tokens of earlier releases. `created_by`: the token that made it; None for the command line. `rights`: the
    names of its scopes as stored, None for those of its kind.
    """

    id: UUID
    name: str
    kind: str
    created_at: datetime
    last_used_at: datetime | None  # to the minute
    revoked_at: datetime | None
    expires_at: datetime | None = None
    canvas_id: CanvasId | None = None
    may_share: bool = False
    prefix: str | None = None
    created_by: UUID | None = None
    rights: str | None = None

    @property
    def scopes(self) -> frozenset[TokenScope]:
        """The scopes of the token."""
        return scopes_of(self.kind, self.rights)


@dataclass(frozen=True, slots=True)
class Principal:
    """The tenant and token of a request.

    `canvas_id` is the only agent that the token gives access to. `is_use_unrecorded`: the time of the last use was
    stored more than a minute ago (`record_use`).
    """

    tenant_id: TenantId
    token_id: UUID
    kind: str
    scopes: frozenset[TokenScope]
    canvas_id: CanvasId | None = None
    may_share: bool = False
    expires_at: datetime | None = None
    is_use_unrecorded: bool = False


INSERT_TENANT = (
    insert(tenants).values(id=bindparam("id"), name=bindparam("name")).on_conflict_do_nothing().returning(tenants.c.id)
)
TENANT_BY_NAME = select(tenants.c.id, tenants.c.name, tenants.c.created_at).where(tenants.c.name == bindparam("name"))
NAME = select(tenants.c.name).where(tenants.c.id == bindparam("of_tenant"))
TENANT_BY_ID = select(tenants.c.id).where(tenants.c.id == bindparam("of_tenant"))
ALL_TENANTS = select(tenants.c.id, tenants.c.name, tenants.c.created_at).order_by(tenants.c.name)

INSERT_TOKEN = insert(tokens).values(
    id=bindparam("id"),
    tenant_id=bindparam("tenant_id"),
    name=bindparam("name"),
    hash=bindparam("hash"),
    kind=bindparam("kind"),
    canvas_id=bindparam("canvas_id"),
    may_share=bindparam("may_share"),
    rights=bindparam("rights"),
    prefix=bindparam("prefix"),
    created_by=bindparam("created_by"),
    expires_at=func.coalesce(
        bindparam("expires_at", type_=tokens.c.expires_at.type), func.now() + bindparam("expires_in", type_=Interval)
    ),
)
TOKENS_OF = (
    select(*(tokens.c[name] for name in Token.__dataclass_fields__))
    .where(tokens.c.tenant_id == bindparam("tenant_id"))
    .order_by(tokens.c.id)
)
_listed = tuple(tokens.c[name] for name in Token.__dataclass_fields__)
_after_end = func.now() - LISTED_AFTER_END
_is_in_pages = and_(
    tokens.c.tenant_id == bindparam("of_tenant"),
    or_(tokens.c.revoked_at.is_(None), tokens.c.revoked_at > _after_end),
    or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > _after_end),
    or_(
        bindparam("maker", type_=Uuid).is_(None),
        tokens.c.created_by == bindparam("maker", type_=Uuid),
        tokens.c.id == bindparam("maker", type_=Uuid),
    ),
)
PAGE = (
    select(*_listed)
    .where(_is_in_pages, tokens.c.id < bindparam("before"))
    .order_by(tokens.c.id.desc())
    .limit(bindparam("most"))
)
TOKEN = select(*_listed).where(tokens.c.tenant_id == bindparam("of_tenant"), tokens.c.id == bindparam("token_id"))
_is_use_unrecorded = or_(
    tokens.c.last_used_at.is_(None), tokens.c.last_used_at < func.now() - text("interval '1 minute'")
)
is_valid = and_(tokens.c.revoked_at.is_(None), or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > func.now()))
PRINCIPAL = select(
    tokens.c.tenant_id,
    tokens.c.id.label("token_id"),
    tokens.c.kind,
    tokens.c.canvas_id,
    tokens.c.may_share,
    tokens.c.rights,
    tokens.c.expires_at,
    _is_use_unrecorded.label("is_unseen"),
).where(tokens.c.hash == bindparam("hash"), is_valid)
VALID = select(tokens.c.id).where(tokens.c.id == any_(bindparam("token_ids", type_=ARRAY(Uuid))), is_valid)
HAS_CANVAS = select(canvases.c.id).where(
    canvases.c.tenant_id == bindparam("tenant_id"), canvases.c.id == bindparam("canvas_id")
)
UNBOUND_LINKS = select(func.count()).where(tokens.c.kind == SHARE_LINK, tokens.c.canvas_id.is_(None), is_valid)
BIND = (
    update(tokens)
    .where(
        tokens.c.tenant_id == bindparam("of_tenant"), tokens.c.id == bindparam("token_id"), tokens.c.kind == SHARE_LINK
    )
    .values(canvas_id=bindparam("new_canvas"))
)
_UNRECORDED = (
    select(tokens.c.id)
    .where(tokens.c.id == bindparam("token_id"), _is_use_unrecorded)
    .with_for_update(skip_locked=True, key_share=True)  # of concurrent requests one stores the time, and none waits
)
RECORD_USE = update(tokens).where(tokens.c.id.in_(_UNRECORDED)).values(last_used_at=func.now())
REVOKE = (
    update(tokens)
    .where(tokens.c.tenant_id == bindparam("of_tenant"), tokens.c.id == bindparam("token_id"))
    .values(revoked_at=func.coalesce(tokens.c.revoked_at, func.now()))
)
_made = (
    select(tokens.c.id)
    .where(tokens.c.tenant_id == bindparam("of_tenant"), tokens.c.created_by == bindparam("token_id"))
    .cte("made", recursive=True)
)
_made = _made.union(
    select(tokens.c.id)
    .join(_made, tokens.c.created_by == _made.c.id)
    .where(tokens.c.tenant_id == bindparam("of_tenant"))
)
REVOKE_MADE = (
    update(tokens)
    .where(
        tokens.c.tenant_id == bindparam("of_tenant"),
        tokens.c.id.in_(select(_made.c.id)),
        tokens.c.revoked_at.is_(None),
    )
    .values(revoked_at=func.now())
    .returning(tokens.c.id)
)
"""Revoke all tokens that a token has made, and those that these have made."""


def find_tenant_id(tx: Transaction, written: str) -> TenantId | None:
    """Return the id of the tenant with this id (with or without hyphens) or name; None if there is none."""
    parsed = uuid_of(written)
    if parsed is not None and tx.scalar(TENANT_BY_ID, of_tenant=parsed) is not None:
        return TenantId(parsed)
    tenant = find_tenant(tx, written)
    return tenant.id if tenant is not None else None


def create_tenant(tx: Transaction, name: str) -> TenantId:
    """Add a tenant; return its id. Raises Conflict if the name is taken."""
    created = tx.scalar(INSERT_TENANT, id=new_id(), name=name)
    if created is None:
        raise Conflict(f'A tenant named "{name}" already exists. Pick another name.')
    return created


def ensure_tenant(tx: Transaction, name: str) -> TenantId:
    """Return the id of the tenant of that name, and add it if there is none (this creates "local")."""
    if existing := find_tenant(tx, name):
        return existing.id
    if created := tx.scalar(INSERT_TENANT, id=new_id(), name=name):
        return created
    return ensure_tenant(tx, name)  # another transaction has added it and committed


def find_tenant(tx: Transaction, name: str) -> Tenant | None:
    """Return the tenant of that name; None if there is none."""
    row = tx.one_or_none(TENANT_BY_NAME, name=name)
    return Tenant(**row) if row else None


def find_name(tx: Transaction, tenant_id: TenantId) -> str | None:
    """Return the name of a tenant; None if there is none."""
    return tx.scalar(NAME, of_tenant=tenant_id)


def list_tenants(tx: Transaction) -> list[Tenant]:
    """Return all tenants by name."""
    return [Tenant(*row) for row in tx.rows(ALL_TENANTS)]


def create_token(
    tx: Transaction,
    tenant_id: TenantId,
    name: str,
    kind: str = "api",
    *,
    scopes: frozenset[TokenScope] | None = None,
    canvas_id: CanvasId | None = None,
    expires_in: timedelta | None = None,
    expires_at: datetime | None = None,
    may_share: bool = False,
    created_by: UUID | None = None,
) -> tuple[UUID, str]:
    """Create a token; return its id and its text, which is not stored.

    `scopes` determine the kind; without them, they are those of the kind. A share link names the agent
    that it gives access to; a token without the scope `admin` may name one. Raises InvalidRequest otherwise, and
    NotFound for an agent that the tenant does not have.
    """
    chosen = scopes if scopes is not None else KINDS[kind]
    kind = kind_of(chosen)
    if may_share and (TokenScope.ADMIN in chosen or TokenScope.EDIT not in chosen):
        raise InvalidRequest("The right to share runs goes with the scope `edit`; `admin` includes it.")
    if kind == SHARE_LINK and canvas_id is None:
        raise InvalidRequest("A share link opens one agent. Name the agent.", field="agent_id")
    if TokenScope.ADMIN in chosen and canvas_id is not None:
        raise InvalidRequest("A token with the scope `admin` opens every agent. Name no agent.", field="agent_id")
    if canvas_id is not None:
        _check_canvas(tx, tenant_id, canvas_id)
    is_narrow = chosen != KINDS[kind] or (canvas_id is not None and kind != SHARE_LINK)
    begin = SCOPED_PREFIX if is_narrow else PREFIX
    token_id = new_id()
    plain = begin + secrets.token_urlsafe(_TOKEN_BYTES)
    tx.execute(
        INSERT_TOKEN,
        id=token_id,
        tenant_id=tenant_id,
        name=name,
        hash=_hash(plain),
        kind=kind,
        canvas_id=canvas_id,
        may_share=may_share,
        rights=" ".join(in_order(chosen)),
        prefix=plain[: len(begin) + SHOWN_CHARS],
        created_by=created_by,
        expires_in=expires_in,
        expires_at=expires_at,
    )
    return token_id, plain


def bind_token(tx: Transaction, tenant_id: TenantId, token_id: UUID, canvas_id: CanvasId) -> None:
    """Set the agent that a share link gives access to. Raises NotFound for an unknown share link or agent."""
    _check_canvas(tx, tenant_id, canvas_id)
    if not tx.execute(BIND, of_tenant=tenant_id, token_id=token_id, new_canvas=canvas_id):
        raise NotFound(f"The share link {token_id} does not exist. See the list of this tenant's tokens.")


def find_principal(tx: Transaction, plain: str) -> Principal | None:
    """Return the tenant and the rights of a token; None if it is unknown, revoked or expired. Writes nothing.

    The text is hashed before it is compared, so the time that the search takes reveals nothing about a token. Nothing
    is cached between requests: every process refuses a revoked token from the next request on.
    """
    row = tx.one_or_none(PRINCIPAL, hash=_hash(plain))
    if row is None:
        return None
    return Principal(
        row["tenant_id"],
        row["token_id"],
        row["kind"],
        scopes_of(row["kind"], row["rights"]),
        row["canvas_id"],
        row["may_share"],
        row["expires_at"],
        row["is_unseen"],
    )


def record_use(tx: Transaction, token_id: UUID) -> None:
    """Store the time at which a token is used, once a minute."""
    tx.execute(RECORD_USE, token_id=token_id)


def filter_valid(tx: Transaction, token_ids: Collection[UUID]) -> set[UUID]:
    """Return those of the tokens that are neither revoked nor expired."""
    return {token_id for (token_id,) in tx.rows(VALID, token_ids=list(token_ids))}


def list_tokens(tx: Transaction, tenant_id: TenantId) -> list[Token]:
    """Return a tenant's tokens, including revoked ones, oldest first."""
    return [Token(*row) for row in tx.rows(TOKENS_OF, tenant_id=tenant_id)]


def page(
    tx: Transaction, tenant_id: TenantId, *, maker: UUID | None = None, before: UUID = LAST_ID, limit: int
) -> Sequence[Token]:
    """Return a tenant's tokens before one of them, the newest first; those that are over for 30 days more.

    `maker`: only this token, and those that it has made.
    """
    return [Token(*row) for row in tx.rows(PAGE, of_tenant=tenant_id, maker=maker, before=before, most=limit)]


def find_token(tx: Transaction, tenant_id: TenantId, token_id: UUID) -> Token | None:
    """Return a tenant's token; None if it has no such token."""
    row = tx.one_or_none(TOKEN, of_tenant=tenant_id, token_id=token_id)
    return Token(**row) if row is not None else None


def count_unbound_links(tx: Transaction) -> int:
    """Return how many share links of all tenants name no agent, and so give access to nothing."""
    return int(tx.scalar(UNBOUND_LINKS))


def revoke_token(tx: Transaction, tenant_id: TenantId, token_id: UUID) -> None:
    """Revoke a token. Revoking it again changes nothing. Raises NotFound for an unknown token."""
    if not tx.execute(REVOKE, of_tenant=tenant_id, token_id=token_id):
        raise NotFound(f"There is no token {token_id}. See the list of this tenant's tokens.")


def revoke_made(tx: Transaction, tenant_id: TenantId, token_id: UUID) -> Sequence[UUID]:
    """Revoke all tokens that a token has made, directly or by another one; return those that were valid."""
    return [made for (made,) in tx.rows(REVOKE_MADE, of_tenant=tenant_id, token_id=token_id)]


def _check_canvas(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> None:
    if tx.scalar(HAS_CANVAS, tenant_id=tenant_id, canvas_id=canvas_id) is None:
        raise NotFound(f"There is no agent {canvas_id.hex} of this tenant.")


def _hash(plain: str) -> bytes:
    written = plain.encode(errors="backslashreplace")
    return hashlib.sha256(b"scoped\0" + written if plain.startswith(SCOPED_PREFIX) else written).digest()
