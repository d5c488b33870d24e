"""`easel mcp`: servers are added, looked at and approved, and agents offered as tools."""

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
from tests.mcp_servers import Serving, mcp_server

SECRET = "a secret that is long"
TOKEN = "a-token-that-is-long"

Easel = Callable[..., tuple[int, str, str]]


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database for each test: the tenant `local` is in all of them."""
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
    """The command in this process; exit code, stdout and stderr."""
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
        with pytest.raises(SystemExit) as ended:
            main(["mcp", *arguments])
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    settings.load.cache_clear()
    yield run
    settings.load.cache_clear()


@pytest.fixture
def serving() -> Iterator[Serving]:
    with mcp_server() as serving:
        yield serving


def test_a_server_is_added_with_a_secret_that_shows_nowhere(easel: Easel, serving: Serving, database: Database):
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


def test_tools_are_tried_out_and_approved_once_they_have_changed(easel: Easel, serving: Serving):
    easel("add", "Tools", serving.url)
    tried = easel("test", "Tools", "add", "--arguments", '{"a": 1, "b": 2}')
    serving.description = "Other words."
    before = states(easel)

    easel("approve", "Tools", "add")

    assert tried[:2] == (0, "3\n")
    assert (before["add"], before["boom"]) == ("changed", "approved")
    assert states(easel)["add"] == "approved"


def test_a_server_that_does_not_answer_is_not_added(easel: Easel):
    code, out, err = easel("add", "Away", "http://127.0.0.1:1/mcp")

    assert (code, out) == (1, "")
    assert err.startswith("Connection failed")
    assert easel("list")[2].startswith("There are no MCP servers.")


def test_a_server_that_was_removed_is_unknown(easel: Easel, serving: Serving):
    easel("add", "Tools", serving.url)

    assert easel("remove", "Tools")[0] == 0
    assert easel("tools", "Tools")[0] == 2


def test_an_agent_is_offered_as_a_tool_and_hidden_again(easel: Easel, database: Database):
    with database.transaction() as tx:
        tenant = tenants.ensure_tenant(tx, "local")
        canvases.create(tx, tenant, "My agent", {"components": {}}, release=True)

    offered = easel("expose", "My agent")
    with database.transaction() as tx:
        shown = [agent.name for agent in agents.list_exposed(tx, tenant)]
    easel("hide", "My agent")

    assert (offered[1], shown) == ("My_agent\n", ["My_agent"])
    with database.transaction() as tx:
        assert agents.list_exposed(tx, tenant) == []


# -- in other words --------------------------------------------------------------------------------------------------
def states(easel: Easel) -> dict[str, str]:
    rows = [json.loads(line) for line in easel("tools", "Tools", "--json")[1].splitlines()]
    return {row["tool"]: row["state"] for row in rows}
