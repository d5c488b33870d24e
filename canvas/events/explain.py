"""Explanation of a run's state: what the run waits for, who is responsible, and until when.

It is computed from facts that the store loads. Every open run waits for something (a lease, a queued message, a time, a
free slot, a person); a run that waits for nothing is a bug in Easel, and the explanation says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from math import inf
from typing import Any

from canvas.budget import budget_stop
from canvas.graph.canvas import Canvas
from canvas.ids import ActivationId, RunId
from canvas.state.run_state import REUSE_RULES_VERSION, ActivationStatus, RunStatus

TICK = timedelta(seconds=1)  # the sweeper checks everything once per tick
# a probe is sent every second; if the last returned one is older, no worker receives
MAX_PROBE_AGE = timedelta(seconds=15)
MIN_UNINTERRUPTED = timedelta(seconds=6)  # a sweeper must have seen the database for so long before it ends a lease
MESSAGE_LOST_AFTER = timedelta(seconds=2)  # a task message is lost if a probe sent so much later has come back


class WaitsFor(StrEnum):
    """What a run waits for. The values are part of the API."""

    OVER = "over"  # nothing: the run is over
    SESSION = "session"  # another run of its session
    WORK = "work"  # a running node
    CANCELLATION = "letting_go"  # a running node whose cancellation was requested
    EXPIRED_LEASE = "silent_lease"  # a worker whose lease has expired
    REPORT = "report"  # an advance that applies a report
    WORKER = "worker"  # a worker that receives the task message
    TIME = "time"  # a point in time
    RUN_SLOT = "place"  # a free run slot (`max_running`)
    PERSON = "person"  # an answer to a form
    BUDGET = "budget"  # a higher budget
    NEWER_RULES = "newer_rules"  # a release that knows its routing rules
    NOTHING = "nobody"  # nothing, although it is not over: a bug


@dataclass(frozen=True, slots=True)
class OpenActivation:
    """An activation that is not over."""

    id: ActivationId
    node_id: str
    component: str
    scope: str
    status: ActivationStatus
    attempt: int
    crash_count: int
    worker: str | None
    lease_until: datetime | None
    not_before: datetime
    enqueued_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    postponed: str | None = None  # what a postponed activation waits for, in words that follow the node's name


@dataclass(frozen=True, slots=True)
class BlockingRun:
    """The active run of the session, or the one that is queued before this run."""

    run_id: RunId
    status: RunStatus


@dataclass(frozen=True, slots=True)
class WaitFacts:
    """The rows of a run at one moment; times are by the database's clock."""

    run_id: RunId
    status: RunStatus
    rules_version: int
    is_cancel_requested: bool
    error: str
    created_at: datetime
    finished_at: datetime | None
    expires_at: datetime | None
    now: datetime
    max_running: int = 256
    forms: Mapping[ActivationId, tuple[Mapping[str, Any], str]] = field(default_factory=dict)  # inputs, tips
    open_activations: Sequence[OpenActivation] = ()  # of a large run not all
    counts: Mapping[ActivationStatus, int] = field(default_factory=dict)  # of all open activations
    blocking_run: BlockingRun | None = None
    last_probe_at: datetime | None = None  # when the last queue probe that has returned was sent
    swept_since: datetime | None = None
    swept_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that a run waits for."""

    kind: WaitsFor
    sentence: str
    owner: str | None = None
    since: datetime | None = None
    until: datetime | None = None  # the latest time of the wait's end, if it is known
    of: OpenActivation | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run is in its state: its main wait, and others besides."""

    run_id: RunId
    status: RunStatus
    wait: Wait
    also: tuple[Wait, ...] = ()


def explain(facts: WaitFacts, canvas: Canvas, limit_of: Callable[[str], float]) -> Explanation:
    """Explain the state of a run. `limit_of` returns the seconds that an attempt of a component may take."""
    waits = _Waits(facts, canvas, limit_of)
    if facts.status.is_over:
        return Explanation(facts.run_id, facts.status, waits.over())
    if facts.status is RunStatus.QUEUED:
        return Explanation(facts.run_id, facts.status, waits.session())
    of_activations = sorted(
        (waits.of_activation(one) for one in facts.open_activations if one.status in _ORDER), key=_rank
    )
    external = [wait for wait in of_activations if wait.kind in _EXTERNAL]
    internal = [wait for wait in of_activations if wait.kind not in _EXTERNAL]
    first = external if facts.status is RunStatus.WAITING else internal
    others = internal if facts.status is RunStatus.WAITING else external
    if not first:
        return Explanation(facts.run_id, facts.status, waits.nothing(), tuple(others))
    if facts.rules_version > REUSE_RULES_VERSION:
        return Explanation(facts.run_id, facts.status, waits.newer_rules(), (*first, *others))
    return Explanation(facts.run_id, facts.status, first[0], (*first[1:], *others))


def explain_refusal(facts: WaitFacts) -> Explanation:
    """Explain a run whose start was refused; it has no canvas."""
    sentence = f"The start was refused, and no node has run: {_one_line(facts.error)}"
    wait = Wait(WaitsFor.OVER, sentence, since=facts.finished_at, detail=_present(error=facts.error))
    return Explanation(facts.run_id, facts.status, wait)


def explanation_json(explanation: Explanation, canvas: Canvas | None) -> dict[str, Any]:
    """Return an explanation as JSON. Without a canvas (a refused start) it has no node names."""
    return {
        "run_id": explanation.run_id.hex,
        "status": explanation.status.value,
        **_wait_json(explanation.wait, canvas),
        "also": [_wait_json(wait, canvas) for wait in explanation.also],
    }


_ORDER = (
    ActivationStatus.RUNNING,
    ActivationStatus.REPORTED,
    ActivationStatus.READY,
    ActivationStatus.QUEUED,
    ActivationStatus.WAITING,
)
_RANKS = {
    kind: rank
    for rank, kind in enumerate(
        (
            WaitsFor.CANCELLATION,
            WaitsFor.WORK,
            WaitsFor.EXPIRED_LEASE,
            WaitsFor.REPORT,
            WaitsFor.WORKER,
            WaitsFor.TIME,
            WaitsFor.RUN_SLOT,
            WaitsFor.BUDGET,
            WaitsFor.PERSON,
        )
    )
}
_EXTERNAL = (WaitsFor.BUDGET, WaitsFor.PERSON)


def _rank(wait: Wait) -> tuple[int, datetime, ActivationId]:
    assert wait.of is not None
    return _RANKS[wait.kind], wait.since or wait.of.created_at, wait.of.id


@dataclass(frozen=True, slots=True)
class _Waits:
    """The waits of one run, with their sentences."""

    facts: WaitFacts
    canvas: Canvas
    limit_of: Callable[[str], float]

    # -- of a run as a whole ------------------------------------------------------------------------------------
    def over(self) -> Wait:
        how = {
            RunStatus.SUCCEEDED: "The run has succeeded.",
            RunStatus.CANCELLED: "The run was cancelled.",
        }
        error = _one_line(self.facts.error)
        sentence = how.get(self.facts.status, f"The run has failed{': ' + error if error else '.'}")
        return Wait(WaitsFor.OVER, sentence, since=self.facts.finished_at, detail=_present(error=self.facts.error))

    def session(self) -> Wait:
        facts, ahead = self.facts, self.facts.blocking_run
        if ahead is None or ahead.run_id == facts.run_id:
            sentence = f"It is the next run of its session, and {self._sweeper_text('starts it', 10)}."
            return Wait(WaitsFor.SESSION, sentence, owner="the sweeper", since=facts.created_at)
        return Wait(
            WaitsFor.SESSION,
            f"It is queued behind run {ahead.run_id.hex} of its session, which is {ahead.status.value}.",
            owner=f"run {ahead.run_id.hex}",
            since=facts.created_at,
            detail={"run_id": ahead.run_id.hex, "status": ahead.status.value},
        )

    def newer_rules(self) -> Wait:
        sentence = (
            f"It was started under newer routing rules ({self.facts.rules_version}) than this release knows "
            f"({REUSE_RULES_VERSION}): a scheduler or worker of the newer release must continue it."
        )
        return Wait(
            WaitsFor.NEWER_RULES,
            sentence,
            owner="the newer release",
            detail={"rules_version": self.facts.rules_version},
        )

    def nothing(self) -> Wait:
        counts = {status.value: number for status, number in self.facts.counts.items() if number}
        open_counts = ", ".join(f"{number} {status}" for status, number in counts.items()) or "none"
        sentence = (
            f"Nothing will continue it, which is a bug in Easel: the run is {self.facts.status.value}, and its open "
            f"activations are: {open_counts}. Report this with the rows of the run, then cancel it."
        )
        return Wait(WaitsFor.NOTHING, sentence, detail={"alive": counts})

    # -- of one activation ----------------------------------------------------------------------------------------
    def of_activation(self, one: OpenActivation) -> Wait:
        match one.status:
            case ActivationStatus.RUNNING if one.lease_until is None or one.lease_until < self.facts.now:
                return self._lost_worker(one)
            case ActivationStatus.RUNNING if self.facts.is_cancel_requested:
                return self._cancelling(one)
            case ActivationStatus.RUNNING:
                return self._at_work(one)
            case ActivationStatus.REPORTED:
                step = self._sweeper_text("advances the run", 2) + (
                    " if no other process does" if self._is_swept else ""
                )
                sentence = f"{self._node(one)} has reported, and {step}."
                return Wait(WaitsFor.REPORT, sentence, owner="a scheduler", since=one.finished_at, of=one)
            case ActivationStatus.READY if one.not_before > self.facts.now:
                due = f"is due in {_span(one.not_before - self.facts.now)}"
                sentence = f"{self._node(one)} {f'{one.postponed}, and {due}' if one.postponed else due}."
                return Wait(WaitsFor.TIME, sentence, "the clock", one.created_at, one.not_before, of=one)
            case ActivationStatus.READY:
                return self._ready(one)
            case ActivationStatus.QUEUED:
                most = self.facts.max_running
                sentence = f"{self._node(one)} waits for one of the {most} slots of the run, which are all in use."
                detail = {"max_running": most, "queued": self.facts.counts.get(ActivationStatus.QUEUED, 0)}
                return Wait(WaitsFor.RUN_SLOT, sentence, "the nodes at work", one.created_at, of=one, detail=detail)
            case _:
                return self._form(one)

    def _at_work(self, one: OpenActivation) -> Wait:
        since, limit = one.started_at or one.created_at, self.limit_of(one.component)
        until = since + timedelta(seconds=limit) if limit < inf else None
        may = f", of the {limit:g} s that it may take" if until is not None else ""
        spent = _span(self.facts.now - since)
        sentence = f"{self._node(one)} has been running for {spent}{may}: attempt {one.attempt}, {_worker(one)}."
        return Wait(WaitsFor.WORK, sentence, _worker(one), since, until, one, self._lease_json(one))

    def _cancelling(self, one: OpenActivation) -> Wait:
        sentence = f"The run is being cancelled, and {self._node(one)} has not stopped yet in {_worker(one)}."
        lease = self._lease_json(one)
        return Wait(WaitsFor.CANCELLATION, sentence, _worker(one), one.started_at, one.lease_until, one, lease)

    def _lost_worker(self, one: OpenActivation) -> Wait:
        now, since = self.facts.now, one.lease_until or self.facts.now
        seen = now - (self.facts.swept_since or now)
        within = max(timedelta(0), MIN_UNINTERRUPTED - seen) + TICK
        sentence = (
            f"The lease of {_worker(one)} on {self._node(one)} expired {_span(now - since)} ago; "
            f"{self._sweeper_text('gives the work to another worker', within.total_seconds())}."
        )
        return Wait(WaitsFor.EXPIRED_LEASE, sentence, "the sweeper", since, of=one, detail=self._lease_json(one))

    def _ready(self, one: OpenActivation) -> Wait:
        facts, node = self.facts, self._node(one)
        quiet = facts.now - facts.last_probe_at if facts.last_probe_at is not None else None
        if not self._is_swept and (one.enqueued_at is None or quiet is None or quiet > MAX_PROBE_AGE):
            how = f"{node} is ready, and {self._sweeper_text('sends its task message', 1)}"
        elif one.enqueued_at is None:
            how = f"{node} is ready, and the sweeper sends its task message within a second"
        elif quiet is None:
            how = f"{node} is ready, and no worker has ever received a task message: start one"
        elif quiet > MAX_PROBE_AGE:
            how = f"{node} is ready, and no worker has received anything from the queue for {_span(quiet)}"
        elif facts.last_probe_at is not None and one.enqueued_at < facts.last_probe_at - MESSAGE_LOST_AFTER:
            how = f"{node} is ready, and its task message was lost: the sweeper sends it again within a second"
        else:
            how = f"{node} is ready, and waits in the queue for a free worker"
        last = (
            f"; its workers were lost {one.crash_count} times, and it fails after one more"
            if one.crash_count > 1
            else ""
        )
        detail = _present(
            enqueued_at=_iso(one.enqueued_at), last_probe_at=_iso(facts.last_probe_at), crash_count=one.crash_count
        )
        since = one.enqueued_at or one.not_before
        return Wait(WaitsFor.WORKER, f"{how}{last}.", "the workers", since, of=one, detail=detail)

    def _form(self, one: OpenActivation) -> Wait:
        inputs, tips = self.facts.forms.get(one.id, ({}, ""))
        denied = budget_stop(inputs)
        if denied is not None:
            sentence = f"{self._node(one)} waits for a higher budget. {_one_line(tips)}"
            since, until = one.finished_at or one.created_at, self.facts.expires_at
            return Wait(WaitsFor.BUDGET, sentence, "the budget's owner", since, until, one, denied)
        since, until = one.finished_at or one.created_at, self.facts.expires_at
        names = f" ({', '.join(inputs)})" if inputs else ""
        end = (
            f"; without an answer the run fails on {until:%Y-%m-%d at %H:%M:%S} {until.tzname() or ''}".rstrip()
            if until
            else ""
        )
        age = _span(self.facts.now - since)
        sentence = f"A person must answer {self._node(one)}{names}. The form was shown {age} ago{end}."
        return Wait(WaitsFor.PERSON, sentence, "a person", since, until, one, _present(fields=dict(inputs), tips=tips))

    # -- words ------------------------------------------------------------------------------------------------------
    def _node(self, one: OpenActivation) -> str:
        name = _name(self.canvas, one.node_id)
        at = f" in {one.scope}" if one.scope else ""
        return f'"{name}" ({one.node_id}){at}' if name else f"{one.node_id}{at}"

    @property
    def _is_swept(self) -> bool:
        return self.facts.swept_at is not None and self.facts.now - self.facts.swept_at <= 10 * TICK

    def _sweeper_text(self, does: str, seconds: float) -> str:
        """Return what the sweeper does within so many seconds; if none runs, that one must be started."""
        if self._is_swept:
            return f"the sweeper {does} within {seconds:.0f} s"
        if self.facts.swept_at is None:
            return f"no sweeper has run yet. Start one with `easel sweeper`: it {does}"
        age = _span(self.facts.now - self.facts.swept_at)
        return f"no sweeper has run for {age}. Start one with `easel sweeper`: it {does}"

    def _lease_json(self, one: OpenActivation) -> dict[str, Any]:
        return _present(attempt=one.attempt, crash_count=one.crash_count, lease_until=_iso(one.lease_until))


def _wait_json(wait: Wait, canvas: Canvas | None) -> dict[str, Any]:
    of = wait.of
    return {
        "sentence": wait.sentence,
        "waits_for": wait.kind.value,
        "owner": wait.owner,
        "since": _iso(wait.since),
        "until": _iso(wait.until),
        "node": of.node_id if of else None,
        "node_name": (_name(canvas, of.node_id) or None) if of and canvas else None,
        "activation_id": of.id.hex if of else None,
        "scope": of.scope if of else None,
        "detail": dict(wait.detail),
    }


def _name(canvas: Canvas, node_id: str) -> str:
    """Return the display name of a node; empty if it is its id."""
    name = canvas.node(node_id).name if node_id in canvas.numbers else ""
    return "" if name == node_id else _one_line(name)


def _worker(one: OpenActivation) -> str:
    return f"worker {one.worker}" if one.worker else "a worker"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at is not None else None


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != ""}


def _span(time: timedelta) -> str:
    """Format a time span in its largest unit."""
    seconds = max(0, round(time.total_seconds()))
    for size, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
