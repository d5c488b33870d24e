"""Latencies for a user, measured over HTTP: `python -m bench.scripts.latency`.

The script starts `easel up` with its own home, and a model provider whose chunks contain the time at which they were
written. Runs stream side by side, each over a new connection, and begin at times spread over the length of a turn.
Parts:

- `chat`: from POST .../chat/completions with `stream` to the first byte of its events; and from a chunk's write by the
  provider to its arrival at the client.
- `runs`: from POST .../runs to its 202, and to the first byte of GET .../events right after it.
- `burst`: as `chat`, with all requests of a round at the same time.
- `cancel`: from an accepted cancel to the closed socket of the provider (more in bench/scripts/cancel.py).
- `listeners`: hundreds of streams on one API process, while runs stream to all of them.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.fixtures.deployment import Deployment, run_deployment
from bench.measuring.cpu import cpu_ms_of
from bench.scripts.cancel import cancel_by_http, measure_cancels
from bench.servers.clock_server import chunks_question, write_times
from bench.servers.raw_http_client import open_request

API, WORKER = "cli\0api", "worker.tasks"  # in the command lines of an `easel up`
PARTS = ("chat", "runs", "burst", "cancel", "listeners")
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One row of the table: measured milliseconds, and their targets (p50, p99)."""

    name: str
    values: Sequence[float]
    target_p50: float | None = None
    target_p99: float | None = None

    def percentile(self, percent: int) -> float:
        """Return a percentile of the values."""
        if len(self.values) < 2:
            return self.values[0] if self.values else 0.0
        return statistics.quantiles(self.values, n=100, method="inclusive")[percent - 1]

    @property
    def is_met(self) -> bool:
        """Whether the targets are met; True if there are none."""
        in_the_middle = self.target_p50 is None or self.percentile(50) <= self.target_p50
        return in_the_middle and (self.target_p99 is None or self.percentile(99) <= self.target_p99)

    def to_json(self) -> dict[str, Any]:
        """Return the row for the JSON file."""
        return {
            "name": self.name,
            "n": len(self.values),
            **{f"p{percent}_ms": round(self.percentile(percent), 2) for percent in (50, 95, 99)},
            "max_ms": round(max(self.values, default=0.0), 2),
            "target_p50_ms": self.target_p50,
            "target_p99_ms": self.target_p99,
            "is_met": self.is_met,
        }


@dataclass(frozen=True, slots=True)
class LatencySizes:
    """The sizes of the measurements."""

    turns: int = 200
    at_once: int = 20
    chunks: int = 20
    apart_ms: int = 50
    listeners: int = 500
    cancels: int = 100


@dataclass(slots=True)
class LatencyResults:
    """All results: rows of milliseconds, and counts."""

    rows: list[LatencyRow] = field(default_factory=list[LatencyRow])
    facts: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(slots=True)
class TurnTimes:
    """The times of one turn at its client, in seconds."""

    accepted: float = 0.0
    first_byte: float = 0.0
    delays: list[float] = field(default_factory=list[float])


class LatencyClient:
    """A client of a deployment's API."""

    def __init__(self, stage: Deployment, size: LatencySizes) -> None:
        url = urlsplit(stage.url)
        self.address = (url.hostname or "127.0.0.1", url.port or 80)
        self.stage = stage
        self.size = size

    async def chat(self) -> TurnTimes:
        """Send a query to the chat route and read its stream."""
        turn = TurnTimes()
        path = "/api/v1/agents/chat/completions"
        body = {"agent_id": self.stage.agent_id, "query": self._query(), "stream": True}
        asked_at = time.monotonic()
        async with open_request(self.address, "POST", path, self.stage.token, body, EVENTS) as reply:
            assert reply.status == 200, reply.status
            turn.accepted = time.monotonic() - asked_at
            async for came, part in reply.parts():
                turn.first_byte = turn.first_byte or came - asked_at
                turn.delays += [came - moment for moment in write_times(part)]
        return self._check_complete(turn)

    async def run(self) -> TurnTimes:
        """Start a run and read its events."""
        turn = TurnTimes()
        asked_at = time.monotonic()
        run_id = await self.start_run(self.size.chunks)
        turn.accepted = time.monotonic() - asked_at
        path = f"/api/v1/runs/{run_id}/events"
        async with open_request(self.address, "GET", path, self.stage.token, accept=EVENTS) as reply:
            async for came, part in reply.parts():
                turn.first_byte = turn.first_byte or came - asked_at
                turn.delays += [came - moment for moment in write_times(part)]
        return self._check_complete(turn)

    async def start_run(self, chunks: int, *, on_signal: bool = False) -> str:
        """Start a run; return its id."""
        path = f"/api/v1/agents/{self.stage.agent_id}/runs"
        body = {"query": chunks_question(chunks, self.size.apart_ms, on_signal=on_signal)}
        async with open_request(self.address, "POST", path, self.stage.token, body) as reply:
            assert reply.status == 202, reply.status
            return (await reply.json())["run_id"]

    async def run_turns(self, one: Callable[[], Any], *, is_burst: bool = False) -> list[TurnTimes]:
        """Do all turns, `at_once` side by side: at random times, or in a burst all turns of a round at once."""
        rounds = max(1, self.size.turns // self.size.at_once)
        lasts = self.size.chunks * self.size.apart_ms / 1000
        chance = random.Random(7)  # noqa: S311 (times, not secrets)

        async def place() -> list[TurnTimes]:
            turns: list[TurnTimes] = []
            for _ in range(rounds):
                await asyncio.sleep(chance.random() * lasts)
                turns.append(await one())
            return turns

        if is_burst:
            return [
                turn for _ in range(rounds) for turn in await asyncio.gather(*(one() for _ in range(self.size.at_once)))
            ]
        return [turn for turns in await asyncio.gather(*(place() for _ in range(self.size.at_once))) for turn in turns]

    def _query(self) -> str:
        return chunks_question(self.size.chunks, self.size.apart_ms)

    def _check_complete(self, turn: TurnTimes) -> TurnTimes:
        assert len(turn.delays) == self.size.chunks, f"{len(turn.delays)} of {self.size.chunks} pieces came"
        return turn


async def measure_chat(client: LatencyClient, found: LatencyResults) -> None:
    """Measure the streaming chat route."""
    api, worker = client.stage.child_pid(API), client.stage.child_pid(WORKER)
    before = cpu_ms_of([api]), cpu_ms_of([worker])
    turns = await client.run_turns(client.chat)
    found.facts |= {
        "api_cpu_ms_a_turn": round((cpu_ms_of([api]) - before[0]) / len(turns), 1),
        "worker_cpu_ms_a_turn": round((cpu_ms_of([worker]) - before[1]) / len(turns), 1),
    }
    found.rows += [
        LatencyRow("chat: POST to first SSE byte", _ms([turn.first_byte for turn in turns]), 30, 100),
        LatencyRow(
            "chat: piece of the model to client", _ms([delay for turn in turns for delay in turn.delays]), None, 25
        ),
    ]


async def measure_runs(client: LatencyClient, found: LatencyResults) -> None:
    """Measure starting runs and reading their events."""
    turns = await client.run_turns(client.run)
    found.rows += [
        LatencyRow("runs: POST to 202", _ms([turn.accepted for turn in turns]), 15, None),
        LatencyRow("runs: POST + GET to first SSE byte", _ms([turn.first_byte for turn in turns]), 30, 100),
        LatencyRow(
            "runs: piece of the model to client", _ms([delay for turn in turns for delay in turn.delays]), None, 25
        ),
    ]


async def measure_burst(client: LatencyClient, found: LatencyResults) -> None:
    """Measure the chat route with all requests of a round at once."""
    turns = await client.run_turns(client.chat, is_burst=True)
    found.rows.append(LatencyRow("burst: POST to first SSE byte", _ms([turn.first_byte for turn in turns])))


@dataclass(slots=True)
class ListenerRecord:
    """The record of one listener: the time of its first byte, and each chunk's delay and time of writing."""

    first_byte: float = 0.0
    delays: list[float] = field(default_factory=list[float])
    write_times: list[float] = field(default_factory=list[float])


async def measure_listeners(client: LatencyClient, found: LatencyResults) -> None:
    """Measure many streams on one API process."""
    size = client.size
    before = client.stage.memory_of(API)
    chunks = max(40, 5_000 // size.apart_ms)
    run_ids = [await client.start_run(chunks, on_signal=True) for _ in range(size.at_once)]
    all_here = asyncio.Event()
    here = 0
    records = [ListenerRecord() for _ in range(size.listeners)]

    async def listen(number: int) -> None:
        nonlocal here
        one = records[number]
        path = f"/api/v1/runs/{run_ids[number % len(run_ids)]}/events"
        asked_at = time.monotonic()
        async with open_request(client.address, "GET", path, client.stage.token, accept=EVENTS) as reply:
            assert reply.status == 200, reply.status
            async for came, part in reply.parts():
                if not one.first_byte:
                    one.first_byte = came - asked_at
                    here += 1
                    if here == size.listeners:
                        all_here.set()
                written = write_times(part)
                one.write_times += written
                one.delays += [came - moment for moment in written]

    began = time.monotonic()
    tasks = [asyncio.create_task(listen(number)) for number in range(size.listeners)]
    await asyncio.wait_for(all_here.wait(), 60)
    connected = time.monotonic()
    during = client.stage.memory_of(API)
    async with open_request(("127.0.0.1", client.stage.provider), "GET", "/sign", "") as reply:
        assert reply.status == 200, reply.status
    await asyncio.gather(*tasks)
    torn = sum(len(one.write_times) != chunks or one.write_times != sorted(one.write_times) for one in records)
    found.rows += [
        LatencyRow("listeners: GET to first SSE byte", _ms([one.first_byte for one in records])),
        LatencyRow(
            "listeners: piece of the model to each", _ms([delay for one in records for delay in one.delays]), None, None
        ),
    ]
    found.facts |= {
        "listeners": size.listeners,
        "listeners_connected_within_s": round(connected - began, 2),
        "listeners_with_gaps_or_disorder": torn,
        "api_rss_before_mb": round(before, 1),
        "api_rss_with_listeners_mb": round(during, 1),
    }


def measure_cancel(stage: Deployment, size: LatencySizes, found: LatencyResults) -> None:
    """Measure cancels while other runs stream."""
    measure_cancels(stage, cancel_by_http, size.at_once, size.at_once)  # the first calls import the model's client
    stops = measure_cancels(stage, cancel_by_http, size.cancels, size.at_once)
    found.rows.append(
        LatencyRow("cancel: accepted to closed socket", [stop.seconds * 1000 for stop in stops], None, 150)
    )


def measure_latency(parts: Sequence[str] = PARTS, size: LatencySizes | None = None) -> LatencyResults:
    """Measure these parts on new deployments."""
    found, chosen = LatencyResults(), size or LatencySizes()
    folder = Path(tempfile.mkdtemp(prefix="easel-latency-"))
    folder.chmod(0o711)  # as root, PostgreSQL runs under another account and must get through
    try:
        asynchronous = {
            "chat": measure_chat,
            "runs": measure_runs,
            "burst": measure_burst,
            "listeners": measure_listeners,
        }
        chosen_parts = [asynchronous[part] for part in parts if part in asynchronous]
        if chosen_parts:
            with run_deployment(folder, server="bench.servers.clock_server") as stage:
                client = LatencyClient(stage, chosen)

                async def all_of_them() -> None:
                    await asyncio.gather(*(client.chat() for _ in range(chosen.at_once)))  # imports, connections
                    for part in chosen_parts:
                        await part(client, found)

                asyncio.run(all_of_them())
        if "cancel" in parts:
            with run_deployment(folder) as stage:
                measure_cancel(stage, chosen, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def results_table(found: LatencyResults) -> str:
    """Return the rows as a Markdown table, then the counts."""
    lines = ["| milliseconds | n | p50 | p95 | p99 | max | target |", "|---|---:|---:|---:|---:|---:|---|"]
    for row in found.rows:
        targets = [(50, row.target_p50), (99, row.target_p99)]
        target = ", ".join(f"p{percent} ≤ {limit:g}" for percent, limit in targets if limit is not None)
        verdict = f"{target} {'met' if row.is_met else 'missed'}" if target else ""
        figures = " | ".join(f"{row.percentile(percent):.1f}" for percent in (50, 95, 99))
        lines.append(f"| {row.name} | {len(row.values)} | {figures} | {max(row.values, default=0.0):.1f} | {verdict} |")
    return "\n".join([*lines, "", *(f"{name}: {value:g}" for name, value in found.facts.items())])


def _ms(seconds: Sequence[float]) -> list[float]:
    return [1000 * one for one in seconds]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    default = LatencySizes()
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--turns", type=int, default=default.turns, help="of each route")
    parser.add_argument("--at-once", type=int, default=default.at_once, help="runs that stream side by side")
    parser.add_argument("--pieces", type=int, default=default.chunks, help="that an answer has")
    parser.add_argument("--apart", type=int, default=default.apart_ms, help="milliseconds between two pieces")
    parser.add_argument("--listeners", type=int, default=default.listeners)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    size = LatencySizes(options.turns, options.at_once, options.pieces, options.apart, options.listeners)
    found = measure_latency(options.parts, size)
    if options.json:
        rows = [row.to_json() for row in found.rows]
        options.json.write_text(json.dumps({"rows": rows, "facts": found.facts}, indent=2))
    print(results_table(found))  # noqa: T201 (what this is for)


if __name__ == "__main__":
    main()
