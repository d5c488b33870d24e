"""PgBouncer before PostgreSQL: a pooler that mixes prepared statements up is refused by every process at its start."""

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from api.app import create_app
from canvas.errors import ExecutorError
from cli.server import checks
from cli.server.checks import Level
from settings import Settings
from store.db import poolers
from store.db.database import Database
from store.maintenance import migrate
from tests import pgbouncer
from tests.integration.api.conftest import config_of

pytestmark = pytest.mark.skipif(pgbouncer.program() is None, reason="needs Debian's pgbouncer")
OLD_PGBOUNCER_ONLY = pytest.mark.skipif(
    pgbouncer.program() is not None and pgbouncer.version() >= (1, 21), reason="this PgBouncer keeps statements apart"
)
MIXES = "mixes prepared statements up"


@pytest.fixture
def mixing_url(tmp_path: Path, database_url: str) -> Generator[str]:
    """Return the URL of a database behind a PgBouncer that shares connections and statements."""
    with pgbouncer.running(tmp_path, database_url, max_prepared_statements="") as url:
        yield url


@pytest.fixture
def session_url(tmp_path: Path, database_url: str) -> Generator[str]:
    with pgbouncer.running(tmp_path, database_url, pool_mode="session") as url:
        yield url


@OLD_PGBOUNCER_ONLY
def test_pooler_that_mixes_statements_up_is_refused_with_advice(mixing_url: str) -> None:
    with closing(Database(mixing_url)) as database, pytest.raises(ExecutorError, match=MIXES) as refused:
        database.require_safe_pooler()

    assert "PgBouncer 1.22 or later with max_prepared_statements" in refused.value.message


@OLD_PGBOUNCER_ONLY
def test_no_statement_goes_through_a_pooler_that_mixes_them_up(mixing_url: str) -> None:
    with closing(Database(mixing_url)) as database:
        for _ in range(2):
            with pytest.raises(OperationalError, match=MIXES), database.transaction() as tx:
                tx.scalar(text("select 1"))


@OLD_PGBOUNCER_ONLY
def test_pooler_of_a_single_connection_is_refused_too(tmp_path: Path, database_url: str) -> None:
    one = {"default_pool_size": "1", "max_db_connections": "1"}
    pooler = pgbouncer.running(tmp_path, database_url, **one)

    with pooler as url, closing(Database(url)) as database, pytest.raises(ExecutorError, match=MIXES):
        database.require_safe_pooler()


def test_pooler_that_shares_by_session_is_used(session_url: str) -> None:
    with closing(Database(session_url)) as database:
        database.require_safe_pooler()

        with database.transaction() as tx:
            assert tx.scalar(text("select 1")) == 1


def test_process_is_not_refused_if_a_session_pool_is_exhausted(tmp_path: Path, database_url: str) -> None:
    pooler = pgbouncer.running(tmp_path, database_url, pool_mode="session", default_pool_size="2")

    with pooler as url, closing(Database(url, pool_size=1)) as database, database.transaction() as tx:
        assert tx.scalar(text("select 1")) == 1


@pytest.fixture
def check_results(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record the result of each check whether a pooler keeps statements apart."""
    results, original = list[bool](), poolers.keeps_statements_apart

    def keeps_statements_apart(connect: Callable[[], poolers.Connection]) -> bool:
        results.append(original(connect))
        return results[-1]

    monkeypatch.setattr(poolers, "keeps_statements_apart", keeps_statements_apart)
    return results


def run_two_transactions_at_once(database: Database) -> bool:
    with database.transaction() as one, database.transaction() as other:
        return one.scalar(text("select 1")) == other.scalar(text("select 1"))


def test_exhausted_pool_is_not_checked_again_with_each_connection(
    tmp_path: Path, database_url: str, check_results: list[bool]
) -> None:
    pooler = pgbouncer.running(tmp_path, database_url, pool_mode="session", default_pool_size="2")

    with pooler as url, closing(Database(url, pool_size=2)) as database:
        assert run_two_transactions_at_once(database)

    assert check_results == [False]


def test_exhausted_pool_is_checked_again_after_the_retry_delay(
    tmp_path: Path, database_url: str, check_results: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poolers, "RETRY_AFTER", 0.0)
    pooler = pgbouncer.running(tmp_path, database_url, pool_mode="session", default_pool_size="2")

    with pooler as url, closing(Database(url, pool_size=2)) as database:
        assert run_two_transactions_at_once(database)

    assert check_results == [False, False]


def test_pooler_is_checked_once_for_all_pools_of_a_process(session_url: str, check_results: list[bool]) -> None:
    for _ in range(2):
        with closing(Database(session_url)) as database:
            database.require_safe_pooler()

    assert check_results == [True]


def test_error_for_refused_startup_options_names_pgbouncer(tmp_path: Path, database_url: str) -> None:
    pooler, message = pgbouncer.running(tmp_path, database_url, ignore_startup_parameters=""), "This is PgBouncer"

    with pooler as url, closing(Database(url)) as database, pytest.raises(ExecutorError, match=message) as refused:
        database.require_safe_pooler()

    assert "ignore_startup_parameters = options" in refused.value.message


@OLD_PGBOUNCER_ONLY
def test_migration_refuses_a_pooler_that_mixes_statements_up(mixing_url: str) -> None:
    with pytest.raises(ExecutorError, match=MIXES):
        migrate.upgrade(mixing_url)


@OLD_PGBOUNCER_ONLY
def test_doctor_fails_for_a_pooler_that_mixes_statements_up(mixing_url: str) -> None:
    with closing(Database(mixing_url)) as database:
        findings = list(checks.database(database, Settings()))

    assert [finding.level for finding in findings] == [Level.FAIL]
    assert MIXES in findings[0].found
    assert "1.22" in findings[0].found


def test_doctor_warns_if_the_pooler_drops_time_limits(session_url: str) -> None:
    with closing(Database(session_url)) as database:
        findings = {finding.about: finding for finding in checks.database(database, Settings())}

    assert findings["pooler"].level is Level.WARN
    assert "alter role" in findings["pooler"].advice
    assert "statement_timeout" in findings["pooler"].advice


@OLD_PGBOUNCER_ONLY
def test_api_is_not_ready_behind_a_pooler_that_mixes_statements_up(mixing_url: str, redis_url: str) -> None:
    with TestClient(create_app(config_of(mixing_url, redis_url))) as client:
        reply = client.get("/readyz")

    assert reply.status_code == 503
    assert reply.json()["checks"]["database"] == "is behind a pooler that mixes prepared statements up"


@OLD_PGBOUNCER_ONLY
@pytest.mark.parametrize("process", ["api", "worker", "scheduler", "sweeper", "migrate"])
def test_process_ends_with_one_line_behind_a_pooler_that_mixes_statements_up(
    mixing_url: str, redis_url: str, process: str, tmp_path: Path
) -> None:
    completed = run(process, mixing_url, redis_url, tmp_path)

    assert completed.returncode == 1, completed.stderr
    assert MIXES in completed.stderr
    assert "Traceback" not in completed.stderr


def run(process: str, database_url: str, redis_url: str, home: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "EASEL_HOME": str(home)}
    environment["EASEL_API_PORT"] = "0"
    program = [sys.executable, "-m", "cli", process]
    return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120)
