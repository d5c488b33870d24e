"""File storage addressed by content: bytes under their SHA-256, in a folder or in a bucket (store/files/s3_blobs.py).

A storage has parts with separate contents: the same bytes in two parts are stored twice, and a part can be removed as a
whole.
"""

import hashlib
import io
import os
import secrets
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Protocol

from canvas.errors import NotFound, StateError

READ_BYTES = 1024 * 1024  # bytes of a file read at a time
MIN_DISCARD_AGE = timedelta(hours=1)  # longer than it takes from storing bytes to the commit of the row that names them


class StorageUnavailable(OSError):
    """A file storage in the network does not answer, or refuses a request."""


class Blobs(Protocol):
    """A file storage: bytes by the SHA-256 of their content."""

    def store(self, data: bytes) -> bytes:
        """Store bytes durably and return their hash. Storing the same bytes again changes nothing."""
        ...

    def store_file(self, file: BinaryIO) -> tuple[bytes, int]:
        """Store the content of a file, read one block at a time; return its hash and its size in bytes."""
        ...

    def get(self, sha256: bytes) -> bytes:
        """Return the bytes with a hash. Raises NotFound if they are missing, StateError if they have changed."""
        ...

    def discard(self, sha256: bytes) -> bool:
        """Remove bytes that no row names any more; return True if they are gone, False if they stay.

        Bytes that were stored recently stay, because the row that names them may not be committed yet.
        """
        ...

    def is_reachable(self) -> bool:
        """Return whether this process can reach the storage."""
        ...

    def part(self, name: str) -> "Blobs":
        """Return a part of the storage."""
        ...

    def parts(self) -> list[str]:
        """Return the names of the parts that have contents."""
        ...

    def clear(self) -> int:
        """Remove everything in this part, including its own parts; return how many contents there were."""
        ...


@dataclass(frozen=True, slots=True)
class LocalBlobs:
    """A folder with files `ab/ab12...`, readable only by this user. Processes that share the folder share the files."""

    folder: Path

    def store(self, data: bytes) -> bytes:
        """Store bytes. A file is written under a temporary name and renamed, so that a reader never sees half of it."""
        sha256, _ = self.store_file(io.BytesIO(data))
        return sha256

    def store_file(self, file: BinaryIO) -> tuple[bytes, int]:
        """Store the content of a file. It is read twice: for the hash, and to copy it unless it is stored already."""
        sha256, size = hash_file(file)
        place = self._path_of(sha256)
        if not _touch(place):
            _make_folder(place.parent)
            _write_file(place, file)
        # Sync even if another process has just written the file: it may die before it syncs the folder.
        _sync_folder(place.parent)
        return sha256, size

    def get(self, sha256: bytes) -> bytes:
        """Return the bytes with a hash, after comparing them with it."""
        try:
            data = self._path_of(sha256).read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"The content {sha256.hex()} is not in the file storage.") from error
        if hashlib.sha256(data).digest() != sha256:
            raise StateError(f"The content {sha256.hex()} has changed in the file storage.")
        return data

    def discard(self, sha256: bytes) -> bool:
        """Remove bytes that no row names any more; return False if they were stored recently, for a row to come.

        The file is renamed first: a process that stores the same bytes afterwards writes them anew, and one that did so
        before shows in the file's time. Files that a process renamed before it died are dealt with first.
        """
        place = self._path_of(sha256)
        for aside in place.parent.glob(f"{place.name}.*"):
            _remove_or_restore(aside, place)
        if _is_young(place):
            return False
        aside = place.with_name(f"{place.name}.{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            place.rename(aside)
            _remove_or_restore(aside, place)
        return not place.exists()

    def is_reachable(self) -> bool:
        """Return whether the folder exists; it is created with the first file."""
        return self.folder.is_dir()

    def part(self, name: str) -> "LocalBlobs":
        """Return the storage in a subfolder."""
        return LocalBlobs(self.folder / name)

    def parts(self) -> list[str]:
        """Return the names of the subfolders."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir()) if self.is_reachable() else []

    def clear(self) -> int:
        """Remove the folder and its contents, and its parent if that is empty then; return the number of files."""
        if not self.is_reachable():
            return 0
        number = sum(1 for path in self.folder.rglob("*") if path.is_file())
        shutil.rmtree(self.folder)
        with suppress(OSError):  # it contains other parts
            self.folder.parent.rmdir()
        return number

    def _path_of(self, sha256: bytes) -> Path:
        name = sha256.hex()
        return self.folder / name[:2] / name


def hash_file(file: BinaryIO) -> tuple[bytes, int]:
    """Return the hash of a file's content and its size in bytes; the file is at its beginning afterwards."""
    digest, size = hashlib.sha256(), 0
    file.seek(0)
    while part := file.read(READ_BYTES):
        digest.update(part)
        size += len(part)
    file.seek(0)
    return digest.digest(), size


def _touch(path: Path) -> bool:
    """Set a file's time to now, so that it counts as stored now; return whether the file exists."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _is_young(path: Path) -> bool:
    """Return whether a file was stored so recently that the row that names it may not be committed yet."""
    try:
        return time.time() - path.stat().st_mtime < MIN_DISCARD_AGE.total_seconds()
    except FileNotFoundError:
        return False


def _remove_or_restore(aside: Path, place: Path) -> None:
    """Remove a file that was renamed for removal; restore it if it is young and was not written anew."""
    with suppress(FileNotFoundError):  # another process was faster
        if _is_young(aside) and not place.exists():
            aside.replace(place)
        else:
            aside.unlink()


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents durably: their names survive a power failure."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync_folder(folder.parent)


def _write_file(place: Path, source: BinaryIO) -> None:
    descriptor, draft = tempfile.mkstemp(dir=place.parent)
    try:
        with open(descriptor, "wb") as file:
            shutil.copyfileobj(source, file, READ_BYTES)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(place)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names in it survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def can_be_created(blobs: Blobs) -> bool:
    """Return whether the folder of a storage that has no file yet can be created, which its first file does."""
    if not isinstance(blobs, LocalBlobs) or blobs.folder.exists():
        return False
    parent = next((each for each in blobs.folder.parents if each.exists()), None)
    return parent is not None and parent.is_dir() and os.access(parent, os.W_OK)
