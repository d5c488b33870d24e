"""A database that takes no writes for a while: reported by name, survived, and nothing is lost."""

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
from tests.integration.outage import ATTEMPTS, RUNS, in_psql, product_on
from tests.services import shared_folder

HELD = 3
ROOM = 17 * 2**20  # bytes; a file of PostgreSQL's own log, which must be writable, has 16 MiB
A_QUARTER = 1945  # bytes of text; four such rows leave no room on a page
FILLER = """
    insert into run_events (run_id, number, event, body)
    select %s, n, 'filler', json_build_object('x', repeat('x', %s)) from generate_series(%s::int, %s::int) n
"""


def test_a_read_only_database_is_reported_and_strikes_nobody_and_every_run_ends_when_it_takes_writes(
    database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = urlsplit(database_url).path[1:]
    others = f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
    others += " and pid <> pg_backend_pid()"
    with product_on(database_url, redis_url, tmp_path, monkeypatch) as product:
        for number in range(HELD):
            assert product.post_run(f"before {number}").status_code == 202
        until(lambda: product.gate.begun == HELD)

        in_psql(database_url, f'alter database "{name}" set default_transaction_read_only = on', others)
        until(lambda: product.readiness() == (503, "is read-only"))
        refused = product.post_run("meanwhile")
        until(lambda: product.leases_have_run_out)
        product.gate.open()
        in_psql(
            database_url,
            "set default_transaction_read_only = off",
            f'alter database "{name}" reset default_transaction_read_only',
            others,
        )
        until(lambda: product.readiness() == (200, "ok"))
        accepted, again = product.post_run("meanwhile"), product.post_run("meanwhile")
        ended = product.runs_that_end(HELD + 1)
        attempts = product.rows(ATTEMPTS)

    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert refused.json()["message"] == "The database is read-only. Try again."
    assert refused.headers["retry-after"] == "1"
    assert accepted.json()["run_id"] == again.json()["run_id"]
    assert ended == ["succeeded"] * (HELD + 1)
    assert attempts == [(1, 0, "done")] * (HELD + 1)  # every lease ran out, and none was taken away


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit (util-linux) is what makes a disk look full")
def test_a_full_disk_is_reported_and_nothing_is_lost_when_there_is_room_again(
    home: Path, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded.run_servers(home, durable=False, need_redis=False) as servers:
        migrate.upgrade(servers.database_url)
        with product_on(servers.database_url, redis_url, tmp_path, monkeypatch) as product:
            for number in range(HELD):
                assert product.post_run(f"before {number}").status_code == 202
            until(lambda: product.gate.begun == HELD)

            fill_events(servers.database_url, home)
            refused = product.post_run("meanwhile")
            product.gate.open()
            until(lambda: product.leases_have_run_out or not product.at_work)
            while_full = product.rows(RUNS)
            give_room(home, "unlimited")
            accepted, again = product.post_run("meanwhile"), product.post_run("meanwhile")
            ended = product.runs_that_end(HELD + 1)
            attempts = product.rows(ATTEMPTS)

    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert refused.json()["message"] == "The database has no room left on its disk. Try again."
    assert while_full == [("running", HELD)]
    assert accepted.json()["run_id"] == again.json()["run_id"]
    assert ended == ["succeeded"] * (HELD + 1)
    assert {strikes for _, strikes, _ in attempts} == {0}


@pytest.fixture
def home() -> Iterator[Path]:
    """A place for a server that root, too, can start."""
    with shared_folder() as folder:
        yield folder


def fill_events(database_url: str, home: Path) -> None:
    """Let the table of events grow to the size that files may have, to its last byte."""
    with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as connection:
        filler = ids.new_id()
        connection.execute(FILLER, [filler, A_QUARTER, 1, 4 * (ROOM // 8192 - 20)])
        give_room(home, ROOM)
    with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as connection:
        for number, size in enumerate([A_QUARTER] * 100 + [400] * 40 + [10] * 100, start=ROOM):
            with suppress(psycopg.errors.InternalError):
                connection.execute(FILLER, [filler, size, number, number])
        with pytest.raises(psycopg.errors.InternalError, match="File too large"):
            connection.execute(FILLER, [filler, 10, 0, 0])


def give_room(home: Path, size: int | str) -> None:
    """Limit the size of files for a server and what it has started: beyond, writing fails as on a full disk."""
    (pid_file,) = home.glob("postgres-*/data/postmaster.pid")
    postmaster = pid_file.read_text().split()[0]
    owner = Path(f"/proc/{postmaster}").stat()  # as root we may kill it, but not limit it
    become: dict[str, Any] = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    for pid in (postmaster, *children):
        command = ["prlimit", "--pid", pid, f"--fsize={size}:unlimited"]
        subprocess.run(command, check=True, cwd="/", **(become if os.geteuid() == 0 else {}))
