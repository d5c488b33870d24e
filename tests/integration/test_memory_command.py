"""`easel memory` on a real database."""

import json
from pathlib import Path

import pytest

from cli.__main__ import main
from cli.shell.options import LOCAL_TENANT
from store.db.database import Database
from store.knowledge import memories
from store.tenants import tenants
from tests.integration.memories import MemoryTenant


@pytest.fixture
def tenant(
    database: Database, module_database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> MemoryTenant:
    """Return the local tenant, whose memories the command uses."""
    monkeypatch.setenv("EASEL_HOME", str(tmp_path))
    monkeypatch.setenv("DATABASE_URL", module_database_url)
    monkeypatch.setenv("REDIS_URL", redis_url)
    with database.transaction() as tx:
        return MemoryTenant(database, tenants.ensure_tenant(tx, LOCAL_TENANT))


def easel(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `easel memory`; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as exited:
        main(["memory", *arguments])
    output = capsys.readouterr()
    return int(exited.value.code or 0), output.out, output.err


def test_memory_is_created_shown_searched_and_deleted(tenant: MemoryTenant, capsys: pytest.CaptureFixture[str]):
    code, created, _ = easel(capsys, "create", "Customers", "--words-only", "--type", "semantic", "--size", "1")
    with tenant.database.transaction() as tx:
        (memory,), _ = memories.page(tx, tenant.tenant_id)
    tenant.write(memory, "I like green tea.", user_id="ann")
    tenant.write(memory, "I live in Rome.", user_id="bob")

    _, listed, _ = easel(capsys, "list", "--json")
    _, shown, _ = easel(capsys, "show", "customers", "--user", "bob", "--json")
    found, searched, _ = easel(capsys, "search", memory.id.hex, "green tea", "--json")
    nothing, _, _ = easel(capsys, "search", "Customers", "zebra")
    easel(capsys, "rm", "Customers", "1")
    forgotten, _, _ = easel(capsys, "search", "Customers", "green tea")
    easel(capsys, "rm", "Customers")
    gone, _, stderr = easel(capsys, "show", "Customers")

    assert (code, created.strip()) == (0, memory.id.hex)
    assert (memory.extracted_types, memory.most_bytes, memory.embedding_model) == (("semantic",), 1024 * 1024, "")
    assert json.loads(listed.splitlines()[0])["name"] == "Customers"
    assert "I live in Rome." in shown
    assert "green tea" not in shown
    assert found == 0
    assert json.loads(searched)["number"] == 1
    assert (nothing, forgotten) == (1, 1)
    assert gone == 2
    assert 'There is no memory "Customers".' in stderr


@pytest.mark.usefixtures("tenant")
def test_unknown_memory_type_is_refused(capsys: pytest.CaptureFixture[str]):
    code, _, stderr = easel(capsys, "create", "Customers", "--type", "wild")

    assert code == 2
    assert '"wild" is not a type of memory' in stderr
