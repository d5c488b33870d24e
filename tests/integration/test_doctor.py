"""The checks of `easel doctor` that query the database."""

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
    with closing(Database(database_url, pool_size=2)) as database:
        yield database


def test_sweeper_check_passes_if_a_sweeper_ran_moments_ago(database: Database) -> None:
    record_sweeper_run(database, ago=timedelta(seconds=2))

    finding = check_sweeper(database)

    assert finding.level is Level.OK
    assert finding.found.startswith("ran 2 s ago")


def test_sweeper_check_fails_if_the_sweeper_stopped_although_its_connection_is_open(
    database: Database, database_url: str
) -> None:
    record_sweeper_run(database, ago=timedelta(minutes=5))
    with closing(Database(database_url, application="easel-sweeper")) as pooled:
        pooled.ping()

        finding = check_sweeper(database)

    assert finding.level is Level.FAIL
    assert finding.found == "none has run for 0:05:00 h"
    assert "easel sweeper" in finding.advice


def test_sweeper_check_fails_if_no_sweeper_has_ever_run(database: Database) -> None:
    assert check_sweeper(database).found == "none has ever run here"


def record_sweeper_run(database: Database, ago: timedelta) -> None:
    with database.transaction() as tx:
        ran_at = tx.scalar(text("select now()")) - ago
        queue_probes.save_observation(tx, SweeperObservation(ran_at, ran_at), "nodes")
        queue_probes.record_return(tx, "nodes", ran_at)


def check_sweeper(database: Database) -> CheckResult:
    return checks.sweeper(database, CommandServers(Settings()))
