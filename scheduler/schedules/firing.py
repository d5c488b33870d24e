"""Firing: the runs of due slots are started, each slot once.

One transaction locks a due schedule, writes what came of its slot, and accepts the run, as any other start is accepted
(`scheduler.lifecycle.accept`). The run's id follows from schedule and slot. A process that dies before the commit has
done nothing; one that dies after it leaves a run whose task message the sweeper sends. Any number of processes may
fire: a schedule that one has locked is skipped by the others.

A start that is refused leaves a row with the reason; after MAX_REFUSALS in a row the schedule is paused.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from canvas.errors import Conflict, ExecutorError, NotFound
from canvas.ids import RunId, TenantId
from canvas.state.run_state import RunStatus
from scheduler.lifecycle import start_options
from scheduler.lifecycle.accept import SCHEDULE, RunIsWaiting, Start, Started, accept
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.notifications import Notifications
from scheduler.schedules.changes import ALLOW, CANCEL_PREVIOUS, ENQUEUE, SAME, SKIP
from scheduler.schedules.planning import MAX_COUNTED, CatchUp, Plan, plan
from scheduler.schedules.slots import parse_spec
from scheduler.views.json_values import iso
from store.agents import conversations, schedules, versions
from store.agents.schedules import MISSED, REFUSED, SKIPPED, STARTED, Schedule
from store.agents.versions import VersionGone
from store.db.db_errors import is_outage
from store.db.transaction import Transaction
from store.files.large_values import LargeValues
from store.monitoring import server_info
from store.primitives.ids import id_at

log = structlog.get_logger()

MAX_REFUSALS = 10  # in a row, after which a schedule is paused
LOOK_AGAIN = timedelta(seconds=1)  # until a slot that waits for the previous run is looked at again
MAX_REASON = 500  # characters

WAITS_FOR_ANSWER = "The session waits for an answer, which a schedule does not give."
INTERNAL = "An internal error has prevented the start; the log of the sweeper has it."

_ON_BUSY = {SKIP: "refuse", ENQUEUE: "enqueue", CANCEL_PREVIOUS: "interrupt", ALLOW: "enqueue"}
"""What happens if the session of the runs has another open run, by overlap policy. A session has one run at a time."""


@dataclass(frozen=True, slots=True)
class AcceptedStart:
    """A run that was accepted for a slot, with what follows its commit (`Lifecycle.follow_start`)."""

    start: Start
    started: Started
    applied: Notifications | None
    superseded: Sequence[RunId]


@dataclass(slots=True)
class _Attempt:
    """What a transaction has claimed, for the one that records its failure."""

    schedule: Schedule | None = None
    now: datetime | None = None
    plan: Plan | None = None
    accepted: AcceptedStart | None = None
    to_cancel: Sequence[RunId] = ()
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Firing:
    """Fires due slots. `clock`: the time in place of the database's, for tests."""

    lifecycle: Lifecycle
    clock: Callable[[], datetime] | None = None
    count: Callable[[str], None] = lambda outcome: None

    def fire_due(self, most: int = 1000) -> int:
        """Fire slots until none is due, and return how many schedules were handled; at most `most`.

        Raises SQLAlchemyError during an outage of the database.
        """
        for handled in range(most):
            if not self.fire_next():
                return handled
        return most

    def fire_next(self) -> bool:
        """Handle the schedule that has been due for longest; return False if none is due."""
        attempt = _Attempt()
        try:
            self.lifecycle.coordinator.database.run_with_retry(lambda tx: self._fire(tx, attempt))
        except (RunIsWaiting, Conflict) as error:
            self._record(attempt, SKIPPED, error.message if isinstance(error, Conflict) else WAITS_FOR_ANSWER)
        except ExecutorError as error:
            self._record(attempt, REFUSED, error.message)
        except SQLAlchemyError as error:
            if is_outage(error) or attempt.schedule is None:
                raise
            if versions.is_version_gone(error):
                self._record(attempt, REFUSED, versions.VERSION_GONE_TEXT)
            else:
                self._record_bug(attempt, error)
        except Exception as error:
            if attempt.schedule is None:
                raise
            self._record_bug(attempt, error)
        else:
            if attempt.outcome:
                self.count(attempt.outcome)
            self.finish(attempt.accepted)
            if attempt.schedule is not None and attempt.to_cancel:
                try:
                    self.cancel(attempt.schedule.tenant_id, attempt.to_cancel)
                except Exception as error:
                    if is_outage(error):
                        raise
                    self._record_bug(attempt, error)
        return attempt.schedule is not None

    def trigger(
        self,
        tenant_id: TenantId,
        schedule_id: UUID,
        overlap: str | None = None,
        *,
        open_transaction: Callable[[], AbstractContextManager[Transaction]] | None = None,
        before_commit: Callable[[Transaction, Started, datetime], object] = lambda tx, started, now: None,
    ) -> tuple[Started, datetime]:
        """Start a run of a schedule now, also of one that is paused; return it and the time that is its slot.

        `overlap`: the policy of this run instead of the schedule's. `open_transaction`, `before_commit`: what the
        caller does in the transaction. Raises Conflict if a run is open that must not overlap; NotFound and
        InvalidRequest as a start does.
        """
        database = self.lifecycle.coordinator.database
        with database.transaction() as tx:
            policy = overlap or schedules.get(tx, tenant_id, schedule_id).overlap
        if policy == CANCEL_PREVIOUS:
            self.cancel_open(tenant_id, schedule_id)

        def work(large: LargeValues) -> tuple[AcceptedStart, datetime]:
            with (open_transaction or database.transaction)() as tx:
                tx.large = large
                now = self.clock() if self.clock is not None else server_info.read_clock(tx)
                accepted = self._trigger(tx, tenant_id, schedule_id, policy, now)
                before_commit(tx, accepted.started, now)
                return accepted, now

        try:
            accepted, now = database.run_with_large_values(work)
        except RunIsWaiting:
            raise Conflict(WAITS_FOR_ANSWER, field="overlap") from None
        except DBAPIError as error:
            if versions.is_version_gone(error):
                raise VersionGone(versions.VERSION_GONE_TEXT) from error
            raise
        self.finish(accepted)
        return accepted.started, now

    def _trigger(
        self, tx: Transaction, tenant_id: TenantId, schedule_id: UUID, policy: str, now: datetime
    ) -> AcceptedStart:
        schedule = schedules.lock(tx, tenant_id, schedule_id)
        busy = schedules.open_runs(tx, schedule)
        if busy and policy in (SKIP, ENQUEUE):
            run_id = next(iter(busy))
            raise Conflict(
                f"Run {run_id.hex} of this schedule is open. Wait for it, or send overlap allow or cancel_previous.",
                run_id=run_id.hex,
                field="overlap",
            )
        accepted = self._start(tx, schedule, now, policy, by_hand=True)
        schedules.add_fire(tx, schedule, now, STARTED, run_id=accepted.started.run_id, by_hand=True)
        conversation_id = accepted.started.conversation_id if schedule.session == SAME else schedule.conversation_id
        schedules.save(tx, replace(schedule, last_run=accepted.started.run_id, conversation_id=conversation_id))
        return accepted

    def cancel_open(self, tenant_id: TenantId, schedule_id: UUID) -> None:
        """Cancel the open runs of a schedule. Raises NotFound for an unknown schedule."""
        with self.lifecycle.coordinator.database.transaction() as tx:
            busy = schedules.open_runs(tx, schedules.lock(tx, tenant_id, schedule_id))
        self.cancel(tenant_id, [run_id for run_id, status in busy.items() if status is not RunStatus.STOPPING])

    def cancel(self, tenant_id: TenantId, run_ids: Sequence[RunId]) -> None:
        """Cancel runs, as far as they still exist."""
        for run_id in run_ids:
            try:
                self.lifecycle.cancel_run(tenant_id, run_id)
            except NotFound:
                continue

    def finish(self, accepted: AcceptedStart | None) -> None:
        """Do what follows the commit of a run: send its task messages."""
        if accepted is not None:
            self.lifecycle.follow_start(accepted.start, accepted.started, accepted.applied, accepted.superseded)

    def _fire(self, tx: Transaction, attempt: _Attempt) -> None:
        """Claim a due schedule, and write what comes of its slot."""
        attempt.schedule, attempt.plan, attempt.accepted, attempt.to_cancel, attempt.outcome = None, None, None, (), ""
        claimed = schedules.claim_due(tx, self.clock() if self.clock is not None else None)
        if claimed is None:
            return
        schedule, now = claimed
        attempt.schedule, attempt.now = schedule, now
        assert schedule.next_at is not None, "a schedule that is due has a slot"
        attempt.plan = planned = plan(
            parse_spec(schedule.spec),
            schedule.next_at,
            now,
            CatchUp(schedule.catch_up_window, schedule.catch_up_at_most),
            waiting_since=schedule.waiting_since,
            end_at=schedule.end_at,
        )
        if planned.slot is None:
            self._write_slot(tx, schedule, planned, now)
            attempt.outcome = MISSED
            return
        busy = schedules.open_runs(tx, schedule)
        if busy and schedule.overlap == SKIP:
            reason = f"Run {next(iter(busy)).hex} of the schedule was still open."
            self._write_slot(tx, schedule, planned, now, SKIPPED, reason)
            attempt.outcome = SKIPPED
            return
        if busy and schedule.overlap == ENQUEUE:
            self._write_missed(tx, schedule, planned)
            waiting = {"next_at": planned.slot, "due_at": now + LOOK_AGAIN}
            schedules.save(tx, replace(schedule, **waiting, waiting_since=schedule.waiting_since or now))
            return
        to_cancel = [run_id for run_id, status in busy.items() if status is not RunStatus.STOPPING]
        if to_cancel and schedule.overlap == CANCEL_PREVIOUS:
            attempt.to_cancel = to_cancel  # the slot is fired by the next claim, when these are being cancelled
            return
        attempt.accepted = self._start(tx, schedule, planned.slot, schedule.overlap)
        self._write_slot(tx, schedule, planned, now, STARTED, "", attempt.accepted.started)
        attempt.outcome = STARTED

    def _start(
        self, tx: Transaction, schedule: Schedule, slot: datetime, policy: str, *, by_hand: bool = False
    ) -> AcceptedStart:
        """Accept the run of a slot. Raises what `parse_start` and `accept` raise."""
        options = dict(schedule.start)
        if schedule.session == SAME and schedule.conversation_id is not None:
            try:
                conversations.get(tx, schedule.tenant_id, schedule.conversation_id, schedule.canvas_id)
                options["session_id"] = str(schedule.conversation_id)
            except NotFound:
                pass  # it was deleted: the run begins another
        start = start_options.parse_start(
            tx, schedule.tenant_id, run_id_of(schedule.id, slot), schedule.canvas_id, options
        )
        start = replace(
            start,
            conversation_name=start.conversation_name or schedule.name,
            on_busy=_ON_BUSY[policy],
            origin=SCHEDULE,
            origin_details={
                "schedule_id": schedule.id.hex,
                "slot": iso(slot.astimezone(UTC)),
                **({"by_hand": True} if by_hand else {}),
            },
        )
        return AcceptedStart(start, *accept(self.lifecycle.coordinator, tx, start))

    def _write_slot(
        self,
        tx: Transaction,
        schedule: Schedule,
        planned: Plan,
        now: datetime,
        outcome: str = "",
        reason: str = "",
        started: Started | None = None,
    ) -> None:
        """Write what came of a planned slot, and the schedule with its next slot."""
        self._write_missed(tx, schedule, planned)
        if planned.slot is not None:
            run_id = started.run_id if started is not None else None
            schedules.add_fire(tx, schedule, planned.slot, outcome, run_id=run_id, reason=reason)
        total = schedule.started + (started is not None)
        is_over = schedule.max_runs is not None and total >= schedule.max_runs
        following = None if is_over else planned.following
        still_waits = schedule.waiting_since is not None and following is not None and following <= now
        after = replace(
            schedule,
            next_at=following,
            due_at=following,
            waiting_since=schedule.waiting_since if still_waits else None,
            last_at=planned.slot or schedule.last_at,
            started=total,
        )
        if started is not None:
            conversation_id = started.conversation_id if schedule.session == SAME else schedule.conversation_id
            after = replace(after, last_run=started.run_id, refusals=0, conversation_id=conversation_id)
        if outcome == REFUSED:
            after = replace(after, refusals=schedule.refusals + 1)
            if after.refusals >= MAX_REFUSALS:
                why = f"{MAX_REFUSALS} starts in a row were refused, the last one: {reason}"
                after = replace(after, paused=True, paused_reason=why, next_at=None, due_at=None, waiting_since=None)
                log.warning("schedule_paused", schedule_id=str(schedule.id), tenant_id=str(schedule.tenant_id))
        schedules.save(tx, after)

    def _write_missed(self, tx: Transaction, schedule: Schedule, planned: Plan) -> None:
        if planned.missed is not None:
            number = planned.missed.count
            what = f"{'At least ' if number >= MAX_COUNTED else ''}{number} slot{'s' * (number != 1)}"
            reason = f"{what} from this one on passed, and `catch_up` does not allow to fire them later."
            schedules.add_fire(tx, schedule, planned.missed.first, MISSED, reason=reason, slots=number)

    def _record_bug(self, attempt: _Attempt, error: Exception) -> None:
        """Log an error that the owner of the schedule did not cause, and write that the slot has started no run."""
        assert attempt.schedule is not None
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        log.error("schedule_failed", schedule_id=str(attempt.schedule.id), error=what)
        self._record(attempt, REFUSED, INTERNAL)

    def _record(self, attempt: _Attempt, outcome: str, reason: str) -> None:
        """Write why the slot of a failed transaction has started no run, unless another process has handled it."""
        schedule, planned, now = attempt.schedule, attempt.plan, attempt.now
        assert schedule is not None, "only a claimed schedule starts runs"
        assert now is not None

        def write(tx: Transaction) -> None:
            current = schedules.lock(tx, schedule.tenant_id, schedule.id)
            if planned is None:  # its specification cannot be read, by this release
                schedules.save(tx, replace(current, due_at=None, next_at=None, paused=True, paused_reason=reason))
            elif current.next_at == schedule.next_at and current.due_at is not None:
                self._write_slot(tx, current, planned, now, outcome, reason[:MAX_REASON])

        try:
            self.lifecycle.coordinator.database.run_with_retry(write)
        except NotFound:
            return  # deleted meanwhile
        self.count(outcome)
        log.warning(
            "schedule_not_started",
            schedule_id=str(schedule.id),
            tenant_id=str(schedule.tenant_id),
            outcome=outcome,
            error=reason[:MAX_REASON],
        )


def run_id_of(schedule_id: UUID, slot: datetime) -> RunId:
    """Return the id of the run of a slot: a UUIDv7 of the slot's time, whose other bits follow from both."""
    digest = hashlib.sha256(f"{schedule_id.hex} {slot.astimezone(UTC).isoformat()}".encode()).digest()
    return RunId(id_at(slot, int.from_bytes(digest, "big")))
