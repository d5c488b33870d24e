"""Uploaded files: rows with metadata and the hash of the content."""

from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from canvas.errors import NotFound
from store.db.database import Database
from store.files.blobs import LocalBlobs
from store.primitives.ids import new_id
from store.tenants import uploads


def test_file_is_read_with_its_content_and_metadata(database: Database, tenant_id: UUID, tmp_path: Path):
    blobs, run_id = LocalBlobs(tmp_path), new_id()

    with database.transaction() as tx:
        added = uploads.register(
            tx,
            tenant_id,
            uploads.store_content(blobs, "répört.pdf", "application/pdf", b"%PDF"),
            created_by="ann",
            run_id=run_id,
        )

    with database.transaction() as tx:
        assert uploads.get(tx, tenant_id, added.id) == added
    assert blobs.get(added.sha256) == b"%PDF"
    assert (added.name, added.mime_type, added.size) == ("répört.pdf", "application/pdf", 4)
    assert (added.created_by, added.run_id) == ("ann", run_id)


def test_the_same_bytes_uploaded_twice_are_two_files(database: Database, tenant_id: UUID, tmp_path: Path):
    with database.transaction() as tx:
        one, other = (
            uploads.register(
                tx, tenant_id, uploads.store_content(LocalBlobs(tmp_path), "logo.png", "image/png", b"png")
            )
            for _ in range(2)
        )

    assert one.id != other.id
    assert one.sha256 == other.sha256


def test_another_tenants_file_is_not_found(database: Database, tenant_id: UUID, other_tenant_id: UUID, tmp_path: Path):
    blobs = LocalBlobs(tmp_path)
    with database.transaction() as tx:
        added = uploads.register(tx, tenant_id, uploads.store_content(blobs, "private.txt", "text/plain", b"private"))

    with database.transaction() as tx:
        with pytest.raises(NotFound, match="document not found"):
            uploads.get(tx, other_tenant_id, added.id)
        with pytest.raises(NotFound, match="document not found"):
            uploads.get_for_run(tx, other_tenant_id, added.id, new_id())


def test_a_file_whose_upload_was_rolled_back_is_not_found(database: Database, tenant_id: UUID, tmp_path: Path):
    with suppress(RuntimeError), database.transaction() as tx:
        added = uploads.register(
            tx, tenant_id, uploads.store_content(LocalBlobs(tmp_path), "half.txt", "text/plain", b"half")
        )
        raise RuntimeError

    with pytest.raises(NotFound), database.transaction() as tx:
        uploads.get(tx, tenant_id, added.id)
