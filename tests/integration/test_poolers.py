"""PgBouncer before PostgreSQL: what mixes prepared statements up is refused at the start, by everybody."""

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
OLD_ONLY = pytest.mark.skipif(
    pgbouncer.program() is not None and pgbouncer.version() >= (1, 21), reason="this PgBouncer keeps statements apart"
)
MIXES = "mixes prepared statements up"


@pytest.fixture
def mixing(tmp_path: Path, database_url: str) -> Generator[str]:
    """A database behind a PgBouncer that shares connections and statements."""
    with pgbouncer.running(tmp_path, database_url, max_prepared_statements="") as url:
        yield url


@pytest.fixture
def by_session(tmp_path: Path, database_url: str) -> Generator[str]:
    with pgbouncer.running(tmp_path, database_url, pool_mode="session") as url:
        yield url


@OLD_ONLY
def test_pooler_that_mixes_statements_up_is_refused_with_advice(mixing: str) -> None:
    with closing(Database(mixing)) as database, pytest.raises(ExecutorError, match=MIXES) as refused:
        database.require_safe_pooler()

    assert "PgBouncer 1.22 or later with max_prepared_statements" in refused.value.message


@OLD_ONLY
def test_no_statement_goes_through_a_pooler_that_mixes_them_up(mixing: str) -> None:
    with closing(Database(mixing)) as database:
        for _ in range(2):
            with pytest.raises(OperationalError, match=MIXES), database.transaction() as tx:
                tx.scalar(text("select 1"))


@OLD_ONLY
def test_pooler_of_a_single_connection_is_refused_too(tmp_path: Path, database_url: str) -> None:
    one = {"default_pool_size": "1", "max_db_connections": "1"}
    behind = pgbouncer.running(tmp_path, database_url, **one)

    with behind as url, closing(Database(url)) as database, pytest.raises(ExecutorError, match=MIXES):
        database.require_safe_pooler()


def test_pooler_that_shares_by_session_is_used(by_session: str) -> None:
    with closing(Database(by_session)) as database:
        database.require_safe_pooler()

        with database.transaction() as tx:
            assert tx.scalar(text("select 1")) == 1


def test_process_is_not_refused_where_a_session_pool_is_used_up(tmp_path: Path, database_url: str) -> None:
    behind = pgbouncer.running(tmp_path, database_url, pool_mode="session", default_pool_size="2")

    with behind as url, closing(Database(url, pool_size=1)) as database, database.transaction() as tx:
        assert tx.scalar(text("select 1")) == 1


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What came of each try whether a pooler keeps statements apart."""
    came_of, really = list[bool](), poolers.keeps_statements_apart

    def keeps_statements_apart(connect: Callable[[], poolers.Connection]) -> bool:
        came_of.append(really(connect))
        return came_of[-1]

    monkeypatch.setattr(poolers, "keeps_statements_apart", keeps_statements_apart)
    return came_of


def answers_twice_at_once(database: Database) -> bool:
    with database.transaction() as one, database.transaction() as other:
        return one.scalar(text("select 1")) == other.scalar(text("select 1"))


def test_pool_that_is_used_up_is_not_tried_again_with_each_connection(
    tmp_path: Path, database_url: str, tries: list[bool]
) -> None:
    behind = pgbouncer.running(tmp_path, database_url, pool_mode="session", default_pool_size="2")

    with behind as url, closing(Database(url, pool_size=2)) as database:
        assert answers_twice_at_once(database)

    assert tries == [False]


def test_pool_that_was_used_up_is_tried_again_after_a_while(
    tmp_path: Path, database_url: str, tries: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poolers, "RETRY_AFTER", 0.0)
    behind = pgbouncer.running(tmp_path, database_url, pool_mode="session", default_pool_size="2")

    with behind as url, closing(Database(url, pool_size=2)) as database:
        assert answers_twice_at_once(database)

    assert tries == [False, False]


def test_pooler_is_tried_once_for_all_pools_of_a_process(by_session: str, tries: list[bool]) -> None:
    for _ in range(2):
        with closing(Database(by_session)) as database:
            database.require_safe_pooler()

    assert tries == [True]


def test_pooler_that_refuses_options_is_named(tmp_path: Path, database_url: str) -> None:
    behind, says = pgbouncer.running(tmp_path, database_url, ignore_startup_parameters=""), "This is PgBouncer"

    with behind as url, closing(Database(url)) as database, pytest.raises(ExecutorError, match=says) as refused:
        database.require_safe_pooler()

    assert "ignore_startup_parameters = options" in refused.value.message


@OLD_ONLY
def test_migration_refuses_a_pooler_that_mixes_statements_up(mixing: str) -> None:
    with pytest.raises(ExecutorError, match=MIXES):
        migrate.upgrade(mixing)


@OLD_ONLY
def test_doctor_fails_for_a_pooler_that_mixes_statements_up(mixing: str) -> None:
    with closing(Database(mixing)) as database:
        findings = list(checks.database(database, Settings()))

    assert [finding.level for finding in findings] == [Level.FAIL]
    assert MIXES in findings[0].found
    assert "1.22" in findings[0].found


def test_doctor_warns_where_time_limits_do_not_arrive(by_session: str) -> None:
    with closing(Database(by_session)) as database:
        findings = {finding.about: finding for finding in checks.database(database, Settings())}

    assert findings["pooler"].level is Level.WARN
    assert "alter role" in findings["pooler"].advice
    assert "statement_timeout" in findings["pooler"].advice


@OLD_ONLY
def test_api_is_not_ready_behind_a_pooler_that_mixes_statements_up(mixing: str, redis_url: str) -> None:
    with TestClient(create_app(config_of(mixing, redis_url))) as client:
        reply = client.get("/readyz")

    assert reply.status_code == 503
    assert reply.json()["checks"]["database"] == "is behind a pooler that mixes prepared statements up"


@OLD_ONLY
@pytest.mark.parametrize("process", ["api", "worker", "scheduler", "sweeper", "migrate"])
def test_process_ends_with_one_line_behind_a_pooler_that_mixes_statements_up(
    mixing: str, redis_url: str, process: str, tmp_path: Path
) -> None:
    ended = run(process, mixing, redis_url, tmp_path)

    assert ended.returncode == 1, ended.stderr
    assert MIXES in ended.stderr
    assert "Traceback" not in ended.stderr


def run(process: str, database_url: str, redis_url: str, home: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "EASEL_HOME": str(home)}
    environment["EASEL_API_PORT"] = "0"
    program = [sys.executable, "-m", "cli", process]
    return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120)
