"""Uploaded and produced files: a row describes a file, and its bytes are stored under the hash of their content.

Bytes are written before the row, so that no row names missing bytes; equal content is stored once. The file storage is
not used inside a transaction, because a slow bucket could take longer than a transaction may be idle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, ColumnElement, Text, Uuid, any_, bindparam, cast, exists, func, insert, or_, select
from sqlalchemy.dialects import postgresql

from canvas.errors import NotFound
from canvas.ids import CanvasId, RunId, TenantId
from store.db.transaction import Transaction
from store.files.blobs import Blobs
from store.primitives.ids import new_id
from store.tables.runs import runs
from store.tables.tenants import conversation_messages, conversations, files, versions


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The row of a file. `size` is in bytes; `created_by` is the caller's name for a user, if any.

    `token_id` is the share link, or the share of a run, that uploaded it.
    """

    id: UUID
    name: str
    mime_type: str
    size: int
    sha256: bytes
    created_by: str
    run_id: RunId | None
    token_id: UUID | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StoredRef:
    """A file whose bytes are stored and which has no row yet. `size` is in bytes."""

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


def _is_of_link(link: ColumnElement[UUID]) -> ColumnElement[bool]:
    """Return whether a share link uploaded a file, or a conversation that the link began produced it."""
    begun = conversations.alias("begun")
    its_run = select(runs.c.conversation_id).where(runs.c.id == files.c.run_id).correlate(files)
    its_message = (  # retention deletes runs before conversations
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


_of_agent = bindparam("of_canvas", type_=Uuid)
_its_run = select(runs.c.id).where(
    runs.c.id == files.c.run_id, runs.c.tenant_id == files.c.tenant_id, runs.c.canvas_id == _of_agent
)
_its_message = (  # retention deletes runs before conversations
    select(conversation_messages.c.run_id)
    .join(conversations, conversations.c.id == conversation_messages.c.conversation_id)
    .where(
        conversation_messages.c.run_id == files.c.run_id,
        conversations.c.tenant_id == files.c.tenant_id,
        conversations.c.canvas_id == _of_agent,
    )
)
FILE_OF_AGENT = FILE.where(
    or_(
        files.c.token_id == bindparam("token_id"),
        _its_run.correlate(files).exists(),
        _its_message.correlate(files).exists(),
    )
)
"""A file that a token of one agent may read: it uploaded the file, or a run of the agent produced it."""
FILE_OF_LINK = FILE.where(_is_of_link(bindparam("token_id")))
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
FILE_FOR_RUN = FILE.where(or_(_is_of_no_link, _is_of_link(_link_of_reader), _is_named_by_author))
"""A file as far as a run may read it. A share link's run may read the link's files and those its version names."""
OTHER_FILES = select(
    exists().where(
        files.c.tenant_id == bindparam("tenant_id"),
        files.c.id == any_(bindparam("file_ids", type_=ARRAY(Uuid))),
        files.c.token_id.is_distinct_from(bindparam("uploader")),
    )
)


def register(
    tx: Transaction,
    tenant_id: TenantId,
    ref: StoredRef,
    *,
    created_by: str = "",
    run_id: RunId | None = None,
    token_id: UUID | None = None,
) -> StoredFile:
    """Insert the row of a file whose bytes are stored. `token_id`: the share link that uploaded it."""
    (row,) = tx.rows(
        INSERT,
        id=new_id(),
        tenant_id=tenant_id,
        name=ref.name,
        mime_type=ref.mime_type,
        size=ref.size,
        sha256=ref.sha256,
        created_by=created_by,
        run_id=run_id,
        token_id=token_id,
    )
    return StoredFile(*row)


def put_row(tx: Transaction, tenant_id: TenantId, file_id: UUID, ref: StoredRef, *, run_id: RunId) -> None:
    """Insert the row of a file whose bytes are stored under an id that the caller chose; replace an existing row."""
    tx.execute(
        PUT,
        id=file_id,
        tenant_id=tenant_id,
        name=ref.name,
        mime_type=ref.mime_type,
        size=ref.size,
        sha256=ref.sha256,
        created_by="",
        run_id=run_id,
    )


def get(
    tx: Transaction,
    tenant_id: TenantId,
    file_id: UUID,
    *,
    token_id: UUID | None = None,
    canvas_id: CanvasId | None = None,
) -> StoredFile:
    """Return the row of a file. Raises NotFound, also for another tenant's file.

    `token_id`: raise NotFound for a file that is not of this share link, too. With `canvas_id`, raise it for a file
    that this token, which opens one agent, has not uploaded and no run of the agent has produced.
    """
    file = {"tenant_id": tenant_id, "file_id": file_id}
    if canvas_id is not None:
        return _require_file(tx.one_or_none(FILE_OF_AGENT, **file, token_id=token_id, of_canvas=canvas_id))
    if token_id is None:
        return _require_file(tx.one_or_none(FILE, **file))
    return _require_file(tx.one_or_none(FILE_OF_LINK, **file, token_id=token_id))


def get_for_run(tx: Transaction, tenant_id: TenantId, file_id: UUID, run_id: RunId) -> StoredFile:
    """Return the row of a file that a run reads. Raises NotFound, also for another tenant's file.

    A run of a share link may read the files of that link, and those that its version's document names.
    """
    return _require_file(tx.one_or_none(FILE_FOR_RUN, tenant_id=tenant_id, file_id=file_id, reader=run_id))


def has_other_files(tx: Transaction, tenant_id: TenantId, file_ids: Sequence[UUID], uploader: UUID) -> bool:
    """Return whether one of these ids is a file of the tenant that was not uploaded with this share."""
    return bool(tx.scalar(OTHER_FILES, tenant_id=tenant_id, file_ids=list(file_ids), uploader=uploader))


def store_content(blobs: Blobs, name: str, mime_type: str, data: bytes) -> StoredRef:
    """Store the bytes of a file. Do not call it inside a transaction: the storage may be slow."""
    return StoredRef(name, mime_type, len(data), blobs.store(data))


def _require_file(row: Mapping[str, Any] | None) -> StoredFile:
    if row is None:
        raise NotFound("document not found")
    return StoredFile(**row)
