"""A PgBouncer of a test's own, before the PostgreSQL of the tests. It needs Debian's `pgbouncer`."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

UP_WITHIN = 60.0  # seconds
NOT_ROOT = "nobody"  # PgBouncer does not run as root


def program() -> str | None:
    """Where PgBouncer is; None if it is not installed."""
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


def version() -> tuple[int, ...]:
    """The version that is installed."""
    found = program()
    assert found is not None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.split()[1].split("."))


@contextmanager
def running(folder: Path, database_url: str, **settings: str) -> Generator[str]:
    """The URL of a database behind a PgBouncer with these settings."""
    found, url, port = program(), urlsplit(database_url), free_port()
    assert found is not None
    name = url.path.removeprefix("/")
    own = {"pool_mode": "transaction", "ignore_startup_parameters": "options", **settings}
    lines = [
        "[databases]",
        f"{name} = host={url.hostname} port={url.port} dbname={name} user={url.username} password={url.password}",
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = any",
        *(f"{key} = {value}" for key, value in own.items() if value),
    ]
    configuration = folder / f"pgbouncer-{port}.ini"
    configuration.write_text("\n".join(lines) + "\n")
    arguments = [found, "/dev/stdin", *(["-u", NOT_ROOT] if os.geteuid() == 0 else [])]
    log = folder / f"pgbouncer-{port}.log"
    with log.open("wb") as out, configuration.open("rb") as given:
        server = subprocess.Popen(arguments, stdin=given, stdout=out, stderr=out)
    try:
        _wait_for(port, server, log)
        yield urlunsplit(url._replace(netloc=f"{url.username}:{url.password}@127.0.0.1:{port}"))
    finally:
        server.kill()
        server.wait(30)


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + UP_WITHIN
    while True:
        assert server.poll() is None, log.read_text()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
