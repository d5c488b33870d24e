"""Uploads and produced documents: a row says what a file is, its bytes lie under the hash of their content.

Bytes are written before the row, so that a row never points at nothing; the same content is stored once.
"""

import hashlib
import os
import secrets
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol
from uuid import UUID

from sqlalchemy import bindparam, insert, select
from sqlalchemy.dialects import postgresql

from canvas.errors import NotFound, StateError
from store.ids import new_id
from store.schema import files
from store.transaction import Transaction

IN_HAND = timedelta(hours=1)  # longer than anybody takes from putting bytes to the commit of their row


class Blobs(Protocol):
    """Bytes by the SHA-256 of their content."""

    def put(self, data: bytes) -> bytes:
        """Store bytes for good (putting them again costs nothing); their hash."""
        ...

    def get(self, sha256: bytes) -> bytes:
        """The bytes of that hash. Raises NotFound if they are not here, StateError if they have changed."""
        ...

    def discard(self, sha256: bytes) -> bool:
        """Remove bytes that no row names any more; False if they are to stay, or are not here."""
        ...

    def is_there(self) -> bool:
        """Whether this process sees the storage at all."""
        ...


@dataclass(frozen=True, slots=True)
class LocalBlobs:
    """A folder: `ab/ab12...`, readable by us alone. Processes that share it see each other's files."""

    folder: Path

    def put(self, data: bytes) -> bytes:
        """Write to a file beside the place and rename: nobody reads half of it."""
        digest = hashlib.sha256(data)
        place = self._place(digest.digest())
        if not _touch(place):
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(place, data)
            _settle(place.parent)
            _settle(self.folder)
        return digest.digest()

    def get(self, sha256: bytes) -> bytes:
        """Read and compare with the hash."""
        try:
            data = self._place(sha256).read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"The content {sha256.hex()} is not in the file storage.") from error
        if hashlib.sha256(data).digest() != sha256:
            raise StateError(f"The content {sha256.hex()} has changed in the file storage.")
        return data

    def discard(self, sha256: bytes) -> bool:
        """Remove bytes that no row names any more; False if somebody has just put them again, for a row to come.

        Taken aside first: who puts them from then on writes them anew, and who did so before is seen by the time.
        """
        place = self._place(sha256)
        aside = place.with_name(f"{place.name}.{secrets.token_hex(4)}")
        try:
            place.rename(aside)
        except FileNotFoundError:
            return False
        if time.time() - aside.stat().st_mtime < IN_HAND.total_seconds():
            aside.replace(place)
            return False
        aside.unlink()
        return True

    def is_there(self) -> bool:
        """Whether the folder is there: it is made with the first file."""
        return self.folder.is_dir()

    def _place(self, sha256: bytes) -> Path:
        name = sha256.hex()
        return self.folder / name[:2] / name


def _touch(place: Path) -> bool:
    """Whether a file is there; if so it counts as put now."""
    try:
        os.utime(place)
    except FileNotFoundError:
        return False
    return True


def _write(place: Path, data: bytes) -> None:
    descriptor, draft = tempfile.mkstemp(dir=place.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(place)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _settle(folder: Path) -> None:
    """Make the names in a folder outlast a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
