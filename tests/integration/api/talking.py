"""A client of the HTTP API, and canvases for it to run."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import httpx2

T = TypeVar("T")


def canvas(*nodes: tuple[str, str, Mapping[str, Any], Sequence[str]], **parents: str) -> dict[str, Any]:
    """Build a document from (id, component, params, downstream); `parents` is not needed outside of containers."""
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
    """A client of the API with the token of one tenant."""

    http: httpx2.Client
    tenant_id: UUID
    token: str

    def agent(self, dsl: Mapping[str, Any], title: str = "agent") -> str:
        """Create an agent from a canvas; return its id."""
        reply = self.http.post("/api/v1/agents", json={"title": title, "dsl": dsl}).json()
        assert reply["code"] == 0, reply
        return reply["data"]["id"]

    def chat(self, agent: str, query: Any = "hi", **body: Any) -> dict[str, Any]:
        """Run a turn without streaming; return the whole reply."""
        body = {"agent_id": agent, "query": query, **body}
        return self.http.post("/api/v1/agents/chat/completions", json=body).json()

    def stream(self, agent: str, query: Any = "hi", **body: Any) -> list[Frame]:
        """Run a turn as a stream; return all of its frames."""
        body = {"agent_id": agent, "query": query, "stream": True, **body}
        with self.http.stream("POST", "/api/v1/agents/chat/completions", json=body) as response:
            return list(frames(response.iter_lines()))

    def start(self, agent: str, query: Any = "hi", **body: Any) -> dict[str, Any]:
        """Start a run; return its ids."""
        reply = self.http.post(f"/api/v1/agents/{agent}/runs", json={"query": query, **body})
        assert reply.status_code == 202, reply.text
        return reply.json()

    def run(self, run_id: str) -> dict[str, Any]:
        return self.http.get(f"/api/v1/runs/{run_id}").json()

    def wait_for(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """Wait until the run has one of these statuses; return the run."""
        return eventually(lambda: self.run(run_id), lambda run: run["status"] in statuses)


def frames(lines: Iterator[str]) -> Iterator[Frame]:
    """Yield the events of a stream; skip its comments."""
    id_, data = "", ""
    for line in lines:
        if line.startswith("id:"):
            id_ = line[3:]
        elif line.startswith("data:"):
            data = line[5:].strip()
        elif not line and data:
            yield Frame(id_, data if data == "[DONE]" else json.loads(data))
            id_, data = "", ""


def eventually(read: Callable[[], T], condition: Callable[[T], bool], seconds: float = 60) -> T:
    """Read a value until it meets the condition and return it; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = read()
        if condition(value):
            return value
        assert time.monotonic() < deadline, value
        time.sleep(0.02)


def text_of(stream: Sequence[Frame]) -> str:
    """Return the text of all messages of a stream."""
    return "".join(
        frame.data["data"]["content"]
        for frame in stream
        if isinstance(frame.data, dict) and frame.data.get("event") == "message"
    )


def names_of(stream: Sequence[Frame]) -> list[str]:
    """Return the names of a stream's events in order; successive messages count once."""
    names: list[str] = []
    for frame in stream:
        name = frame.data if isinstance(frame.data, str) else frame.data.get("event", "error")
        if name != "message" or names[-1:] != ["message"]:
            names.append(name)
    return names
