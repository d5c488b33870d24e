"""A model server that answers at once, reports usage and records its requests."""

import json
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from providers.models.vendors.accounts import AccountModel, VendorAccount

FACTORY = "OpenAI-API-Compatible"
MODEL = f"m@{FACTORY}"
USAGE = {"prompt_tokens": 50, "completion_tokens": 100, "total_tokens": 150}
PRICES = {"m": {"input": 1, "output": 10}}  # USD per million tokens: a call with that usage costs 0.00105


@dataclass
class PricedModel:
    """The server and its requests, in the order of their arrival."""

    port: int
    answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    delay: float = 0.0  # seconds
    requests: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    def account(self, prices: Mapping[str, Any] | None = None) -> VendorAccount:
        """Return an account with this server and these prices."""
        return VendorAccount(
            FACTORY,
            base_url=f"http://127.0.0.1:{self.port}/v1",
            api_key="key",
            models={"m": AccountModel(is_tools=True)},
            extra={"prices": prices} if prices is not None else {},
        )

    @property
    def questions(self) -> list[str]:
        """The last message of every request."""
        return [str(request["messages"][-1]["content"]) for request in self.requests]


def repeat_question(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an answer that repeats the question."""
    return {"role": "assistant", "content": f"re: {request['messages'][-1]['content']}"}


@contextmanager
def priced_model(answer: Callable[[Mapping[str, Any]], Mapping[str, Any]] = repeat_question) -> Generator[PricedModel]:
    """Run the server until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            model.requests.append(request)
            time.sleep(model.delay)
            message = dict(model.answer(request))
            finish = "tool_calls" if message.get("tool_calls") else "stop"
            if request.get("stream"):
                parts = [{"choices": [{"index": 0, "delta": message, "finish_reason": finish}]}]
                parts.append({"choices": [], "usage": USAGE})
                body = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
                kind = "text/event-stream"
            else:
                choice = {"index": 0, "message": message, "finish_reason": finish}
                body, kind = json.dumps({"choices": [choice], "usage": USAGE}), "application/json"
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    model = PricedModel(server.server_port, answer)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
