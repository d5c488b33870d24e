"""The processes of a deployment as commands: `easel api`, `worker`, `scheduler`, `sweeper`, `flower`.

Each only starts the program that does the work, on the servers of DATABASE_URL and REDIS_URL or on those of a running
`easel up` of this home. Plain `celery -A worker.tasks worker -Q nodes -P threads` works just as well.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from ipaddress import ip_address
from typing import Annotated, NoReturn

import typer

from canvas.errors import InvalidRequest
from cli.shell import home
from settings import InvalidSettings, Settings, load
from store.db.database import Database

CELERY_OPTIONS = ("--without-gossip", "--without-mingle")  # nor -E: Flower switches events on where it runs


def api(
    port: Annotated[int | None, typer.Option(help="Instead of EASEL_API_PORT.", min=0, max=65535)] = None,
) -> None:
    """Serve the HTTP API."""
    import uvicorn  # not for the other processes, which live in this module too

    settings = load()
    os.environ.update(environment(settings))
    load.cache_clear()  # the application reads its settings anew, now with the servers named
    with closing(Database(load().servers()[0], pool_size=1, application="easel-api")) as database:
        database.refuse_pooler()
    uvicorn.run(
        "api.app:create_app",
        factory=True,
        http="api.http.http1_protocol:GuardedProtocol",  # uvicorn's own ones wait for ever, and take ambiguous requests
        ws="none",
        host=settings.api_host,
        port=settings.api_port if port is None else port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=int(settings.shutdown_grace.total_seconds()),
    )


def worker(context: typer.Context) -> None:
    """Run nodes. Further arguments go to Celery, for example `-n worker2@%h`."""
    _become(worker_program(load()), context.args)


def scheduler(context: typer.Context) -> None:
    """Decide what runs next. Further arguments go to Celery."""
    _become(scheduler_program(load()), context.args)


def sweeper() -> None:
    """Repair what others left lying: silent workers, lost messages, expired forms."""
    _become(sweeper_program(), [])


def flower(
    context: typer.Context,
    port: Annotated[int, typer.Option(help="Where to listen.", min=1, max=65535)] = 5555,
    address: Annotated[str, typer.Option(help="Where to listen.", metavar="IP")] = "127.0.0.1",
) -> None:
    """Show nodes as Celery tasks in the browser. Beyond this machine only with FLOWER_BASIC_AUTH=user:password."""
    if not _is_loopback(address) and not os.environ.get("FLOWER_BASIC_AUTH"):
        message = f"Flower can stop workers, so {address} needs a password. Set FLOWER_BASIC_AUTH=user:password."
        raise InvalidRequest(message)
    program = [*_python("celery"), "-A", "scheduler.tasks", "flower", f"--address={address}", f"--port={port}"]
    _become(program, context.args)


def worker_program(settings: Settings) -> list[str]:
    """The command line of a worker."""
    return _celery("worker.tasks", "nodes", settings.worker_threads)


def scheduler_program(settings: Settings) -> list[str]:
    """The command line of a scheduler."""
    return _celery("scheduler.tasks", "runs", settings.scheduler_threads)


def sweeper_program() -> list[str]:
    """The command line of a sweeper."""
    return _python("scheduler.sweep")


def api_program(port: int) -> list[str]:
    """The command line of an API process."""
    return [*_python("cli"), "api", "--port", str(port)]


def environment(settings: Settings) -> dict[str, str]:
    """This process's environment with every server named. Raises InvalidSettings if there are none."""
    up = home.running_up(settings.home)
    if up is not None and settings.database_url in (None, up.database_url):
        settings = settings.on(up.database_url, up.redis_url)
    try:
        database_url, redis_url, _ = settings.servers()
    except InvalidSettings as error:
        raise InvalidSettings(f"{error} Or start `easel up`, whose servers are found by its home.") from None
    return {**os.environ, **named(settings, database_url, redis_url)}


def named(settings: Settings, database_url: str, redis_url: str) -> Mapping[str, str]:
    """Variables that tell a process of ours where everything is; they win over DATABASE_URL and REDIS_URL."""
    return {
        "EASEL_HOME": str(settings.home),
        "EASEL_DATABASE_URL": database_url,
        "EASEL_LARGE_VALUES": "files" if settings.values_in_files else "rows",
        "EASEL_REDIS_URL": redis_url,
    }


def _become(program: Sequence[str], further: Sequence[str]) -> NoReturn:
    """Go on as another program, which then gets our signals itself."""
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
