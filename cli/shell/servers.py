"""Find the database and Redis of a command.

In order of precedence: the servers that DATABASE_URL and REDIS_URL name, those of a running `easel up` of the same
EASEL_HOME, and the embedded ones, which start for this command and stop with it.
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

LINGER_TIME = timedelta(minutes=30)  # longest wait for other commands that use the servers of this one
WAIT_NOTICE_AFTER = 1.0  # seconds of that wait before the command prints why it does not end


@dataclass(frozen=True, slots=True)
class CommandServers:
    """Settings with every server named. `up`: the `easel up` whose processes execute runs there."""

    settings: Settings
    up: home.Up | None = None
    is_embedded: bool = False


@contextmanager
def open_servers(settings: Settings, *, need_redis: bool = True) -> Generator[CommandServers]:
    """Find the servers for one command; embedded ones run until the block ends.

    Raises ExecutorError if they cannot start.
    """
    up = home.find_running_up(settings.home)
    if up is not None and settings.database_url in (None, up.database_url):
        yield CommandServers(settings.with_servers(up.database_url, up.redis_url), up)
        return
    missing = {"need_database": settings.database_url is None, "need_redis": settings.redis_url is None and need_redis}
    if not any(missing.values()):
        yield CommandServers(settings)
        return
    with embedded.run_servers(settings.home, **missing, linger=LINGER_TIME) as servers:
        yield CommandServers(
            settings.with_servers(servers.database_url, servers.redis_url), is_embedded=missing["need_database"]
        )
        notice = threading.Timer(
            WAIT_NOTICE_AFTER, output.print_message, ["waiting for other commands that use this command's servers"]
        )
        notice.daemon = True
        notice.start()
    notice.cancel()


def import_in_background(*modules: str) -> threading.Thread:
    """Import modules in a thread while servers start, which saves half a second."""
    thread = threading.Thread(target=lambda: [importlib.import_module(module) for module in modules])
    thread.start()
    return thread
