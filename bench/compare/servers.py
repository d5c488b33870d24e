"""Servers to measure on: a model provider; PostgreSQL and Redis, embedded or as DATABASE_URL and REDIS_URL name them.

Of named servers only what is ours is touched: a database that is made here and dropped in the end, and a Redis database
that must be empty before and is emptied afterwards.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
from psycopg import sql

import embedded
from canvas.errors import InvalidRequest
from embedded import die_with_parent

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Servers:
    """Where everything is. `folder` is for files and logs, and gone afterwards."""

    folder: Path
    database_url: str = field(repr=False)  # as SQLAlchemy wants it
    redis_url: str = field(repr=False)
    model_url: str  # of a model that only takes time

    @property
    def plain_database_url(self) -> str:
        """As psycopg wants it."""
        return plain(self.database_url)


@contextmanager
def servers(database_url: str | None, redis_url: str | None) -> Generator[Servers]:
    """The two servers until the block ends; embedded ones unless both are named. From the main thread."""
    if (database_url is None) != (redis_url is None):
        raise InvalidRequest("Set both DATABASE_URL and REDIS_URL, or neither for an embedded pair.")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="easel-bench-"))
        folder.chmod(0o711)  # PostgreSQL of a root user runs as somebody else
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if database_url is None or redis_url is None:
            pair = stack.enter_context(embedded.services(folder, durable=True))
            database_url, redis_url = pair.database_url, pair.redis_url
        stack.enter_context(_emptied(redis_url))
        own = stack.enter_context(_database(database_url))
        port = stack.enter_context(_model())
        yield Servers(folder, own, redis_url, f"http://127.0.0.1:{port}/v1")


def plain(url: str) -> str:
    """A URL without the driver that SQLAlchemy wants in it."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


@contextmanager
def _database(url: str) -> Generator[str]:
    """A database of our own on a server."""
    name = f"easel_bench_{os.getpid()}"
    own = sql.Identifier(name)
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(own))
        connection.execute(sql.SQL("create database {}").format(own))
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(plain(url), autocommit=True) as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(own))


@contextmanager
def _model() -> Generator[int]:
    """A model provider in a process of its own; its port."""
    argv = [sys.executable, "-m", "bench.compare.waiting_server"]
    with subprocess.Popen(  # noqa: S603 (ours)
        argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=die_with_parent(signal.SIGTERM),
    ) as provider:  # fmt: skip
        assert provider.stdout is not None
        try:
            yield int(provider.stdout.readline())
        finally:
            provider.kill()


@contextmanager
def _emptied(url: str) -> Generator[None]:
    """A Redis database that nobody else uses. Raises InvalidRequest if it holds anything."""
    with redis.Redis.from_url(url) as client:
        if client.dbsize():
            raise InvalidRequest("The Redis database that REDIS_URL names is not empty. Name another: redis://.../9")
        try:
            yield
        finally:
            client.flushdb()
