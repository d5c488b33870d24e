"""A model server that says one word, and then nothing until its client has gone; further requests it answers whole."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from providers.models.vendors.accounts import AccountModel, VendorAccount

MODEL = "m@OpenAI-API-Compatible"
FIRST_WORD = "Once"
WHOLE = "Once upon a time."


@dataclass
class Provider:
    """The server, and what happened to its first request."""

    port: int
    asked: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)
    requests: int = 0

    @property
    def account(self) -> VendorAccount:
        address = f"http://127.0.0.1:{self.port}/v1"
        return VendorAccount("OpenAI-API-Compatible", base_url=address, api_key="key", models={"m": AccountModel()})


@contextmanager
def hanging_model() -> Generator[Provider]:
    """A provider for as long as the block takes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            provider.requests += 1
            is_first = provider.requests == 1
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self._say(FIRST_WORD if is_first else WHOLE)
            if is_first:
                provider.asked.set()
                if self.rfile.read(1) == b"":  # nothing more comes from a client that still waits: it has gone
                    provider.left.set()
            else:
                self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def _say(self, text: str) -> None:
            delta = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]}
            self.wfile.write(f"data: {json.dumps(delta)}\n\n".encode())
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    provider = Provider(server.server_port)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
