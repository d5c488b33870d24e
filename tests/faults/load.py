"""Runs of every canvas on a running `easel up`, over HTTP only: started, answered, watched, and held against what an
undisturbed run of the same canvas tells.
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
from tests.faults.outside import Outside
from tests.faults.table import Tally

OVER = ("succeeded", "failed", "cancelled")
FACTS = ("node_finished", "message_end", "user_inputs", "workflow_finished")
UNDISTURBED = 9000  # the first number of a run that others are held against
KINDS = 3  # of questions
QUIET = 2.0  # seconds after which a run that tells nothing is looked at more closely
STRUCK = "worker was lost"


@dataclass(frozen=True, slots=True)
class Told:
    """What a run has told in the end: how often which node finished, and the answer without what is its own."""

    status: str
    facts: Counter[tuple[str, str]]
    answer: str
    error: str = ""


@dataclass
class Posted:
    """A run that was accepted."""

    number: int
    canvas: str
    run_id: str
    status: str = "queued"
    token: Any = None
    since: float = field(default_factory=time.monotonic)  # when it was last seen to move
    stall: float = 0.0


class Load:
    """Many runs on one `easel up`."""

    def __init__(self, up: EaselUp, world: Outside) -> None:
        self.up = up
        self.world = world
        self.posted: list[Posted] = []
        self.undisturbed: dict[tuple[str, int], Told] = {}
        self.wanted_effects: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        client = up.client()
        self.agents = {name: made(client, name, dsl) for name, dsl in canvases(world.url).items()}

    # -- undisturbed -------------------------------------------------------------------------------------------------
    def learn(self) -> None:
        """Run each canvas once in peace, and remember what that looks like."""
        kinds = [(name, kind) for name in self.agents for kind in range(KINDS)]
        posted = [self._post(UNDISTURBED + number, name, twice=False) for number, (name, _) in enumerate(kinds)]
        with self._going_on(posted):
            until(lambda: all(it.status in OVER for it in posted), 60, self._how_it_is)
        client = self.up.client()
        for (name, kind), one in zip(kinds, posted, strict=True):
            told = self.undisturbed[name, kind] = told_by(client, one)
            assert told.status == "succeeded", f"{name}: {told}"
            assert one.number % KINDS == kind
            self.wanted_effects[name, kind] = len(self._keys(one))

    # -- disturbed ---------------------------------------------------------------------------------------------------
    def begin(self, count: int, seconds: float) -> "threading.Thread":
        """Start so many runs in so many seconds, and go on watching all of them until `end`."""
        self._watching = self._going_on(self.posted)
        self._watching.__enter__()
        thread = threading.Thread(target=self._post_all, args=(count, seconds), daemon=True)
        thread.start()
        return thread

    def end(self) -> None:
        self._watching.__exit__()

    @property
    def open(self) -> int:
        """How many runs go on."""
        return sum(it.status not in OVER for it in list(self.posted))

    def _post_all(self, count: int, seconds: float) -> None:
        names = list(self.agents)
        began = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            for number in range(count):
                time.sleep(max(0.0, began + seconds * number / count - time.monotonic()))
                pool.submit(self._post_and_keep, number, names[number % len(names)])

    def _post_and_keep(self, number: int, canvas: str) -> None:
        posted = self._post(number, canvas, twice=number % 5 == 0)
        with self._lock:
            self.posted.append(posted)

    def _post(self, number: int, canvas: str, *, twice: bool) -> Posted:
        """Start a run as a careful client does: with a key, and again until somebody answers."""
        path, key = f"/agents/{self.agents[canvas]}/runs", str(uuid4())

        def post() -> str:
            client = self.up.client()
            reply = patiently(
                lambda: client.post(path, json={"query": question(number)}, headers={"Idempotency-Key": key})
            )
            assert reply.status_code == 202, reply.text
            return data_of(reply)["run_id"]

        if not twice:
            return Posted(number, canvas, post())
        with ThreadPoolExecutor(2) as pool:
            first, second = [pool.submit(post) for _ in range(2)]
        assert first.result() == second.result(), "one key has started two runs"
        return Posted(number, canvas, first.result())

    # -- watching ----------------------------------------------------------------------------------------------------
    def _going_on(self, posted: Sequence[Posted]) -> "_Background":
        """While this lasts somebody watches these runs, and somebody answers their forms."""
        return _Background(lambda: self._watch(posted), lambda: self._answer(posted))

    def _watch(self, posted: Sequence[Posted]) -> None:
        client = self.up.client()
        known = {it.run_id: it for it in list(posted)}
        pages = range(1, 2 + len(known) // 100)
        if not any(it.status not in OVER for it in known.values()):
            return
        now = time.monotonic()
        for page in pages:
            reply = client.get("/runs", params={"page": page, "page_size": 100})
            reply.raise_for_status()
            for row in data_of(reply)["runs"]:
                if (one := known.get(row["id"])) is not None and one.status not in OVER:
                    _moved(one, now, row["status"], row["last_event"])
        quiet = [it for it in known.values() if it.status == "running" and now - it.since > QUIET]
        for one in quiet[:20]:
            reply = client.get(f"/runs/{one.run_id}")
            reply.raise_for_status()
            row = data_of(reply)
            _moved(one, time.monotonic(), row["status"], row["last_event"], _attempts(row["activations"]))

    def _answer(self, posted: Sequence[Posted]) -> None:
        client = self.up.client()
        for one in list(posted):
            if one.status == "waiting":
                reply = client.post(f"/runs/{one.run_id}/resume", json=ANSWER)
                assert reply.status_code in (202, 409) or reply.status_code >= 500, reply.text

    def _how_it_is(self) -> str:
        return f"{Counter(it.status for it in self.posted)}\n{self.up.told()}"

    # -- in the end --------------------------------------------------------------------------------------------------
    def tally(self) -> tuple[Tally, list[str]]:
        """What became of all runs, and a line for each in which something is wrong."""
        client = self.up.client()
        tally = Tally(started=len(self.posted))
        wrong: list[str] = []
        for one in self.posted:
            told = told_by(client, one)
            expected = self.undisturbed[one.canvas, one.number % KINDS]
            tally.stall = max(tally.stall, one.stall)
            tally.ended += told.status in OVER
            struck = told.status == "failed" and STRUCK in told.error
            tally.struck += struck
            twice = sum((told.facts - expected.facts).values())
            tally.committed_twice += twice
            is_lost = not struck and (told.status, told.answer) != ("succeeded", expected.answer)
            is_lost = is_lost or (not struck and bool(expected.facts - told.facts))
            tally.lost += is_lost
            keys = self._keys(one)
            more = max(0, len(keys) - self.wanted_effects[one.canvas, one.number % KINDS])
            tally.effects += self.wanted_effects[one.canvas, one.number % KINDS]
            tally.effects_doubled += more
            tally.effects_repeated += sum(map(len, keys.values())) - len(keys)
            if struck or twice or is_lost or more:
                wrong.append(f"{one.canvas} {one.run_id} {question(one.number)!r}: {told}\n  wanted {expected}")
        tally.effects_doubled += len(self.world.keys_with_two_bodies())
        known = {it.run_id for it in self.posted}
        wanted = {name: sum(it.canvas == name for it in self.posted) + KINDS for name in self.agents}
        for name, agent in self.agents.items():
            there = data_of(client.get("/runs", params={"agent_id": agent, "page_size": 1}))["total"]
            tally.requests_doubled += there - wanted[name]
        tally.requests_doubled += len(self.posted) - len(known)
        return tally, wrong

    def _keys(self, one: Posted) -> Mapping[str | None, Sequence[Any]]:
        return self.world.done(f"q{one.number:04}")


class _Background:
    """Jobs that are done again and again until the block ends. That the API is away now and then is no error."""

    def __init__(self, *jobs: Callable[[], None]) -> None:
        self._ending = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._repeat, args=(job,), daemon=True) for job in jobs]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(30)
        assert not self._errors, self._errors

    def _repeat(self, job: Callable[[], None]) -> None:
        while not self._ending.wait(0.25):
            try:
                job()
            except httpx2.HTTPError:
                continue
            except BaseException as error:
                self._errors.append(error)
                return


def made(client: httpx2.Client, name: str, dsl: Mapping[str, Any]) -> str:
    """A new agent with this canvas."""
    reply = client.post("/agents", json={"title": f"{name} {uuid4()}", "dsl": dsl})
    assert reply.status_code < 300, reply.text
    return data_of(reply)["id"]


def patiently(ask: Callable[[], httpx2.Response], seconds: float = 60.0) -> httpx2.Response:
    """The answer of somebody who may be away for a while."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            reply = ask()
            if reply.status_code < 500:
                return reply
        except httpx2.HTTPError:
            if time.monotonic() > give_up:
                raise
        time.sleep(0.2)


def told_by(client: httpx2.Client, one: Posted) -> Told:
    """What a run has told, from its beginning."""
    row = data_of(patiently(lambda: client.get(f"/runs/{one.run_id}")))
    events: list[Mapping[str, Any]] = []
    after = "0"
    while True:
        told = data_of(patiently(lambda after=after: client.get(f"/runs/{one.run_id}/events", params={"after": after})))
        if not told["events"]:
            break
        events += told["events"]
        after = told["position"]
    numbers = [it["seq"] for it in events if "seq" in it]
    assert numbers == list(range(1, len(numbers) + 1)), f"run {one.run_id} has gaps or repetitions: {numbers}"
    facts = Counter((it["event"], str(it["data"].get("component_id", ""))) for it in events if it.get("event") in FACTS)
    own = question(one.number)[:5]
    answer = re.sub(r"\b[0-9a-f]{8}\b", "#", row["answer"]).replace(own, "q")
    return Told(row["status"], facts, answer, row["error"] or "")


def until(fact: Callable[[], bool], seconds: float, how_it_is: Callable[[], str]) -> None:
    """Wait for a fact, with a deadline."""
    give_up = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < give_up, f"not within {seconds:g} s: {how_it_is()}"
        time.sleep(0.05)


def _attempts(activations: Iterable[Mapping[str, Any]]) -> int:
    return sum(it["attempt"] + _attempts(it["activations"]) for it in activations)


def _moved(one: Posted, now: float, status: str, last_event: int, attempts: int | None = None) -> None:
    """Note what a run looks like; a person who has not answered yet is no stall of ours."""
    known = one.token or (None, None)
    token = (last_event, known[1] if attempts is None else attempts)
    has_moved = one.status != status or token[0] != known[0] or (known[1] is not None and token[1] != known[1])
    if one.status != "waiting":
        one.stall = max(one.stall, now - one.since)
    if has_moved or one.status == "waiting":
        one.since = now
    if token[0] != known[0]:
        token = (last_event, None if attempts is None else attempts)
    one.status, one.token = status, token
