"""Where the database and Redis of a command are.

Servers that DATABASE_URL and REDIS_URL name win; then come those of a running `easel up` of the same EASEL_HOME, then
the embedded ones, which start for this command and stop with it.
"""

import importlib
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import embedded
from cli.shell import home, output
from settings import Settings

LINGER = timedelta(minutes=30)  # for other commands that use the servers we have started
SOON = 1.0  # seconds after which a person wonders why the command does not end


@dataclass(frozen=True, slots=True)
class Found:
    """Settings with every server named. `up`: the `easel up` whose processes carry out runs there."""

    settings: Settings
    up: home.Up | None = None
    is_embedded: bool = False


@contextmanager
def found(settings: Settings, *, need_redis: bool = True) -> Generator[Found]:
    """The servers for one command; embedded ones run until the block ends. Raises ExecutorError if none can run."""
    up = home.running_up(settings.home)
    if up is not None and settings.database_url in (None, up.database_url):
        yield Found(settings.on(up.database_url, up.redis_url), up)
        return
    missing = {"need_database": settings.database_url is None, "need_redis": settings.redis_url is None and need_redis}
    if not any(missing.values()):
        yield Found(settings)
        return
    with embedded.services(settings.home, **missing, linger=LINGER) as servers:
        yield Found(settings.on(servers.database_url, servers.redis_url), is_embedded=missing["need_database"])
        patience = threading.Timer(SOON, output.tell, ["waiting for other commands that use this one's servers"])
        patience.daemon = True
        patience.start()
    patience.cancel()


def import_ahead(*modules: str) -> threading.Thread:
    """Import modules in a thread of their own, while servers start; half a second that nobody waits for."""
    thread = threading.Thread(target=lambda: [importlib.import_module(module) for module in modules])
    thread.start()
    return thread
