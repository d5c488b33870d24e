"""A client of the HTTP API, and canvases to talk to."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import httpx2

T = TypeVar("T")


def canvas(*nodes: tuple[str, str, Mapping[str, Any], Sequence[str]], **parents: str) -> dict[str, Any]:
    """A document of (id, component, params, downstream); `parents` is not needed outside of containers."""
    return {
        "components": {
            node_id: {"obj": {"component_name": component, "params": dict(params)}, "downstream": list(downstream)}
            for node_id, component, params, downstream in nodes
        },
        "graph": {"nodes": [{"id": node_id, "data": {"name": f"the {node_id}"}} for node_id, *_ in nodes]},
        "globals": {},
        "path": [],
    }


def message(text: str) -> dict[str, Any]:
    return {"content": [text]}


ECHO = canvas(
    ("begin", "Begin", {"prologue": "Hello, I repeat."}, ["Message:0"]),
    ("Message:0", "Message", message("You said: {sys.query}"), []),
)
MODEL = canvas(
    ("begin", "Begin", {}, ["LLM:0"]),
    ("LLM:0", "LLM", {"llm_id": "echo", "prompts": [{"role": "user", "content": "{sys.query}"}]}, ["Message:0"]),
    ("Message:0", "Message", message("Answer: {LLM:0@content}"), []),
)
FORM = canvas(
    ("begin", "Begin", {}, ["UserFillUp:0"]),
    (
        "UserFillUp:0",
        "UserFillUp",
        {"enable_tips": True, "tips": "Who are you?", "inputs": {"name": {"type": "line", "name": "Name"}}},
        ["Message:0"],
    ),
    ("Message:0", "Message", message("Hello {UserFillUp:0@name}"), []),
)
BROKEN = canvas(
    ("begin", "Begin", {}, ["VariableAssigner:0"]),
    (
        "VariableAssigner:0",
        "VariableAssigner",
        {"variables": [{"variable": "env.nothing", "operator": "+=", "parameter": 1}]},
        ["Message:0"],
    ),
    ("Message:0", "Message", message("never"), []),
)


@dataclass
class Frame:
    """One server-sent event."""

    id: str
    data: Any


@dataclass
class Client:
    """Somebody who talks to the API."""

    http: httpx2.Client
    tenant_id: UUID
    token: str

    def agent(self, dsl: Mapping[str, Any], title: str = "agent") -> str:
        """Store a canvas; its id."""
        reply = self.http.post("/api/v1/agents", json={"title": title, "dsl": dsl}).json()
        assert reply["code"] == 0, reply
        return reply["data"]["id"]

    def say(self, agent: str, query: Any = "hi", **body: Any) -> dict[str, Any]:
        """A turn without streaming; the whole reply."""
        body = {"agent_id": agent, "query": query, **body}
        return self.http.post("/api/v1/agents/chat/completions", json=body).json()

    def stream(self, agent: str, query: Any = "hi", **body: Any) -> list[Frame]:
        """A turn as a stream, to its end."""
        body = {"agent_id": agent, "query": query, "stream": True, **body}
        with self.http.stream("POST", "/api/v1/agents/chat/completions", json=body) as response:
            return list(frames(response.iter_lines()))

    def start(self, agent: str, query: Any = "hi", **body: Any) -> dict[str, Any]:
        """Accept a run; ids."""
        reply = self.http.post(f"/api/v1/agents/{agent}/runs", json={"query": query, **body})
        assert reply.status_code == 202, reply.text
        return reply.json()

    def run(self, run_id: str) -> dict[str, Any]:
        return self.http.get(f"/api/v1/runs/{run_id}").json()

    def until(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """The run, once it has one of these statuses."""
        return eventually(lambda: self.run(run_id), lambda run: run["status"] in statuses)


def frames(lines: Iterator[str]) -> Iterator[Frame]:
    """The events of a stream; comments are skipped."""
    id_, data = "", ""
    for line in lines:
        if line.startswith("id:"):
            id_ = line[3:]
        elif line.startswith("data:"):
            data = line[5:].strip()
        elif not line and data:
            yield Frame(id_, data if data == "[DONE]" else json.loads(data))
            id_, data = "", ""


def eventually(look: Callable[[], T], holds: Callable[[T], bool], seconds: float = 15) -> T:
    """Look again and again until what is seen is as wanted, at the latest for so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if holds(seen):
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)


def text_of(shown: Sequence[Frame]) -> str:
    """All that was said in a stream."""
    return "".join(
        frame.data["data"]["content"]
        for frame in shown
        if isinstance(frame.data, dict) and frame.data.get("event") == "message"
    )


def names_of(shown: Sequence[Frame]) -> list[str]:
    """The names of a stream's events in order, successive messages once."""
    names: list[str] = []
    for frame in shown:
        name = frame.data if isinstance(frame.data, str) else frame.data.get("event", "error")
        if name != "message" or names[-1:] != ["message"]:
            names.append(name)
    return names
