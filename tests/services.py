"""Servers and databases for tests; the fixtures in conftest.py provide them."""

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
from psycopg import sql

import embedded

LINGER = timedelta(hours=1)  # how long the process that started the servers waits for the others
MIN_FREE_SPACE = 2 * 1024**3  # bytes; the servers and a few hundred databases of 10 MB
MIGRATIONS = Path(__file__).parent.parent / "migrations"
PREFIX, IN_USE = "easel-tests-", "in-use"  # the folder of a pytest run, and the lock file in it
MARKER_KEY = "easel-tests"  # a key that marks a Redis database as one that tests may empty


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder for the servers of a run, in memory where there is room: cloning a database is 40 times faster there.

    PostgreSQL started by root runs as another user, who must be able to enter the folder.
    """
    memory = Path("/dev/shm")
    has_space = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MIN_FREE_SPACE
    parent = memory if has_space else Path(tempfile.gettempdir())
    clear_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    folder.chmod(0o711)
    with (folder / IN_USE).open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


def clear_abandoned(parent: Path) -> None:
    """Remove the folders of killed pytest runs, which no process has locked any more."""
    for lock_path in parent.glob(f"{PREFIX}*/{IN_USE}"):
        try:
            with lock_path.open() as lock_file:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # in use, just removed, or of another user
            continue
        shutil.rmtree(lock_path.parent, ignore_errors=True)


@contextmanager
def running(home: Path) -> Iterator[embedded.EmbeddedServers]:
    """The servers that the environment names, else an embedded pair, shared by all processes with the same home."""
    database_url = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", os.environ.get("DATABASE_URL", ""))
    named = embedded.EmbeddedServers(database_url, os.environ.get("REDIS_URL", ""))
    if named.database_url and named.redis_url:
        yield named
        return
    with embedded.run_servers(
        home,
        durable=False,
        need_database=not named.database_url,
        need_redis=not named.redis_url,
        linger=LINGER,
    ) as own:
        yield embedded.EmbeddedServers(named.database_url or own.database_url, named.redis_url or own.redis_url)


def migrated_template(database_url: str, home: Path) -> str:
    """The name of a migrated database to clone; the first process of a pytest run migrates it, the others wait.

    It is named after its migrations and never dropped, so a server named in the environment keeps it for the next run.
    """
    from store.maintenance.migrate import upgrade  # only tests with tables need it

    name = f"easel_template_{_digest_of_migrations()}"
    with (home / "template.lock").open("a+") as lock, _administration(database_url) as connection:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not lock.seek(0, os.SEEK_END):  # the current size, not the one when this process opened it
            if not connection.execute("select 1 from pg_database where datname = %s", [name]).fetchone():
                _create(connection, name)
            upgrade(with_database(database_url, name))
            lock.write("migrated")
    return name


def _digest_of_migrations() -> str:
    digest = hashlib.sha256()
    for file in sorted(MIGRATIONS.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def fresh_database(database_url: str, template: str = "template0") -> Iterator[str]:
    """The URL of a database that is dropped at the end, even with open connections."""
    name = f"easel_test_{secrets.token_hex(6)}"
    with _administration(database_url) as connection:
        _create(connection, name, template)
    try:
        yield with_database(database_url, name)
    finally:
        with _administration(database_url) as connection:
            _drop(connection, name)


AREAS = ("tests", "api", "faults", "deviations", "compatibility")
"""The areas with their own Redis databases: a running engine would consume the messages of other tests."""
PROCESSES = 3  # of pytest-xdist, each with its own database: with the five areas, the 16 that a Redis has


def emptied_redis(redis_url: str, area: str = "tests") -> str:
    """Empty this process's Redis database for an area of tests; return its URL.

    A Redis named in the environment may contain other data: it is emptied only if earlier tests have marked it.
    """
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > PROCESSES:
        raise RuntimeError(f"Tests run in at most {PROCESSES} processes: each needs Redis databases of its own.")
    number = 1 + PROCESSES * AREAS.index(area) + process
    url = with_database(redis_url, str(number))
    with redis.Redis.from_url(url) as client:
        if os.environ.get("REDIS_URL") and client.dbsize() and not client.exists(MARKER_KEY):
            raise RuntimeError(f"Database {number} of the Redis in REDIS_URL is not empty, and tests would empty it.")
        client.flushdb()
        if os.environ.get("REDIS_URL"):
            client.set(MARKER_KEY, "tests may empty this database")
    return url


def with_database(url: str, name: str) -> str:
    """Return the URL with another database in its path."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@contextmanager
def _administration(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as connection:
        yield connection


def _create(connection: psycopg.Connection, name: str, template: str = "template0") -> None:
    clone = sql.SQL("create database {} template {} strategy file_copy")  # 10 ms in memory; the default takes 25
    connection.execute(clone.format(sql.Identifier(name), sql.Identifier(template)))


def _drop(connection: psycopg.Connection, name: str) -> None:
    connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
