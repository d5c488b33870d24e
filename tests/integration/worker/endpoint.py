"""A raw server on one port: it answers what a test has laid ready, then says nothing until its client has gone."""

import json
import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from providers.models.vendors.accounts import AccountModel, VendorAccount

MODEL = "m@OpenAI-API-Compatible"
VOICE = "tts@OpenAI-API-Compatible"

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
BEGUN_BODY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"


def word(delta: Mapping[str, Any]) -> bytes:
    """One event of a chat stream."""
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()


@dataclass
class Endpoint:
    """What happened: `hangs` once a client waits for more than there is, `left` once that one has gone."""

    port: int
    ready: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])  # by path: whole replies
    begun: dict[str, bytes] = field(default_factory=dict[str, bytes])  # by path: what comes before the silence
    asked: list[str] = field(default_factory=list[str])
    hangs: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def account(self) -> VendorAccount:
        models = {"m": AccountModel(is_tools=True), "tts": AccountModel(kinds=("tts",))}
        return VendorAccount("OpenAI-API-Compatible", base_url=f"{self.url}/v1", api_key="key", models=models)

    def serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            head, _, body = _until_blank_line(client).partition(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            left = int(lengths[0].partition(b":")[2]) - len(body) if lengths else 0
            while left > 0:
                left -= len(client.recv(left))
            path = head.split(b" ")[1].decode()
            self.asked.append(path)
            if self.ready.get(path):
                client.sendall(self.ready[path].pop(0))
                return
            client.sendall(self.begun.get(path, b""))
            self.hangs.set()
            with suppress(ConnectionError):
                client.recv(1)
            self.left.set()


def _until_blank_line(client: socket.socket) -> bytes:
    heard = b""
    while b"\r\n\r\n" not in heard:
        part = client.recv(65536)
        if not part:
            raise ConnectionError
        heard += part
    return heard


@contextmanager
def endpoint() -> Generator[Endpoint]:
    """A server until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = Endpoint(server.getsockname()[1])

        def accept() -> None:
            with suppress(OSError):  # closed
                while True:
                    client, _ = server.accept()
                    threading.Thread(target=made.serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield made
