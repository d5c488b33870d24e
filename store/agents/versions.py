"""Versions: documents that never change once their row is there, so processes may cache them.

Each saved draft has one, so has each published canvas, and every run refers to one. Whoever starts a run reads its
version with `snapshot`, `latest`, `latest_released` or `version_by_id`: these hold the version and its canvas until the
transaction ends, and neither is deleted meanwhile. Accepting a run is a transaction of its own, which holds them again
(`hold`). Deleting takes its locks first and looks for runs and conversations in a later statement, so it sees whatever
a start that it waited for, or skipped, has made.

A version that runs or conversations refer to is never deleted, only hidden from its author (`deleted_at`). Its row goes
with the last of them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import ColumnElement, LargeBinary, Row, Select, Text, and_, bindparam, cast, exists, func, or_, select

from canvas.errors import NotAllowed, NotFound
from store.db.guards import RowGuard, expect_rows, failed_guard
from store.db.transaction import Transaction
from store.maintenance.partitions import IS_OPEN
from store.mcp import pins
from store.primitives.ids import new_id
from store.primitives.json_codec import encode
from store.tables.runs import runs
from store.tables.tenants import canvases, conversations, tenants, versions

KEPT = 20
"""Unreleased versions of a canvas that stay, newest first; those that a run or conversation refers to stay as well."""

BATCH = 500


class VersionGone(NotFound):
    """The version that a run or a conversation refers to is not there any more."""

    code = "version_gone"


@dataclass(frozen=True, slots=True)
class Version:
    """A document that will not change. `digest` is the same for the same document."""

    id: UUID
    tenant_id: UUID
    canvas_id: UUID
    title: str
    description: str | None
    digest: bytes
    released: bool
    created_at: datetime
    updated_at: datetime
    dsl: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])  # empty in lists


GONE = "This version of the agent is not there any more. Choose another one, and begin a new session."

_shown = tuple(versions.c[name] for name in Version.__dataclass_fields__ if name != "dsl")
_any_of_canvas = and_(versions.c.tenant_id == bindparam("tenant_id"), versions.c.canvas_id == bindparam("canvas_id"))
_of_canvas = and_(_any_of_canvas, versions.c.deleted_at.is_(None))
_newest_first = (versions.c.created_at.desc(), versions.c.id.desc())
_draft_of_canvas = (canvases.c.tenant_id == bindparam("tenant_id"), canvases.c.id == bindparam("canvas_id"))


def _held(*conditions: ColumnElement[bool]) -> Select[Any]:
    """The newest version that fulfils the conditions; nobody deletes it or its canvas before we are done."""
    return (
        select(*_shown, versions.c.dsl)
        .join(canvases, canvases.c.id == versions.c.canvas_id)
        .where(_of_canvas, *conditions)
        .order_by(*_newest_first)
        .limit(1)
        .with_for_update(read=True, key_share=True)
    )


HOLD_LATEST = _held()
HOLD_RELEASED = _held(versions.c.released)
HOLD_BY_ID = _held(versions.c.id == bindparam("version_id"))
HOLD_LIKE_DRAFT = _held(  # a json column keeps the text that we encoded: hashing it is `digest_of` the draft
    versions.c.digest
    == select(func.sha256(func.convert_to(cast(canvases.c.draft, Text), "UTF8"), type_=LargeBinary))
    .where(*_draft_of_canvas)
    .correlate(None)
    .scalar_subquery()
)
HOLD = (
    select(versions.c.id)
    .join(canvases, canvases.c.id == versions.c.canvas_id)
    .where(_any_of_canvas, versions.c.id == bindparam("version_id"))
    .with_for_update(read=True, key_share=True)
)
IS_HELD = expect_rows(RowGuard.VERSION_EXISTS)
VERSION = select(*_shown, versions.c.dsl).where(versions.c.id == bindparam("version_id"))
VERSIONS = select(*_shown).where(_of_canvas).order_by(versions.c.updated_at.desc(), versions.c.id.desc())

LOCK_DRAFT = (
    select(canvases.c.draft, canvases.c.title, tenants.c.name.label("owner"), func.now().label("now"))
    .join(tenants, tenants.c.id == canvases.c.tenant_id)
    .where(*_draft_of_canvas)
    .with_for_update(of=canvases, key_share=True)
)
LATEST = (
    select(versions.c.id, versions.c.digest, versions.c.released).where(_of_canvas).order_by(*_newest_first).limit(1)
)
INSERT = (
    sa.insert(versions)
    .values({c.name: bindparam(c.name) for c in versions.c if c.name not in ("created_at", "updated_at", "deleted_at")})
    .returning(*_shown, versions.c.dsl)
)
KEEP = (
    sa.update(versions)
    .where(versions.c.id == bindparam("version_id"))
    .values(
        released=bindparam("now_released"),
        title=func.coalesce(bindparam("new_title", type_=Text), versions.c.title),
        description=func.coalesce(bindparam("new_description", type_=Text), versions.c.description),
        updated_at=func.now(),
    )
    .returning(*_shown, versions.c.dsl)
)

_runs_of_it = exists().where(runs.c.tenant_id == versions.c.tenant_id, runs.c.version_id == versions.c.id)
_conversations_on_it = exists().where(
    conversations.c.tenant_id == versions.c.tenant_id,
    conversations.c.canvas_id == versions.c.canvas_id,
    conversations.c.version_id == versions.c.id,
)
_newer = versions.alias("newer")
_is_latest_release = versions.c.released & ~exists().where(
    _newer.c.canvas_id == versions.c.canvas_id,
    _newer.c.released,
    _newer.c.deleted_at.is_(None),
    _newer.c.created_at > versions.c.created_at,
)
_kept = select(versions.c.id).where(_of_canvas, ~versions.c.released).order_by(*_newest_first).limit(KEPT)
LOCK_EXCESS = (
    select(versions.c.id)
    .where(
        _any_of_canvas,
        or_(~versions.c.released, versions.c.deleted_at.is_not(None)),
        versions.c.id.not_in(_kept.correlate(None)),
    )
    .with_for_update(skip_locked=True)
)
LOCK_ALL = select(versions.c.id).where(_any_of_canvas).with_for_update(skip_locked=True)
LOCK_ORPHANS = (
    select(versions.c.id)
    .where(
        or_(
            ~exists().where(canvases.c.id == versions.c.canvas_id),
            and_(versions.c.deleted_at.is_not(None), ~_conversations_on_it),
        ),
        ~_runs_of_it,
    )
    .limit(BATCH)
    .with_for_update(skip_locked=True)
)
DELETE_UNUSED = sa.delete(versions).where(
    versions.c.id == func.any(bindparam("version_ids")), ~or_(_runs_of_it, _conversations_on_it)
)
LOCK_ONE = select(versions.c.id).where(_of_canvas, versions.c.id == bindparam("version_id")).with_for_update()
USE = select(
    _runs_of_it.where(IS_OPEN).label("is_running"),
    or_(_runs_of_it, _conversations_on_it).label("is_read"),
    _is_latest_release.label("is_latest_release"),
).where(versions.c.id == bindparam("version_id"))
HIDE = sa.update(versions).where(versions.c.id == bindparam("version_id")).values(deleted_at=func.now())
DELETE = sa.delete(versions).where(versions.c.id == bindparam("version_id"))


def digest_of(dsl: Mapping[str, Any]) -> bytes:
    """SHA-256 of a document as it is stored. The order of keys counts, since components run in it."""
    return hashlib.sha256(encode(dsl).encode()).digest()


def version(tx: Transaction, version_id: UUID) -> Version:
    """A version by its id, hidden or not, for those who have it from a run's row. Raises VersionGone."""
    rows = tx.rows(VERSION, version_id=version_id)
    if not rows:
        raise VersionGone(GONE, version_id=version_id.hex)
    return Version(*rows[0])


def hold(tx: Transaction, tenant_id: UUID, canvas_id: UUID, version_id: UUID) -> None:
    """Keep a version, hidden or not, and its canvas from being deleted until the transaction ends.

    Nothing is waited for. Whoever waits next finds out if one of them is gone (`is_gone`), and nothing is committed.
    """
    tx.write(HOLD, IS_HELD, tenant_id=tenant_id, canvas_id=canvas_id, version_id=version_id)


def is_gone(error: BaseException) -> bool:
    """Whether the version that was to be held, or its canvas, is gone."""
    return failed_guard(error) is RowGuard.VERSION_EXISTS


def version_by_id(tx: Transaction, tenant_id: UUID, canvas_id: UUID, version_id: UUID) -> Version:
    """A version of this canvas. Raises NotFound, for a version of another canvas or tenant as well."""
    rows = tx.rows(HOLD_BY_ID, tenant_id=tenant_id, canvas_id=canvas_id, version_id=version_id)
    return _found(rows, "Version not found.")


def latest_released(tx: Transaction, tenant_id: UUID, canvas_id: UUID) -> Version:
    """The version that was published last. Raises NotFound if there is none."""
    rows = tx.rows(HOLD_RELEASED, tenant_id=tenant_id, canvas_id=canvas_id)
    return _found(rows, "No available published version")


def latest(tx: Transaction, tenant_id: UUID, canvas_id: UUID) -> Version:
    """The newest version, released or not; the draft's if there is none. Raises NotFound for an unknown canvas."""
    rows = tx.rows(HOLD_LATEST, tenant_id=tenant_id, canvas_id=canvas_id)
    return Version(*rows[0]) if rows else snapshot(tx, tenant_id, canvas_id)


def snapshot(tx: Transaction, tenant_id: UUID, canvas_id: UUID) -> Version:
    """The version that equals the draft, made if there is none. Raises NotFound for an unknown canvas."""
    rows = tx.rows(HOLD_LIKE_DRAFT, tenant_id=tenant_id, canvas_id=canvas_id)
    return Version(*rows[0]) if rows else save(tx, tenant_id, canvas_id)


def versions_of(tx: Transaction, tenant_id: UUID, canvas_id: UUID) -> list[Version]:
    """All versions of a canvas without their documents, the latest change first."""
    return [Version(*row) for row in tx.rows(VERSIONS, tenant_id=tenant_id, canvas_id=canvas_id)]


def save(
    tx: Transaction,
    tenant_id: UUID,
    canvas_id: UUID,
    *,
    release: bool = False,
    title: str | None = None,
    description: str | None = None,
) -> Version:
    """Keep the draft as a version: the latest one if it is the same document, else a new one.

    A release is never changed by a save that does not release. Of the unreleased ones the newest 20 stay.
    Raises NotFound for an unknown canvas.
    """
    draft = tx.one_or_none(LOCK_DRAFT, tenant_id=tenant_id, canvas_id=canvas_id)
    if draft is None:
        raise NotFound("canvas not found.")
    if release:
        pins.pin_offers(tx, tenant_id, draft["draft"])
    digest = digest_of(draft["draft"])
    last = tx.one_or_none(LATEST, tenant_id=tenant_id, canvas_id=canvas_id)
    if last and last["digest"] == digest and (release or not last["released"]):
        (row,) = tx.rows(
            KEEP, version_id=last["id"], now_released=release, new_title=title, new_description=description
        )
        return Version(*row)
    (row,) = tx.rows(
        INSERT,
        id=new_id(),
        tenant_id=tenant_id,
        canvas_id=canvas_id,
        title=title or f"{draft['owner'] or 'tenant'}_{draft['title'] or 'agent'}_{draft['now']:%Y-%m-%d %H:%M:%S}",
        description=description,
        dsl=draft["draft"],
        digest=digest,
        released=release,
    )
    _delete_unused(tx, tx.rows(LOCK_EXCESS, tenant_id=tenant_id, canvas_id=canvas_id))
    return Version(*row)


def delete(tx: Transaction, tenant_id: UUID, canvas_id: UUID, version_id: UUID, *, force: bool = False) -> None:
    """Delete a version. Raises NotFound if the canvas has no such version.

    Raises NotAllowed for the latest release and for one that a run or conversation refers to; with `force` only for
    one whose run is not over. One that runs or conversations refer to is hidden: they go on reading it.
    """
    if not tx.rows(LOCK_ONE, tenant_id=tenant_id, canvas_id=canvas_id, version_id=version_id):
        raise NotFound("Version not found.")
    use = tx.one_or_none(USE, version_id=version_id) or {}
    if use["is_running"]:
        raise NotAllowed("A run of this version is not over. Cancel it first.")
    if (use["is_read"] or use["is_latest_release"]) and not force:
        raise NotAllowed("This version is the latest release, or runs and sessions refer to it.")
    tx.run(HIDE if use["is_read"] else DELETE, version_id=version_id)


def delete_all(tx: Transaction, tenant_id: UUID, canvas_id: UUID) -> None:
    """Delete the versions of a canvas that no run or conversation refers to."""
    _delete_unused(tx, tx.rows(LOCK_ALL, tenant_id=tenant_id, canvas_id=canvas_id))


def delete_orphans(tx: Transaction) -> int:
    """Delete up to 500 versions that nobody refers to, of canvases that are gone, or hidden; how many."""
    return _delete_unused(tx, tx.rows(LOCK_ORPHANS))


def _found(rows: Sequence[Row[Any]], message: str) -> Version:
    if not rows:
        raise NotFound(message)
    return Version(*rows[0])


def _delete_unused(tx: Transaction, locked: Sequence[Row[Any]]) -> int:
    return tx.run(DELETE_UNUSED, version_ids=[version_id for (version_id,) in locked]) if locked else 0
