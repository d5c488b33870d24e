"""`easel kb` on a real database."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from cli.shell.options import LOCAL_TENANT
from knowledge.bases.ingestion import storage_of
from store.db.database import Database
from store.files.blobs import LocalBlobs
from store.knowledge import bases, documents
from store.tenants import tenants
from tests.integration.command_line import easel_on


def test_file_is_added_once_and_bytes_stay_while_another_document_has_them(
    database: Database,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    for file in (first, second):
        file.write_text("Refunds take five days.")
    files = tmp_path / "files"
    monkeypatch.setenv("EASEL_FILES_DIR", str(files))
    monkeypatch.setattr("store.files.blobs.MIN_DISCARD_AGE", timedelta(0))
    with database.transaction() as tx:
        tenant_id = tenants.ensure_tenant(tx, LOCAL_TENANT)
    with easel_on(database, redis_url, tmp_path, monkeypatch, capsys) as easel:
        easel("kb", "create", "Policies", "--words-only")
        codes = [easel("kb", "add", "Policies", str(file))[0] for file in (first, first, second)]
        _, listed, _ = easel("kb", "list", "Policies", "--json")
        with database.transaction() as tx:
            (base,), _ = bases.page(tx, tenant_id)
            (document,), _ = documents.page(tx, tenant_id, base.id)
            other = documents.add(tx, tenant_id, base.id, "copy.txt", "text/plain", document.size, document.sha256)
        removed, _, _ = easel("kb", "rm", "Policies", "a.txt")

    assert (codes, removed) == ([0, 0, 0], 0)
    assert [(row["name"], row["chunks"]) for row in map(json.loads, listed.splitlines())] == [("a.txt", 1)]
    assert storage_of(LocalBlobs(files), base.id).get(other.sha256) == first.read_bytes()
    with database.transaction() as tx:
        assert [each.name for each in documents.page(tx, tenant_id, base.id)[0]] == ["copy.txt"]
