"""Canvases, which authors edit. Every save also stores the draft as a version (store/agents/versions.py)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import JSON, bindparam, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from canvas.errors import Conflict, NotFound
from canvas.ids import CanvasId, TenantId
from store.agents import schedules, versions
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.tables.tenants import canvases, conversations, tenants
from store.tables.tenants import versions as version_rows


@dataclass(frozen=True, slots=True)
class StoredCanvas:
    """A canvas with its draft. `tags` are comma-separated, `published_at` is when a version was last released."""

    id: CanvasId
    tenant_id: TenantId
    owner: str  # the tenant's name
    title: str
    description: str | None
    avatar: str | None
    canvas_type: str
    canvas_category: str
    permission: str  # me | team
    tags: str
    release: bool
    created_at: datetime
    updated_at: datetime
    published_at: datetime | None
    draft_revision: int  # rises with each change of the draft
    draft_token_id: UUID | None  # the token that saved the draft last, if it is known
    draft: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])  # empty in lists


_published_at = (
    select(func.max(version_rows.c.updated_at))
    .where(version_rows.c.canvas_id == canvases.c.id, version_rows.c.released, version_rows.c.deleted_at.is_(None))
    .scalar_subquery()
)
SHOWN = select(
    canvases.c.id,
    canvases.c.tenant_id,
    tenants.c.name.label("owner"),
    canvases.c.title,
    canvases.c.description,
    canvases.c.avatar,
    canvases.c.canvas_type,
    canvases.c.canvas_category,
    canvases.c.permission,
    canvases.c.tags,
    canvases.c.release,
    canvases.c.created_at,
    canvases.c.updated_at,
    _published_at.label("published_at"),
    canvases.c.draft_revision,
    canvases.c.draft_token_id,
).join(tenants, tenants.c.id == canvases.c.tenant_id)
"""All columns of a canvas except its draft."""

_this_canvas = (canvases.c.tenant_id == bindparam("of_tenant"), canvases.c.id == bindparam("canvas_id"))
CANVAS = SHOWN.add_columns(canvases.c.draft).where(*_this_canvas)
LOCKED_CANVAS = CANVAS.with_for_update(of=canvases)
_with_defaults = ("tags", "draft_revision", "created_at", "updated_at")
LOCK = select(canvases.c.id).where(*_this_canvas).with_for_update()
INSERT = (
    insert(canvases)
    .values({c.name: bindparam(c.name) for c in canvases.c if c.name not in _with_defaults})
    .on_conflict_do_nothing()
    .returning(canvases.c.id)
)
_changeable = ("title", "description", "avatar", "canvas_type", "canvas_category", "permission")
UPDATE = (
    sa.update(canvases)
    .where(*_this_canvas)
    .values(
        {c: func.coalesce(bindparam(f"new_{c}", type_=canvases.c[c].type), canvases.c[c]) for c in _changeable}
        | {"draft": func.coalesce(bindparam("new_draft", type_=JSON(none_as_null=True)), canvases.c.draft)}
    )
    .values(
        release=bindparam("new_release"),
        draft_token_id=sa.case(
            (bindparam("saves_draft", type_=sa.Boolean), bindparam("token_id", type_=sa.Uuid)),
            else_=canvases.c.draft_token_id,
        ),
        updated_at=func.now(),
    )
)
DESCRIBE = (
    sa.update(canvases)
    .where(*_this_canvas)
    .values({c: func.coalesce(bindparam(f"new_{c}", type_=sa.Text), canvases.c[c]) for c in ("title", "description")})
    .values(updated_at=func.now())
)
PUT_DRAFT = (
    sa.update(canvases)
    .where(*_this_canvas)
    .values(draft=bindparam("new_draft"), draft_token_id=bindparam("token_id", type_=sa.Uuid), updated_at=func.now())
    .returning(canvases.c.draft_revision)
)
DELETE = sa.delete(canvases).where(*_this_canvas)
TITLE = sa.select(canvases.c.title).where(*_this_canvas)
DELETE_CONVERSATIONS = sa.delete(conversations).where(
    conversations.c.tenant_id == bindparam("of_tenant"), conversations.c.canvas_id == bindparam("canvas_id")
)


def create(
    tx: Transaction,
    tenant_id: TenantId,
    title: str,
    dsl: Mapping[str, Any],
    *,
    description: str | None = None,
    avatar: str | None = None,
    canvas_type: str = "",
    canvas_category: str = "agent_canvas",
    permission: str = "me",
    release: bool = False,
    canvas_id: CanvasId | None = None,
    token_id: UUID | None = None,
) -> CanvasId:
    """Add a canvas and the first version of its draft; return its id (a new one unless the caller gives one).

    Raises Conflict if the tenant has a canvas with that title, in any letter case, in the category.
    """
    created = tx.scalar(
        INSERT,
        id=canvas_id or new_id(),
        tenant_id=tenant_id,
        title=title.strip(),
        description=description,
        avatar=avatar,
        canvas_type=canvas_type,
        canvas_category=canvas_category,
        permission=permission,
        release=release,
        draft=dict(dsl),
        draft_token_id=token_id,
    )
    if created is None:
        raise _title_conflict(title)
    versions.save(tx, tenant_id, created, release=release)
    return created


def get(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> StoredCanvas:
    """Return a canvas with its draft. Raises NotFound, also for another tenant's canvas."""
    return _require_canvas(tx.one_or_none(CANVAS, of_tenant=tenant_id, canvas_id=canvas_id))


def lock(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> StoredCanvas:
    """Return a canvas with its draft, locked against changes until this transaction ends.

    Use it to write a draft that depends on the stored one. Raises NotFound, also for another tenant's canvas.
    """
    return _require_canvas(tx.one_or_none(LOCKED_CANVAS, of_tenant=tenant_id, canvas_id=canvas_id))


def update(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    *,
    title: str | None = None,
    dsl: Mapping[str, Any] | None = None,
    description: str | None = None,
    avatar: str | None = None,
    canvas_type: str | None = None,
    canvas_category: str | None = None,
    permission: str | None = None,
    release: bool = False,
    token_id: UUID | None = None,
) -> None:
    """Change the fields that are given; store a given document as a version, which `release` makes a release.

    An update that does not release clears the canvas's release flag; released versions stay released. `token_id`: who
    saves a document. Raises NotFound for an unknown canvas, Conflict if the title is taken.
    """
    values = {
        "new_title": title.strip() if title is not None else None,
        "new_description": description,
        "new_avatar": avatar,
        "new_canvas_type": canvas_type,
        "new_canvas_category": canvas_category,
        "new_permission": permission,
        "new_draft": dict(dsl) if dsl is not None else None,
        "new_release": release,
        "saves_draft": dsl is not None,
        "token_id": token_id,
    }
    _change(tx, UPDATE, tenant_id, canvas_id, title, values)
    if release or dsl is not None:
        versions.save(tx, tenant_id, canvas_id, release=release)


def describe(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    *,
    title: str | None = None,
    description: str | None = None,
) -> None:
    """Change title and description, those that are given; draft, versions and what is published stay.

    Raises NotFound for an unknown canvas, Conflict if the title is taken.
    """
    values = {"new_title": title.strip() if title is not None else None, "new_description": description}
    _change(tx, DESCRIBE, tenant_id, canvas_id, title, values)


def put_draft(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    dsl: Mapping[str, Any],
    *,
    token_id: UUID | None = None,
) -> int:
    """Change only the draft: no version is stored, and what is published stays. Return the revision of the draft.

    The revision is the same as before if the document is. Raises NotFound.
    """
    saved = tx.one_or_none(PUT_DRAFT, of_tenant=tenant_id, canvas_id=canvas_id, new_draft=dict(dsl), token_id=token_id)
    if saved is None:
        raise NotFound("canvas not found.")
    return int(saved["draft_revision"])


def publish(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    *,
    dsl: Mapping[str, Any] | None = None,
    title: str | None = None,
    description: str | None = None,
    token_id: UUID | None = None,
) -> versions.Version:
    """Release the draft, or the given document, which becomes the draft; return the version.

    `title` and `description` are the version's. Raises NotFound for an unknown canvas.
    """
    update(tx, tenant_id, canvas_id, dsl=dsl, release=True, token_id=token_id)
    return versions.save(tx, tenant_id, canvas_id, release=True, title=title, description=description)


def find_title(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> str | None:
    """Return the title of a canvas; None if the tenant has no such canvas."""
    return tx.scalar(TITLE, of_tenant=tenant_id, canvas_id=canvas_id)


def delete(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> None:
    """Delete a canvas with its conversations, versions and schedules. Its runs stay, and so do their versions.

    Cancel its open runs first (`conversations.list_open_runs`). Raises NotFound for an unknown canvas.
    """
    schedules.delete_of_agent(tx, tenant_id, canvas_id)
    if not tx.rows(LOCK, of_tenant=tenant_id, canvas_id=canvas_id):
        raise NotFound("canvas not found.")
    tx.execute(DELETE_CONVERSATIONS, of_tenant=tenant_id, canvas_id=canvas_id)
    versions.delete_all(tx, tenant_id, canvas_id)
    tx.execute(DELETE, of_tenant=tenant_id, canvas_id=canvas_id)


def _change(
    tx: Transaction,
    statement: sa.Update,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    title: str | None,
    values: Mapping[str, Any],
) -> None:
    """Change a row. Raises NotFound for an unknown canvas, Conflict if the title is taken."""
    try:
        with tx.savepoint():
            hit = tx.execute(statement, of_tenant=tenant_id, canvas_id=canvas_id, **values)
    except IntegrityError as error:  # the unique title is the only constraint that these columns can violate
        raise _title_conflict(title or "A canvas of this title") from error
    if not hit:
        raise NotFound("canvas not found.")


def _require_canvas(row: Mapping[str, Any] | None) -> StoredCanvas:
    if row is None:
        raise NotFound("canvas not found.")
    return StoredCanvas(**row)


def _title_conflict(title: str) -> Conflict:
    return Conflict(f"{title.strip()} already exists.")
