"""A Redis that accepts connections and never answers, as behind a firewall, a stopped process or a failed switch."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


@contextmanager
def black_hole() -> Generator[str]:
    """Return the URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


class DroppingProxy:
    """A proxy to a server that can drop all data without closing its connections."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname or "127.0.0.1", parts.port or 6379)
        self._is_forwarding = threading.Event()
        self._is_forwarding.set()
        self._server = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._sockets: list[socket.socket] = []
        password = f":{parts.password}@" if parts.password else ""
        self.url = f"redis://{password}127.0.0.1:{self._server.getsockname()[1]}{parts.path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def drop_data(self) -> None:
        """Forward nothing from now on; connections stay open, and new ones are accepted."""
        self._is_forwarding.clear()

    def forward_data(self) -> None:
        """Forward the data of new connections; the old ones stay dead."""
        self._is_forwarding.set()

    def close(self) -> None:
        for source in (self._server, *self._sockets):
            with suppress(OSError):
                source.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._server.accept()
                self._sockets.append(client)
                if self._is_forwarding.is_set():
                    upstream = socket.create_connection(self._to)
                    self._sockets.append(upstream)
                    for source, target in ((client, upstream), (upstream, client)):
                        threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        is_dead = False
        with suppress(OSError):  # closed
            while data := source.recv(65536):
                is_dead = is_dead or not self._is_forwarding.is_set()
                if not is_dead:
                    target.sendall(data)


@contextmanager
def proxy_to(url: str) -> Generator[DroppingProxy]:
    """Run a proxy to a server until the block ends."""
    proxy = DroppingProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
