"""The processes of a deployment as commands: `easel api`, `worker`, `scheduler`, `sweeper`, `flower`.

Each starts the program that does the work, with the servers of DATABASE_URL and REDIS_URL or those of a running
`easel up` of this home. `celery -A worker.tasks worker -Q nodes -P threads` does the same.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Annotated, NoReturn

import typer

from canvas.errors import InvalidRequest
from cli.shell import home
from settings import InvalidSettings, Settings, load
from store.db.database import Database

CELERY_OPTIONS = ("--without-gossip", "--without-mingle")  # no -E: Flower switches events on if it runs


def api(
    port: Annotated[int | None, typer.Option(help="Port; by default EASEL_API_PORT.", min=0, max=65535)] = None,
) -> None:
    """Serve the HTTP API."""
    import uvicorn  # here, since the other commands of this module do not need it

    settings = load()
    os.environ.update(environment(settings))
    load.cache_clear()  # the application reads its settings again, now with the servers named
    with closing(Database(load().servers()[0], pool_size=1, application="easel-api")) as database:
        database.require_safe_pooler()
    uvicorn.run(
        "api.app:create_app",
        factory=True,
        http="api.http.http1_protocol:GuardedProtocol",  # uvicorn's own ones lack its timeouts and checks
        ws="none",
        host=settings.api_host,
        port=settings.api_port if port is None else port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=int(settings.shutdown_grace.total_seconds()),
    )


def worker(context: typer.Context) -> None:
    """Run nodes. Further arguments go to Celery, for example `-n worker2@%h`."""
    _exec_program(worker_program(load()), context.args)


def scheduler(context: typer.Context) -> None:
    """Decide what runs next. Further arguments go to Celery."""
    _exec_program(scheduler_program(load()), context.args)


def sweeper() -> None:
    """Recover lost workers and messages, and expire forms."""
    _exec_program(sweeper_program(), [])


def flower(
    context: typer.Context,
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 5555,
    address: Annotated[str, typer.Option(help="Address to listen on.", metavar="IP")] = "127.0.0.1",
) -> None:
    """Show nodes as Celery tasks in the browser. Other machines need FLOWER_BASIC_AUTH=user:password."""
    if not _is_loopback(address) and not os.environ.get("FLOWER_BASIC_AUTH"):
        message = f"Flower can stop workers, so {address} needs a password: set FLOWER_BASIC_AUTH=user:password."
        raise InvalidRequest(message)
    if find_spec("flower") is None:
        raise InvalidRequest("Flower is not installed. Install the extra \"flower\": pip install 'easel[flower]'")
    program = [*_python("celery"), "-A", "scheduler.tasks", "flower", f"--address={address}", f"--port={port}"]
    _exec_program(program, context.args)


def worker_program(settings: Settings) -> list[str]:
    """Return the command line of a worker."""
    return _celery("worker.tasks", "nodes", settings.worker_threads)


def scheduler_program(settings: Settings) -> list[str]:
    """Return the command line of a scheduler."""
    return _celery("scheduler.tasks", "runs", settings.scheduler_threads)


def sweeper_program() -> list[str]:
    """Return the command line of a sweeper."""
    return _python("scheduler.sweep")


def api_program(port: int) -> list[str]:
    """Return the command line of an API process."""
    return [*_python("cli"), "api", "--port", str(port)]


def environment(settings: Settings) -> dict[str, str]:
    """Return this process's environment with every server named. Raises InvalidSettings if a server is not known."""
    up = home.find_running_up(settings.home)
    if up is not None and settings.database_url in (None, up.database_url):
        settings = settings.with_servers(up.database_url, up.redis_url)
    try:
        database_url, redis_url, _ = settings.servers()
    except InvalidSettings as error:
        raise InvalidSettings(f"{error} Or start `easel up` with the same EASEL_HOME to use its servers.") from None
    return {**os.environ, **server_variables(settings, database_url, redis_url)}


def server_variables(settings: Settings, database_url: str, redis_url: str) -> Mapping[str, str]:
    """Return variables that name home and servers for an Easel process. They override DATABASE_URL and REDIS_URL."""
    return {
        "EASEL_HOME": str(settings.home),
        "EASEL_DATABASE_URL": database_url,
        "EASEL_LARGE_VALUES": "files" if settings.values_in_files else "rows",
        "EASEL_REDIS_URL": redis_url,
    }


def _exec_program(program: Sequence[str], further: Sequence[str]) -> NoReturn:
    """Replace this process by another program, which then receives the signals itself."""
    os.execve(sys.executable, [*program, *further], environment(load()))  # noqa: S606


def _celery(app: str, queue: str, threads: int) -> list[str]:
    return [
        *_python("celery"), "-A", app, "worker", "-Q", queue, "-P", "threads", "-c", str(threads), *CELERY_OPTIONS,
    ]  # fmt: skip


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", module]


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
