"""A Redis that takes connections and says nothing: what a stopped process, a firewall or a dead switch looks like."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


@contextmanager
def black_hole() -> Generator[str]:
    """The URL of a server that never answers, and that nobody has ever talked to."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


class Line:
    """A way to a server that can go dead: then nothing gets through, and nobody is told."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname or "127.0.0.1", parts.port or 6379)
        self._works = threading.Event()
        self._works.set()
        self._server = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._sockets: list[socket.socket] = []
        password = f":{parts.password}@" if parts.password else ""
        self.url = f"redis://{password}127.0.0.1:{self._server.getsockname()[1]}{parts.path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def goes_dead(self) -> None:
        """Nothing gets through from now on; connections stay open, and new ones are taken."""
        self._works.clear()

    def is_back(self) -> None:
        """New connections work; the old ones are as dead as before."""
        self._works.set()

    def close(self) -> None:
        for one in (self._server, *self._sockets):
            with suppress(OSError):
                one.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._server.accept()
                self._sockets.append(near)
                if self._works.is_set():
                    far = socket.create_connection(self._to)
                    self._sockets.append(far)
                    for one, other in ((near, far), (far, near)):
                        threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        is_dead = False
        with suppress(OSError):  # closed
            while data := one.recv(65536):
                is_dead = is_dead or not self._works.is_set()
                if not is_dead:
                    other.sendall(data)


@contextmanager
def line_to(url: str) -> Generator[Line]:
    """A line until the block ends."""
    line = Line(url)
    try:
        yield line
    finally:
        line.close()
