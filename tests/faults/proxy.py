"""A TCP proxy that can hang, and that can lose commits of PostgreSQL or their answers.

with proxy(port_of(url)) as wire:
    wire.hang()           # both sides wait without an error
    wire.lose_answers(3)  # the next three commits arrive, but their answers are lost
"""

import selectors
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

COMMIT = b"commit\0"  # as it stands in PostgreSQL's protocol
POLL_INTERVAL = 0.02  # seconds


@dataclass
class Wire:
    """All connections through one proxy."""

    target: int
    port: int = 0
    answers_lost: int = 0  # commits that were executed and whose answer was lost
    commits_dropped: int = 0  # commits that did not arrive
    _is_hanging: bool = False
    _to_lose: int = 0
    _to_drop: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def hang(self) -> None:
        """Stop forwarding, but close no connection."""
        self._is_hanging = True

    def resume(self) -> None:
        """Forward again, first what has arrived meanwhile."""
        self._is_hanging = False

    def lose_answers(self, commits: int) -> None:
        """Close the connection after each of the next commits has reached the server."""
        with self._lock:
            self._to_lose += commits

    def drop_commits(self, commits: int) -> None:
        """Close the connection before each of the next commits reaches the server."""
        with self._lock:
            self._to_drop += commits

    def through(self, url: str) -> str:
        """Return the URL with the address of this proxy."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    def accept(self, listening: socket.socket) -> None:
        while not self._is_over.is_set():
            with suppress(OSError):
                client, _ = listening.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def close(self) -> None:
        self._is_over.set()

    def _forward(self, client: socket.socket) -> None:
        """Forward between a client and the server until one of them disconnects."""
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self.target), 5) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with selectors.DefaultSelector() as ready:
                ready.register(client, selectors.EVENT_READ, server)
                ready.register(server, selectors.EVENT_READ, client)
                while not self._is_over.is_set():
                    if self._is_hanging:
                        time.sleep(POLL_INTERVAL)
                        continue
                    for key, _ in ready.select(POLL_INTERVAL):
                        data = key.fileobj.recv(65536)  # pyright: ignore[reportAttributeAccessIssue] (a socket)
                        if not data or self._fails_commit(data, client, server, is_from_client=key.fileobj is client):
                            return
                        key.data.sendall(data)

    def _fails_commit(self, data: bytes, client: socket.socket, server: socket.socket, *, is_from_client: bool) -> bool:
        """Whether this data is a commit that must fail; if its answer is lost, execute it first."""
        if not is_from_client or COMMIT not in data:
            return False
        with self._lock:
            drops, loses = self._to_drop > 0, self._to_lose > 0
            if drops:
                self._to_drop -= 1
                self.commits_dropped += 1
            elif loses:
                self._to_lose -= 1
                self.answers_lost += 1
        if loses and not drops:
            server.sendall(data)
            server.recv(65536)  # it is executed
        return drops or loses


@contextmanager
def proxy(url: str) -> Generator[Wire]:
    """Run a proxy to the server of a URL until the block ends."""
    wire = Wire(urlsplit(url).port or 0)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        listening.settimeout(0.2)
        wire.port = listening.getsockname()[1]
        threading.Thread(target=wire.accept, args=(listening,), daemon=True).start()
        try:
            yield wire
        finally:
            wire.close()
