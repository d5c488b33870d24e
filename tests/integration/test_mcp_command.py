"""`easel mcp`: servers are added, tested and approved, and agents are exposed as tools."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import settings
from cli.__main__ import main
from store.agents import canvases
from store.db.database import Database
from store.mcp import agents, servers
from store.primitives.encryption import EncryptionKey
from store.tenants import tenants
from tests.mcp_servers import RunningMcpServer, mcp_server

SECRET = "a secret that is long"
TOKEN = "a-token-that-is-long"

Easel = Callable[..., tuple[int, str, str]]


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Return a database for each test, as all of them use the tenant `local`."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def easel(
    database: Database,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Easel]:
    """Return a function that runs `easel mcp` in this process; it returns exit code, stdout and stderr."""
    variables = {
        "DATABASE_URL": database.url,
        "REDIS_URL": redis_url,
        "EASEL_HOME": str(tmp_path),
        "EASEL_SECRET_KEY": SECRET,
        "EASEL_SSRF_ALLOW": "127.0.0.1",
        "MY_TOKEN": TOKEN,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exited:
            main(["mcp", *arguments])
        output = capsys.readouterr()
        return int(exited.value.code or 0), output.out, output.err

    settings.load.cache_clear()
    yield run
    settings.load.cache_clear()


@pytest.fixture
def serving() -> Iterator[RunningMcpServer]:
    with mcp_server() as serving:
        yield serving


def test_server_is_added_and_its_secret_appears_in_no_output(
    easel: Easel, serving: RunningMcpServer, database: Database
):
    header = "Authorization=Bearer ${authorization_token}"

    code, out, err = easel(
        "add", "Tools", serving.url, "--header", header, "--variable-from", "authorization_token=MY_TOKEN"
    )
    listed = easel("list", "--json")

    assert (code, len(out.strip())) == (0, 32)
    assert serving.headers()["authorization"] == f"Bearer {TOKEN}"
    assert json.loads(listed[1])["name"] == "Tools"
    assert TOKEN not in out + err + listed[1] + listed[2]
    with database.transaction() as tx:
        tenant = tenants.ensure_tenant(tx, "local")
        row = servers.find(tx, tenant, "Tools", EncryptionKey.from_secret(SECRET))
    assert row is not None
    assert row.fields.variables == {"authorization_token": TOKEN}


def test_tool_can_be_tested_and_is_approved_again_after_a_change(easel: Easel, serving: RunningMcpServer):
    easel("add", "Tools", serving.url)
    tested = easel("test", "Tools", "add", "--arguments", '{"a": 1, "b": 2}')
    serving.description = "Other words."
    before = states(easel)

    easel("approve", "Tools", "add")

    assert tested[:2] == (0, "3\n")
    assert (before["add"], before["boom"]) == ("changed", "approved")
    assert states(easel)["add"] == "approved"


def test_a_server_that_does_not_answer_is_not_added(easel: Easel):
    code, out, err = easel("add", "Away", "http://127.0.0.1:1/mcp")

    assert (code, out) == (1, "")
    assert err.startswith("Connection failed")
    assert easel("list")[2].startswith("There are no MCP servers.")


def test_a_server_that_was_removed_is_unknown(easel: Easel, serving: RunningMcpServer):
    easel("add", "Tools", serving.url)

    assert easel("remove", "Tools")[0] == 0
    assert easel("tools", "Tools")[0] == 2


def test_agent_is_exposed_as_a_tool_and_hidden_again(easel: Easel, database: Database):
    with database.transaction() as tx:
        tenant = tenants.ensure_tenant(tx, "local")
        canvases.create(tx, tenant, "My agent", {"components": {}}, release=True)

    exposed = easel("expose", "My agent")
    with database.transaction() as tx:
        names = [agent.name for agent in agents.list_exposed(tx, tenant)]
    easel("hide", "My agent")

    assert (exposed[1], names) == ("My_agent\n", ["My_agent"])
    with database.transaction() as tx:
        assert agents.list_exposed(tx, tenant) == []


# -- helpers ---------------------------------------------------------------------------------------------------------
def states(easel: Easel) -> dict[str, str]:
    rows = [json.loads(line) for line in easel("tools", "Tools", "--json")[1].splitlines()]
    return {row["tool"]: row["state"] for row in rows}
