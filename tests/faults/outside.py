"""The external services of the canvases: a model provider and a service with side effects; both record their requests.

with external_services() as external:
    ...  # canvases call f"{external.url}/v1" and post to f"{external.url}/effects/<name>"
assert external.keys_with_two_bodies() == []
"""

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FACTORY = "OpenAI-API-Compatible"
SEARCH_RESULTS = {"results": [{"title": "Prices", "url": "https://example.com/a", "content": "Up 4% in May."}]}


@dataclass(frozen=True, slots=True)
class Effect:
    """A request with a side effect, as received."""

    path: str
    key: str | None
    body: bytes


@dataclass
class ExternalServices:
    """The requests received. Models: `m` answers, `slow` word by word, `router` picks, `agent` searches first."""

    port: int = 0
    answer_delay: float = 0.25  # seconds before an answer begins, so that some request is always open
    word_delay: float = 0.08  # seconds before each word of `slow`
    prompts: Counter[str] = field(default_factory=Counter[str])  # by prompt
    effects: list[Effect] = field(default_factory=list[Effect])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _may_answer: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._may_answer.set()

    def hold_answers(self) -> None:
        """Answer no request until `release_answers`, so that all attempts that wait for an answer go on."""
        self._may_answer.clear()

    def release_answers(self) -> None:
        self._may_answer.set()

    def wait_before_answer(self) -> None:
        self._may_answer.wait()
        time.sleep(self.answer_delay)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> int:
        """The number of requests to models."""
        with self._lock:
            return sum(self.prompts.values())

    def record_prompt(self, prompt: str) -> None:
        with self._lock:
            self.prompts[prompt] += 1

    def record_effect(self, effect: Effect) -> None:
        with self._lock:
            self.effects.append(effect)

    def effects_by_key(self, containing: str = "") -> dict[str | None, list[Effect]]:
        """Return the effects whose body contains a text, by idempotency key."""
        by_key: dict[str | None, list[Effect]] = {}
        with self._lock:
            for effect in self.effects:
                if containing.encode() in effect.body:
                    by_key.setdefault(effect.key, []).append(effect)
        return by_key

    def keys_with_two_bodies(self) -> list[str | None]:
        """Return the keys that were used for two different requests."""
        return [
            key
            for key, effects in self.effects_by_key().items()
            if len({(each.path, each.body) for each in effects}) > 1
        ]

    def clear(self) -> None:
        with self._lock:
            self.prompts.clear()
            self.effects.clear()

    def write_models_file(self, folder: Path) -> Path:
        """Write a models file that names this provider."""
        file = folder / "models.toml"
        models = "".join(
            f'[account.models.{name}]\nkinds = ["chat"]\n' + ("is_tools = true\n" if name == "agent" else "")
            for name in ("m", "slow", "router", "agent")
        )
        account = f'[[account]]\nfactory = "{FACTORY}"\napi_key = "key"\nbase_url = "{self.url}/v1"\n'
        file.write_text(account + models)
        return file


@contextmanager
def external_services() -> Generator[ExternalServices]:
    """Run both services on one port until the block ends."""
    external = ExternalServices()

    class Handler(_Handler):
        services = external

    server = _Server(("127.0.0.1", 0), Handler)
    external.port = server.server_port
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield external
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512  # a restarted worker sends all its requests at once


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    services: ExternalServices

    def do_GET(self) -> None:
        self._reply(json.dumps(SEARCH_RESULTS).encode(), "application/json")

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # the client was killed while it sent the request
            self.close_connection = True
        elif self.path.startswith("/v1/"):
            self._ignore_disconnect(lambda: self._answer(json.loads(body)))
        else:
            self.services.record_effect(Effect(self.path, self.headers.get("idempotency-key"), body))
            self.services.wait_before_answer()
            self._ignore_disconnect(lambda: self._reply(f"done {_digest(self.path, body)}".encode(), "text/plain"))

    def _ignore_disconnect(self, answer: Any) -> None:
        try:
            answer()
        except OSError:  # the client was killed
            self.close_connection = True

    def _answer(self, body: Mapping[str, Any]) -> None:
        prompt = next(str(each["content"]) for each in reversed(body["messages"]) if each["role"] == "user")
        self.services.record_prompt(prompt)
        self.services.wait_before_answer()
        if body.get("tools") and not any(each["role"] == "tool" for each in body["messages"]):
            self._call(body)
        elif body.get("stream"):
            self._stream(
                list(_words(body["model"], prompt)), self.services.word_delay if body["model"] == "slow" else 0
            )
        else:
            message = {"role": "assistant", "content": "".join(_words(body["model"], prompt))}
            response = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            self._reply(json.dumps(response).encode(), "application/json")

    def _call(self, body: Mapping[str, Any]) -> None:
        name = body["tools"][0]["function"]["name"]
        function = {"name": name, "arguments": json.dumps({"query": "q"})}
        call = {"index": 0, "id": "call-1", "type": "function", "function": function}
        if body.get("stream"):
            self._chunks([{"tool_calls": [call]}], 0)
        else:
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            response = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
            self._reply(json.dumps(response).encode(), "application/json")

    def _stream(self, words: Sequence[str], pause: float) -> None:
        self._chunks([{"content": word} for word in words], pause)

    def _chunks(self, deltas: Sequence[Mapping[str, Any]], pause: float) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for delta in deltas:
            time.sleep(pause)
            self._send({"choices": [{"index": 0, "delta": delta}]})
        self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _send(self, chunk: Mapping[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.flush()

    def _reply(self, payload: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name in the base class)
        """Silent."""


def _words(llm_params: str, prompt: str) -> Sequence[str]:
    """Return a model's answer, which follows from the prompt."""
    if llm_params == "router":
        return ["left" if "to the left" in prompt else "right"]
    if llm_params == "slow":
        return [f"word{number} " for number in range(15)] + [_digest("", prompt.encode())]
    text = f"answer to {prompt}"
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def _digest(path: str, body: bytes) -> str:
    return hashlib.sha256(path.encode() + body).hexdigest()[:8]
