"""A model server that sends one word of its first answer and then hangs; it answers further requests in full."""

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
FULL_TEXT = "Once upon a time."


@dataclass
class Provider:
    """The server: `is_hanging` is set when its first answer hangs, `client_has_closed` when that client has closed."""

    port: int
    is_hanging: threading.Event = field(default_factory=threading.Event)
    client_has_closed: threading.Event = field(default_factory=threading.Event)
    requests: int = 0

    @property
    def account(self) -> VendorAccount:
        address = f"http://127.0.0.1:{self.port}/v1"
        return VendorAccount("OpenAI-API-Compatible", base_url=address, api_key="key", models={"m": AccountModel()})


@contextmanager
def hanging_model() -> Generator[Provider]:
    """Run the provider until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            provider.requests += 1
            is_first = provider.requests == 1
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self._send_delta(FIRST_WORD if is_first else FULL_TEXT)
            if is_first:
                provider.is_hanging.set()
                if self.rfile.read(1) == b"":  # the client has closed the connection
                    provider.client_has_closed.set()
            else:
                self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def _send_delta(self, text: str) -> None:
            delta = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]}
            self.wfile.write(f"data: {json.dumps(delta)}\n\n".encode())
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    provider = Provider(server.server_port)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
