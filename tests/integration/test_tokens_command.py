"""`easel tokens`: share links name their agent, and tokens expire."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from cli.server import checks
from store.agents import canvases
from store.db.database import Database
from store.tenants import tenants
from tests.integration.command_line import Easel


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Return a database for each test, as all of them use the tenant `local`."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def agent(database: Database) -> UUID:
    with database.transaction() as tx:
        return canvases.create(tx, tenants.ensure_tenant(tx, "local"), "Helper", {"components": {}})


def test_a_share_link_names_its_agent_by_title_or_id(easel: Easel, agent: UUID):
    for name in ("Helper", agent.hex):
        code, out, _ = easel("tokens", "create", "--kind", "beta", "--agent", name, "--json")
        assert (code, json.loads(out)["agent_id"]) == (0, agent.hex)

    _, listed, _ = easel("tokens", "list", "--json")
    assert [json.loads(line)["agent"] for line in listed.splitlines()] == [agent.hex, agent.hex]


def test_share_link_without_an_agent_and_administrator_with_one_are_refused(easel: Easel, agent: UUID):
    for arguments, reason in (
        (("--kind", "beta"), "opens one agent"),
        (("--scope", "share"), "opens one agent"),
        (("--kind", "admin", "--agent", "Helper"), "opens every agent"),
        (("--scope", "write"), "is not a scope"),
        (("--scope", "share", "--scope", "read", "--agent", "Helper"), "goes with no other scope"),
        (("--scope", "read", "--kind", "api"), "Leave one of them out"),
    ):
        code, out, err = easel("tokens", "create", *arguments)
        assert (code, out) == (2, "")
        assert reason in " ".join(err.replace("│", " ").split())


def test_token_with_scopes_and_an_agent_is_listed_with_them_and_revoked_with_those_it_made(
    easel: Easel, agent: UUID, database: Database
):
    options = ("--scope", "read", "--scope", "run", "--agent", "Helper", "--expires-in", "30d", "--name", "site")
    made = json.loads(easel("tokens", "create", *options, "--json")[1])
    with database.transaction() as tx:
        tenant_id = tenants.ensure_tenant(tx, "local")
        _, child = tenants.create_token(tx, tenant_id, "child", "viewer", created_by=UUID(made["id"]))

    listed = json.loads(easel("tokens", "list", "--json")[1].splitlines()[0])
    code, _, err = easel("tokens", "revoke", made["id"], "--with-made")

    assert (listed["scopes"], listed["agent"], listed["name"]) == ("read run", agent.hex, "site")
    assert made["token"].startswith(listed["prefix"])
    assert listed["expires"] is not None
    assert (code, "1 tokens that were made with it" in err) == (0, True)
    with database.transaction() as tx:
        assert [tenants.find_principal(tx, each) for each in (made["token"], child)] == [None, None]
    actions = [json.loads(line) for line in easel("audit", "--json", "--action", "token")[1].splitlines()]
    assert [(each["action"], each["actor"]) for each in actions] == [
        ("token.revoked", "command_line"),
        ("token.revoked", "command_line"),
        ("token.created", "command_line"),
    ]
    assert made["token"] not in json.dumps(actions)


def test_share_link_without_an_agent_can_be_bound_to_one(easel: Easel, agent: UUID, database: Database):
    _, out, _ = easel("tokens", "create", "--kind", "beta", "--agent", "Helper", "--json")
    link = json.loads(out)
    with database.transaction() as tx:
        tx.execute(text("update tokens set canvas_id = null"))

    code, _, err = easel("tokens", "bind", link["id"], "--agent", "Helper")

    with database.transaction() as tx:
        principal = tenants.find_principal(tx, link["token"])
    assert (code, err) == (0, f'Share link {link["id"]} opens "Helper" from now on.\n')
    assert principal is not None
    assert principal.canvas_id == agent


def test_token_that_is_not_a_share_link_cannot_be_bound(easel: Easel, agent: UUID):
    _, out, _ = easel("tokens", "create", "--json")

    code, _, err = easel("tokens", "bind", json.loads(out)["id"], "--agent", "Helper")

    assert code == 2
    assert "does not exist" in err


def test_token_expires_after_the_requested_time(easel: Easel, agent: UUID, database: Database):
    easel("tokens", "create", "--expires", "30d")

    with database.transaction() as tx:
        (token,) = tenants.list_tokens(tx, tenants.ensure_tenant(tx, "local"))

    assert token.expires_at is not None
    assert abs(token.expires_at - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=10)


@pytest.mark.parametrize("text_of_time", ["30", "x", "0d", "-1d", "1.5h", ""])
def test_invalid_expiry_time_is_refused(easel: Easel, agent: UUID, text_of_time: str):
    code, out, err = easel("tokens", "create", "--expires", text_of_time)

    assert (code, out) == (2, "")
    assert "30d or 12h" in " ".join(err.split())


def test_share_link_of_an_unpublished_agent_is_created_with_a_warning(easel: Easel, agent: UUID, database: Database):
    _, _, warning_for_draft = easel("tokens", "create", "--kind", "beta", "--agent", "Helper")
    with database.transaction() as tx:
        canvases.publish(tx, tenants.ensure_tenant(tx, "local"), agent)
    _, _, warning_for_published = easel("tokens", "create", "--kind", "beta", "--agent", "Helper")

    assert "no published version" in warning_for_draft
    assert "no published version" not in warning_for_published


def test_doctor_warns_about_share_links_without_an_agent(easel: Easel, agent: UUID, database: Database):
    easel("tokens", "create", "--kind", "beta", "--agent", "Helper")
    before = checks.share_links(database)

    with database.transaction() as tx:
        tx.execute(text("update tokens set canvas_id = null"))

    finding = checks.share_links(database)
    assert (before.level, finding.level, finding.found) == ("OK", "WARN", "1 name no agent, and do not work")
