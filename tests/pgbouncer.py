"""A PgBouncer for one test, in front of the PostgreSQL of the tests. It needs Debian's `pgbouncer`."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

START_TIMEOUT = 60.0  # seconds
UNPRIVILEGED_USER = "nobody"  # PgBouncer does not run as root


def program() -> str | None:
    """Return the path of PgBouncer, or None if it is not installed."""
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


def version() -> tuple[int, ...]:
    """Return the installed version."""
    executable = program()
    assert executable is not None
    output = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in output.split()[1].split("."))


@contextmanager
def running(folder: Path, database_url: str, **settings: str) -> Generator[str]:
    """Run a PgBouncer with these settings; yield the URL of a database behind it."""
    executable, url, port = program(), urlsplit(database_url), free_port()
    assert executable is not None
    name = url.path.removeprefix("/")
    options = {"pool_mode": "transaction", "ignore_startup_parameters": "options", **settings}
    lines = [
        "[databases]",
        f"{name} = host={url.hostname} port={url.port} dbname={name} user={url.username} password={url.password}",
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = any",
        *(f"{key} = {value}" for key, value in options.items() if value),
    ]
    configuration = folder / f"pgbouncer-{port}.ini"
    configuration.write_text("\n".join(lines) + "\n")
    arguments = [executable, "/dev/stdin", *(["-u", UNPRIVILEGED_USER] if os.geteuid() == 0 else [])]
    log = folder / f"pgbouncer-{port}.log"
    with log.open("wb") as out, configuration.open("rb") as stdin:
        server = subprocess.Popen(arguments, stdin=stdin, stdout=out, stderr=out)
    try:
        _wait_for(port, server, log)
        yield urlunsplit(url._replace(netloc=f"{url.username}:{url.password}@127.0.0.1:{port}"))
    finally:
        server.kill()
        server.wait(30)


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        assert server.poll() is None, log.read_text()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
