"""`easel import`, `export` and `secrets seal`: stored secrets are encrypted, and exported on request only."""

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest
from sqlalchemy import text

import settings
from cli.agents import drafts
from cli.server import checks
from components import plugins, registry, tools
from components.tools.framework.base import Tool, ToolParams, ToolResult
from store.agents import canvases, versions
from store.db.database import Database
from store.tenants import tenants
from tests.integration.command_line import Easel

KEY = "tvly-1234567890"


class KeyedParams(ToolParams):
    """The parameters of a plugin with a secret."""

    secrets: ClassVar[tuple[str, ...]] = ("api_key",)

    api_key: Any = ""


async def _return_nothing(params: KeyedParams, arguments: Mapping[str, Any], ctx: Any) -> ToolResult:
    return ToolResult({})


KEYED = Tool("KeyedTool", "keyed_tool", KeyedParams, "Keyed.", {}, _return_nothing, "pure")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Return a database for each test, as all of them use the tenant `local`."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def easel(database: Database, easel: Easel) -> Easel:
    """Return the command for a database that has the tenant `local`."""
    with database.transaction() as tx:
        tenants.ensure_tenant(tx, "local")
    return easel


def document() -> dict[str, Any]:
    def node(component: str, downstream: list[str], **params: Any) -> dict[str, Any]:
        return {"obj": {"component_name": component, "params": params}, "downstream": downstream, "upstream": []}

    return {
        "components": {
            "begin": node("Begin", ["TavilySearch:0"]),
            "TavilySearch:0": node("TavilySearch", ["Message:0"], api_key=KEY, query="{sys.query}"),
            "Message:0": node("Message", [], content=["{TavilySearch:0@formalized_content}"]),
        },
        "graph": {"nodes": []},
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "search.json"
    file.write_text(json.dumps(document()))
    return file


def read_draft(database: Database, agent: UUID) -> str:
    with database.transaction() as tx:
        return json.dumps(canvases.get(tx, tenants.ensure_tenant(tx, "local"), agent).draft)


def test_imported_secret_is_encrypted_and_exported_masked_unless_requested(
    easel: Easel, database: Database, file: Path
):
    code, out, _ = easel("import", str(file))
    agent = UUID(out.strip())
    _, masked, _ = easel("export", "search")
    _, plain, _ = easel("export", "search", "--with-secrets")

    assert code == 0
    assert KEY not in read_draft(database, agent)
    assert KEY not in masked
    assert "••••" in masked
    assert KEY in plain


def test_import_of_a_masked_export_changes_nothing(easel: Easel, database: Database, file: Path):
    _, out, _ = easel("import", str(file))
    agent = UUID(out.strip())
    _, masked, _ = easel("export", "search")
    before = read_draft(database, agent)
    file.write_text(masked)

    code, _, _ = easel("import", str(file))
    easel("export", "search")

    assert code == 0
    assert json.loads(read_draft(database, agent))["components"] == json.loads(before)["components"]


def test_masked_export_cannot_be_imported_as_another_agent(easel: Easel, file: Path):
    easel("import", str(file))
    _, masked, _ = easel("export", "search")
    file.write_text(masked)

    code, out, err = easel("import", str(file), "--title", "copy")

    assert (code, out) == (2, "")
    assert '"api_key" of TavilySearch is masked' in " ".join(err.split())


def test_secrets_stored_in_plain_text_are_encrypted_by_the_command(easel: Easel, database: Database):
    with database.transaction() as tx:
        tenant_id = tenants.ensure_tenant(tx, "local")
        agent = canvases.create(tx, tenant_id, "old", document(), release=True)
        released = versions.lock_latest_released(tx, tenant_id, agent).id

    first, second = easel("secrets", "seal"), easel("secrets", "seal")
    _, plain, _ = easel("export", "old", "--release", "--with-secrets")

    with database.transaction() as tx:
        version = versions.lock_latest_released(tx, tenant_id, agent)
        assert (version.id, versions.lock_draft_version(tx, tenant_id, agent).id) == (released, released)
        assert version.digest == versions.digest_of(version.dsl)
        assert KEY not in json.dumps(version.dsl)
    assert KEY not in read_draft(database, agent)
    assert KEY in plain
    assert first[::2] == (0, "2 documents of 1 agents had secrets in plain text, which are encrypted now.\n")
    assert second[::2] == (0, "0 documents of 1 agents had secrets in plain text, which are encrypted now.\n")


def test_secrets_in_versions_of_a_deleted_agent_are_encrypted(easel: Easel, database: Database):
    with database.transaction() as tx:
        tenant_id = tenants.ensure_tenant(tx, "local")
        canvases.create(tx, tenant_id, "gone", document())
        tx.execute(text("delete from canvases"))

    _, _, err = easel("secrets", "seal")

    assert err == "1 documents of 1 agents had secrets in plain text, which are encrypted now.\n"


def test_secrets_declared_by_a_plugin_are_encrypted_and_exported_masked(
    easel: Easel, database: Database, monkeypatch: pytest.MonkeyPatch
):
    with install_plugin(monkeypatch):
        monkeypatch.setenv("EASEL_PLUGINS", "keyed")
        settings.load.cache_clear()
        dsl = document()
        dsl["components"]["TavilySearch:0"]["obj"]["component_name"] = "KeyedTool"
        with database.transaction() as tx:
            agent = canvases.create(tx, tenants.ensure_tenant(tx, "local"), "keyed", dsl)
        _, masked, _ = easel("export", "keyed")
        _, _, stderr = easel("secrets", "seal")
        _, plain, _ = easel("export", "keyed", "--with-secrets")

    assert KEY not in masked
    assert stderr == "2 documents of 1 agents had secrets in plain text, which are encrypted now.\n"
    assert KEY not in read_draft(database, agent)
    assert KEY in plain


@contextmanager
def install_plugin(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Install the plugin, not loaded yet, until the block ends."""
    registries: list[dict[str, Any]] = [tools._by_name, registry._by_name, plugins._loaded]
    before = [dict(each) for each in registries]
    entry = EntryPoint("keyed", f"{__name__}:KEYED", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    drafts._load_plugins.cache_clear()
    yield
    drafts._load_plugins.cache_clear()
    for each, was in zip(registries, before, strict=True):
        each.clear()
        each.update(was)


def test_doctor_checks_that_secrets_can_be_decrypted_with_the_current_key(
    easel: Easel, database: Database, file: Path, monkeypatch: pytest.MonkeyPatch
):
    nothing = checks.secrets_of_canvases(database)
    easel("import", str(file))
    same_key = checks.secrets_of_canvases(database)

    monkeypatch.setenv("EASEL_SECRET_KEY", "another secret that is long")
    settings.load.cache_clear()
    another_key = checks.secrets_of_canvases(database)

    assert [each.level for each in (nothing, same_key, another_key)] == ["OK", "OK", "FAIL"]
    assert '"api_key" of TavilySearch does not open' in another_key.found


def test_doctor_searches_only_the_canvases_that_were_changed_last(
    easel: Easel, database: Database, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(checks, "MAX_DRAFTS", 1)
    easel("import", str(file))
    with_secret = checks.secrets_of_canvases(database)
    plain = document()
    del plain["components"]["TavilySearch:0"]["obj"]["params"]["api_key"]
    (tmp_path / "plain.json").write_text(json.dumps(plain))

    easel("import", str(tmp_path / "plain.json"))
    beyond_limit = checks.secrets_of_canvases(database)

    assert (with_secret.level, with_secret.found) == ("OK", "can be decrypted")
    assert (beyond_limit.level, beyond_limit.found) == ("OK", "none in the 1 canvases that were changed last")
