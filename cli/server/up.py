"""`easel up`: run everything on this machine.

It starts the servers (embedded unless DATABASE_URL and REDIS_URL name some), migrates the database, creates a token,
and starts API, worker, scheduler and sweeper as processes. When the API answers, it prints one line to stdout:
`ready http://127.0.0.1:8000 token=...`. A process or server that ends is restarted, servers under their old URLs, so
that no other process needs a new address.
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
from cli.server.processes import api_program, scheduler_program, server_variables, sweeper_program, worker_program
from cli.server.supervisor import ChildProcess, stop_all
from cli.shell import home, output
from cli.shell.actor import find_actor
from cli.shell.connection import configure_logging, find_tenant_id
from cli.shell.output import DIM, YELLOW
from cli.shell.page_server import find_page_server
from settings import Settings, load
from store.db.database import Database
from store.db.db_errors import is_outage
from store.maintenance import migrate
from store.tenants import audit, tenants
from store.tenants.audit import Action

T = TypeVar("T")

CHECK_INTERVAL = 0.1  # seconds
START_TIMEOUT = 60.0  # seconds
PORT_WAIT = 10.0  # seconds within which the API of an `easel up` that was killed frees its port
MAX_PORT = 65535
TOKEN_NAME = "easel up"  # noqa: S105 (what the token is called in lists)


def up(
    port: Annotated[int | None, typer.Option(help="Port of the API; 0: any free one.", min=0, max=MAX_PORT)] = None,
) -> None:
    """Run everything on this machine until Ctrl-C."""
    settings = load()
    configure_logging(settings)
    metrics_ports(settings)
    ending = _end_event()
    with home.lock_home(settings.home) as announcement, start_own_servers(settings, ending) as servers:
        if ending.is_set():
            return
        found = settings.with_servers(servers.database_url, servers.redis_url)
        database_url, redis_url, _ = found.servers()
        _retry_outages(servers, lambda: migrate.upgrade(database_url))
        token = _retry_outages(servers, lambda: ensure_token(settings.home, database_url))
        wait = PORT_WAIT if announcement.was_killed else 0.0
        chosen = free_port(settings.api_host, settings.api_port if port is None else port, wait)
        children = _children(found, chosen)
        host = _reachable_address(settings.api_host)
        try:
            if _wait_until_ready(servers, children, host, chosen, ending):
                url = f"http://{f'[{host}]' if ':' in host else host}:{chosen}"
                announcement.write(home.Up(url, os.getpid(), token, database_url, redis_url))
                output.print_line(f"ready {url} token={token}")
                print_viewer_address(url, token)
                output.print_message(f"logs in {settings.home / home.LOG_FOLDER}; Ctrl-C stops everything", DIM)
                pages = ", ".join(f"{name} {at}" for name, at in metrics_ports(found).items())
                if pages:
                    output.print_message(f"metrics on {settings.metrics_host}: {pages}; `easel doctor` lists them", DIM)
            while not ending.wait(CHECK_INTERVAL):
                _restart_ended(servers, children)
        finally:
            stop_all(*children)


@contextmanager
def start_own_servers(settings: Settings, ending: threading.Event) -> Generator[embedded.EmbeddedServers]:
    """Start the servers that no URL names. This process must own them: those of another command would end with it."""
    need_database, need_redis = settings.database_url is None, settings.redis_url is None
    if not (need_database or need_redis):
        yield embedded.EmbeddedServers()
        return
    has_notified = False
    while not ending.is_set():
        linger = timedelta(seconds=10)
        with embedded.run_servers(
            settings.home, need_database=need_database, need_redis=need_redis, linger=linger
        ) as servers:
            if _owner(settings) == os.getpid():
                yield servers
                return
        if not has_notified:
            output.print_message("waiting for another easel command that runs the servers of this home", YELLOW)
        has_notified = True
        ending.wait(0.5)
    yield embedded.EmbeddedServers()


def ensure_token(folder: Path, database_url: str) -> str:
    """Return the local tenant's token from this home; create one if it is missing or unknown to the database."""
    database = Database(database_url, pool_size=1, application="easel-cli")
    try:
        with database.transaction() as tx:
            tenant_id = find_tenant_id(tx)
            stored = home.read_token(folder)
            principal = tenants.find_principal(tx, stored) if stored else None
            if stored and principal is not None and principal.tenant_id == tenant_id:
                return stored
            token_id, made = tenants.create_token(tx, tenant_id, TOKEN_NAME, "admin")
            audit.record(tx, tenant_id, find_actor(), Action.TOKEN_CREATED, token_id, {"name": TOKEN_NAME})
    finally:
        database.close()
    home.write_token(folder, made)
    return made


def free_port(host: str, port: int, wait: float = 0.0) -> int:
    """Return the port to listen on; any free one for 0. Raises Conflict if it is in use for over `wait` seconds."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    give_up = time.monotonic() + wait
    while True:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was closed a moment ago is free
            try:
                probe.bind((host, port))
                return int(probe.getsockname()[1])
            except OSError as error:
                if time.monotonic() >= give_up:
                    advice = "Use another: easel up --port 0"
                    raise Conflict(f"Port {port} on {host}: {error.strerror}. {advice}") from error
        time.sleep(CHECK_INTERVAL)


def _children(settings: Settings, port: int) -> list[ChildProcess]:
    """Return the child processes. The API, which accepts new work, is first, since the first one stops first."""
    database_url, redis_url, _ = settings.servers()
    environment = {**os.environ, **server_variables(settings, database_url, redis_url), "EASEL_API_PORT": str(port)}
    programs = {
        "api": api_program(port),
        "worker": [*worker_program(settings), "-n", "worker@%h"],
        "scheduler": [*scheduler_program(settings), "-n", "scheduler@%h"],
        "sweeper": sweeper_program(),
    }
    logs, ports = settings.home / home.LOG_FOLDER, metrics_ports(settings)
    return [
        ChildProcess(name, argv, {**environment, **_metrics(ports.get(name))}, logs / f"{name}.log")
        for name, argv in programs.items()
    ]


def metrics_ports(settings: Settings) -> dict[str, int]:
    """Return the metrics port of each process; none if metrics are off. The API serves its metrics at /metrics.

    Raises InvalidRequest if there are too few ports from the first one on.
    """
    first = settings.metrics_port
    if first is None:
        return {}
    names = ("worker", "scheduler", "sweeper")
    last = first + len(names) - 1
    if last > MAX_PORT:
        raise InvalidRequest(
            f"EASEL_METRICS_PORT is {first}. `easel up` uses the ports {first} to {last} for metrics, and "
            f"there is none above {MAX_PORT}. Use a port up to {MAX_PORT - len(names) + 1}."
        )
    return {name: first + at for at, name in enumerate(names)}


def _metrics(port: int | None) -> dict[str, str]:
    return {} if port is None else {"EASEL_METRICS_PORT": str(port)}


def print_viewer_address(url: str, token: str) -> None:
    """Print to stderr where the pages are, with a code that signs in once; nothing if none are served."""
    try:
        server = find_page_server(url, token)
        if server is not None and server.has_pages:
            output.print_message(f"viewer: {server.address()}")
    except ExecutorError as error:  # the API works without its pages
        output.print_message(f"viewer: {error.message}", YELLOW)


def _restart_ended(servers: embedded.EmbeddedServers, children: Sequence[ChildProcess]) -> None:
    """Restart servers and processes that have ended."""
    for name in servers.restart_ended():
        output.print_message(f"the embedded {name} ended and is restarted", YELLOW)
    for child in children:
        child.ensure_running()


def _retry_outages(servers: embedded.EmbeddedServers, work: Callable[[], T]) -> T:
    """Return the result of work on the database; repeat it if an embedded server was killed meanwhile."""
    give_up = time.monotonic() + START_TIMEOUT
    while True:
        try:
            return work()
        except SQLAlchemyError as error:
            if not servers.owned or not is_outage(error) or time.monotonic() > give_up:
                raise
        time.sleep(CHECK_INTERVAL)
        servers.restart_ended()


def _wait_until_ready(
    servers: embedded.EmbeddedServers, children: Sequence[ChildProcess], host: str, port: int, ending: threading.Event
) -> bool:
    """Start everything and wait for the API; return False if a signal comes first."""
    give_up = time.monotonic() + START_TIMEOUT
    while not ending.wait(CHECK_INTERVAL):
        _restart_ended(servers, children)
        for child in children:
            child.raise_if_failing()
        if _is_ready(host, port):
            return True
        if time.monotonic() > give_up:
            raise ExecutorError(f"The API does not answer on port {port} within {START_TIMEOUT:.0f} s.")
    return False


def _reachable_address(host: str) -> str:
    """Return an address by which this machine reaches a server that listens on `host`."""
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
    """Return the id of the process that runs the embedded servers of this home, from its lock file."""
    try:
        return int(json.loads((settings.home / "embedded.lock").read_bytes())["pid"])
    except (OSError, ValueError, KeyError):
        return None


def _end_event() -> threading.Event:
    """Return an event that SIGTERM, SIGINT or SIGHUP sets."""
    ending = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, note)
    return ending
