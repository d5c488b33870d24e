"""`easel up`: everything on this machine.

Servers (embedded unless DATABASE_URL and REDIS_URL name some), migrations, a token, then API, worker, scheduler and
sweeper as processes. When the API answers, one line on stdout says where: `ready http://127.0.0.1:8000 token=...`.
Whichever of them ends is started again, servers under their old URLs, so that nobody has to be told.
"""

import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Annotated, TypeVar

import typer
from sqlalchemy.exc import SQLAlchemyError

import embedded
from canvas.errors import Conflict, ExecutorError, InvalidRequest
from cli.server.processes import api_program, named, scheduler_program, sweeper_program, worker_program
from cli.server.supervisor import Child, stop_all
from cli.shell import home, output
from cli.shell.connection import only_errors, tenant_of
from cli.shell.output import DIM, YELLOW
from settings import Settings, load
from store.db.database import Database
from store.maintenance import migrate
from store.primitives.db_errors import is_outage
from store.tenants import tenants

T = TypeVar("T")

LOOK_EVERY = 0.1  # seconds
COMES_UP_WITHIN = 60.0  # seconds
LETS_GO_WITHIN = 10.0  # seconds; the API of an `easel up` that was killed lets go of its port
LARGEST_PORT = 65535
TOKEN_NAME = "easel up"  # noqa: S105 (what the token is called in lists)


def up(
    port: Annotated[int | None, typer.Option(help="Of the API; 0 takes a free one.", min=0, max=LARGEST_PORT)] = None,
) -> None:
    """Run everything on this machine until Ctrl-C."""
    settings = load()
    only_errors(settings)
    metrics_ports(settings)
    ending = _signals()
    with home.held(settings.home) as announcement, own_servers(settings, ending) as servers:
        if ending.is_set():
            return
        found = settings.on(servers.database_url, servers.redis_url)
        database_url, redis_url, _ = found.servers()
        _despite_outages(servers, lambda: migrate.upgrade(database_url))
        token = _despite_outages(servers, lambda: token_of(settings.home, database_url))
        patience = LETS_GO_WITHIN if announcement.follows_killed else 0.0
        chosen = free_port(settings.api_host, settings.api_port if port is None else port, patience)
        children = _children(found, chosen)
        host = _reachable(settings.api_host)
        try:
            if _come_up(servers, children, host, chosen, ending):
                url = f"http://{f'[{host}]' if ':' in host else host}:{chosen}"
                announcement.announce(home.Up(url, os.getpid(), token, database_url, redis_url))
                output.say(f"ready {url} token={token}")
                output.tell(f"logs in {settings.home / home.LOGS}; Ctrl-C stops everything", DIM)
                pages = ", ".join(f"{name} {at}" for name, at in metrics_ports(found).items())
                if pages:
                    output.tell(
                        f"counters on {settings.metrics_host}: {pages}; `easel doctor` shows who has which", DIM
                    )
            while not ending.wait(LOOK_EVERY):
                _tend(servers, children)
        finally:
            stop_all(*children)


@contextmanager
def own_servers(settings: Settings, ending: threading.Event) -> Generator[embedded.Services]:
    """The servers that are not named. They must be ours: those of another command would end with it."""
    need_database, need_redis = settings.database_url is None, settings.redis_url is None
    if not (need_database or need_redis):
        yield embedded.Services()
        return
    has_told = False
    while not ending.is_set():
        linger = timedelta(seconds=10)
        with embedded.services(
            settings.home, need_database=need_database, need_redis=need_redis, linger=linger
        ) as servers:
            if _owner(settings) == os.getpid():
                yield servers
                return
        if not has_told:
            output.tell("waiting for another easel command that runs the servers of this home", YELLOW)
        has_told = True
        ending.wait(0.5)
    yield embedded.Services()


def token_of(folder: Path, database_url: str) -> str:
    """The local tenant's token that this home keeps; a new one if there is none, or the database does not know it."""
    database = Database(database_url, pool_size=1, application="easel-cli")
    try:
        with database.transaction() as tx:
            tenant_id = tenant_of(tx)
            kept = home.kept_token(folder)
            principal = tenants.principal_of(tx, kept) if kept else None
            if kept and principal is not None and principal.tenant_id == tenant_id:
                return kept
            _, made = tenants.create_token(tx, tenant_id, TOKEN_NAME, "admin")
    finally:
        database.close()
    home.keep_token(folder, made)
    return made


def free_port(host: str, wanted: int, patience: float = 0.0) -> int:
    """The port to listen on; a free one for 0. Raises Conflict if it is taken for longer than `patience` seconds."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    give_up = time.monotonic() + patience
    while True:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that was let go a moment ago is free
            try:
                probe.bind((host, wanted))
                return int(probe.getsockname()[1])
            except OSError as error:
                if time.monotonic() >= give_up:
                    advice = "Pick another: easel up --port 0"
                    raise Conflict(f"Port {wanted} on {host}: {error.strerror}. {advice}") from error
        time.sleep(LOOK_EVERY)


def _children(settings: Settings, port: int) -> list[Child]:
    """Our processes; the one that takes in new work comes first, for it stops first."""
    database_url, redis_url, _ = settings.servers()
    environment = {**os.environ, **named(settings, database_url, redis_url), "EASEL_API_PORT": str(port)}
    programs = {
        "api": api_program(port),
        "worker": [*worker_program(settings), "-n", "worker@%h"],
        "scheduler": [*scheduler_program(settings), "-n", "scheduler@%h"],
        "sweeper": sweeper_program(),
    }
    logs, ports = settings.home / home.LOGS, metrics_ports(settings)
    return [
        Child(name, argv, {**environment, **_metrics(ports.get(name))}, logs / f"{name}.log")
        for name, argv in programs.items()
    ]


def metrics_ports(settings: Settings) -> dict[str, int]:
    """The port of each process's counters, none where they are not asked for; the API shows its own at /metrics.

    Raises InvalidRequest where there are too few ports from the first one on.
    """
    first = settings.metrics_port
    if first is None:
        return {}
    names = ("worker", "scheduler", "sweeper")
    last = first + len(names) - 1
    if last > LARGEST_PORT:
        raise InvalidRequest(
            f"EASEL_METRICS_PORT is {first}. `easel up` takes the ports {first} to {last} for counters, and "
            f"there is none above {LARGEST_PORT}. Name a port up to {LARGEST_PORT - len(names) + 1}."
        )
    return {name: first + at for at, name in enumerate(names)}


def _metrics(port: int | None) -> dict[str, str]:
    return {} if port is None else {"EASEL_METRICS_PORT": str(port)}


def _tend(servers: embedded.Services, children: Sequence[Child]) -> None:
    """Start again what has ended."""
    for name in servers.tend():
        output.tell(f"the embedded {name} has ended and is started again", YELLOW)
    for child in children:
        child.tend()


def _despite_outages(servers: embedded.Services, work: Callable[[], T]) -> T:
    """What some work on the database gives; once more if an embedded server was killed meanwhile and is back."""
    give_up = time.monotonic() + COMES_UP_WITHIN
    while True:
        try:
            return work()
        except SQLAlchemyError as error:
            if not servers.owned or not is_outage(error) or time.monotonic() > give_up:
                raise
        time.sleep(LOOK_EVERY)
        servers.tend()


def _come_up(
    servers: embedded.Services, children: Sequence[Child], host: str, port: int, ending: threading.Event
) -> bool:
    """Start everything and wait for the API; False if we are to end first."""
    give_up = time.monotonic() + COMES_UP_WITHIN
    while not ending.wait(LOOK_EVERY):
        _tend(servers, children)
        for child in children:
            child.must_come_up()
        if _is_ready(host, port):
            return True
        if time.monotonic() > give_up:
            raise ExecutorError(f"The API does not answer on port {port} within {COMES_UP_WITHIN:.0f} s.")
    return False


def _reachable(host: str) -> str:
    """An address under which this machine reaches what listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 (compared, not bound)


def _is_ready(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _owner(settings: Settings) -> int | None:
    """Which process runs the embedded servers of this home, as it has announced."""
    try:
        return int(json.loads((settings.home / "embedded.lock").read_bytes())["pid"])
    except (OSError, ValueError, KeyError):
        return None


def _signals() -> threading.Event:
    """Set when somebody wants us to end."""
    ending = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, note)
    return ending
