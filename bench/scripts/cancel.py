"""The time from an accepted cancel until the provider's socket is closed: `python -m bench.scripts.cancel`.

The script starts `easel up` with its own home and a model provider that writes a token every 50 ms. Runs stream side by
side and are cancelled one after another. The provider reports when each socket was closed, and how many tokens it wrote
after the cancel was accepted (the HTTP reply had arrived, the command had returned, the key was set). Ways: `http`,
`cli`, `key` (a bare Redis key), `silent` (by HTTP while Redis accepts connections and does not answer), `gone` (by HTTP
right after Redis was killed).
"""

import argparse
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import redis

from bench.fixtures.deployment import Deployment, run_deployment, wait_until

WAYS = ("http", "cli", "key", "silent", "gone")


@dataclass(frozen=True, slots=True)
class MeasuredCancel:
    """One cancel: when it was requested and accepted, and the provider's record."""

    requested: float
    accepted: float
    closed: float
    tokens_after: int

    @property
    def seconds(self) -> float:
        """Seconds from the acceptance to the closed socket; 0 if the socket was closed first."""
        return max(0.0, self.closed - self.accepted)


def cancel_by_http(stage: Deployment, run_id: str, session_id: str) -> None:
    stage.client.post(f"/runs/{run_id}/cancel").raise_for_status()


def cancel_by_command(stage: Deployment, run_id: str, session_id: str) -> None:
    stage.run_command("cancel", run_id)


def cancel_by_key(stage: Deployment, run_id: str, session_id: str) -> None:
    with redis.Redis.from_url(stage.redis_url()) as client:
        client.set(f"{run_id if hash(run_id) % 2 else session_id}-cancel", "x", ex=60)


def measure_cancels(
    stage: Deployment, cancel: Callable[[Deployment, str, str], None], runs: int, at_once: int
) -> list[MeasuredCancel]:
    """Cancel `runs` runs, each after it has begun to stream, `at_once` side by side."""

    def one(_: int) -> MeasuredCancel:
        run_id, session_id, name = stage.start_streaming_run()
        return _measure_one(stage, cancel, run_id, session_id, name)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, range(runs)))


def measure_without_redis(stage: Deployment, runs: int, at_once: int, *, is_killed: bool) -> list[MeasuredCancel]:
    """Cancel batches of runs while Redis is stopped, or right after it was killed; it comes back between batches."""
    found: list[MeasuredCancel] = []
    while len(found) < runs:
        with ThreadPoolExecutor(at_once) as pool:
            streaming = [one.result() for one in [pool.submit(stage.start_streaming_run) for _ in range(at_once)]]
            pid = stage.redis_pid()
            os.kill(pid, signal.SIGKILL if is_killed else signal.SIGSTOP)
            try:
                stopping = [pool.submit(_measure_one, stage, cancel_by_http, *one) for one in streaming]
                found += [one.result() for one in stopping]
            finally:
                if not is_killed:
                    os.kill(pid, signal.SIGCONT)
        wait_until(stage.is_redis_up, "Redis did not come back")
    return found


def _measure_one(
    stage: Deployment, cancel: Callable[[Deployment, str, str], None], run_id: str, session_id: str, name: str
) -> MeasuredCancel:
    requested = time.monotonic()
    cancel(stage, run_id, session_id)
    accepted = time.monotonic()
    stream = stage.await_stream_close(name)
    after = sum(1 for moment in stream["tokens"] if moment > accepted)
    return MeasuredCancel(requested, accepted, stream["closed"], after)


def figures_line(way: str, stops: list[MeasuredCancel]) -> str:
    """Return one line of figures."""
    took = sorted(stop.seconds * 1000 for stop in stops)
    waited = sorted((stop.accepted - stop.requested) * 1000 for stop in stops)
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    tokens = sorted(stop.tokens_after for stop in stops)
    return (
        f"{way:7} n={len(took):4}  accepted to closed ms: p50 {cuts[49]:7.1f}  p95 {cuts[94]:7.1f}  "
        f"p99 {cuts[98]:7.1f}  max {took[-1]:7.1f}   tokens written after: {statistics.mean(tokens):.2f} "
        f"(max {tokens[-1]})   asked to accepted ms: p50 {statistics.median(waited):.0f}  max {waited[-1]:.0f}"
    )


def main() -> None:
    """Measure, and print one line for each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="cancels by HTTP and without Redis; by command a tenth")
    parser.add_argument("--at-once", type=int, default=20, help="runs that stream side by side")
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="easel-cancel-"))
    folder.chmod(0o711)  # as root, PostgreSQL runs under another account and must get through
    try:
        with run_deployment(folder) as stage:
            # the first calls import the model's client
            measure_cancels(stage, cancel_by_http, options.at_once, options.at_once)
            for way in options.ways:
                if way in ("silent", "gone"):
                    stops = measure_without_redis(stage, options.runs, options.at_once, is_killed=way == "gone")
                else:
                    cancel = {"http": cancel_by_http, "cli": cancel_by_command, "key": cancel_by_key}[way]
                    stops = measure_cancels(
                        stage,
                        cancel,
                        max(2, options.runs // (10 if way == "cli" else 1)),
                        min(options.at_once, 2) if way == "cli" else options.at_once,
                    )
                print(figures_line(way, stops), flush=True)  # noqa: T201 (what this is for)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
