"""Uploads and produced documents: a row says what a file is, its bytes lie under the hash of their content.

Bytes are written before the row, so that a row never points at nothing; the same content is stored once. Nothing that
has a transaction talks to the storage of the bytes: a slow bucket would outlast the time that a transaction may idle.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Text, bindparam, cast, exists, func, insert, or_, select
from sqlalchemy.dialects import postgresql

from canvas.errors import NotFound
from store.db.transaction import Transaction
from store.files.blobs import Blobs
from store.primitives.ids import new_id
from store.tables.runs import runs
from store.tables.tenants import conversation_messages, conversations, files, versions


@dataclass(frozen=True, slots=True)
class StoredFile:
    """What is known of a file. `size` is in bytes, `created_by` the caller's name for a user, if any.

    `token_id` is the share link by which it was uploaded.
    """

    id: UUID
    name: str
    mime_type: str
    size: int
    sha256: bytes
    created_by: str
    run_id: UUID | None
    token_id: UUID | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StoredRef:
    """A file whose bytes are in the storage, and that no row names yet. `size` is in bytes."""

    name: str
    mime_type: str
    size: int
    sha256: bytes


_FILE = (
    files.c.id,
    files.c.name,
    files.c.mime_type,
    files.c.size,
    files.c.sha256,
    files.c.created_by,
    files.c.run_id,
    files.c.token_id,
    files.c.created_at,
)
INSERT = (
    insert(files)
    .values({column.name: bindparam(column.name) for column in files.c if column.name != "created_at"})
    .returning(*_FILE)
)
_put = postgresql.insert(files)
PUT = _put.on_conflict_do_update(
    index_elements=["id"],
    set_={name: _put.excluded[name] for name in ("name", "mime_type", "size", "sha256")},
    where=files.c.tenant_id == _put.excluded.tenant_id,
)
FILE = select(*_FILE).where(files.c.tenant_id == bindparam("tenant_id"), files.c.id == bindparam("file_id"))


def _came_by(link: ColumnElement[UUID]) -> ColumnElement[bool]:
    """Whether a file was uploaded by a share link, or produced in a session that was begun by it."""
    begun = conversations.alias("begun")
    its_run = select(runs.c.conversation_id).where(runs.c.id == files.c.run_id).correlate(files)
    its_message = (  # retention drops runs before sessions
        select(conversation_messages.c.conversation_id)
        .where(conversation_messages.c.run_id == files.c.run_id)
        .correlate(files)
    )
    return or_(
        files.c.token_id == link,
        exists().where(
            begun.c.tenant_id == files.c.tenant_id,
            begun.c.token_id == link,
            or_(begun.c.id.in_(its_run), begun.c.id.in_(its_message)),
        ),
    )


FILE_OF_LINK = FILE.where(_came_by(bindparam("token_id")))
_reader = runs.alias("reader")
_link_of_reader = (
    select(conversations.c.token_id)
    .join(_reader, _reader.c.conversation_id == conversations.c.id)
    .where(_reader.c.id == bindparam("reader"))
    .scalar_subquery()
)
_is_named_by_author = exists().where(
    versions.c.id == select(_reader.c.version_id).where(_reader.c.id == bindparam("reader")).scalar_subquery(),
    func.strpos(func.replace(cast(versions.c.dsl, Text), "-", ""), func.replace(cast(files.c.id, Text), "-", "")) > 0,
)
_is_of_no_link = exists().where(
    conversations.c.id
    == select(_reader.c.conversation_id).where(_reader.c.id == bindparam("reader")).scalar_subquery(),
    conversations.c.token_id.is_(None),
)
FILE_FOR_RUN = FILE.where(or_(_is_of_no_link, _came_by(_link_of_reader), _is_named_by_author))
"""A file as far as a run may read it: one of a share link reads what came by the link, and what its document names."""


def register(
    tx: Transaction,
    tenant_id: UUID,
    kept: StoredRef,
    *,
    created_by: str = "",
    run_id: UUID | None = None,
    token_id: UUID | None = None,
) -> StoredFile:
    """Give a file whose bytes are stored its row; `token_id` names the share link by which it was uploaded."""
    (row,) = tx.rows(
        INSERT,
        id=new_id(),
        tenant_id=tenant_id,
        name=kept.name,
        mime_type=kept.mime_type,
        size=kept.size,
        sha256=kept.sha256,
        created_by=created_by,
        run_id=run_id,
        token_id=token_id,
    )
    return StoredFile(*row)


def put(tx: Transaction, tenant_id: UUID, file_id: UUID, kept: StoredRef, *, run_id: UUID) -> None:
    """Give a file whose bytes are stored a row under an id of the caller's; a row that is there is replaced."""
    tx.run(
        PUT,
        id=file_id,
        tenant_id=tenant_id,
        name=kept.name,
        mime_type=kept.mime_type,
        size=kept.size,
        sha256=kept.sha256,
        created_by="",
        run_id=run_id,
    )


def get(tx: Transaction, tenant_id: UUID, file_id: UUID, *, token_id: UUID | None = None) -> StoredFile:
    """What is known of a file. Raises NotFound, for another tenant's as well.

    With `token_id` also for a file that did not come by that share link.
    """
    given = {"tenant_id": tenant_id, "file_id": file_id}
    if token_id is None:
        row = tx.one_or_none(FILE, **given)
    else:
        row = tx.one_or_none(FILE_OF_LINK, **given, token_id=token_id)
    return _found(row)


def get_for_run(tx: Transaction, tenant_id: UUID, file_id: UUID, run_id: UUID) -> StoredFile:
    """What is known of a file that a run reads. Raises NotFound, for another tenant's as well.

    A run of a share link's session reads files that came by the link, and those that its document names.
    """
    return _found(tx.one_or_none(FILE_FOR_RUN, tenant_id=tenant_id, file_id=file_id, reader=run_id))


def store(blobs: Blobs, name: str, mime_type: str, data: bytes) -> StoredRef:
    """Store the bytes of a file. Not inside of a transaction: a storage may be slow."""
    return StoredRef(name, mime_type, len(data), blobs.put(data))


def _found(row: Mapping[str, Any] | None) -> StoredFile:
    if row is None:
        raise NotFound("document not found")
    return StoredFile(**row)
