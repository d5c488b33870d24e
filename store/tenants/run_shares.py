"""Shares of one run: a link that opens the run for people without an account, with parts of it hidden.

Only the SHA-256 of a share's secret is stored. A share is over when it expires or is revoked; it stays in lists for 30
days, so that its visitors learn why it opens nothing.
"""

import hashlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Interval, and_, bindparam, delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from canvas.errors import NotFound
from canvas.ids import CanvasId, RunId, TenantId
from store.db.transaction import Transaction
from store.primitives.ids import NO_ID, new_id
from store.tables.viewer import run_shares as shares

DEFAULT_LIFETIME = timedelta(days=7)
MAX_LIFETIME = timedelta(days=90)
LISTED_AFTER_END = timedelta(days=30)
BATCH = 500
_SECRET_BYTES = 32


class Hide(StrEnum):
    """What a share can hide."""

    INPUTS = "inputs"
    OUTPUTS = "outputs"
    PROMPTS = "prompts"
    COST = "cost"
    ERRORS = "errors"
    TALK = "talk"


@dataclass(frozen=True, slots=True)
class SharedRun:
    """A share that is valid: the run that it opens, what it hides, and whether its visitors may answer open forms."""

    id: UUID
    run_id: RunId
    canvas_id: CanvasId
    hide: frozenset[Hide]
    may_answer: bool
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class RunShare:
    """A share as its owner sees it. `created_by`: the token that made it. `uses`: sign-ins with its secret."""

    id: UUID
    run_id: RunId
    created_by: UUID
    created_at: datetime
    expires_at: datetime
    hide: Sequence[str]
    may_answer: bool
    note: str
    revoked_at: datetime | None
    last_used_at: datetime | None  # to the minute
    uses: int
    is_valid: bool


is_valid = and_(shares.c.revoked_at.is_(None), shares.c.expires_at > func.now())
_listed = (
    *(shares.c[name] for name in RunShare.__dataclass_fields__ if name != "is_valid"),
    is_valid.label("is_valid"),
)
INSERT = (
    insert(shares)
    .values(
        id=bindparam("id"),
        hash=bindparam("hash"),
        tenant_id=bindparam("tenant_id"),
        run_id=bindparam("shared_run"),
        canvas_id=bindparam("canvas_id"),
        created_by=bindparam("created_by"),
        expires_at=func.now() + bindparam("expires_in", type_=Interval),
        hide=bindparam("hide"),
        may_answer=bindparam("may_answer"),
        note=bindparam("note"),
    )
    .returning(*_listed)
)
_of_run = (shares.c.tenant_id == bindparam("of_tenant"), shares.c.run_id == bindparam("shared_run"))
LIST = select(*_listed).where(*_of_run, shares.c.id > bindparam("after")).order_by(shares.c.id).limit(bindparam("most"))
COUNT_VALID = select(func.count()).select_from(shares).where(*_of_run, is_valid)
REVOKE = (
    update(shares)
    .where(*_of_run, shares.c.id == bindparam("of_share"))
    .values(revoked_at=func.coalesce(shares.c.revoked_at, func.now()))
)
FIND_BY_SECRET = select(
    shares.c.tenant_id,
    is_valid.label("is_valid"),
    shares.c.revoked_at,
    *(shares.c[name] for name in SharedRun.__dataclass_fields__),
).where(shares.c.hash == bindparam("hash"))
COUNT_USE = (
    update(shares)
    .where(shares.c.tenant_id == bindparam("of_tenant"), shares.c.id == bindparam("of_share"))
    .values(uses=shares.c.uses + 1, last_used_at=func.now())
)
_UNRECORDED = (
    select(shares.c.id)
    .where(
        shares.c.tenant_id == bindparam("of_tenant"),
        shares.c.id == bindparam("of_share"),
        func.coalesce(shares.c.last_used_at, shares.c.created_at) < func.now() - text("interval '1 minute'"),
    )
    .with_for_update(skip_locked=True)
)
RECORD_USE = update(shares).where(shares.c.id.in_(_UNRECORDED)).values(last_used_at=func.now())
_OVER = (
    select(shares.c.id)
    .where(shares.c.expires_at < func.now() - LISTED_AFTER_END)
    .order_by(shares.c.expires_at)
    .limit(BATCH)
    .with_for_update(skip_locked=True)
)
DELETE_OVER = delete(shares).where(shares.c.id.in_(_OVER))


def create(
    tx: Transaction,
    tenant_id: TenantId,
    run_id: RunId,
    canvas_id: CanvasId,
    *,
    created_by: UUID,
    expires_in: timedelta,
    hide: Collection[Hide],
    may_answer: bool,
    note: str,
) -> tuple[RunShare, str]:
    """Share a run; return the share and its secret, which is not stored."""
    plain = secrets.token_urlsafe(_SECRET_BYTES)
    row = tx.one_or_none(
        INSERT,
        id=new_id(),
        hash=hash_of(plain),
        tenant_id=tenant_id,
        shared_run=run_id,
        canvas_id=canvas_id,
        created_by=created_by,
        expires_in=expires_in,
        hide=sorted(each.value for each in hide),
        may_answer=may_answer,
        note=note,
    )
    assert row is not None  # since the statement inserts a row
    return RunShare(**row), plain


def list_shares(
    tx: Transaction, tenant_id: TenantId, run_id: RunId, *, after: UUID = NO_ID, limit: int
) -> Sequence[RunShare]:
    """Return shares of a run after one of them, the oldest first; those that are over too."""
    return [RunShare(*row) for row in tx.rows(LIST, of_tenant=tenant_id, shared_run=run_id, after=after, most=limit)]


def count_valid(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> int:
    """Return how many shares of a run are not over."""
    return int(tx.scalar(COUNT_VALID, of_tenant=tenant_id, shared_run=run_id))


def revoke(tx: Transaction, tenant_id: TenantId, run_id: RunId, share_id: UUID) -> None:
    """Revoke a share. Revoking it again changes nothing. Raises NotFound for an unknown share."""
    if not tx.execute(REVOKE, of_tenant=tenant_id, shared_run=run_id, of_share=share_id):
        raise NotFound(f"The run has no share {share_id.hex}.")


@dataclass(frozen=True, slots=True)
class FoundShare:
    """The share of a secret. `is_valid`: it is not over; else `was_revoked` says why."""

    tenant_id: TenantId
    share: SharedRun
    is_valid: bool
    was_revoked: bool


def find_by_secret(tx: Transaction, plain: str) -> FoundShare | None:
    """Return the share with this secret, also one that is over; None for an unknown secret."""
    row = tx.one_or_none(FIND_BY_SECRET, hash=hash_of(plain))
    if row is None:
        return None
    names = SharedRun.__dataclass_fields__
    share = SharedRun(**{name: row[name] for name in names if name != "hide"}, hide=to_hide(row["hide"]))
    return FoundShare(row["tenant_id"], share, row["is_valid"], row["revoked_at"] is not None)


def count_use(tx: Transaction, tenant_id: TenantId, share_id: UUID) -> None:
    """Count a sign-in with the secret of a share."""
    tx.execute(COUNT_USE, of_tenant=tenant_id, of_share=share_id)


def record_use(tx: Transaction, tenant_id: TenantId, share_id: UUID) -> None:
    """Store the time at which a share is used, once a minute."""
    tx.execute(RECORD_USE, of_tenant=tenant_id, of_share=share_id)


def delete_over(tx: Transaction) -> int:
    """Delete up to 500 shares of all tenants that expired 30 days ago; return how many."""
    return tx.execute(DELETE_OVER)


def to_hide(stored: Collection[str]) -> frozenset[Hide]:
    """Return what a stored share hides. A name of a later release hides everything."""
    known = {each.value for each in Hide}
    return frozenset(Hide(name) for name in stored) if known.issuperset(stored) else frozenset(Hide)


def hash_of(plain: str) -> bytes:
    """Return the SHA-256 of a secret."""
    return hashlib.sha256(plain.encode(errors="backslashreplace")).digest()
