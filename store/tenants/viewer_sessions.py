"""Sign-ins of browsers, and the one-time codes that open one.

A sign-in is bound to the token or the share that it was made with and ends with it. Only the SHA-256 of its cookie, and
of a code, is stored.
"""

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, and_, any_, bindparam, delete, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert

from canvas.errors import NotFound
from canvas.ids import CanvasId, TenantId
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.tables.tenants import tokens
from store.tables.viewer import run_shares as shares
from store.tables.viewer import viewer_codes as codes
from store.tables.viewer import viewer_sessions as sessions
from store.tenants import run_shares, tenants
from store.tenants.run_shares import SharedRun, hash_of
from store.tenants.scopes import TokenScope, scopes_of

IDLE_LIFETIME = timedelta(hours=12)
LIFETIME = timedelta(days=7)
CODE_LIFETIME = timedelta(minutes=10)
SHARE = "share"
"""The kind of a sign-in with a share; other sign-ins have the kind of their token."""
MAX_AGENT_CHARS = 200
BATCH = 500
_SECRET_BYTES = 32

EndReason = Literal["signed_out", "share_revoked"]
"""Why a stream of a caller ends: the sign-in or its token is over, or the share is."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What a caller has proved itself with: a token, or a sign-in. Streams check again whether it is valid."""

    token_id: UUID | None = None
    session_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class SignIn:
    """A valid sign-in: its tenant and token, or the share. `kind`: `api`, `admin`, `viewer` or `share`.

    `scopes` and `canvas_id` are those of the token; a visitor of a share has no scopes.
    """

    id: UUID
    tenant_id: TenantId
    kind: str
    token_id: UUID | None
    may_share: bool
    share: SharedRun | None
    scopes: frozenset[TokenScope]
    canvas_id: CanvasId | None


@dataclass(frozen=True, slots=True)
class ListedSignIn:
    """A sign-in in the list of those with the same token."""

    id: UUID
    kind: str
    created_at: datetime
    last_seen_at: datetime  # to the minute
    expires_at: datetime
    agent: str


_is_open = and_(
    sessions.c.ended_at.is_(None),
    sessions.c.expires_at > func.now(),
    sessions.c.last_seen_at > func.now() - IDLE_LIFETIME,
)
_with_token = and_(tokens.c.id == sessions.c.token_id, tokens.c.tenant_id == sessions.c.tenant_id, tenants.is_valid)
_with_share = and_(shares.c.id == sessions.c.share_id, shares.c.tenant_id == sessions.c.tenant_id, run_shares.is_valid)
_joined = sessions.outerjoin(tokens, _with_token).outerjoin(shares, _with_share)
_is_unrecorded = sessions.c.last_seen_at < func.now() - text("interval '1 minute'")

INSERT = insert(sessions).values(
    hash=bindparam("hash"),
    id=bindparam("id"),
    tenant_id=bindparam("tenant_id"),
    token_id=bindparam("token_id"),
    share_id=bindparam("share_id"),
    kind=bindparam("kind"),
    expires_at=func.least(func.now() + LIFETIME, bindparam("expires_at", type_=sessions.c.expires_at.type)),
    agent=bindparam("agent"),
)
FIND = (
    select(
        sessions.c.id,
        sessions.c.tenant_id,
        sessions.c.kind,
        sessions.c.token_id,
        func.coalesce(tokens.c.may_share, text("false")).label("may_share"),
        tokens.c.kind.label("token_kind"),
        tokens.c.rights,
        tokens.c.canvas_id.label("only_canvas"),
        shares.c.id.label("share_id"),
        shares.c.run_id,
        shares.c.canvas_id,
        shares.c.hide,
        shares.c.may_answer,
        shares.c.expires_at.label("share_expires_at"),
        _is_unrecorded.label("is_unseen"),
    )
    .select_from(_joined)
    .where(sessions.c.hash == bindparam("hash"), _is_open, or_(tokens.c.id.is_not(None), shares.c.id.is_not(None)))
)
_UNRECORDED = (
    select(sessions.c.hash)
    .where(sessions.c.tenant_id == bindparam("of_tenant"), sessions.c.id == bindparam("of_session"), _is_unrecorded)
    .with_for_update(skip_locked=True)  # of concurrent requests one stores the time, and none waits
)
RECORD_USE = update(sessions).where(sessions.c.hash.in_(_UNRECORDED)).values(last_seen_at=func.now())
END_BY_SECRET = (
    update(sessions)
    .where(sessions.c.hash == bindparam("of_hash"), sessions.c.ended_at.is_(None))
    .values(ended_at=func.now())
)
_of_token = (sessions.c.tenant_id == bindparam("of_tenant"), sessions.c.token_id == bindparam("of_token"))
LIST = (
    select(*(sessions.c[name] for name in ListedSignIn.__dataclass_fields__))
    .where(*_of_token, _is_open, sessions.c.id < bindparam("before"))
    .order_by(sessions.c.id.desc())
    .limit(bindparam("most"))
)
END = update(sessions).where(*_of_token, sessions.c.id == bindparam("of_session"), _is_open).values(ended_at=func.now())
STATES = (
    select(
        sessions.c.id,
        and_(_is_open, or_(tokens.c.id.is_not(None), shares.c.id.is_not(None))).label("is_valid"),
        and_(sessions.c.share_id.is_not(None), shares.c.id.is_(None)).label("is_share_over"),
    )
    .select_from(_joined)
    .where(sessions.c.id == any_(bindparam("session_ids", type_=ARRAY(Uuid))))
)
COUNT_OPEN = (
    select(func.count()).select_from(_joined).where(_is_open, or_(tokens.c.id.is_not(None), shares.c.id.is_not(None)))
)
_OVER = (
    select(sessions.c.hash)
    .where(
        or_(
            sessions.c.last_seen_at < func.now() - IDLE_LIFETIME,
            sessions.c.expires_at < func.now(),
            sessions.c.ended_at.is_not(None),
        )
    )
    .limit(BATCH)
    .with_for_update(skip_locked=True)
)
DELETE_OVER = delete(sessions).where(sessions.c.hash.in_(_OVER))

INSERT_CODE = (
    insert(codes)
    .values(
        hash=bindparam("hash"),
        tenant_id=bindparam("tenant_id"),
        token_id=bindparam("token_id"),
        expires_at=func.now() + CODE_LIFETIME,
    )
    .returning(codes.c.expires_at)
)
USE_CODE = (
    update(codes)
    .where(
        codes.c.hash == bindparam("of_hash"),
        codes.c.used_at.is_(None),
        codes.c.expires_at > func.now(),
        codes.c.token_id == tokens.c.id,
        codes.c.tenant_id == tokens.c.tenant_id,
        tenants.is_valid,
    )
    .values(used_at=func.now())
    .returning(tokens.c.tenant_id, tokens.c.id.label("token_id"), tokens.c.kind, tokens.c.rights, tokens.c.canvas_id)
)
_OLD_CODES = (
    select(codes.c.hash)
    .where(codes.c.expires_at < func.now())
    .order_by(codes.c.expires_at)
    .limit(BATCH)
    .with_for_update(skip_locked=True)
)
DELETE_OLD_CODES = delete(codes).where(codes.c.hash.in_(_OLD_CODES))


def sign_in_with_token(tx: Transaction, principal: tenants.Principal, agent: str) -> str:
    """Sign in a browser with a token; return the value of its cookie, which is not stored."""
    return _insert(tx, principal.tenant_id, principal.kind, agent, token_id=principal.token_id)


def sign_in_with_share(tx: Transaction, tenant_id: TenantId, share: SharedRun, agent: str) -> str:
    """Sign in a browser with a share, which counts this use; return the value of its cookie."""
    run_shares.count_use(tx, tenant_id, share.id)
    return _insert(tx, tenant_id, SHARE, agent, share=share)


def _insert(
    tx: Transaction,
    tenant_id: TenantId,
    kind: str,
    agent: str,
    *,
    token_id: UUID | None = None,
    share: SharedRun | None = None,
) -> str:
    plain = secrets.token_urlsafe(_SECRET_BYTES)
    tx.execute(
        INSERT,
        hash=hash_of(plain),
        id=new_id(),
        tenant_id=tenant_id,
        token_id=token_id,
        share_id=share.id if share is not None else None,
        kind=kind,
        expires_at=share.expires_at if share is not None else None,
        agent=agent[:MAX_AGENT_CHARS],
    )
    return plain


def find(tx: Transaction, plain: str) -> SignIn | None:
    """Return the sign-in of a cookie; None if it is unknown or over, as its token or share may be.

    The cookie is hashed before it is compared. The use is stored once a minute.
    """
    row = tx.one_or_none(FIND, hash=hash_of(plain))
    if row is None:
        return None
    share = None
    if row["share_id"] is not None:
        hidden = run_shares.to_hide(row["hide"])
        share = SharedRun(
            row["share_id"], row["run_id"], row["canvas_id"], hidden, row["may_answer"], row["share_expires_at"]
        )
    if row["is_unseen"]:
        tx.execute(RECORD_USE, of_tenant=row["tenant_id"], of_session=row["id"])
        if share is not None:
            run_shares.record_use(tx, row["tenant_id"], share.id)
        else:
            tenants.record_use(tx, row["token_id"])
    rights = scopes_of(row["token_kind"], row["rights"]) if share is None else frozenset[TokenScope]()
    return SignIn(
        row["id"],
        row["tenant_id"],
        row["kind"],
        row["token_id"],
        row["may_share"],
        share,
        rights,
        row["only_canvas"],
    )


def end_by_secret(tx: Transaction, plain: str) -> None:
    """End the sign-in of a cookie, if there is one."""
    tx.execute(END_BY_SECRET, of_hash=hash_of(plain))


def list_of_token(
    tx: Transaction, tenant_id: TenantId, token_id: UUID, *, before: UUID, limit: int
) -> Sequence[ListedSignIn]:
    """Return the open sign-ins with a token, the newest first, before one of them."""
    rows = tx.rows(LIST, of_tenant=tenant_id, of_token=token_id, before=before, most=limit)
    return [ListedSignIn(*row) for row in rows]


def end(tx: Transaction, tenant_id: TenantId, token_id: UUID, session_id: UUID) -> None:
    """End a sign-in with a token. Raises NotFound for one that is not open, or is of another token."""
    if not tx.execute(END, of_tenant=tenant_id, of_token=token_id, of_session=session_id):
        raise NotFound(f"There is no sign-in {session_id.hex}.")


def find_ended(tx: Transaction, credentials: Collection[Credential]) -> Mapping[Credential, EndReason]:
    """Return which credentials are no longer valid, and why. One statement for tokens, and one for sign-ins."""
    token_ids = {each.token_id for each in credentials if each.session_id is None and each.token_id is not None}
    session_ids = {each.session_id for each in credentials if each.session_id is not None}
    valid_tokens = tenants.filter_valid(tx, token_ids) if token_ids else set[UUID]()
    states = {row.id: row for row in tx.rows(STATES, session_ids=list(session_ids))} if session_ids else {}
    ended: dict[Credential, EndReason] = {}
    for each in credentials:
        if each.session_id is not None:
            state = states.get(each.session_id)
            if state is None or not state.is_valid:
                ended[each] = "share_revoked" if state is not None and state.is_share_over else "signed_out"
        elif each.token_id is not None and each.token_id not in valid_tokens:
            ended[each] = "signed_out"
    return ended


def count_open(tx: Transaction) -> int:
    """Return how many sign-ins of all tenants are valid."""
    return int(tx.scalar(COUNT_OPEN))


def delete_over(tx: Transaction) -> int:
    """Delete up to 500 sign-ins of all tenants that are over; return how many."""
    return tx.execute(DELETE_OVER)


# -- one-time codes ---------------------------------------------------------------------------------------------------
def create_code(tx: Transaction, tenant_id: TenantId, token_id: UUID) -> tuple[str, datetime]:
    """Create a code that signs in once, as the token does; return it and when it expires."""
    plain = secrets.token_urlsafe(_SECRET_BYTES)
    expires_at = tx.scalar(INSERT_CODE, hash=hash_of(plain), tenant_id=tenant_id, token_id=token_id)
    return plain, expires_at


def use_code(tx: Transaction, plain: str) -> tenants.Principal | None:
    """Return the token of a code, which then is used up; None if it is unknown, used, or over, or its token is.

    Of concurrent uses one gets the token.
    """
    row = tx.one_or_none(USE_CODE, of_hash=hash_of(plain))
    if row is None:
        return None
    return tenants.Principal(
        row["tenant_id"], row["token_id"], row["kind"], scopes_of(row["kind"], row["rights"]), row["canvas_id"]
    )


def delete_old_codes(tx: Transaction) -> int:
    """Delete up to 500 codes of all tenants that have expired; return how many."""
    return tx.execute(DELETE_OLD_CODES)
