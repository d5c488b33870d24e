"""Uploads and produced documents: a row says what a file is, its bytes lie under the hash of their content.

Bytes are written before the row, so that a row never points at nothing; the same content is stored once.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import bindparam, insert, select
from sqlalchemy.dialects import postgresql

from canvas.errors import NotFound
from store.blobs import Blobs
from store.ids import new_id
from store.tenant_schema import files
from store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class StoredFile:
    """What is known of a file. `size` is in bytes, `created_by` the caller's name for a user, if any."""

    id: UUID
    name: str
    mime_type: str
    size: int
    sha256: bytes
    created_by: str
    run_id: UUID | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Kept:
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


def add(
    tx: Transaction,
    tenant_id: UUID,
    blobs: Blobs,
    name: str,
    mime_type: str,
    data: bytes,
    *,
    created_by: str = "",
    run_id: UUID | None = None,
) -> StoredFile:
    """Store a file; `run_id` names the run that produced it."""
    kept = Kept(name, mime_type, len(data), blobs.put(data))
    return note(tx, tenant_id, kept, created_by=created_by, run_id=run_id)


def note(
    tx: Transaction, tenant_id: UUID, kept: Kept, *, created_by: str = "", run_id: UUID | None = None
) -> StoredFile:
    """Give a file whose bytes are stored its row."""
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
    )
    return StoredFile(*row)


def put(
    tx: Transaction,
    tenant_id: UUID,
    blobs: Blobs,
    file_id: UUID,
    name: str,
    mime_type: str,
    data: bytes,
    *,
    run_id: UUID,
) -> None:
    """Store a file under an id of the caller's; what was there under it before is replaced."""
    tx.run(
        PUT,
        id=file_id,
        tenant_id=tenant_id,
        name=name,
        mime_type=mime_type,
        size=len(data),
        sha256=blobs.put(data),
        created_by="",
        run_id=run_id,
    )


def get(tx: Transaction, tenant_id: UUID, file_id: UUID) -> StoredFile:
    """What is known of a file. Raises NotFound, for another tenant's as well."""
    row = tx.one_or_none(FILE, tenant_id=tenant_id, file_id=file_id)
    if row is None:
        raise NotFound("document not found")
    return StoredFile(**row)


def read(tx: Transaction, tenant_id: UUID, blobs: Blobs, file_id: UUID) -> tuple[StoredFile, bytes]:
    """A file with its bytes. Raises NotFound, for another tenant's as well."""
    file = get(tx, tenant_id, file_id)
    return file, blobs.get(file.sha256)
