"""The world outside as a canvas sees it: a model provider and a service that acts, both of which remember.

with outside() as world:
    ...  # canvases ask f"{world.url}/v1" and post to f"{world.url}/effects/<name>"
assert world.keys_with_two_bodies() == []
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
SEARCHED = {"results": [{"title": "Prices", "url": "https://example.com/a", "content": "Up 4% in May."}]}


@dataclass(frozen=True, slots=True)
class Effect:
    """A request that acts, as it came in."""

    path: str
    key: str | None
    body: bytes


@dataclass
class Outside:
    """What was asked and done. Models: `m` answers, `slow` word by word, `router` picks, `agent` searches first."""

    port: int = 0
    takes: float = 0.25  # seconds before an answer begins, so that something is always in flight
    word_takes: float = 0.08  # seconds before each word of `slow`
    asked: Counter[str] = field(default_factory=Counter[str])  # by prompt
    effects: list[Effect] = field(default_factory=list[Effect])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> int:
        """How often any model was asked."""
        with self._lock:
            return sum(self.asked.values())

    def note(self, prompt: str) -> None:
        with self._lock:
            self.asked[prompt] += 1

    def act(self, effect: Effect) -> None:
        with self._lock:
            self.effects.append(effect)

    def done(self, containing: str = "") -> dict[str | None, list[Effect]]:
        """Effects by their idempotency key; those whose body contains a text."""
        by_key: dict[str | None, list[Effect]] = {}
        with self._lock:
            for effect in self.effects:
                if containing.encode() in effect.body:
                    by_key.setdefault(effect.key, []).append(effect)
        return by_key

    def keys_with_two_bodies(self) -> list[str | None]:
        """Keys under which two different things were asked for."""
        return [key for key, effects in self.done().items() if len({(it.path, it.body) for it in effects}) > 1]

    def forget(self) -> None:
        with self._lock:
            self.asked.clear()
            self.effects.clear()

    def accounts(self, folder: Path) -> Path:
        """A models file that names this provider."""
        file = folder / "models.toml"
        models = "".join(
            f'[account.models.{name}]\nkinds = ["chat"]\n' + ("is_tools = true\n" if name == "agent" else "")
            for name in ("m", "slow", "router", "agent")
        )
        account = f'[[account]]\nfactory = "{FACTORY}"\napi_key = "key"\nbase_url = "{self.url}/v1"\n'
        file.write_text(account + models)
        return file


@contextmanager
def outside() -> Generator[Outside]:
    """Both servers, on one port, until the block ends."""
    world = Outside()

    class Handler(_Handler):
        outside = world

    server = _Server(("127.0.0.1", 0), Handler)
    world.port = server.server_port
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield world
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512  # a worker that comes back asks for everything at once


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    outside: Outside

    def do_GET(self) -> None:
        self._reply(json.dumps(SEARCHED).encode(), "application/json")

    def do_POST(self) -> None:
        promised = int(self.headers.get("content-length") or 0)
        sent = self.rfile.read(promised)
        if len(sent) < promised:  # the asker was killed in the middle of its sentence
            self.close_connection = True
        elif self.path.startswith("/v1/"):
            self._carefully(lambda: self._answer(json.loads(sent)))
        else:
            self.outside.act(Effect(self.path, self.headers.get("idempotency-key"), sent))
            time.sleep(self.outside.takes)
            self._carefully(lambda: self._reply(f"done {_digest(self.path, sent)}".encode(), "text/plain"))

    def _carefully(self, answer: Any) -> None:
        try:
            answer()
        except OSError:  # the asker was killed
            self.close_connection = True

    def _answer(self, body: Mapping[str, Any]) -> None:
        prompt = next(str(it["content"]) for it in reversed(body["messages"]) if it["role"] == "user")
        self.outside.note(prompt)
        time.sleep(self.outside.takes)
        if body.get("tools") and not any(it["role"] == "tool" for it in body["messages"]):
            self._call(body)
        elif body.get("stream"):
            self._stream(list(_words(body["model"], prompt)), self.outside.word_takes if body["model"] == "slow" else 0)
        else:
            message = {"role": "assistant", "content": "".join(_words(body["model"], prompt))}
            whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            self._reply(json.dumps(whole).encode(), "application/json")

    def _call(self, body: Mapping[str, Any]) -> None:
        name = body["tools"][0]["function"]["name"]
        asked = {"name": name, "arguments": json.dumps({"query": "q"})}
        call = {"index": 0, "id": "call-1", "type": "function", "function": asked}
        if body.get("stream"):
            self._chunks([{"tool_calls": [call]}], 0)
        else:
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            whole = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
            self._reply(json.dumps(whole).encode(), "application/json")

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


def _words(model: str, prompt: str) -> Sequence[str]:
    """A model's answer, which follows from what it was asked."""
    if model == "router":
        return ["left" if "to the left" in prompt else "right"]
    if model == "slow":
        return [f"word{number} " for number in range(15)] + [_digest("", prompt.encode())]
    text = f"answer to {prompt}"
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def _digest(path: str, body: bytes) -> str:
    return hashlib.sha256(path.encode() + body).hexdigest()[:8]
