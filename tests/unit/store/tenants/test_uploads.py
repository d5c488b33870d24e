"""File storage in a folder, by the hash of the content."""

import hashlib
import io
from pathlib import Path

import pytest

from canvas.errors import NotFound, StateError
from store.files.blobs import READ_BYTES, LocalBlobs


def test_bytes_are_read_by_the_hash_of_their_content(tmp_path: Path):
    blobs = LocalBlobs(tmp_path / "files")

    sha256 = blobs.store(b"quarterly report")

    assert sha256 == hashlib.sha256(b"quarterly report").digest()
    assert blobs.get(sha256) == b"quarterly report"


def test_same_content_is_stored_once_without_temporary_files(tmp_path: Path):
    blobs = LocalBlobs(tmp_path)

    first, second = blobs.store(b"logo"), blobs.store(b"logo")

    assert first == second
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [first.hex()]


def test_file_is_stored_under_the_hash_of_its_content_and_read_in_parts(tmp_path: Path):
    class Parts(io.BytesIO):
        largest = 0

        def read(self, size: int | None = -1, /) -> bytes:
            part = super().read(size)
            self.largest = max(self.largest, len(part))
            return part

    data = b"x" * (3 * READ_BYTES + 1)
    file = Parts(data)
    file.seek(5)  # not at its start

    sha256, size = LocalBlobs(tmp_path).store_file(file)
    again, _ = LocalBlobs(tmp_path).store_file(Parts(data))

    assert (sha256, size) == (hashlib.sha256(data).digest(), len(data))
    assert again == sha256
    assert LocalBlobs(tmp_path).get(sha256) == data
    assert file.largest == READ_BYTES


def test_stored_files_are_readable_only_by_their_owner(tmp_path: Path):
    blobs = LocalBlobs(tmp_path)

    name = blobs.store(b"private").hex()

    assert (tmp_path / name[:2] / name).stat().st_mode & 0o077 == 0


def test_missing_content_is_not_found(tmp_path: Path):
    with pytest.raises(NotFound):
        LocalBlobs(tmp_path).get(bytes(32))


def test_changed_content_is_refused(tmp_path: Path):
    blobs = LocalBlobs(tmp_path)
    sha256 = blobs.store(b"invoice over 10")
    (tmp_path / sha256.hex()[:2] / sha256.hex()).write_bytes(b"invoice over 99")

    with pytest.raises(StateError, match="changed"):
        blobs.get(sha256)


def test_parts_of_a_storage_have_separate_contents_and_are_removed_as_a_whole(tmp_path: Path):
    blobs = LocalBlobs(tmp_path / "files")
    one, other = blobs.part("one"), blobs.part("other")
    sha256 = one.store(b"logo")
    other.store(b"logo")

    assert blobs.parts() == ["one", "other"]
    assert one.clear() == 1

    assert blobs.parts() == ["other"]
    assert other.get(sha256) == b"logo"
    with pytest.raises(NotFound):
        one.get(sha256)
    assert one.clear() == 0
