"""Servers for a comparison: a model provider, PostgreSQL and Redis, embedded or from DATABASE_URL and REDIS_URL.

On configured servers, only a new database is used, which is dropped at the end, and the Redis database of the URL,
which must be empty and is emptied at the end.
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
class ComparisonServers:
    """The servers' URLs, and a folder for files and logs that is removed at the end."""

    folder: Path
    database_url: str = field(repr=False)  # for SQLAlchemy
    redis_url: str = field(repr=False)
    model_url: str  # of a model that answers after a fixed delay

    @property
    def psycopg_database_url(self) -> str:
        """The database URL for psycopg."""
        return psycopg_url(self.database_url)


@contextmanager
def run_comparison_servers(database_url: str | None, redis_url: str | None) -> Generator[ComparisonServers]:
    """Start the servers and stop them when the block ends; embedded ones unless both URLs are given.

    Call it from the main thread.
    """
    if (database_url is None) != (redis_url is None):
        raise InvalidRequest("Set both DATABASE_URL and REDIS_URL, or neither for an embedded pair.")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="easel-bench-"))
        folder.chmod(0o711)  # as root, PostgreSQL runs under another account and must get through
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if database_url is None or redis_url is None:
            pair = stack.enter_context(embedded.run_servers(folder, durable=True))
            database_url, redis_url = pair.database_url, pair.redis_url
        stack.enter_context(_exclusive_redis(redis_url))
        own = stack.enter_context(_create_database(database_url))
        port = stack.enter_context(_run_model())
        yield ComparisonServers(folder, own, redis_url, f"http://127.0.0.1:{port}/v1")


def psycopg_url(url: str) -> str:
    """Return a SQLAlchemy URL without its driver."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


@contextmanager
def _create_database(url: str) -> Generator[str]:
    """Create a database on a server and drop it when the block ends; yield its URL."""
    name = f"easel_bench_{os.getpid()}"
    own = sql.Identifier(name)
    with psycopg.connect(psycopg_url(url), autocommit=True) as connection:
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(own))
        connection.execute(sql.SQL("create database {}").format(own))
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(psycopg_url(url), autocommit=True) as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(own))


@contextmanager
def _run_model() -> Generator[int]:
    """Run a model provider in its own process until the block ends; yield its port."""
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
def _exclusive_redis(url: str) -> Generator[None]:
    """Empty a Redis database when the block ends. Raises InvalidRequest if it is not empty before."""
    with redis.Redis.from_url(url) as client:
        if client.dbsize():
            raise InvalidRequest("The Redis database of REDIS_URL is not empty. Use another one, such as redis://.../9")
        try:
            yield
        finally:
            client.flushdb()
