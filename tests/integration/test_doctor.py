"""What `easel doctor` finds out by asking the servers."""

from collections.abc import Generator
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import text

from cli.server import checks
from cli.server.checks import CheckResult, Level
from cli.shell.servers import CommandServers
from settings import Settings
from store.db.database import Database
from store.monitoring import queue_probes
from store.monitoring.queue_probes import SweeperObservation


@pytest.fixture
def database(database_url: str) -> Generator[Database]:
    with closing(Database(database_url, pool_size=2)) as opened:
        yield opened


def test_sweeper_that_worked_a_moment_ago_is_there_whoever_is_connected(database: Database) -> None:
    seen_by_a_sweeper(database, ago=timedelta(seconds=2))

    finding = sweeper(database)

    assert finding.level is Level.OK
    assert finding.found.startswith("ran 2 s ago")


def test_sweeper_that_stopped_is_missed_although_a_pooler_keeps_its_connection(
    database: Database, database_url: str
) -> None:
    seen_by_a_sweeper(database, ago=timedelta(minutes=5))
    with closing(Database(database_url, application="easel-sweeper")) as kept:
        kept.ping()

        finding = sweeper(database)

    assert finding.level is Level.FAIL
    assert finding.found == "none has run for 0:05:00 h"
    assert "easel sweeper" in finding.advice


def test_sweeper_is_missed_where_none_has_ever_worked(database: Database) -> None:
    assert sweeper(database).found == "none has ever run here"


def seen_by_a_sweeper(database: Database, ago: timedelta) -> None:
    with database.transaction() as tx:
        seen = tx.scalar(text("select now()")) - ago
        queue_probes.save_observation(tx, SweeperObservation(seen, seen), "nodes")
        queue_probes.record_return(tx, "nodes", seen)


def sweeper(database: Database) -> CheckResult:
    return checks.sweeper(database, CommandServers(Settings()))
