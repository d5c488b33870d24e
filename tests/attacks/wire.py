"""Replaces the network: records every connection attempt and refuses it.

A test that needs responses starts a server (`local_server`), and allows its name or address in the guard.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from errno import ECONNREFUSED
from functools import cache
from typing import Any

import pytest

from tests.attacks import hosts

LOCALHOST = "127.0.0.1"
KNOWN: Mapping[str, Sequence[str]] = {**hosts.NON_PUBLIC_NAMES, **hosts.PUBLIC}


@dataclass
class Wire:
    """`connections` has (address, port) in order, `looked_up` the names that were resolved."""

    names: Mapping[str, Sequence[str]] = field(default_factory=lambda: KNOWN)
    connections: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    looked_up: list[str] = field(default_factory=list[str])
    own_ports: set[int] = field(default_factory=set[int])  # ports of servers that the test has started

    async def resolve(self, name: str, port: int) -> Sequence[str]:
        self.looked_up.append(name)
        if name not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.names[name]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """A network in which only servers that the test has started accept connections."""
    recorder = Wire()
    original = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        recorder.connections.append((str(address[0]), int(address[1])))
        if address[0] == LOCALHOST and address[1] in recorder.own_ports:
            return original(self, address)
        raise ConnectionRefusedError(ECONNREFUSED, "nobody answers here")

    monkeypatch.setattr(socket.socket, "connect", connect)
    return recorder


@cache
def tls() -> ssl.SSLContext:
    """The certificate authorities of this machine, read once since that takes time."""
    return ssl.create_default_context()


@dataclass
class ReceivedRequest:
    """One request as received: the bytes of its head and of its body."""

    head: bytes
    body: bytes

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1")

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}


Answer = Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class LocalServer:
    """A server on this machine, and its received requests."""

    port: int
    requests: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])

    def url(self, path: str = "/", host: str = LOCALHOST) -> str:
        return f"http://{host}:{self.port}{path}"


@asynccontextmanager
async def local_server(answer: Answer | bytes) -> AsyncGenerator[LocalServer]:
    """Run a server that answers every request with these bytes or with this function, and disconnects."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            request = ReceivedRequest(head, b"")
            length = request.headers.get("content-length", "0")
            request.body = await reader.readexactly(int(length) if length.isdigit() else 0)
            local.requests.append(request)
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(request, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the client has disconnected
        finally:
            writer.close()

    server = await asyncio.start_server(serve, LOCALHOST, 0)
    local = LocalServer(server.sockets[0].getsockname()[1])
    try:
        yield local
    finally:
        server.close()


def reply(body: bytes = b"", status: int = 200, **headers: str) -> bytes:
    """Make a response that ends its connection."""
    lines = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} X\r\n{head}Connection: close\r\n\r\n".encode("latin-1") + body
