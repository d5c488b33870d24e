"""Servers and databases for tests; the fixtures in conftest.py hand them out."""

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

PATIENCE = timedelta(hours=1)  # the process that started the servers waits for the tests of the others
ROOM = 2 * 1024**3  # bytes; the servers and a few hundred databases of 10 MB
MIGRATIONS = Path(__file__).parent.parent / "migrations"
PREFIX, IN_USE = "easel-tests-", "in-use"  # a run's folder, and the file in it that the run holds a lock on
OURS = "easel-tests"  # a key that marks a Redis database as one that tests may empty


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder for the servers of a run, in memory where there is room: cloning a database is 40 times faster there.

    As root, PostgreSQL runs as somebody else, who must get through.
    """
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM
    place = memory if roomy else Path(tempfile.gettempdir())
    clear_abandoned(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    folder.chmod(0o711)
    with (folder / IN_USE).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


def clear_abandoned(place: Path) -> None:
    """Remove what runs that were killed have left: their hold on the folder went with them."""
    for mark in place.glob(f"{PREFIX}*/{IN_USE}"):
        try:
            with mark.open() as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # in use, just removed, or somebody else's
            continue
        shutil.rmtree(mark.parent, ignore_errors=True)


@contextmanager
def running(home: Path) -> Iterator[embedded.EmbeddedServers]:
    """The servers that the environment names, else an embedded pair, shared by all that name the same home."""
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
        linger=PATIENCE,
    ) as own:
        yield embedded.EmbeddedServers(named.database_url or own.database_url, named.redis_url or own.redis_url)


def migrated_template(database_url: str, home: Path) -> str:
    """The name of a migrated database to clone; the first process of a run sees to it, the others wait.

    It is named after its migrations and never dropped, so a server that somebody named keeps it for the next run.
    """
    from store.maintenance.migrate import upgrade  # only tests with tables need it

    name = f"easel_template_{_digest_of_migrations()}"
    with (home / "template.lock").open("a+") as lock, _administration(database_url) as connection:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not lock.seek(0, os.SEEK_END):  # as it is now, not as it was when this process opened it
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
    """The URL of a database that is dropped at the end, whoever is still connected to it."""
    name = f"easel_test_{secrets.token_hex(6)}"
    with _administration(database_url) as connection:
        _create(connection, name, template)
    try:
        yield with_database(database_url, name)
    finally:
        with _administration(database_url) as connection:
            _drop(connection, name)


ROOMS = ("tests", "api", "faults", "deviations", "compatibility")
"""Who has Redis databases of their own: where an engine lives, it would take other tests' messages."""
PROCESSES = 3  # of pytest-xdist that find a database each; a Redis has 16


def emptied_redis(redis_url: str, room: str = "tests") -> str:
    """The URL of this process's Redis database for some tests, after it has been emptied.

    One that somebody named may hold what somebody needs: there, only what earlier tests left is removed.
    """
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
    number = 1 + PROCESSES * ROOMS.index(room) + process
    url = with_database(redis_url, str(number))
    with redis.Redis.from_url(url) as client:
        if os.environ.get("REDIS_URL") and client.dbsize() and not client.exists(OURS):
            raise RuntimeError(f"Database {number} of the Redis in REDIS_URL is not empty, and tests would empty it.")
        client.flushdb()
        if os.environ.get("REDIS_URL"):
            client.set(OURS, "tests may empty this database")
    return url


def with_database(url: str, name: str) -> str:
    """The URL with another database in its path."""
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
