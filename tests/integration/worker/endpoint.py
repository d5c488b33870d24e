"""A raw server on one port: it sends prepared replies, then leaves its client without an answer."""

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
PARTIAL_BODY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"


def chat_event(delta: Mapping[str, Any]) -> bytes:
    """One event of a chat stream."""
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()


@dataclass
class Endpoint:
    """The server and its requests; `is_hanging` is set when a client gets no answer."""

    port: int
    replies: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])  # by path: whole replies
    partial_replies: dict[str, bytes] = field(default_factory=dict[str, bytes])  # by path: sent before the server hangs
    requested_paths: list[str] = field(default_factory=list[str])
    is_hanging: threading.Event = field(default_factory=threading.Event)
    client_has_closed: threading.Event = field(default_factory=threading.Event)

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
            remaining = int(lengths[0].partition(b":")[2]) - len(body) if lengths else 0
            while remaining > 0:
                remaining -= len(client.recv(remaining))
            path = head.split(b" ")[1].decode()
            self.requested_paths.append(path)
            if self.replies.get(path):
                client.sendall(self.replies[path].pop(0))
                return
            client.sendall(self.partial_replies.get(path, b""))
            self.is_hanging.set()
            with suppress(ConnectionError):
                client.recv(1)
            self.client_has_closed.set()


def _until_blank_line(client: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        part = client.recv(65536)
        if not part:
            raise ConnectionError
        received += part
    return received


@contextmanager
def endpoint() -> Generator[Endpoint]:
    """Run the server until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        new_endpoint = Endpoint(server.getsockname()[1])

        def accept() -> None:
            with suppress(OSError):  # closed
                while True:
                    client, _ = server.accept()
                    threading.Thread(target=new_endpoint.serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield new_endpoint
