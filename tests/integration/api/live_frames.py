"""Frames of live streams, and a page that follows a run by them."""

import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from scheduler.views.run_totals import NODE_COUNTS
from tests.integration.api.activation_rows import rows_of

STATE_OF = {"delayed": "ready", "unresponsive": "running", "needs_input": "waiting", "over_budget": "waiting"}


@dataclass(frozen=True)
class LiveFrame:
    """A frame of a live stream. `id` is empty if it has none."""

    name: str
    id: str
    data: Any


@contextmanager
def live_stream(http: httpx2.Client, run_id: str, **query: Any) -> Generator[Iterator[LiveFrame]]:
    """Open a live stream; yield its frames."""
    headers = {"Accept": "text/event-stream"}
    with http.stream("GET", f"/api/v1/runs/{run_id}/live", params=query, headers=headers) as response:
        assert response.status_code == 200, response.read()
        yield frames_of(response.iter_lines())


def follow(http: httpx2.Client, run_id: str, **query: Any) -> list[LiveFrame]:
    """Return all frames of a live stream, which ends by itself."""
    with live_stream(http, run_id, **query) as frames:
        return list(frames)


def frames_of(lines: Iterable[str]) -> Iterator[LiveFrame]:
    """Yield the frames of the lines of a stream; skip its comments."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line and "event" in fields:
            yield LiveFrame(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


@dataclass
class LivePage:
    """What a page knows of a run from its frames alone."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    calls: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    position: str = ""
    revision: int = 0
    bye: dict[str, Any] = field(default_factory=dict[str, Any])

    def apply(self, frame: LiveFrame) -> None:
        assert not self.bye, f"{frame.name} after bye"
        self.position = frame.id or self.position
        data = frame.data
        match frame.name:
            case "steps":
                self.rows |= {row["id"]: row for row in rows_of(data)}
                self.revision = data["revision"]
            case "state":
                self.state |= data
            case "delta":
                text = self.texts.get(data["stream"], "")
                assert len(text) == data["offset"], "a delta begins where the text ends"
                self.texts[data["stream"]] = text + data["text"]
            case "reset":
                self.texts[data["stream"]] = self.texts.get(data["stream"], "")[: data["retained_length"]]
            case "event":
                self.events.append(data)
            case "call":
                self.calls |= {call["id"]: call for call in data["calls"]}
            case "bye":
                self.bye = data
            case name:
                assert name == "hello"

    def disagreements(self) -> dict[str, tuple[Any, Any]]:
        """Return the nodes whose counts in `state` differ from the rows."""
        counted = {
            node: {name: number for name, number in zip(NODE_COUNTS[:14], values[:14], strict=True) if number}
            for node, values in self.state.get("nodes", {}).items()
        }
        by_status = {node: _by_status(counts) for node, counts in counted.items()}
        rows: dict[str, dict[str, int]] = {}
        for row in self.rows.values():
            of_node = rows.setdefault(row["node_id"], {})
            of_node[row["status"]] = of_node.get(row["status"], 0) + 1
        return {
            node: (by_status.get(node), rows.get(node))
            for node in by_status.keys() | rows.keys()
            if by_status.get(node) != rows.get(node)
        }


def _by_status(counts: dict[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, number in counts.items():
        status = "done" if name in ("failed", "handled") else STATE_OF.get(name, name)
        found[status] = found.get(status, 0) + number
    return found


def fold(frames: Iterable[LiveFrame]) -> LivePage:
    """Return what a page knows after these frames."""
    page = LivePage()
    for frame in frames:
        page.apply(frame)
    return page
