"""The time of requests that read a large run and long lists of runs, as Markdown: `python -m bench.scripts.reading
[--items N] [--runs N]`.

The script starts `easel up` with a home of its own and executes a run with an Iteration of three nodes per item, one of
them a model. Then it sends each request again and again over HTTP, one after another, and prints the median and the
95th percentile in milliseconds, and the size of the reply. For the lists it inserts finished runs.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from bench.fixtures import run_history
from bench.fixtures.deployment import Deployment, run_deployment, wait_until
from bench.fixtures.growth_engine import component_node, merge_node

ENTRY = "Iteration:all#0"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request, with the goal for its median in milliseconds if there is one."""

    name: str
    path: str
    query: Mapping[str, Any]
    goal: float | None = None


def components() -> dict[str, Any]:
    """Return an Iteration over the comma-separated items of the query: item, model and merge for each."""
    over = {
        "items_ref": "StringTransform:split@result",
        "outputs": {"results": {"ref": "StringTransform:each@result", "type": "Array<string>"}},
        "max_concurrency": 16,
    }
    split = {"method": "split", "split_ref": "sys.query", "delimiters": [","]}
    prompts = [{"role": "user", "content": "{IterationItem:one@item}"}]
    return {
        "begin": component_node("Begin", {}, "StringTransform:split"),
        "StringTransform:split": component_node("StringTransform", split, "Iteration:all"),
        "Iteration:all": component_node("Iteration", over, "Message:end"),
        "IterationItem:one": component_node("IterationItem", {}, "LLM:each", parent="Iteration:all"),
        "LLM:each": component_node(
            "LLM", {"llm_id": "echo", "prompts": prompts}, "StringTransform:each", parent="Iteration:all"
        ),
        "StringTransform:each": merge_node("{LLM:each@content}", parent="Iteration:all"),
        "Message:end": component_node("Message", {"content": ["{sys.conversation_turns}"]}),
    }


def execute_run(stage: Deployment, items: int) -> str:
    """Execute a run over so many items; return its id."""
    made = stage.client.post("/agents", json={"title": "reading", "dsl": {"components": components()}}).json()
    query = ",".join(f"item {number}" for number in range(items))
    reply = stage.client.post(f"/agents/{made['data']['id']}/runs", json={"query": query})
    reply.raise_for_status()
    run_id: str = reply.json()["run_id"]

    def is_over() -> bool:
        time.sleep(0.5)
        head: dict[str, Any] = stage.client.get(f"/runs/{run_id}", params={"activations": "none"}).json()
        if head["status"] in ("failed", "cancelled"):
            raise RuntimeError(f"The run did not succeed: {head['error']}")
        return head["status"] == "succeeded"

    for _ in range(60):  # each waits for a minute
        try:
            wait_until(is_over, "running")
        except RuntimeError as error:
            if str(error) != "running":
                raise
        else:
            break
    return run_id


def requests_of(stage: Deployment, run_id: str) -> Iterator[ReadRequest]:
    """Return the requests to measure."""
    head: dict[str, Any] = stage.client.get(f"/runs/{run_id}", params={"activations": "none"}).json()
    path, revision = f"/runs/{run_id}/activations", head["revision"]
    yield ReadRequest("head", f"/runs/{run_id}", {"activations": "none"}, 50)  # T147
    yield ReadRequest("head with the critical path", f"/runs/{run_id}", {"activations": "none", "critical": "1"})
    yield ReadRequest("500 activations", path, {}, 60)
    yield ReadRequest("500 activations with attempts", path, {"with": "attempts"}, 60)
    yield ReadRequest("2,000 activations", path, {"limit": 2_000})
    yield ReadRequest("changes since the last revision", path, {"since": revision}, 20)
    yield ReadRequest("changes since 50 revisions", path, {"since": revision - 50}, 20)
    yield ReadRequest("the top scope", path, {"scope": ""})
    yield ReadRequest("one item", path, {"within": ENTRY, "items": "7-7"})
    yield ReadRequest("500 activations of one node", path, {"node_id": "LLM:each"})


def add_runs(stage: Deployment, run_id: str, number: int) -> None:
    """Insert finished runs of the tenant and version of a run."""
    url: str = json.loads((stage.home / "up.json").read_text())["database_url"]
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        select = "select tenant_id, canvas_id, version_id from runs where id = %s"
        row = connection.execute(select, [UUID(run_id)]).fetchone()
    assert row is not None
    run_history.add(url, row[0], row[1], row[2], number, datetime.now(UTC))


def list_requests(stage: Deployment, number: int) -> Iterator[ReadRequest]:
    """Return the requests of lists to measure; the last page but some is reached by its key."""
    yield ReadRequest(f"first page of {number:,} runs", "/runs", {"limit": 50}, 150)
    before = ""
    for _ in range(number * 9 // 10 // 100):
        page = stage.client.get("/runs", params={"limit": 100, **({"before": before} if before else {})}).json()
        before = page["next"]
    yield ReadRequest("page after nine tenths of them", "/runs", {"limit": 50, "before": before}, 150)
    yield ReadRequest("a status that no run has", "/runs", {"limit": 50, "status": "stopping"}, 1_000)
    yield ReadRequest("words that no run has", "/runs", {"limit": 50, "q": "nothing has this"}, 1_000)
    yield ReadRequest("runs with trouble", "/runs", {"limit": 50, "trouble": "1"}, 1_000)
    ids = [run["id"] for run in stage.client.get("/runs", params={"limit": 50}).json()["runs"]]
    yield ReadRequest("states of 50 runs", "/runs/states", {"ids": ",".join(ids), "newer_than": ids[0]})


def measure(stage: Deployment, request: ReadRequest, repetitions: int) -> tuple[list[float], int]:
    """Send a request again and again; return the sorted times in milliseconds and the bytes of the reply."""
    found: list[float] = []
    size = 0
    for number in range(repetitions + 3):
        began = time.perf_counter()
        reply = stage.client.get(request.path, params=dict(request.query))
        elapsed = (time.perf_counter() - began) * 1000
        reply.raise_for_status()
        size = len(reply.content)
        if number >= 3:  # the first ones prepare statements
            found.append(elapsed)
    return sorted(found), size


def markdown(rows: Sequence[tuple[ReadRequest, list[float], int]]) -> str:
    """Return the table."""
    lines = ["| request | p50 ms | p95 ms | goal | kB |", "|---|---:|---:|---:|---:|"]
    for request, times, size in rows:
        p95 = statistics.quantiles(times, n=20, method="inclusive")[18]
        goal = f"{request.goal:g}" if request.goal is not None else ""
        lines.append(f"| {request.name} | {statistics.median(times):.1f} | {p95:.1f} | {goal} | {size / 1000:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--items", type=int, default=3_333, help="items of the run, three activations each")
    parser.add_argument("--runs", type=int, default=100_000, help="runs in the lists")
    parser.add_argument("--repetitions", type=int, default=50)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="easel-reading-"))
    folder.chmod(0o711)  # as root, PostgreSQL runs under another account and must get through
    try:
        with run_deployment(folder) as stage:
            run_id = execute_run(stage, options.items)
            rows = [(each, *measure(stage, each, options.repetitions)) for each in requests_of(stage, run_id)]
            if options.runs:
                add_runs(stage, run_id, options.runs)
                rows += [
                    (each, *measure(stage, each, options.repetitions)) for each in list_requests(stage, options.runs)
                ]
            print(markdown(rows), flush=True)  # noqa: T201 (what this is for)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
