"""Versions of canvases: documents that never change after they are stored, so processes may cache them.

Each saved draft has a version, each published canvas has one, and every run refers to one. The start of a run reads its
version with `lock_draft_version`, `lock_latest`, `lock_latest_released` or `lock_by_id`. These lock the version and its
canvas until the transaction ends, so that neither is deleted meanwhile. Accepting the run is a separate transaction,
which locks them again (`lock`). A deletion takes its locks first and looks for runs and conversations in a later
statement, so it sees what a start that it waited for, or skipped, has stored.

A version that runs or conversations refer to is never deleted, only hidden from lists (`deleted_at`). Its row is
deleted after the last of them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, LargeBinary, Row, Select, Text, and_, bindparam, cast, exists, func, or_, select

from canvas.errors import NotAllowed, NotFound
from canvas.ids import CanvasId, TenantId, VersionId
from store.agents.version_titles import default_title
from store.db.guards import RowGuard, expect_rows, failed_guard
from store.db.transaction import Transaction
from store.maintenance.partitions import IS_OPEN
from store.mcp import pins
from store.primitives.ids import new_id
from store.primitives.json_codec import encode
from store.tables.runs import runs
from store.tables.tenants import canvases, conversations, tenants, versions

MAX_UNRELEASED = 20
"""How many unreleased versions of a canvas are kept (the newest), besides those that runs or conversations refer to."""

BATCH = 500


class VersionGone(NotFound):
    """The version that a run or a conversation refers to does not exist any more."""

    code = "version_gone"


@dataclass(frozen=True, slots=True)
class Version:
    """A document that never changes. `digest` is the same for equal documents."""

    id: VersionId
    tenant_id: TenantId
    canvas_id: CanvasId
    title: str
    description: str | None
    digest: bytes
    released: bool
    created_at: datetime
    updated_at: datetime
    dsl: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])  # empty in lists


VERSION_GONE_TEXT = "This version of the agent is not there any more. Choose another one, and begin a new session."

_columns = tuple(versions.c[name] for name in Version.__dataclass_fields__ if name != "dsl")
_any_of_canvas = and_(versions.c.tenant_id == bindparam("tenant_id"), versions.c.canvas_id == bindparam("canvas_id"))
_of_canvas = and_(_any_of_canvas, versions.c.deleted_at.is_(None))
_newest_first = (versions.c.created_at.desc(), versions.c.id.desc())
_draft_of_canvas = (canvases.c.tenant_id == bindparam("tenant_id"), canvases.c.id == bindparam("canvas_id"))


def _lock_newest(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Return a query of the newest version that fulfils the conditions; it locks the version and its canvas."""
    return (
        select(*_columns, versions.c.dsl)
        .join(canvases, canvases.c.id == versions.c.canvas_id)
        .where(_of_canvas, *conditions)
        .order_by(*_newest_first)
        .limit(1)
        .with_for_update(read=True, key_share=True)
    )


LOCK_LATEST = _lock_newest()
LOCK_RELEASED = _lock_newest(versions.c.released)
LOCK_BY_ID = _lock_newest(versions.c.id == bindparam("version_id"))
LOCK_LIKE_DRAFT = (
    _lock_newest(  # a json column keeps the text that was encoded, so hashing it gives `digest_of` the draft
        versions.c.digest
        == select(func.sha256(func.convert_to(cast(canvases.c.draft, Text), "UTF8"), type_=LargeBinary))
        .where(*_draft_of_canvas)
        .correlate(None)
        .scalar_subquery()
    )
)
LOCK = (
    select(versions.c.id)
    .join(canvases, canvases.c.id == versions.c.canvas_id)
    .where(_any_of_canvas, versions.c.id == bindparam("version_id"))
    .with_for_update(read=True, key_share=True)
)
EXPECT_ONE = expect_rows(RowGuard.VERSION_EXISTS)
VERSION = select(*_columns, versions.c.dsl).where(versions.c.id == bindparam("version_id"))
FIND = select(*_columns).where(_any_of_canvas, versions.c.id == bindparam("version_id"))
VERSIONS = select(*_columns).where(_of_canvas).order_by(versions.c.updated_at.desc(), versions.c.id.desc())

LOCK_DRAFT = (
    select(canvases.c.draft, canvases.c.title, tenants.c.name.label("owner"), func.now().label("now"))
    .join(tenants, tenants.c.id == canvases.c.tenant_id)
    .where(*_draft_of_canvas)
    .with_for_update(of=canvases, key_share=True)
)
LATEST_ID = (
    select(versions.c.id, versions.c.digest, versions.c.released).where(_of_canvas).order_by(*_newest_first).limit(1)
)
INSERT = (
    sa.insert(versions)
    .values({c.name: bindparam(c.name) for c in versions.c if c.name not in ("created_at", "updated_at", "deleted_at")})
    .returning(*_columns, versions.c.dsl)
)
UPDATE_LATEST = (
    sa.update(versions)
    .where(versions.c.id == bindparam("version_id"))
    .values(
        released=bindparam("now_released"),
        title=func.coalesce(bindparam("new_title", type_=Text), versions.c.title),
        description=func.coalesce(bindparam("new_description", type_=Text), versions.c.description),
        updated_at=func.now(),
    )
    .returning(*_columns, versions.c.dsl)
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
_newest_unreleased = (
    select(versions.c.id).where(_of_canvas, ~versions.c.released).order_by(*_newest_first).limit(MAX_UNRELEASED)
)
LOCK_EXCESS = (
    select(versions.c.id)
    .where(
        _any_of_canvas,
        or_(~versions.c.released, versions.c.deleted_at.is_not(None)),
        versions.c.id.not_in(_newest_unreleased.correlate(None)),
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
    """Return the SHA-256 of a document as it is stored. The order of keys counts, because components run in it."""
    return hashlib.sha256(encode(dsl).encode()).digest()


def get(tx: Transaction, version_id: VersionId) -> Version:
    """Return a version by its id, hidden or not, for a caller that has the id from a run's row. Raises VersionGone."""
    rows = tx.rows(VERSION, version_id=version_id)
    if not rows:
        raise VersionGone(VERSION_GONE_TEXT, version_id=version_id.hex)
    return Version(*rows[0])


def find(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, version_id: VersionId) -> Version | None:
    """Return a version of this canvas without its document, hidden or not; None if the tenant has none such."""
    rows = tx.rows(FIND, tenant_id=tenant_id, canvas_id=canvas_id, version_id=version_id)
    return Version(*rows[0]) if rows else None


def lock(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, version_id: VersionId) -> None:
    """Keep a version, hidden or not, and its canvas from being deleted until the transaction ends.

    Sent without waiting: if one of them is gone, the next wait raises an error (`is_version_gone`), and nothing is
    committed.
    """
    tx.write(LOCK, EXPECT_ONE, tenant_id=tenant_id, canvas_id=canvas_id, version_id=version_id)


def is_version_gone(error: BaseException) -> bool:
    """Return whether an error says that the version to be held, or its canvas, is gone."""
    return failed_guard(error) is RowGuard.VERSION_EXISTS


def lock_by_id(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, version_id: VersionId) -> Version:
    """Return a version of this canvas. Raises NotFound, also for a version of another canvas or tenant."""
    rows = tx.rows(LOCK_BY_ID, tenant_id=tenant_id, canvas_id=canvas_id, version_id=version_id)
    return _require_version(rows, "Version not found.")


def lock_latest_released(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> Version:
    """Return the version that was published last. Raises NotFound if there is none."""
    rows = tx.rows(LOCK_RELEASED, tenant_id=tenant_id, canvas_id=canvas_id)
    return _require_version(rows, "No available published version")


def lock_latest(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> Version:
    """Return the newest version, released or not, or that of the draft. Raises NotFound for an unknown canvas."""
    rows = tx.rows(LOCK_LATEST, tenant_id=tenant_id, canvas_id=canvas_id)
    return Version(*rows[0]) if rows else lock_draft_version(tx, tenant_id, canvas_id)


def lock_draft_version(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> Version:
    """Return the version that equals the draft; create it if there is none. Raises NotFound for an unknown canvas."""
    rows = tx.rows(LOCK_LIKE_DRAFT, tenant_id=tenant_id, canvas_id=canvas_id)
    return Version(*rows[0]) if rows else save(tx, tenant_id, canvas_id)


def list_versions(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> list[Version]:
    """Return all versions of a canvas without their documents, the last changed first."""
    return [Version(*row) for row in tx.rows(VERSIONS, tenant_id=tenant_id, canvas_id=canvas_id)]


def save(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    *,
    release: bool = False,
    title: str | None = None,
    description: str | None = None,
) -> Version:
    """Store the draft as a version: the latest version if it is the same document, else a new one.

    A save that does not release never changes a released version. Of the unreleased versions the newest 20 are kept.
    Raises NotFound for an unknown canvas.
    """
    draft = tx.one_or_none(LOCK_DRAFT, tenant_id=tenant_id, canvas_id=canvas_id)
    if draft is None:
        raise NotFound("canvas not found.")
    if release:
        pins.pin_offered_tools(tx, tenant_id, draft["draft"])
    digest = digest_of(draft["draft"])
    last = tx.one_or_none(LATEST_ID, tenant_id=tenant_id, canvas_id=canvas_id)
    if last and last["digest"] == digest and (release or not last["released"]):
        (row,) = tx.rows(
            UPDATE_LATEST, version_id=last["id"], now_released=release, new_title=title, new_description=description
        )
        return Version(*row)
    (row,) = tx.rows(
        INSERT,
        id=new_id(),
        tenant_id=tenant_id,
        canvas_id=canvas_id,
        title=title or default_title(draft["owner"], draft["title"], draft["now"]),
        description=description,
        dsl=draft["draft"],
        digest=digest,
        released=release,
    )
    _delete_unused(tx, tx.rows(LOCK_EXCESS, tenant_id=tenant_id, canvas_id=canvas_id))
    return Version(*row)


def insert_hidden(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    document: Mapping[str, Any],
    *,
    title: str,
    description: str | None = None,
) -> Version:
    """Store a document that is made for a run as a version of a canvas that only the runs that refer to it show.

    It is deleted after the last of them, like a deleted version that is still in use.
    """
    (row,) = tx.rows(
        INSERT,
        id=new_id(),
        tenant_id=tenant_id,
        canvas_id=canvas_id,
        title=title,
        description=description,
        dsl=document,
        digest=digest_of(document),
        released=False,
    )
    version = Version(*row)
    tx.execute(HIDE, version_id=version.id)
    return version


def delete(
    tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, version_id: VersionId, *, force: bool = False
) -> None:
    """Delete a version. Raises NotFound if the canvas has no such version.

    Raises NotAllowed for the latest release and for a version that a run or conversation refers to; with `force` only
    for a version with an open run. A version that is referred to is hidden and stays readable for those runs and
    conversations.
    """
    if not tx.rows(LOCK_ONE, tenant_id=tenant_id, canvas_id=canvas_id, version_id=version_id):
        raise NotFound("Version not found.")
    use = tx.one_or_none(USE, version_id=version_id) or {}
    if use["is_running"]:
        raise NotAllowed("A run of this version is not over. Cancel it first.")
    if (use["is_read"] or use["is_latest_release"]) and not force:
        raise NotAllowed("This version is the latest release, or runs and sessions refer to it.")
    tx.execute(HIDE if use["is_read"] else DELETE, version_id=version_id)


def delete_all(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> None:
    """Delete the versions of a canvas that no run or conversation refers to."""
    _delete_unused(tx, tx.rows(LOCK_ALL, tenant_id=tenant_id, canvas_id=canvas_id))


def delete_orphans(tx: Transaction) -> int:
    """Delete up to 500 unused versions of deleted canvases, and unused hidden versions; return how many."""
    return _delete_unused(tx, tx.rows(LOCK_ORPHANS))


def _require_version(rows: Sequence[Row[Any]], message: str) -> Version:
    if not rows:
        raise NotFound(message)
    return Version(*rows[0])


def _delete_unused(tx: Transaction, locked: Sequence[Row[Any]]) -> int:
    return tx.execute(DELETE_UNUSED, version_ids=[version_id for (version_id,) in locked]) if locked else 0
