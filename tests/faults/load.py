"""Runs of every canvas on a running `easel up`, over HTTP only: starts, answers and watches them, and compares each
with an undisturbed run of the same canvas.
"""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx2

from tests.faults.canvases import ANSWER, canvases, question
from tests.faults.easel_up import EaselUp, data_of
from tests.faults.outside import ExternalServices
from tests.faults.table import Tally

OVER = ("succeeded", "failed", "cancelled")
FACTS = ("node_finished", "message_end", "user_inputs", "workflow_finished")
UNDISTURBED = 9000  # the first number of the undisturbed runs
KINDS = 3  # of questions
QUIET_AFTER = 2.0  # seconds after which a run without events is read in detail
WORKER_LOST = "worker was lost"


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run: its counts of events, and its answer without the parts that differ per run."""

    status: str
    facts: Counter[tuple[str, str]]
    answer: str
    error: str = ""


@dataclass
class AcceptedRun:
    """A run that was accepted."""

    number: int
    canvas: str
    run_id: str
    status: str = "queued"
    token: Any = None
    since: float = field(default_factory=time.monotonic)  # when progress was last seen
    stall: float = 0.0


class Load:
    """Many runs on one `easel up`."""

    def __init__(self, up: EaselUp, external: ExternalServices) -> None:
        self.up = up
        self.external = external
        self.accepted: list[AcceptedRun] = []
        self.undisturbed: dict[tuple[str, int], RunResult] = {}
        self.expected_effects: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        client = up.client()
        self.agents = {name: create_agent(client, name, dsl) for name, dsl in canvases(external.url).items()}

    # -- undisturbed -------------------------------------------------------------------------------------------------
    def record_undisturbed_runs(self) -> None:
        """Run each canvas without faults, and store its result for comparison."""
        kinds = [(name, kind) for name in self.agents for kind in range(KINDS)]
        accepted = [self._post(UNDISTURBED + number, name, twice=False) for number, (name, _) in enumerate(kinds)]
        with self._watching(accepted):
            wait_until(lambda: all(each.status in OVER for each in accepted), 60, self._describe_state)
        client = self.up.client()
        for (name, kind), run in zip(kinds, accepted, strict=True):
            result = self.undisturbed[name, kind] = read_result(client, run)
            assert result.status == "succeeded", f"{name}: {result}"
            assert run.number % KINDS == kind
            self.expected_effects[name, kind] = len(self._effects_of(run))

    # -- disturbed ---------------------------------------------------------------------------------------------------
    def start(self, count: int, seconds: float) -> "threading.Thread":
        """Start so many runs in so many seconds, and watch all of them until `stop`."""
        self._background = self._watching(self.accepted)
        self._background.__enter__()
        thread = threading.Thread(target=self._post_all, args=(count, seconds), daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self._background.__exit__()

    @property
    def open_runs(self) -> int:
        """The number of runs that are not over."""
        return sum(each.status not in OVER for each in list(self.accepted))

    def _post_all(self, count: int, seconds: float) -> None:
        names = list(self.agents)
        began = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            for number in range(count):
                time.sleep(max(0.0, began + seconds * number / count - time.monotonic()))
                pool.submit(self._post_and_record, number, names[number % len(names)])

    def _post_and_record(self, number: int, canvas: str) -> None:
        accepted = self._post(number, canvas, twice=number % 5 == 0)
        with self._lock:
            self.accepted.append(accepted)

    def _post(self, number: int, canvas: str, *, twice: bool) -> AcceptedRun:
        """Start a run as a careful client does: with a key, and again until there is an answer."""
        path, key = f"/agents/{self.agents[canvas]}/runs", str(uuid4())

        def post() -> str:
            client = self.up.client()
            reply = retry_request(
                lambda: client.post(path, json={"query": question(number)}, headers={"Idempotency-Key": key})
            )
            assert reply.status_code == 202, reply.text
            return data_of(reply)["run_id"]

        if not twice:
            return AcceptedRun(number, canvas, post())
        with ThreadPoolExecutor(2) as pool:
            first, second = [pool.submit(post) for _ in range(2)]
        assert first.result() == second.result(), "one key has started two runs"
        return AcceptedRun(number, canvas, first.result())

    # -- watching ----------------------------------------------------------------------------------------------------
    def _watching(self, accepted: Sequence[AcceptedRun]) -> "_Background":
        """Watch these runs and answer their forms, in the background of a block."""
        return _Background(lambda: self._watch(accepted), lambda: self._answer(accepted))

    def _watch(self, accepted: Sequence[AcceptedRun]) -> None:
        client = self.up.client()
        known = {each.run_id: each for each in list(accepted)}
        pages = range(1, 2 + len(known) // 100)
        if not any(each.status not in OVER for each in known.values()):
            return
        now = time.monotonic()
        for page in pages:
            reply = client.get("/runs", params={"page": page, "page_size": 100})
            reply.raise_for_status()
            for row in data_of(reply)["runs"]:
                if (run := known.get(row["id"])) is not None and run.status not in OVER:
                    _note_progress(run, now, row["status"], row["last_event"])
        quiet = [each for each in known.values() if each.status == "running" and now - each.since > QUIET_AFTER]
        for run in quiet[:20]:
            reply = client.get(f"/runs/{run.run_id}")
            reply.raise_for_status()
            row = data_of(reply)
            _note_progress(run, time.monotonic(), row["status"], row["last_event"], _attempts(row["activations"]))

    def _answer(self, accepted: Sequence[AcceptedRun]) -> None:
        client = self.up.client()
        for run in list(accepted):
            if run.status == "waiting":
                reply = client.post(f"/runs/{run.run_id}/resume", json=ANSWER)
                assert reply.status_code in (202, 409) or reply.status_code >= 500, reply.text

    def _describe_state(self) -> str:
        return f"{Counter(each.status for each in self.accepted)}\n{self.up.log_tail()}"

    # -- results -----------------------------------------------------------------------------------------------------
    def tally(self) -> tuple[Tally, list[str]]:
        """Return the tally of all runs, and a line for each run with a problem."""
        client = self.up.client()
        tally = Tally(started=len(self.accepted))
        wrong: list[str] = []
        for run in self.accepted:
            result = read_result(client, run)
            expected = self.undisturbed[run.canvas, run.number % KINDS]
            tally.stall = max(tally.stall, run.stall)
            tally.ended += result.status in OVER
            poisoned = result.status == "failed" and WORKER_LOST in result.error
            tally.poisoned += poisoned
            twice = sum((result.facts - expected.facts).values())
            tally.committed_twice += twice
            is_lost = not poisoned and (result.status, result.answer) != ("succeeded", expected.answer)
            is_lost = is_lost or (not poisoned and bool(expected.facts - result.facts))
            tally.lost += is_lost
            keys = self._effects_of(run)
            more = max(0, len(keys) - self.expected_effects[run.canvas, run.number % KINDS])
            tally.effects += self.expected_effects[run.canvas, run.number % KINDS]
            tally.effects_doubled += more
            tally.effects_repeated += sum(map(len, keys.values())) - len(keys)
            if poisoned or twice or is_lost or more:
                wrong.append(f"{run.canvas} {run.run_id} {question(run.number)!r}: {result}\n  expected {expected}")
        tally.effects_doubled += len(self.external.keys_with_two_bodies())
        known = {each.run_id for each in self.accepted}
        expected_runs = {name: sum(each.canvas == name for each in self.accepted) + KINDS for name in self.agents}
        for name, agent in self.agents.items():
            stored = data_of(client.get("/runs", params={"agent_id": agent, "page_size": 1}))["total"]
            tally.requests_doubled += stored - expected_runs[name]
        tally.requests_doubled += len(self.accepted) - len(known)
        return tally, wrong

    def _effects_of(self, run: AcceptedRun) -> Mapping[str | None, Sequence[Any]]:
        return self.external.effects_by_key(f"q{run.number:04}")


class _Background:
    """Jobs that are repeated until the block ends. HTTP errors are ignored."""

    def __init__(self, *jobs: Callable[[], None]) -> None:
        self._stopping = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._repeat, args=(job,), daemon=True) for job in jobs]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)
        assert not self._errors, self._errors

    def _repeat(self, job: Callable[[], None]) -> None:
        while not self._stopping.wait(0.25):
            try:
                job()
            except httpx2.HTTPError:
                continue
            except BaseException as error:
                self._errors.append(error)
                return


def create_agent(client: httpx2.Client, name: str, dsl: Mapping[str, Any]) -> str:
    """Create an agent with this canvas; return its id."""
    reply = client.post("/agents", json={"title": f"{name} {uuid4()}", "dsl": dsl})
    assert reply.status_code < 300, reply.text
    return data_of(reply)["id"]


def retry_request(send: Callable[[], httpx2.Response], seconds: float = 60.0) -> httpx2.Response:
    """Send a request until it is answered without a server error."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            reply = send()
            if reply.status_code < 500:
                return reply
        except httpx2.HTTPError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def read_result(client: httpx2.Client, run: AcceptedRun) -> RunResult:
    """Read the result of a run, from its row and all its events."""
    row = data_of(retry_request(lambda: client.get(f"/runs/{run.run_id}")))
    events: list[Mapping[str, Any]] = []
    after = "0"
    while True:
        result = data_of(
            retry_request(lambda after=after: client.get(f"/runs/{run.run_id}/events", params={"after": after}))
        )
        if not result["events"]:
            break
        events += result["events"]
        after = result["position"]
    numbers = [each["seq"] for each in events if "seq" in each]
    assert numbers == list(range(1, len(numbers) + 1)), f"run {run.run_id} has gaps or repetitions: {numbers}"
    facts = Counter(
        (each["event"], str(each["data"].get("component_id", ""))) for each in events if each.get("event") in FACTS
    )
    mark = question(run.number)[:5]
    answer = re.sub(r"\b[0-9a-f]{8}\b", "#", row["answer"]).replace(mark, "q")
    return RunResult(row["status"], facts, answer, row["error"] or "")


def wait_until(fact: Callable[[], bool], seconds: float, describe_state: Callable[[], str]) -> None:
    """Wait for a fact, with a deadline."""
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {describe_state()}"
        time.sleep(0.05)


def _attempts(activations: Iterable[Mapping[str, Any]]) -> int:
    return sum(each["attempt"] + _attempts(each["activations"]) for each in activations)


def _note_progress(run: AcceptedRun, now: float, status: str, last_event: int, attempts: int | None = None) -> None:
    """Record the state of a run; the wait for a form does not count as a stall."""
    known = run.token or (None, None)
    token = (last_event, known[1] if attempts is None else attempts)
    has_moved = run.status != status or token[0] != known[0] or (known[1] is not None and token[1] != known[1])
    if run.status != "waiting":
        run.stall = max(run.stall, now - run.since)
    if has_moved or run.status == "waiting":
        run.since = now
    if token[0] != known[0]:
        token = (last_event, None if attempts is None else attempts)
    run.status, run.token = status, token
