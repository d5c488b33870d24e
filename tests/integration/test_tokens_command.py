"""`easel tokens`: share links name their agent, and tokens expire."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from cli.server import checks
from store.agents import canvases
from store.db.database import Database
from store.tenants import tenants
from tests.integration.command_line import Easel, easel_on


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database for each test: the tenant `local` is in all of them."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def agent(database: Database) -> UUID:
    with database.transaction() as tx:
        return canvases.create(tx, tenants.ensure_tenant(tx, "local"), "Helper", {"components": {}})


@pytest.fixture
def easel(
    database: Database,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Easel]:
    with easel_on(database, redis_url, tmp_path, monkeypatch, capsys) as easel:
        yield easel


def test_a_share_link_names_its_agent_by_title_or_id(easel: Easel, agent: UUID):
    for named in ("Helper", agent.hex):
        code, out, _ = easel("tokens", "create", "--kind", "beta", "--agent", named, "--json")
        assert (code, json.loads(out)["agent_id"]) == (0, agent.hex)

    _, listed, _ = easel("tokens", "list", "--json")
    assert [json.loads(line)["agent"] for line in listed.splitlines()] == [agent.hex, agent.hex]


def test_a_share_link_without_an_agent_and_a_token_with_one_are_refused(easel: Easel, agent: UUID):
    for arguments in (("--kind", "beta"), ("--agent", "Helper"), ("--kind", "admin", "--agent", "Helper")):
        code, out, err = easel("tokens", "create", *arguments)
        assert (code, out) == (2, "")
        assert "opens one agent" in " ".join(err.replace("│", " ").split())


def test_a_share_link_that_names_no_agent_is_bound_to_one(easel: Easel, agent: UUID, database: Database):
    _, out, _ = easel("tokens", "create", "--kind", "beta", "--agent", "Helper", "--json")
    made = json.loads(out)
    with database.transaction() as tx:
        tx.execute(text("update tokens set canvas_id = null"))

    code, _, err = easel("tokens", "bind", made["id"], "--agent", "Helper")

    with database.transaction() as tx:
        principal = tenants.find_principal(tx, made["token"])
    assert (code, err) == (0, f'Share link {made["id"]} opens "Helper" from now on.\n')
    assert principal is not None
    assert principal.canvas_id == agent


def test_a_token_that_is_no_share_link_is_bound_to_nothing(easel: Easel, agent: UUID):
    _, out, _ = easel("tokens", "create", "--json")

    code, _, err = easel("tokens", "bind", json.loads(out)["id"], "--agent", "Helper")

    assert code == 2
    assert "no share link" in err


def test_a_token_expires_when_its_time_is_over(easel: Easel, agent: UUID, database: Database):
    easel("tokens", "create", "--expires", "30d")

    with database.transaction() as tx:
        (token,) = tenants.list_tokens(tx, tenants.ensure_tenant(tx, "local"))

    assert token.expires_at is not None
    assert abs(token.expires_at - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=10)


@pytest.mark.parametrize("written", ["30", "x", "0d", "-1d", "1.5h", ""])
def test_what_is_no_time_is_refused(easel: Easel, agent: UUID, written: str):
    code, out, err = easel("tokens", "create", "--expires", written)

    assert (code, out) == (2, "")
    assert "30d or 12h" in " ".join(err.split())


def test_a_share_link_of_what_is_not_published_is_made_with_a_word_about_it(
    easel: Easel, agent: UUID, database: Database
):
    _, _, drafted = easel("tokens", "create", "--kind", "beta", "--agent", "Helper")
    with database.transaction() as tx:
        canvases.publish(tx, tenants.ensure_tenant(tx, "local"), agent)
    _, _, published = easel("tokens", "create", "--kind", "beta", "--agent", "Helper")

    assert "no published version" in drafted
    assert "no published version" not in published


def test_the_doctor_finds_share_links_that_name_no_agent(easel: Easel, agent: UUID, database: Database):
    easel("tokens", "create", "--kind", "beta", "--agent", "Helper")
    before = checks.share_links(database)

    with database.transaction() as tx:
        tx.execute(text("update tokens set canvas_id = null"))

    found = checks.share_links(database)
    assert (before.level, found.level, found.found) == ("OK", "WARN", "1 name no agent, and do not work")
