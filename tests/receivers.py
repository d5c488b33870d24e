"""Receivers of callbacks: HTTP servers on this machine that record what they get and check its signatures."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Received:
    """One request of a sender."""

    path: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.content)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def is_signed_with(self, secret: str) -> bool:
        """Whether one of the signatures is by this secret: the formula of the Standard Webhooks specification."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.content
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return f"v1,{expected}" in self.headers["webhook-signature"].split(" ")


Reply = tuple[int, Mapping[str, str]]


@dataclass
class Receiver:
    """A receiver. `replies`: status and headers of the next replies; afterwards 204. `hangs`: no reply until then."""

    url: str = ""
    replies: list[Reply] = field(default_factory=list[Reply])
    got: list[Received] = field(default_factory=list[Received])
    hangs: threading.Event | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, event: str) -> list[Received]:
        """Return the requests about an event."""
        return [each for each in list(self.got) if each.body["type"] == event]

    @property
    def events(self) -> Sequence[str]:
        return [each.body["type"] for each in list(self.got)]

    def take(self, received: Received) -> Reply:
        with self.lock:
            self.got.append(received)
            reply = self.replies.pop(0) if self.replies else (204, {})
        if self.hangs is not None:
            self.hangs.wait(60)
        return reply


def _handler(receiver: Receiver) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, more = receiver.take(Received(self.path, headers, content))
            text = b"" if status == 204 else f"status {status}".encode()
            self.send_response(status)
            for name, value in {**more, "content-length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None: ...

    return Handler


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver until the block ends."""
    receiver = Receiver()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(receiver))
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        if receiver.hangs is not None:
            receiver.hangs.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
