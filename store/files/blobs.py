"""Where bytes lie by the hash of their content: a folder, or a bucket (store/files/s3_blobs.py).

A storage has parts, each with contents of its own: the same bytes in two parts are stored twice, and a part can go
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

PART = 1024 * 1024  # bytes of a file that are read at a time
IN_HAND = timedelta(hours=1)  # longer than anybody takes from putting bytes to the commit of their row


class StorageAway(OSError):
    """A file storage in the network does not answer, or refuses."""


class Blobs(Protocol):
    """Bytes by the SHA-256 of their content."""

    def put(self, data: bytes) -> bytes:
        """Store bytes for good (putting them again costs nothing); their hash."""
        ...

    def put_file(self, file: BinaryIO) -> tuple[bytes, int]:
        """Store what a file holds, read a part at a time; its hash, and its size in bytes."""
        ...

    def get(self, sha256: bytes) -> bytes:
        """The bytes of that hash. Raises NotFound if they are not here, StateError if they have changed."""
        ...

    def discard(self, sha256: bytes) -> bool:
        """Remove bytes that no row names any more; True if they are not here (now, or already before).

        False: somebody has just put them, for a row to come, and they stay.
        """
        ...

    def is_there(self) -> bool:
        """Whether this process sees the storage at all."""
        ...

    def part(self, name: str) -> "Blobs":
        """A part of the storage."""
        ...

    def parts(self) -> list[str]:
        """The names of the parts that have contents."""
        ...

    def clear(self) -> int:
        """Remove everything in here, parts included; how many contents."""
        ...


@dataclass(frozen=True, slots=True)
class LocalBlobs:
    """A folder: `ab/ab12...`, readable by us alone. Processes that share it see each other's files."""

    folder: Path

    def put(self, data: bytes) -> bytes:
        """Write to a file beside the place and rename: nobody reads half of it."""
        sha256, _ = self.put_file(io.BytesIO(data))
        return sha256

    def put_file(self, file: BinaryIO) -> tuple[bytes, int]:
        """Read twice, for the hash and to copy: where the same bytes lie already, nothing is written."""
        sha256, size = hashed(file)
        place = self._place(sha256)
        if not _touch(place):
            _make(place.parent)
            _write(place, file)
        _settle(place.parent)  # also behind somebody who has just written it, and may die before doing so
        return sha256, size

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
        """Remove bytes that no row names any more; False if somebody has just put them, for a row to come.

        Taken aside first: who puts them from then on writes them anew, and who did so before is seen by the time. What
        a process has left aside that died here is dealt with first.
        """
        place = self._place(sha256)
        for aside in place.parent.glob(f"{place.name}.*"):
            _settle_aside(aside, place)
        if _is_young(place):
            return False
        aside = place.with_name(f"{place.name}.{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            place.rename(aside)
            _settle_aside(aside, place)
        return not place.exists()

    def is_there(self) -> bool:
        """Whether the folder is there: it is made with the first file."""
        return self.folder.is_dir()

    def part(self, name: str) -> "LocalBlobs":
        """A folder in the folder."""
        return LocalBlobs(self.folder / name)

    def parts(self) -> list[str]:
        """The folders in the folder."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir()) if self.is_there() else []

    def clear(self) -> int:
        """Remove the folder with all that is in it, and the one around it if it is empty then."""
        if not self.is_there():
            return 0
        number = sum(1 for path in self.folder.rglob("*") if path.is_file())
        shutil.rmtree(self.folder)
        with suppress(OSError):  # others' parts lie beside it
            self.folder.parent.rmdir()
        return number

    def _place(self, sha256: bytes) -> Path:
        name = sha256.hex()
        return self.folder / name[:2] / name


def hashed(file: BinaryIO) -> tuple[bytes, int]:
    """The hash of what a file holds and its size in bytes; the file is at its beginning then."""
    digest, size = hashlib.sha256(), 0
    file.seek(0)
    while part := file.read(PART):
        digest.update(part)
        size += len(part)
    file.seek(0)
    return digest.digest(), size


def _touch(place: Path) -> bool:
    """Whether a file is there; if so it counts as put now."""
    try:
        os.utime(place)
    except FileNotFoundError:
        return False
    return True


def _is_young(place: Path) -> bool:
    """Whether a file was put so recently that its row may be still to come."""
    try:
        return time.time() - place.stat().st_mtime < IN_HAND.total_seconds()
    except FileNotFoundError:
        return False


def _settle_aside(aside: Path, place: Path) -> None:
    """Remove a file that was taken aside; put it back if it is young, and nobody has written it anew."""
    with suppress(FileNotFoundError):  # another process has dealt with it meanwhile
        if _is_young(aside) and not place.exists():
            aside.replace(place)
        else:
            aside.unlink()


def _make(folder: Path) -> None:
    """Make a folder, and those around it, so that their names outlast a power cut."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _settle(folder.parent)


def _write(place: Path, source: BinaryIO) -> None:
    descriptor, draft = tempfile.mkstemp(dir=place.parent)
    try:
        with open(descriptor, "wb") as file:
            shutil.copyfileobj(source, file, PART)
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
