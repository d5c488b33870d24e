"""Player: whole runs in memory, by the routing function alone.

It stores activations, scopes and message streams as the store would, reports the outcomes of a script in a random order
and grouping, stops runs as the coordinator does, and checks every decision against the tables of
`canvas/state/run_state.py` and the invariants of a run. State goes through JSON between every two decisions.
"""

import json
import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from canvas.events.run_events import MESSAGE_END, NODE_FINISHED, NODE_STARTED, Event
from canvas.graph.canvas import Canvas
from canvas.outcome import ContainerOpened, Failed, Finished, Outcome, WaitingForInput
from canvas.routing.decide import begin, decide, finish_stopping, resume
from canvas.routing.decision import Decision
from canvas.state.checkpoint import fill_run, run_to_json, scope_from_json, scope_to_json
from canvas.state.order_key import OrderKey
from canvas.state.run_state import (
    ACTIVATION_MOVES,
    RUN_MOVES,
    ActivationStatus,
    Report,
    RunState,
    RunStatus,
    ScopeKey,
    activation_id,
)
from tests.builders import RUN_ID, TOP, NodeAttempt, Script, default_outcome, seeded_random

UNSTARTED = (ActivationStatus.QUEUED, ActivationStatus.READY, ActivationStatus.AWAITING_STREAM)
BUSY = (ActivationStatus.READY, ActivationStatus.RUNNING, ActivationStatus.REPORTED)
FINAL = (ActivationStatus.DONE, ActivationStatus.CLOSED)
MAX_STEPS = 20_000


@dataclass(slots=True)
class Row:
    """An activation, as it would be stored."""

    id: UUID
    node: str
    scope: ScopeKey
    ordinal: int
    order_key: OrderKey
    limits: tuple[tuple[str, int], ...]
    stream_id: UUID | None
    status: ActivationStatus
    attempt: int = 0
    crash_count: int = 0
    answered: bool = False
    outcome: Outcome | None = None


@dataclass(slots=True)
class Player:
    """One run of a canvas. With `check_determinism`, every decision is made twice, and both must be equal."""

    canvas: Canvas
    script: Script = default_outcome
    rng: random.Random = field(default_factory=lambda: seeded_random(0))
    max_running: int = 256
    max_activations: int = 0
    check_determinism: bool = False
    status: RunStatus = RunStatus.QUEUED
    rows: dict[UUID, Row] = field(default_factory=dict)
    active: dict[UUID, Row] = field(default_factory=dict)  # rows that are neither done nor closed
    order_keys: set[bytes] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    opened_at: dict[UUID, int] = field(default_factory=dict)
    closed_at: dict[UUID, int] = field(default_factory=dict)
    truncated_streams: list[UUID] = field(default_factory=list)
    texts: dict[UUID, str] = field(default_factory=dict)
    error: str = ""
    revision: int = 0
    is_cancel_requested: bool = False
    open_stream_id: UUID | None = None
    run_json: str = ""
    scopes: dict[ScopeKey, str] = field(default_factory=dict)
    form_expiries: list[timedelta | None] = field(default_factory=list)  # of the forms that were shown last
    cancelled_after: dict[str, int] = field(default_factory=dict)  # container's entry -> items after this one
    restarts_text: set[str] = field(default_factory=set)  # Messages whose text does not continue what was streamed
    failure: tuple[int, str] | None = None  # level and node of the failure that ended the run
    last_node: str | None = None

    # -- control -----------------------------------------------------------------------------------------------------
    def begin(self) -> "Player":
        """Start the run."""
        self._move_run(RunStatus.RUNNING)
        state = RunState(RUN_ID, RunStatus.RUNNING, max_running=self.max_running)
        state.max_activations = self.max_activations
        self._apply(begin(self.canvas, state, None))
        return self

    def play(self) -> "Player":
        """Advance until the run is over or waits."""
        if self.status is RunStatus.QUEUED:
            self.begin()
        for _ in range(MAX_STEPS):
            if self.status.is_over or self.status is RunStatus.WAITING:
                return self
            self.step()
        raise AssertionError("the run does not end")

    def play_and_answer(self) -> "Player":
        """Advance until the run is over, and answer every form."""
        while not self.play().status.is_over:
            self.answer()
        return self

    def step(self) -> None:
        """Claim some ready activations, and apply the reports of some running ones in one advance."""
        ready = [row for row in self.active.values() if row.status is ActivationStatus.READY]
        for row in self._random_subset(ready):
            self._move(row, ActivationStatus.RUNNING)
        running = [row for row in self.active.values() if row.status is ActivationStatus.RUNNING]
        assert running, "no activation is running, and the run is not over"
        self.advance(self._random_subset(running))

    def claim(self, node: str, scope: ScopeKey = TOP) -> None:
        """Claim the activation of a node in a scope, so that stopping the run no longer closes it."""
        self._move(self.row(node, scope), ActivationStatus.RUNNING)

    def report(self, *nodes: str, scope: ScopeKey | None = None) -> "Player":
        """Report all busy activations of these nodes (in one scope), in one advance."""
        rows = [
            row
            for row in self.active.values()
            if row.node in nodes and row.status in BUSY and (scope is None or row.scope == scope)
        ]
        assert {row.node for row in rows} == set(nodes), f"not all of {nodes} are busy: {self.busy_nodes}"
        for row in rows:
            if row.status is ActivationStatus.READY:
                self._move(row, ActivationStatus.RUNNING)
        self.advance(rows)
        return self

    def answer(self, *, happened: Collection[str] = (), unanswered: Collection[str] = ()) -> "Player":
        """Answer the open forms.

        Of the nodes with an unknown outcome, those in `happened` are confirmed, those in `unanswered` stay open, and
        the rest run again.
        """
        state = self.load()
        uncertain = {
            row: form.node_id
            for row, form in state.forms.items()
            if not self.canvas.node(form.node_id).kind.waits_for_user
        }
        done = {activation for activation, node in uncertain.items() if node in happened}
        again = {activation for activation, node in uncertain.items() if node not in (*happened, *unanswered)}
        for activation in state.forms.keys() - uncertain.keys():
            self.rows[activation].answered = True
        self._apply(resume(self.canvas, state, again=again, happened=done))
        if done:
            for activation in done:
                self.rows[activation].outcome = Finished()
            self._apply_reports([self._make_report(self.rows[activation], Finished()) for activation in done])
        return self

    def cancel(self) -> "Player":
        """Cancel the run."""
        self.is_cancel_requested = True
        self._move_run(RunStatus.STOPPING)
        self._advance_stopping_run()
        return self

    def advance(self, rows: Sequence[Row]) -> None:
        """Apply the reports of these activations, as the coordinator does."""
        self._apply_reports([self._report(row) for row in rows])

    def _apply_reports(self, reports: list[Report]) -> None:
        self.rng.shuffle(reports)
        decision = decide(self.canvas, self.load(reports), reports)
        if self.check_determinism:
            assert decision == decide(self.canvas, self.load(reports), list(reversed(reports)))
        self._apply(decision)
        if self.status is RunStatus.STOPPING:
            self._advance_stopping_run()

    # -- results -----------------------------------------------------------------------------------------------------
    @property
    def busy_nodes(self) -> list[str]:
        """The nodes with a ready, running or reported activation, in canonical order."""
        rows = sorted(self.active.values(), key=lambda row: row.order_key.key)
        return [row.node for row in rows if row.status in BUSY]

    @property
    def ordered_rows(self) -> list[Row]:
        """All activations, in canonical order."""
        return sorted(self.rows.values(), key=lambda row: row.order_key.key)

    @property
    def path(self) -> list[str]:
        """All nodes that were activated, in canonical order."""
        return [row.node for row in self.ordered_rows]

    @property
    def reported_nodes(self) -> list[str]:
        """All nodes that reported, in canonical order."""
        return [row.node for row in self.ordered_rows if row.outcome is not None]

    @property
    def streamed_nodes(self) -> list[str]:
        """The nodes whose streams have ended, in the order of their ends."""
        return [self.rows[stream_id].node for stream_id in self.ended_streams]

    @property
    def ended_streams(self) -> list[UUID]:
        """The message streams that have ended, in order."""
        return [event.activation for event in self.events if event.name == MESSAGE_END and event.activation]

    @property
    def short_events(self) -> list[str]:
        """The events in a short form: "+node" started, "-node" finished, "!node" a text has ended."""
        short = {NODE_STARTED: "+", NODE_FINISHED: "-", MESSAGE_END: "!"}
        return [f"{short[event.name]}{event.node_id}" if event.name in short else event.name for event in self.events]

    def row(self, node: str, scope: ScopeKey = TOP, ordinal: int = 0) -> Row:
        """One activation."""
        return self.rows[activation_id(RUN_ID, node, scope, ordinal)]

    def is_before(self, before: str, after: str) -> bool:
        """Whether one of the short events comes before another."""
        return self.short_events.index(before) < self.short_events.index(after)

    # -- storage -----------------------------------------------------------------------------------------------------
    def _random_subset(self, rows: Sequence[Row]) -> list[Row]:
        return self.rng.sample(list(rows), self.rng.randint(1, len(rows))) if rows else []

    def _report(self, row: Row) -> Report:
        row.attempt += 1
        outcome = self.script(
            NodeAttempt(
                self.canvas, row.node, row.scope, row.ordinal, row.attempt, row.answered, self._count(row.scope)
            )
        )
        row.outcome = outcome
        self._move(row, ActivationStatus.REPORTED)
        is_lost = isinstance(outcome, Failed) and outcome.stores_no_values
        row.crash_count += is_lost
        return self._make_report(row, outcome)

    def _make_report(self, row: Row, outcome: Outcome) -> Report:
        return Report(
            activation=row.id,
            node_id=row.node,
            scope=row.scope,
            ordinal=row.ordinal,
            order_key=row.order_key,
            outcome=outcome,
            crash_count=row.crash_count,
            stream_id=row.stream_id,
            restarts_text=row.node in self.restarts_text,
            has_written=row.stream_id is not None
            and isinstance(outcome, Failed | WaitingForInput)
            and "has_written" in outcome.outputs,
        )

    def _count(self, scope: ScopeKey) -> int | None:
        if not scope:
            return None
        node, ordinal, _ = scope[-1]
        outcome = self.row(node, scope[:-1], ordinal).outcome
        return outcome.count if isinstance(outcome, ContainerOpened) else None

    def load(self, reports: Sequence[Report] | None = None) -> RunState:
        """Load the state as the coordinator does: all scopes, or those of the reports and their enclosing scopes."""
        state = RunState(
            RUN_ID,
            self.status,
            revision=self.revision,
            last_event=len(self.events),
            is_cancel_requested=self.is_cancel_requested,
            open_stream_id=self.open_stream_id,
        )
        fill_run(state, json.loads(self.run_json))
        keys = {report.scope[:depth] for report in reports or () for depth in range(len(report.scope) + 1)} | {TOP}
        for key, data in self.scopes.items():
            if reports is None or self.canvas.needs_stream_order or key in keys:
                state.scopes[key] = scope_from_json(key, json.loads(data))
        return state

    def _apply(self, decision: Decision) -> None:
        before = len(self.events)
        for activation, status in decision.new_statuses.items():
            row = self.rows[activation]
            assert row.status in (
                ActivationStatus.REPORTED,
                ActivationStatus.AWAITING_STREAM,
                ActivationStatus.OPEN,
                ActivationStatus.WAITING,
            )
            self._move(row, status)
        assert all(self.rows[activation].status is ActivationStatus.READY for activation in decision.retry_now)
        for new in decision.activated:
            assert new.id not in self.rows, f"{new.node_id} is activated twice"
            assert new.status in (ActivationStatus.QUEUED, ActivationStatus.READY)
            row = Row(new.id, new.node_id, new.scope, new.ordinal, new.order_key, new.limits, new.stream_id, new.status)
            assert row.order_key.key not in self.order_keys, f"{row.node} has the order key of another activation"
            self.rows[new.id] = self.active[new.id] = row
            self.order_keys.add(row.order_key.key)
        queued = [row for row in self.active.values() if row.status is ActivationStatus.QUEUED]
        assert decision.promote_count <= len(queued) or self.status is RunStatus.STOPPING
        for row in sorted(queued, key=lambda row: row.order_key.key)[: decision.promote_count]:
            self._move(row, ActivationStatus.READY)
        self.events += decision.events
        self.truncated_streams += decision.truncated_streams
        self.texts |= {stream_id: text for stream_id, (_, text) in decision.default_texts.items()}
        for stream_id, offset in decision.opened_streams.items():
            self.opened_at[stream_id] = before + offset
            self.closed_at.pop(stream_id, None)
        self.closed_at |= {stream_id: before + offset for stream_id, offset in decision.closed_streams.items()}
        self.cancelled_after |= decision.cancel_items_after
        self.form_expiries = decision.form_expiries or self.form_expiries
        for key in decision.closed_scopes:
            self.scopes.pop(key, None)
        for key in decision.changed_scopes & decision.run.scopes.keys():
            self.scopes[key] = json.dumps(scope_to_json(decision.run.scopes[key]))
        self._store_run(decision)
        self._check(decision.run)

    def _store_run(self, decision: Decision) -> None:
        run = decision.run
        self.revision += 1
        self._move_run(run.status)
        self.open_stream_id = run.open_stream_id
        self.run_json = json.dumps(run_to_json(run))
        self.error = decision.error or self.error
        self.failure = (run.failure.level, run.failure.node_id) if run.failure else None
        self.last_node = run.last_node[2] if run.last_node else None
        if run.status.is_over:
            assert not run.streams
            self.scopes.clear()
            for row in list(self.active.values()):
                self._move(row, ActivationStatus.CLOSED)

    def _advance_stopping_run(self) -> None:
        """Close activations that need not run, and end the run once none is busy."""
        state = self.load()
        level = -1 if self.is_cancel_requested or state.failure is None else state.failure.level
        for row in list(self.active.values()):
            is_later = level < 0 or row.order_key.level > level or row.order_key.region
            if row.status is ActivationStatus.WAITING or (row.status in UNSTARTED and is_later):
                self._move(row, ActivationStatus.CLOSED)
        counted = (state.in_flight, state.queued)
        state.in_flight = sum(row.status in BUSY for row in self.active.values())
        state.queued = sum(row.status is ActivationStatus.QUEUED for row in self.active.values())
        decision = finish_stopping(self.canvas, state, state.in_flight + state.queued)
        if decision.is_over or counted != (state.in_flight, state.queued):
            self._apply(decision)

    def _move(self, row: Row, status: ActivationStatus) -> None:
        assert status in ACTIVATION_MOVES[row.status], f"{row.node}: {row.status} -> {status}"
        row.status = status
        if status in FINAL:
            del self.active[row.id]

    def _move_run(self, status: RunStatus) -> None:
        assert status is self.status or status in RUN_MOVES[self.status], f"{self.status} -> {status}"
        self.status = status

    # -- invariants --------------------------------------------------------------------------------------------------
    def _check(self, run: RunState) -> None:
        open_streams = [stream_id for stream_id in self.opened_at if stream_id not in self.closed_at]
        assert len(open_streams) <= 1
        assert (self.open_stream_id in open_streams) if open_streams else self.open_stream_id is None
        if self.status.is_over:
            assert not self.active
        if self.status is RunStatus.SUCCEEDED:
            assert {row.status for row in self.rows.values()} == {ActivationStatus.DONE}
        if self.status not in (RunStatus.RUNNING, RunStatus.WAITING):
            return
        assert set(run.scopes) <= set(self.scopes)
        statuses = Counter(row.status for row in self.active.values())
        assert run.in_flight == sum(statuses[status] for status in BUSY)
        assert run.queued == statuses[ActivationStatus.QUEUED]
        self._check_active_nodes()
        if self.status is RunStatus.WAITING:
            assert run.forms
            assert set(statuses) <= {ActivationStatus.WAITING, ActivationStatus.OPEN}
            assert run.forms.keys() == {
                row.id for row in self.active.values() if row.status is ActivationStatus.WAITING
            }

    def _check_active_nodes(self) -> None:
        active: dict[ScopeKey, int] = {}
        idle: dict[ScopeKey, int] = {}
        for row in self.active.values():
            bit = self.canvas.node(row.node).bit
            active[row.scope] = active.get(row.scope, 0) | bit
            if row.status in (ActivationStatus.WAITING, ActivationStatus.AWAITING_STREAM):
                idle[row.scope] = idle.get(row.scope, 0) | bit
        for key, data in self.scopes.items():
            scope = scope_from_json(key, json.loads(data))
            assert scope.active == active.pop(key, 0)
            assert scope.idle & ~scope.active == 0
            assert idle.get(key, 0) & ~scope.idle == 0
        assert not active, "an activation belongs to a scope that is not open"
