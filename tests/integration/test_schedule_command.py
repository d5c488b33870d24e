"""`easel schedule`: create, list, show, pause, resume, trigger, delete."""

import json
from collections.abc import Iterator
from uuid import UUID

import pytest

from store.agents import canvases
from store.db.database import Database
from store.tenants import tenants
from tests.integration.command_line import Easel
from tests.integration.engine import dsl_of


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Return a database for each test, as all of them use the tenant `local`."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def agent(database: Database) -> UUID:
    with database.transaction() as tx:
        return canvases.create(
            tx, tenants.ensure_tenant(tx, "local"), "Helper", dsl_of("begin -> say", say={"content": ["hi"]})
        )


def test_schedule_is_created_shown_paused_resumed_triggered_and_deleted(easel: Easel, agent: UUID) -> None:
    code, out, message = easel(
        "schedule", "create", "Helper", "--cron", "30 7 * * mon-fri", "--time-zone", "Europe/Berlin",
        "--name", "Morning", "--query", "hello", "--catch-up", "2h", "--catch-up-at-most", "3", "--tokens", "500",
    )  # fmt: skip
    assert (code, "Morning: next " in message) == (0, True)

    _, shown, _ = easel("schedule", "show", "Morning", "--json")
    made = json.loads(shown)
    assert (made["id"], made["agent_id"]) == (out.strip(), agent.hex)
    assert made["start"] == {"query": "hello", "budget": {"tokens": 500}}
    assert made["catch_up"] == {"window_seconds": 7200, "at_most": 3}
    assert len(made["next_slots"]) == 5

    _, paused, _ = easel("schedule", "pause", "Morning", "--reason", "holiday", "--json")
    assert json.loads(paused)["paused_reason"] == "holiday"
    _, resumed, _ = easel("schedule", "resume", made["id"], "--json")
    assert json.loads(resumed)["next_at"] == made["next_at"]

    code, run, _ = easel("schedule", "trigger", "Morning")
    assert code == 0
    _, described, _ = easel("show", run.strip())
    assert f"schedule {made['id']}" in described
    code, _, error = easel("schedule", "trigger", "Morning")
    assert (code, "is open" in error) == (2, True)
    _, listed, _ = easel("schedule", "list", "--agent", "Helper")
    assert ["Morning" in line for line in listed.splitlines()] == [False, True]
    _, table, _ = easel("schedule", "show", "Morning")
    assert run.strip() in table

    assert easel("schedule", "delete", "Morning")[0] == 0
    code, _, error = easel("schedule", "show", "Morning")
    assert (code, "`easel schedule list`" in error) == (2, True)


def test_wrong_expression_is_bad_input_that_names_the_field(easel: Easel, agent: UUID) -> None:
    code, _, error = easel("schedule", "create", "Helper", "--cron", "0 25 * * *")

    assert (code, "the field hour is '25'" in error) == (2, True)
