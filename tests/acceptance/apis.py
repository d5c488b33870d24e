"""API processes of one deployment, each of which can be told to die between a commit and its reply.

    with api_processes(3, database_url, redis_url, files) as urls: ...

Run as a program it is their parent, so that all of them cost one start. Each is the product's own application, and
around it a layer that kills its process with SIGKILL when the reply to a request with the header `X-Die` is about to
leave.
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
NAMED = ("EASEL_", "CELERY_", "DATABASE_URL", "REDIS_URL")


class Mortal:
    """The application, which dies with an answer in its hand."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def last(message: Message) -> None:
            if dies and message["type"] == "http.response.start":
                os.kill(os.getpid(), signal.SIGKILL)
            await send(message)

        dies = scope["type"] == "http" and any(name == b"x-die" for name, _ in scope["headers"])
        await self._app(scope, receive, last)


@contextmanager
def api_processes(count: int, database_url: str, redis_url: str, files: Path) -> Generator[list[str]]:
    """Their URLs. All are gone when the block ends."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(NAMED)} | {
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
    """Serve on a free port, which is told before anything is: who connects early waits."""
    config = uvicorn.Config(Mortal(create_app()), port=0, http=GuardedProtocol, ws="none", log_level="error")
    socket = config.bind_socket()
    socket.listen(128)
    sys.stdout.write(f"ready http://127.0.0.1:{socket.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(config).run(sockets=[socket])


def main() -> None:
    """So many processes, which have nothing in common but what was imported."""
    for _ in range(int(sys.argv[1])):
        if os.fork() == 0:
            serve()
            return
    while True:
        os.wait()


if __name__ == "__main__":
    main()
