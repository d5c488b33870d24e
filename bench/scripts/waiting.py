"""The cost of many waiting model calls in one worker process: `python -m bench.scripts.waiting`.

The script starts `easel up` with its own home and a model provider that holds all answers. It starts `--calls` runs of
begin -> LLM -> Message (`runs`), or one run with as many LLM nodes side by side (`branches`). While all of them wait,
it measures the worker's memory, threads and sockets, a small run that must finish all the same, the queue probe of the
nodes' queue, and a cancel. Then the provider answers. `--threads` and `--setting NAME=VALUE` configure the worker.

A waiting call takes a thread of the worker, and an open file in the worker and in the provider. So the worker gets a
thread for each call and a few more, and the script refuses at once what the limit of open files (`ulimit -n`) does not
allow.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from bench.fixtures.deployment import Deployment, run_deployment, wait_until
from store.db.database import Database
from store.monitoring import queue_probes

STARTERS = 8  # threads that start runs
SMALL_RUNS = 5
CANCELS = 5
SPARE_THREADS = 24  # for small runs beside the calls that wait
FILES_A_CALL = 2  # as docs/operations.md advises
SPARE_FILES = 256  # connections to the servers, libraries, logs
TICKS = os.sysconf("SC_CLK_TCK")
MB = 1024  # KiB, as /proc counts
ENDED = ("succeeded", "failed", "cancelled")
CANVAS_WAYS = ("runs", "branches")


@dataclass(frozen=True, slots=True)
class ProcessSize:
    """The size of a process, from /proc. Memory is in MB, CPU time in seconds since its start."""

    rss: float
    peak: float
    threads: int
    sockets: int
    cpu: float

    @classmethod
    def of(cls, pid: int) -> "ProcessSize":
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return cls(
            rss=int(status["VmRSS"].split()[0]) / MB,
            peak=int(status["VmHWM"].split()[0]) / MB,
            threads=int(status["Threads"]),
            sockets=sum(name.startswith("socket:") for name in _open_files(pid)),
            cpu=(int(times[11]) + int(times[12])) / TICKS,
        )


@dataclass(slots=True)
class WaitingResult:
    """The result of one measurement, in seconds unless a name says otherwise."""

    way: str
    calls: int
    before: ProcessSize
    waiting: ProcessSize | None = None
    after: ProcessSize | None = None
    most_at_once: int = 0
    until_all_wait: float = 0.0
    until_all_are_done: float = 0.0  # after the release
    small_run_ms: list[float] = field(default_factory=list[float])  # while all calls wait
    probe_ms: float = 0.0
    cancel_ms: list[float] = field(default_factory=list[float])  # from accepted to the closed socket of the provider
    statuses: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class WaitingBench:
    """A deployment, the process id of its worker, and requests to its provider."""

    stage: Deployment
    worker: int

    def ask_provider(self, path: str, method: str = "POST") -> dict[str, Any]:
        """Send a request to the provider; return its JSON."""
        request = Request(f"http://127.0.0.1:{self.stage.provider}{path}", method=method)
        with urlopen(request) as reply:  # noqa: S310 (our own)
            return json.load(reply)

    def provider_state(self) -> dict[str, Any]:
        """Return the provider's state of waiting requests."""
        return self.ask_provider("/state", "GET")

    def create_agent(self, dsl: Mapping[str, Any]) -> str:
        """Create an agent; return its id."""
        made = self.stage.client.post("/agents", json={"title": self.stage.new_stream_name(), "dsl": dsl}).json()
        return str(made["data"]["id"])

    def start_run(self, agent_id: str) -> str:
        """Start a run; return its id."""
        reply = self.stage.client.post(f"/agents/{agent_id}/runs", json={"query": "?"})
        if reply.is_error:
            raise RuntimeError(f"A run did not start: {reply.status_code} {reply.text}")
        return str(reply.json()["run_id"])

    def status(self, run_id: str) -> str:
        """Return the status of a run."""
        return str(self.stage.client.get(f"/runs/{run_id}").json()["status"])

    def await_end(self, run_id: str) -> str:
        """Wait for the end of a run; return its status."""
        wait_until(lambda: self.status(run_id) in ENDED, f"run {run_id} did not end")
        return self.status(run_id)


def one_call_canvas() -> Mapping[str, Any]:
    """Return the canvas begin -> LLM -> Message."""
    return _components({"begin": ["LLM:A"], "LLM:A": ["Message:A"], "Message:A": []}, "{LLM:A@content}")


def many_calls_canvas(branches: int) -> Mapping[str, Any]:
    """Return the canvas begin -> one LLM for each branch -> Message, which waits for all of them."""
    nodes = [f"LLM:{number}" for number in range(branches)]
    edges = {"begin": nodes, **{node: ["Message:A"] for node in nodes}, "Message:A": []}
    # an LLM without a reader is not called
    return _components(edges, " ".join(f"{{{node}@content}}" for node in nodes))


def no_call_canvas() -> Mapping[str, Any]:
    """Return the canvas begin -> Message."""
    return _components({"begin": ["Message:A"], "Message:A": []}, "Hello.")


def _components(edges: Mapping[str, Sequence[str]], text: str) -> Mapping[str, Any]:
    prompt = [{"role": "user", "content": "{sys.query}"}]
    params: Mapping[str, Mapping[str, Any]] = {
        "Begin": {},
        "LLM": {"llm_id": "m@OpenAI-API-Compatible", "prompts": prompt},
        "Message": {"content": [text]},
    }
    upstream: dict[str, list[str]] = {node: [] for node in edges}
    for node, targets in edges.items():
        for target in targets:
            upstream[target].append(node)
    return {
        "components": {
            node: {
                "obj": {"component_name": kind, "params": params[kind]},
                "downstream": list(targets),
                "upstream": upstream[node],
            }
            for node, targets in edges.items()
            for kind in [node.partition(":")[0].capitalize() if node == "begin" else node.partition(":")[0]]
        }
    }


def missing_resource(calls: int, threads: int, files: int) -> str | None:
    """Return why a worker with these limits cannot hold so many calls and still do other work; None if it can."""
    if threads <= calls:
        return (
            f"{calls} waiting calls take {calls} threads of the worker, and other work takes more, but it has "
            f"{threads}. Use --threads {calls + SPARE_THREADS}, or leave the option out."
        )
    needed = FILES_A_CALL * calls + SPARE_FILES
    if files < needed:
        return (
            f"{calls} waiting calls need {needed} open files, but a process may have {files}. Run: ulimit -n {needed}"
        )
    return None


def raise_open_file_limit() -> int:
    """Raise this process's limit of open files to the machine's limit, which children inherit; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # systems that report no limit, but have one
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def measure_waiting(house: WaitingBench, way: str, calls: int) -> WaitingResult:
    """Run one measurement, from the start of all calls to the end of the last run."""
    found = WaitingResult(way, calls, ProcessSize.of(house.worker))
    agent_id = house.create_agent(one_call_canvas() if way == "runs" else many_calls_canvas(calls))
    house.ask_provider("/hold")
    began = time.monotonic()
    with ThreadPoolExecutor(STARTERS) as pool:
        runs = list(pool.map(house.start_run, [agent_id] * (calls if way == "runs" else 1)))
    wait_until(lambda: house.provider_state()["open"] >= calls or _has_stalled(house), "the calls did not arrive")
    state = house.provider_state()
    found.most_at_once, found.until_all_wait = state["most"], state["last"] - began
    found.waiting = ProcessSize.of(house.worker)
    _measure_meanwhile(house, found, runs)
    found.waiting = max(found.waiting, ProcessSize.of(house.worker), key=lambda size: size.rss)
    released = time.monotonic()
    house.ask_provider("/release")
    ends = [house.await_end(run_id) for run_id in reversed(runs)]  # the last one first, to poll less
    found.until_all_are_done = time.monotonic() - released
    found.after = ProcessSize.of(house.worker)
    found.statuses = {status: ends.count(status) for status in sorted(set(ends))}
    return found


def _measure_meanwhile(house: WaitingBench, found: WaitingResult, runs: list[str]) -> None:
    """Measure what must work while all calls wait: small runs, the queue probe, and cancels."""
    small = house.create_agent(no_call_canvas())
    for _ in range(SMALL_RUNS):
        began = time.monotonic()
        run_id = house.start_run(small)
        if house.await_end(run_id) != "succeeded":
            raise RuntimeError("A small run failed beside the waiting ones.")
        found.small_run_ms.append((time.monotonic() - began) * 1000)
    found.probe_ms = _probe_age(house) * 1000
    for run_id in runs[:CANCELS] if found.way == "runs" else ():
        left = house.provider_state()["left"]
        house.stage.client.post(f"/runs/{run_id}/cancel").raise_for_status()
        accepted = time.monotonic()
        wait_until(lambda seen=left: house.provider_state()["left"] > seen, "a cancelled call was not closed")
        found.cancel_ms.append(max(0.0, house.provider_state()["left_at"] - accepted) * 1000)


def _has_stalled(house: WaitingBench, seconds: float = 10.0) -> bool:
    """Whether no new call has arrived for `seconds`, so that the worker accepts no more."""
    last = house.provider_state()["last"]
    return last is not None and time.monotonic() - last > seconds


def _probe_age(house: WaitingBench) -> float:
    """Return the age of the last queue probe that came back from the nodes' queue, in seconds."""
    url = json.loads((house.stage.home / "up.json").read_text())["database_url"]
    database = Database(url, pool_size=1, application="bench")
    try:
        with database.transaction() as tx:
            sent = queue_probes.latest_return(tx, "nodes")
    finally:
        database.close()
    return (datetime.now(UTC) - sent).total_seconds() if sent is not None else float("inf")


def _open_files(pid: int) -> Iterator[str]:
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            yield os.readlink(file)


def result_table(found: WaitingResult) -> str:
    """Return the figures as a table."""
    assert found.waiting is not None
    assert found.after is not None
    cpu_ms = (found.after.cpu - found.before.cpu) * 1000 / found.calls
    rows = [
        ("waiting at once", f"{found.most_at_once} of {found.calls}"),
        ("RSS MB before / waiting / after", _format_sizes(found, lambda size: f"{size.rss:.0f}")),
        ("RSS MB at its peak", f"{found.after.peak:.0f}"),
        ("threads before / waiting / after", _format_sizes(found, lambda size: f"{size.threads}")),
        ("sockets before / waiting / after", _format_sizes(found, lambda size: f"{size.sockets}")),
        ("seconds until all wait", f"{found.until_all_wait:.2f}"),
        ("seconds from the release until all are done", f"{found.until_all_are_done:.2f}"),
        ("worker's CPU ms a call", f"{cpu_ms:.2f}"),
        ("a small run meanwhile, ms p50 / max", _format_spread(found.small_run_ms)),
        ("age of the last queue probe, ms", f"{found.probe_ms:.0f}"),
        ("cancel accepted to socket closed, ms p50 / max", _format_spread(found.cancel_ms)),
        ("ends", ", ".join(f"{count} {status}" for status, count in found.statuses.items())),
    ]
    return "\n".join([f"\n### {found.calls} calls, {found.way}\n", *(f"| {name} | {value} |" for name, value in rows)])


def _format_sizes(found: WaitingResult, figure: Callable[[ProcessSize], str]) -> str:
    return " / ".join(figure(size) for size in (found.before, found.waiting, found.after) if size is not None)


def _format_spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f} / {max(values):.0f}" if values else "-"


def main() -> None:
    """Measure, and print a table for each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=1000, help="calls that wait at once")
    parser.add_argument("--ways", nargs="*", default=CANVAS_WAYS, choices=CANVAS_WAYS)
    parser.add_argument("--threads", type=int, help=f"of the worker; by default one a call and {SPARE_THREADS} more")
    parser.add_argument(
        "--setting", action="append", default=[], metavar="NAME=VALUE", help="an environment variable of `easel up`"
    )
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    settings = {"EASEL_MAX_RUNNING": str(2 * options.calls)}
    settings["EASEL_WORKER_THREADS"] = str(options.threads or options.calls + SPARE_THREADS)
    settings |= dict(setting.split("=", 1) for setting in options.setting)
    if lack := missing_resource(options.calls, int(settings["EASEL_WORKER_THREADS"]), raise_open_file_limit()):
        parser.error(lack)
    folder = Path(tempfile.mkdtemp(prefix="easel-waiting-"))
    folder.chmod(0o711)  # as root, PostgreSQL runs under another account and must get through
    results: list[WaitingResult] = []
    try:
        with run_deployment(folder, server="bench.servers.holding_server", settings=settings) as stage:
            house = WaitingBench(stage, stage.child_pid("worker.tasks"))
            house.ask_provider("/release")
            # the first call imports the model's client
            house.await_end(house.start_run(house.create_agent(one_call_canvas())))
            for way in options.ways:
                results.append(measure_waiting(house, way, options.calls))
                print(result_table(results[-1]), flush=True)  # noqa: T201 (what this is for)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(found) for found in results], indent=1))


if __name__ == "__main__":
    main()
