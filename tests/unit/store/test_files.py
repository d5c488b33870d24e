"""Bytes in a folder, by the hash of their content."""

import hashlib
from pathlib import Path

import pytest

from canvas.errors import NotFound, StateError
from store.blobs import LocalBlobs


def test_bytes_come_back_under_the_hash_of_their_content(tmp_path: Path):
    blobs = LocalBlobs(tmp_path / "files")

    sha256 = blobs.put(b"quarterly report")

    assert sha256 == hashlib.sha256(b"quarterly report").digest()
    assert blobs.get(sha256) == b"quarterly report"


def test_the_same_content_is_stored_once_and_nothing_else_lies_beside_it(tmp_path: Path):
    blobs = LocalBlobs(tmp_path)

    first, second = blobs.put(b"logo"), blobs.put(b"logo")

    assert first == second
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [first.hex()]


def test_stored_bytes_are_readable_for_us_alone(tmp_path: Path):
    blobs = LocalBlobs(tmp_path)

    name = blobs.put(b"private").hex()

    assert (tmp_path / name[:2] / name).stat().st_mode & 0o077 == 0


def test_content_that_is_not_here_is_not_found(tmp_path: Path):
    with pytest.raises(NotFound):
        LocalBlobs(tmp_path).get(bytes(32))


def test_content_that_somebody_changed_is_not_given_out(tmp_path: Path):
    blobs = LocalBlobs(tmp_path)
    sha256 = blobs.put(b"invoice over 10")
    (tmp_path / sha256.hex()[:2] / sha256.hex()).write_bytes(b"invoice over 99")

    with pytest.raises(StateError, match="changed"):
        blobs.get(sha256)


def test_parts_of_a_storage_have_contents_of_their_own_and_go_whole(tmp_path: Path):
    blobs = LocalBlobs(tmp_path / "files")
    one, other = blobs.part("one"), blobs.part("other")
    sha256 = one.put(b"logo")
    other.put(b"logo")

    assert blobs.parts() == ["one", "other"]
    assert one.clear() == 1

    assert blobs.parts() == ["other"]
    assert other.get(sha256) == b"logo"
    with pytest.raises(NotFound):
        one.get(sha256)
    assert one.clear() == 0
