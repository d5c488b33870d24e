"""API processes of one deployment, each of which can be killed between a commit and its reply.

    with api_processes(3, database_url, redis_url, files) as urls: ...

Run as a program, it forks them, so that imports happen once. Each is the product's application, with a layer that kills
its process with SIGKILL before the reply to a request with the header `X-Die` is sent.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.app import create_app
from api.http.http1_protocol import GuardedProtocol

ROOT = Path(__file__).resolve().parents[2]
SETTING_PREFIXES = ("EASEL_", "CELERY_", "DATABASE_URL", "REDIS_URL")


class KillableApp:
    """The application; it kills its process before a reply if the request demands it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_or_die(message: Message) -> None:
            if must_die and message["type"] == "http.response.start":
                os.kill(os.getpid(), signal.SIGKILL)
            await send(message)

        must_die = scope["type"] == "http" and any(name == b"x-die" for name, _ in scope["headers"])
        await self._app(scope, receive, send_or_die)


@contextmanager
def api_processes(count: int, database_url: str, redis_url: str, files: Path) -> Generator[list[str]]:
    """Run API processes until the block ends; yield their URLs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SETTING_PREFIXES)} | {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "EASEL_HOME": str(files),
        "EASEL_FILES_DIR": str(files / "files"),
        "EASEL_API_POOL": "4",
    }
    command = [sys.executable, "-m", "tests.acceptance.apis", str(count)]
    parent = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield [_url(parent) for _ in range(count)]
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


def _url(parent: subprocess.Popen[str]) -> str:
    assert parent.stdout is not None
    for line in parent.stdout:
        if ready := re.match(r"ready (http://\S+)", line):
            return ready[1]
    raise AssertionError("An API process has not started.")


def serve() -> None:
    """Serve on a free port, printed before the server is ready; early connections wait."""
    config = uvicorn.Config(KillableApp(create_app()), port=0, http=GuardedProtocol, ws="none", log_level="error")
    socket = config.bind_socket()
    socket.listen(128)
    sys.stdout.write(f"ready http://127.0.0.1:{socket.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(config).run(sockets=[socket])


def main() -> None:
    """Fork so many API processes, and wait for them."""
    for _ in range(int(sys.argv[1])):
        if os.fork() == 0:
            serve()
            return
    while True:
        os.wait()


if __name__ == "__main__":
    main()
