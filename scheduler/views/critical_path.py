"""The critical path of a run: the chain of steps that decided when it ended, and where its time went.

The chain goes back from the step that ended last. Before a step comes the predecessor in its scope, along the edges of
the canvas, that ended last before the step was activated. A container ends with the item that ended last, so the chain
enters it there. Before the first step of an item comes what ended last in the container until then, or the container
itself. Nothing is guessed beyond the rows: time that no row explains is `rest`.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from canvas.graph.canvas import Canvas
from canvas.state.run_state import ActivationStatus, ScopeKey, scope_key
from store.runs.step_times import AttemptTimes, StepTimes

PARTS: Sequence[str] = ("run_slot", "queue", "rate_limit", "person", "stream_wait", "work", "rest")
"""Kinds of time: waiting for a slot of the run, for a worker, for a vendor's limit, for a person, for another message
stream to end; working; everything else."""

_LEAVES = frozenset({"queued", "ready", "running", "reported", "waiting", "saying"})
"""Statuses of activations that have not ended, as rows have them, without open containers."""
_AFTER = {"waited_for_input": "person", "over_budget": "person", "postponed": "rate_limit"}
"""What an activation waits for after an attempt, by the reason for which the attempt ended."""

Chain = Sequence[StepTimes]


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The steps of a critical path in the order of time, and its milliseconds by kind; the parts add up to `ms`."""

    ms: int
    parts: Mapping[str, int]
    steps: Sequence[str]


class _Span(NamedTuple):
    kind: str
    until: int  # milliseconds since 1970; it begins where the span before it ends


def find_chain(canvas: Canvas, rows: Sequence[StepTimes], now: int) -> list[StepTimes]:
    """Return the steps of the critical path in the order of time; empty for a run without steps.

    `now`: milliseconds since 1970; steps that have not ended count as if they ended now.
    """
    index = _Index(canvas, rows, now)
    step = index.last_in(())
    chain: list[StepTimes] = []
    visited: set[str] = set()
    while step is not None and step.id not in visited:
        visited.add(step.id)
        chain.append(step)
        step = index.before(step)
    chain.reverse()
    return chain


def measure(
    chain: Chain,
    attempts: Iterable[AttemptTimes],
    waited_ms: Mapping[tuple[str, int], int],
    *,
    now: int,
    ended_at: int | None,
) -> CriticalPath:
    """Return a critical path with its time by kind.

    `attempts`: the earlier attempts of its steps. `waited_ms`: how long the model calls of an attempt waited for rate
    limits, by step and attempt. `ended_at`: when the run ended; None if it is not over.
    """
    earlier: dict[str, list[AttemptTimes]] = defaultdict(list)
    for attempt in attempts:
        earlier[attempt.activation_id].append(attempt)
    parts = dict.fromkeys(PARTS, 0)
    if not chain:
        return CriticalPath(0, parts, ())
    until = ended_at if ended_at is not None else max(now, chain[-1].created_at)
    cursor = first = chain[0].created_at
    spans: list[_Span] = []
    for step, following in pairwise([*chain, None]):
        assert step is not None
        spans += _spans_of(step, sorted(earlier[step.id], key=lambda each: each.attempt), waited_ms, now)
        limit = following.created_at if following is not None else until
        gap = _Span("stream_wait" if step.has_stream else "rest", limit)
        for span in (*spans, gap):
            end = min(max(span.until, cursor), max(limit, cursor))
            parts[span.kind] += end - cursor
            cursor = end
        spans = []
    return CriticalPath(cursor - first, parts, [step.id for step in chain])


def _spans_of(
    step: StepTimes, attempts: Sequence[AttemptTimes], waited_ms: Mapping[tuple[str, int], int], now: int
) -> list[_Span]:
    """Return the spans of a step from its activation on, one after the other."""
    spans: list[_Span] = []
    wait = "run_slot"  # until it is ready for the first time
    for each in attempts:
        if each.ready_at is not None:
            spans.append(_Span(wait, each.ready_at))
        if each.started_at is not None:
            spans.append(_Span("queue", each.started_at))
            spans += _work(each.started_at, each.ended_at, waited_ms.get((step.id, each.attempt), 0))
        wait = _AFTER.get(each.end_reason, "rest")
    if step.status == ActivationStatus.QUEUED:
        return [*spans, _Span(wait, now)]
    spans.append(_Span(wait, min(step.ready_at, now)))
    if step.status == ActivationStatus.READY:
        is_due = step.ready_at <= now
        return [*spans, _Span("queue" if is_due else wait, now)]
    if step.started_at is None:
        return spans
    spans.append(_Span("queue", step.started_at))
    is_running = step.status == ActivationStatus.RUNNING
    waited = waited_ms.get((step.id, step.attempt), 0)
    spans += _work(step.started_at, now if is_running else step.finished_at, waited)
    if step.status == ActivationStatus.WAITING:
        spans.append(_Span("person", now))
    return spans


def _work(started_at: int, ended_at: int | None, waited_ms: int) -> list[_Span]:
    if ended_at is None:
        return []
    waited = min(waited_ms, max(ended_at - started_at, 0))
    return [_Span("rate_limit", started_at + waited), _Span("work", ended_at)]


@dataclass(slots=True)
class _Ends:
    """Steps by the time of their end, so that the last one before a time is found by bisection."""

    steps: list[tuple[int, int, StepTimes, StepTimes]] = field(
        default_factory=list[tuple[int, int, StepTimes, StepTimes]]
    )
    """(end, place, step, the step in it that ended last, which is itself unless it is a container)"""
    _ends: list[int] = field(default_factory=list[int])

    def add(self, end: int, place: int, step: StepTimes, last: StepTimes) -> None:
        self.steps.append((end, place, step, last))

    def sort(self) -> None:
        self.steps.sort(key=lambda each: each[:2])
        self._ends = [each[0] for each in self.steps]

    def last_before(self, moment: int, place: int) -> tuple[int, int, StepTimes, StepTimes] | None:
        """Return the step that ended last until a moment; of steps that ended in it, one of an earlier place."""
        at = bisect_right(self._ends, moment)
        while at and self._ends[at - 1] == moment and self.steps[at - 1][1] >= place:
            at -= 1
        return self.steps[at - 1] if at else None


class _Index:
    """The steps of a run by scope and node, and by container entry."""

    def __init__(self, canvas: Canvas, rows: Sequence[StepTimes], now: int) -> None:
        self._canvas = canvas
        self._places = {
            row.id: place for place, row in enumerate(sorted(rows, key=lambda row: (row.order_key, row.id)))
        }
        self._containers: dict[tuple[ScopeKey, str, int], StepTimes] = {}
        self._of_node: dict[tuple[ScopeKey, str], _Ends] = defaultdict(_Ends)
        self._of_entry: dict[tuple[ScopeKey, str, int], _Ends] = defaultdict(_Ends)
        self._of_scope: dict[ScopeKey, _Ends] = defaultdict(_Ends)
        self._predecessors: dict[int, list[str]] = defaultdict(list)
        for node in canvas.nodes:
            for target in node.targets:
                self._predecessors[target].append(node.id)
        scopes = {text: scope_key(text) for text in {row.scope for row in rows}}
        last_in: dict[tuple[ScopeKey, str, int], tuple[int, int, StepTimes]] = {}
        for row in rows:
            self._note_ends(row, scopes[row.scope], now, last_in)
        for row in rows:
            scope = scopes[row.scope]
            entry = (scope, row.node_id, row.ordinal)
            end, _, last = last_in.get(entry) or (_end_of(row, now), 0, row)
            if entry in last_in:
                self._containers[entry] = row
            if end is None:
                continue
            for ends in (self._of_node[scope, row.node_id], self._of_scope[scope]):
                ends.add(end, self._places[row.id], row, last)
            if scope:
                container, ordinal, _ = scope[-1]
                self._of_entry[scope[:-1], container, ordinal].add(end, self._places[row.id], row, last)
        for ends in (*self._of_node.values(), *self._of_entry.values(), *self._of_scope.values()):
            ends.sort()

    def last_in(self, scope: ScopeKey) -> StepTimes | None:
        """Return the step that ended last in a scope and below it."""
        steps = self._of_scope[scope].steps
        return steps[-1][3] if steps else None

    def before(self, step: StepTimes) -> StepTimes | None:
        """Return the step that comes before a step in the chain; None for the first one."""
        scope, place = scope_key(step.scope), self._places[step.id]
        number = self._canvas.numbers.get(step.node_id)
        names = self._predecessors[number] if number is not None else ()
        found = [self._of_node[scope, name].last_before(step.created_at, place) for name in names]
        known = [each for each in found if each is not None]
        if known:
            return max(known, key=lambda each: each[:2])[3]
        if not scope:
            return None
        container, ordinal, _ = scope[-1]
        entry = (scope[:-1], container, ordinal)
        earlier = self._of_entry[entry].last_before(step.created_at, place)
        return earlier[3] if earlier is not None and earlier[2] is not step else self._containers.get(entry)

    def _note_ends(
        self,
        row: StepTimes,
        scope: ScopeKey,
        now: int,
        last_in: dict[tuple[ScopeKey, str, int], tuple[int, int, StepTimes]],
    ) -> None:
        """Note a step as the one that ended last in the containers around it, if it did."""
        end = _end_of(row, now)
        if end is None:
            return
        candidate = (end, self._places[row.id], row)
        for depth, (container, ordinal, _) in enumerate(scope):
            entry = (scope[:depth], container, ordinal)
            known = last_in.get(entry)
            if known is None or candidate[:2] > known[:2]:
                last_in[entry] = candidate


def _end_of(row: StepTimes, now: int) -> int | None:
    """Return when a step ended; now if it has not, None if it was closed before it began."""
    return now if row.status in _LEAVES else row.finished_at
