"""One rate limit shared by many workers: `python -m bench.scripts.rate_limiter --minutes 3 --workers 8`.

The script starts `easel up` with its own home, more workers beside it, and a model provider with a strict rate limit
(`bench.servers.limited_server`). It starts more runs of begin -> LLM -> Message than the limit allows, so that most of
them wait all the time. From the second minute on it counts refused calls, the used share of the limit, and the attempts
that workers hold meanwhile.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from sqlalchemy import text

from bench.fixtures.deployment import TIMEOUT, Deployment, environment_of, run_deployment
from store.db.database import Database

MINUTE = 60.0
STARTERS = 4  # threads that start runs
WORDS_PER_QUERY = 40
_COUNT_ATTEMPTS = text("""
    select count(*) filter (where status = 'running'),
        count(*) filter (where status = 'ready' and not_before > now())
    from activations where status in ('running', 'ready')
""")
SURPLUS = 1.25  # runs, relative to those that the limit allows


@dataclass(frozen=True, slots=True)
class RateLimitResult:
    """The result of one measurement, for the time after the first minute."""

    workers: int
    minutes: float
    way: str
    sent: int
    refused: int
    refused_share: float
    used_requests: float  # share of the limit
    used_tokens: float
    most_in_a_minute: int
    running: int  # attempts that workers held, the average of some samples
    waiting: int  # attempts that waited without a thread, the average of the same samples


def rate_limit_result(
    record: Any, workers: int, minutes: float, way: str, limits: tuple[int, int], samples: Sequence[Any]
) -> RateLimitResult:
    """Return the result, from the provider's record, for the time from a minute after the first call on."""
    admitted: list[tuple[float, int]] = [(at, tokens) for at, tokens in record["admitted"]]
    began = admitted[0][0] + MINUTE
    ends = admitted[0][0] + minutes * MINUTE
    counted = [(at, tokens) for at, tokens in admitted if began <= at < ends]
    refused = sum(began <= at < ends for at in record["refused"])
    requests, tokens = limits
    return RateLimitResult(
        workers=workers,
        minutes=minutes,
        way=way,
        sent=len(counted) + refused,
        refused=refused,
        refused_share=refused / max(1, len(counted) + refused),
        used_requests=len(counted) / (requests * (minutes - 1)),
        used_tokens=sum(spent for _, spent in counted) / (tokens * (minutes - 1)),
        most_in_a_minute=max(sum(at <= other < at + MINUTE for other, _ in admitted) for at, _ in admitted),
        running=round(sum(look[0] for look in samples) / max(1, len(samples))),
        waiting=round(sum(look[1] for look in samples) / max(1, len(samples))),
    )


def measure_rate_limit(workers: int, minutes: float, way: str, limits: tuple[int, int], words: int) -> RateLimitResult:
    """Run one measurement."""
    requests, tokens = limits
    options = ["--requests", str(requests), "--tokens", str(tokens), "--way", way, "--words", str(words)]
    settings = {"EASEL_WORKER_THREADS": "8", "EASEL_WORKER_POOL": "3"}
    with tempfile.TemporaryDirectory(prefix="easel-rate-limiter-") as place:
        folder = Path(place)
        with (
            run_deployment(
                folder,
                server="bench.servers.limited_server",
                options=options,
                settings=settings,
                limits={"requests_per_minute": requests, "tokens_per_minute": tokens},
            ) as stage,
            _more_workers(stage, workers - 1, {**settings, "EASEL_MODELS_FILE": str(folder / "models.toml")}),
        ):
            calls = int(requests * minutes * SURPLUS) + 1
            began = time.monotonic()
            with ThreadPoolExecutor(STARTERS) as starters:
                list(starters.map(partial(_start, stage), range(calls)))
            samples: list[tuple[int, int]] = []
            while (
                not (record := _read_record(stage))["admitted"]
                or time.monotonic() < record["admitted"][0][0] + minutes * MINUTE
            ):
                if time.monotonic() - began > minutes * MINUTE + TIMEOUT:
                    raise RuntimeError("The calls did not end in time.")
                time.sleep(5)
                samples.append(_count_attempts(stage))
            return rate_limit_result(record, workers, minutes, way, limits, samples)


@contextmanager
def _more_workers(stage: Deployment, number: int, settings: dict[str, str]) -> Generator[None]:
    environment = {**environment_of(stage.home), **settings}
    started = [
        subprocess.Popen(  # noqa: S603 (ours)
            [sys.executable, "-m", "cli", "worker", "-n", f"more{each}@%h"],
            env=environment,
            cwd=stage.home.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for each in range(number)
    ]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(TIMEOUT)


def _start(stage: Deployment, number: int) -> None:
    query = " ".join(["word"] * WORDS_PER_QUERY) + f" {number}"
    stage.client.post(f"/agents/{stage.agent_id}/runs", json={"query": query}).raise_for_status()


def _read_record(stage: Deployment) -> Any:
    with urlopen(f"http://127.0.0.1:{stage.provider}/told") as reply:
        return json.load(reply)


def _count_attempts(stage: Deployment) -> tuple[int, int]:
    """Return the number of running attempts, and of those that wait without a thread."""
    url = json.loads((stage.home / "up.json").read_text())["database_url"]
    database = Database(url, pool_size=1, application="easel-bench")
    try:
        with database.transaction() as tx:
            row = tx.rows(_COUNT_ATTEMPTS)[0]
            return row[0], row[1]
    finally:
        database.close()


def main() -> None:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.scripts.rate_limiter")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=20, help="tokens of an answer")
    parser.add_argument("--way", choices=("sliding", "fixed"), default="sliding")
    options = parser.parse_args()
    result = measure_rate_limit(
        options.workers, options.minutes, options.way, (options.requests, options.tokens), options.words
    )
    print(json.dumps(asdict(result), indent=1))  # noqa: T201 (a script)


if __name__ == "__main__":
    main()
