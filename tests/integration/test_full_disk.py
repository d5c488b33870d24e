"""A database that refuses writes for a while: the error is reported, and every run succeeds afterwards."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import embedded
from store.maintenance import migrate
from store.primitives import ids
from tests.integration.engine import until
from tests.integration.outage import ATTEMPTS, RUNS, execute_autocommit, run_product
from tests.services import shared_folder

WAITING_RUNS = 3
MAX_FILE_BYTES = 17 * 2**20  # bytes; above the 16 MiB of a WAL file, which must be writable
QUARTER_PAGE = 1945  # bytes of text; four such rows leave no room on a page
FILLER = """
    insert into run_events (run_id, number, event, body)
    select %s, n, 'filler', json_build_object('x', repeat('x', %s)) from generate_series(%s::int, %s::int) n
"""


def test_read_only_database_is_reported_and_runs_succeed_once_it_is_writable(
    database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = urlsplit(database_url).path[1:]
    end_other_connections = f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
    end_other_connections += " and pid <> pg_backend_pid()"
    with run_product(database_url, redis_url, tmp_path, monkeypatch) as product:
        for number in range(WAITING_RUNS):
            assert product.post_run(f"before {number}").status_code == 202
        until(lambda: len(product.gate.waiting_runs) == WAITING_RUNS)

        execute_autocommit(
            database_url, f'alter database "{name}" set default_transaction_read_only = on', end_other_connections
        )
        until(lambda: product.readiness() == (503, "is read-only"))
        rejected = product.post_run("meanwhile")
        until(lambda: product.leases_have_expired)
        product.gate.open()
        execute_autocommit(
            database_url,
            "set default_transaction_read_only = off",
            f'alter database "{name}" reset default_transaction_read_only',
            end_other_connections,
        )
        until(lambda: product.readiness() == (200, "ok"))
        accepted, again = product.post_run("meanwhile"), product.post_run("meanwhile")
        statuses = product.wait_for_runs(WAITING_RUNS + 1)
        attempts = product.rows(ATTEMPTS)

    assert (rejected.status_code, rejected.json()["code"]) == (503, "unavailable")
    assert rejected.json()["message"] == "The database is read-only. Try again."
    assert rejected.headers["retry-after"] == "1"
    assert accepted.json()["run_id"] == again.json()["run_id"]
    assert statuses == ["succeeded"] * (WAITING_RUNS + 1)
    assert attempts == [(1, 0, "done")] * (WAITING_RUNS + 1)  # every lease expired, and no other attempt replaced it


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit (util-linux) is needed to simulate a full disk")
def test_full_disk_is_reported_and_runs_succeed_once_there_is_space(
    home: Path, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded.run_servers(home, durable=False, need_redis=False) as servers:
        migrate.upgrade(servers.database_url)
        with run_product(servers.database_url, redis_url, tmp_path, monkeypatch) as product:
            for number in range(WAITING_RUNS):
                assert product.post_run(f"before {number}").status_code == 202
            until(lambda: len(product.gate.waiting_runs) == WAITING_RUNS)

            fill_events(servers.database_url, home)
            rejected = product.post_run("meanwhile")
            product.gate.open()
            until(lambda: product.leases_have_expired or not product.has_running_attempts)
            while_full = product.rows(RUNS)
            limit_file_size(home, "unlimited")
            accepted, again = product.post_run("meanwhile"), product.post_run("meanwhile")
            statuses = product.wait_for_runs(WAITING_RUNS + 1)
            attempts = product.rows(ATTEMPTS)

    assert (rejected.status_code, rejected.json()["code"]) == (503, "unavailable")
    assert rejected.json()["message"] == "The database has no room left on its disk. Try again."
    assert while_full == [("running", WAITING_RUNS)]
    assert accepted.json()["run_id"] == again.json()["run_id"]
    assert statuses == ["succeeded"] * (WAITING_RUNS + 1)
    assert {crash_count for _, crash_count, _ in attempts} == {0}


@pytest.fixture
def home() -> Iterator[Path]:
    """Return a folder in which root, too, can start a server."""
    with shared_folder() as folder:
        yield folder


def fill_events(database_url: str, home: Path) -> None:
    """Fill the table of events up to the limit for files, to the last byte."""
    with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as connection:
        filler = ids.new_id()
        connection.execute(FILLER, [filler, QUARTER_PAGE, 1, 4 * (MAX_FILE_BYTES // 8192 - 20)])
        limit_file_size(home, MAX_FILE_BYTES)
    with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as connection:
        for number, size in enumerate([QUARTER_PAGE] * 100 + [400] * 40 + [10] * 100, start=MAX_FILE_BYTES):
            with suppress(psycopg.errors.InternalError):
                connection.execute(FILLER, [filler, size, number, number])
        with pytest.raises(psycopg.errors.InternalError, match="File too large"):
            connection.execute(FILLER, [filler, 10, 0, 0])


def limit_file_size(home: Path, size: int | str) -> None:
    """Limit the size of the files that a server and its children write; beyond it, writes fail as on a full disk."""
    (pid_file,) = home.glob("postgres-*/data/postmaster.pid")
    postmaster = pid_file.read_text().split()[0]
    owner = Path(f"/proc/{postmaster}").stat()  # root may kill the process, but prlimit must run as its owner
    become: dict[str, Any] = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    for pid in (postmaster, *children):
        command = ["prlimit", "--pid", pid, f"--fsize={size}:unlimited"]
        subprocess.run(command, check=True, cwd="/", **(become if os.geteuid() == 0 else {}))
