"""A server of chat completions and of a search engine that answers by a script, for tests with the real clients."""

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from providers.models.vendors.accounts import AccountModel, VendorAccount
from worker.services.factory import ServiceConfig

MODEL = "m@OpenAI-API-Compatible"
KEY = f"sk-a-key-that-nobody-guesses-{uuid4().hex}"  # of this process, since tests of the module share a database
SEARCHED = {"results": [{"title": "Prices", "url": "https://example.com/a", "content": "Up 4% in May."}]}

HANGS, FAILS, BUSY = "hangs", "fails", "busy"


def said(*deltas: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": delta} for delta in deltas]


def calls(query: str, *, name: str = "tavily_search_0", **arguments: str) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps(arguments or {"query": query})}
    return [{"tool_calls": [{"index": 0, "id": f"call-{query}", "type": "function", "function": function}]}]


@dataclass
class ScriptedVendor:
    """A server of models and searches that answers by a script."""

    port: int
    script: list[Any]
    requests: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    queries: list[str] = field(default_factory=list[str])
    authorizations: set[str] = field(default_factory=set[str])
    is_hanging: threading.Event = field(default_factory=threading.Event)

    @property
    def account(self) -> VendorAccount:
        address = f"http://127.0.0.1:{self.port}/v1"
        models = {"m": AccountModel(is_tools=True)}
        return VendorAccount("OpenAI-API-Compatible", base_url=address, api_key=KEY, models=models)

    @property
    def services(self) -> ServiceConfig:
        return ServiceConfig(base_urls={"TAVILYSEARCH": f"http://127.0.0.1:{self.port}"})


@contextmanager
def vendor_of(*script: Any) -> Generator[ScriptedVendor]:
    """Run the server until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path.endswith("/search"):
                served.queries.append(body["query"])
                self._send(200, SEARCHED)
                return
            served.requests.append(body)
            served.authorizations.add(self.headers["authorization"])
            match served.script.pop(0):
                case "fails":
                    self._send(401, {"error": {"message": f"Invalid key: {self.headers['authorization']}"}})
                case "busy":
                    self._send(503, {"error": {"message": "overloaded"}})
                case answer if answer == HANGS or body.get("stream"):
                    self._stream(answer)
                case answer:
                    text_of = "".join(delta.get("content") or "" for delta in answer)
                    tool_calls = [call for delta in answer for call in delta.get("tool_calls", ())]
                    message = {"role": "assistant", "content": text_of, "tool_calls": tool_calls}
                    self._send(200, {"choices": [{"index": 0, "message": message}]})

        def _send(self, status: int, body: Any) -> None:
            written = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        def _stream(self, answer: Any) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.close_connection = True
            if answer == HANGS:
                served.is_hanging.set()
                self.rfile.read(1)  # until the client has gone
                return
            for delta in answer:
                self._write({"index": 0, "delta": delta})
            self._write(
                {"index": 0, "delta": {}, "finish_reason": "tool_calls" if "tool_calls" in answer[0] else "stop"}
            )
            self.wfile.write(b"data: [DONE]\n\n")

        def _write(self, choice: Mapping[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served = ScriptedVendor(server.server_port, list(script))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
