"""What an advance makes ready: activations written for the queue, or already claimed by the reporting thread.

A thread that reports may ask to execute one of the activations that the advance with its report makes ready (local
continuation, docs/decisions/0019). That activation is written as running, under a lease that the thread has registered.
It needs no task message and no claim.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Interval, bindparam, func, insert, literal_column, text

from canvas.ids import ActivationId, LeaseId, RunId
from canvas.routing.decision import Activation, Decision
from canvas.state.run_state import ActivationStatus, RunStatus, scope_text
from store.db.transaction import PendingResult, Transaction
from store.primitives.json_codec import encode
from store.runs import reused_activations
from store.runs.activations import CLAIM_COLUMNS, Claim, claim_from_rows
from store.runs.prepared_claims import CachedRun, PreparedClaim, prepare, prepare_promoted
from store.runs.reports import ReportPayload
from store.runs.run_rows import RunRow
from store.tables.runs import activations, indexed_part_of

DUE_AT_ONCE = "to_timestamp(0)"
"""`not_before` of activations that are due at once: the distant past, so that a clock set back delays nothing."""
ACTIVATE = insert(activations).values(  # the task message follows the commit
    enqueued_at=func.now(), not_before=literal_column(DUE_AT_ONCE)
)
ACTIVATE_MANY = text(f"""
    insert into activations (run_id, activated_rev, enqueued_at, not_before, id, node_id, component, scope, ordinal,
        order_key, region, level, trail, limits, status, stream_id)
    select :run_id, :revision, now(), {DUE_AT_ONCE}, u.id, u.node_id, u.component, u.scope, u.ordinal, u.order_key,
        u.region, u.level, cast(u.trail as json), cast(u.limits as json), u.status, u.stream_id
    from unnest(cast(:id as uuid[]), cast(:node_id as text[]), cast(:component as text[]), cast(:scope as text[]),
        cast(:ordinal as int[]), cast(:order_key as bytea[]), cast(:region as bytea[]), cast(:level as int[]),
        cast(:trail as text[]), cast(:limits as text[]), cast(:status as text[]), cast(:stream_id as uuid[]))
      as u(id, node_id, component, scope, ordinal, order_key, region, level, trail, limits, status, stream_id)
""")  # noqa: S608 (constants only)
BATCH_FROM = 3  # from this number on, one statement for all costs less than one for each
BATCH_SIZE = 500  # rows of one statement
ACTIVATE_CLAIMED = insert(activations).values(
    attempt=1,
    lease_until=func.now() + bindparam("lease", type_=Interval),
    started_at=func.now(),
    enqueued_at=func.now(),
    not_before=literal_column(DUE_AT_ONCE),
)
PROMOTE = text(f"""
    update activations a set status = 'ready', not_before = {DUE_AT_ONCE}, enqueued_at = now()
    from (
        select id from activations where run_id = :run_id and status = 'queued'
        order by {indexed_part_of("order_key")}, order_key limit :most
    ) next
    where a.run_id = :run_id and a.id = next.id returning {", ".join(f"a.{name}" for name in CLAIM_COLUMNS)}
""")  # noqa: S608 (constants only)
PROMOTE_CLAIMED = text(f"""
    update activations a set status = 'running', attempt = attempt + 1, lease_id = :lease_id,
        lease_until = now() + :lease, worker = :worker, started_at = now(), enqueued_at = now(),
        not_before = {DUE_AT_ONCE}
    from (
        select id as next_id from activations where run_id = :run_id and status = 'queued'
        order by {indexed_part_of("order_key")}, order_key limit 1
    ) next
    where a.run_id = :run_id and a.id = next_id returning {", ".join(CLAIM_COLUMNS)}
""").bindparams(bindparam("lease", type_=Interval))  # noqa: S608 (constants only)


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """A message that says "this activation is ready", with the component and the node that Flower shows."""

    run_id: RunId
    activation_id: ActivationId
    component: str
    node_id: str
    prepared: PreparedClaim | None = field(default=None, compare=False, repr=False)  # only in the first message
    is_first: bool = field(default=False, compare=False)  # whether no message was sent for the activation before
    parent: ActivationId | None = field(default=None, compare=False)  # the activation whose report made it ready

    def with_run(self, cached_run: CachedRun) -> "TaskMessage":
        """Return the message with the run as the advance wrote it."""
        if self.prepared is None:
            return self
        return replace(self, prepared=replace(self.prepared, cached_run=cached_run))


@dataclass(frozen=True, slots=True)
class ContinuationRequest:
    """A reporting thread's request to execute one of the activations that the advance with its report makes ready.

    `reserve` is called before the activation is written, with its id if that is known yet. It returns the id of the
    lease under which to write it; None: the thread does not want it, and a task message is sent.
    """

    worker: str
    lease: timedelta
    reserve: Callable[[ActivationId | None], LeaseId | None]


@dataclass(frozen=True, slots=True)
class InlineReport:
    """A report that is stored together with the advance that applies it: the attempt's claim, and what is stored."""

    claim: Claim
    payload: ReportPayload
    request: ContinuationRequest | None = None


@dataclass(frozen=True, slots=True)
class PendingClaim:
    """The claim of a continuation: known at once for a new activation, after the commit for a promoted one."""

    run: RunRow
    known: Claim | None = None
    promoted: PendingResult | None = None

    def result(self) -> Claim | None:
        """Return the claim; None if there was nothing to promote. Call it after the commit."""
        if self.promoted is None:
            return self.known
        columns = self.promoted.one_or_none()
        return claim_from_rows(columns, self.run.claim_columns()) if columns is not None else None


@dataclass(frozen=True, slots=True)
class PendingTaskMessages:
    """Task messages of activations that an advance has promoted. The database chooses them."""

    run: RunRow
    promoted: PendingResult
    parent: ActivationId | None

    def result(self) -> list[TaskMessage]:
        """Return the task messages. Call it after the commit."""
        return [
            TaskMessage(
                self.run.id,
                row.id,
                row.component,
                row.node_id,
                prepare_promoted(self.run, row._asdict()),
                is_first=True,
                parent=self.parent,
            )
            for row in self.promoted.rows()
        ]


@dataclass(frozen=True, slots=True)
class ActivationResult:
    """What an advance has made ready."""

    task_messages: Sequence[TaskMessage] = ()
    promoted: PendingTaskMessages | None = None
    claims: Mapping[ActivationId, PendingClaim] = field(default_factory=dict[ActivationId, PendingClaim])
    """Continuations, by the id of the activation that their thread has reported."""


def activate(
    tx: Transaction,
    row: RunRow,
    revision: int,
    decision: Decision,
    inline: Sequence[InlineReport],
    parent: ActivationId | None,
) -> ActivationResult:
    """Write the activations that a decision makes ready and those that it promotes.

    Waits for nothing, unless the run reuses activations of another run: those are stored as reported, and what is
    executed comes by task messages only.

    `parent`: the activation whose report led to the decision; of several the first.
    """
    may_continue = decision.run.status is RunStatus.RUNNING and row.source_run is None
    requests = [report for report in inline if report.request is not None] if may_continue else []
    task_messages: list[TaskMessage] = []
    claims: dict[ActivationId, PendingClaim] = {}
    queued: list[Activation] = []
    for new in decision.activated:
        if new.status is ActivationStatus.READY and _activate_claimed(tx, row, revision, new, requests, claims):
            continue
        queued.append(new)
        if new.status is ActivationStatus.READY:
            prepared = prepare(row, revision, new)
            task_messages.append(
                TaskMessage(row.id, new.id, new.component, new.node_id, prepared, is_first=True, parent=parent)
            )
    _insert(tx, row.id, revision, queued)
    promoted = _promote(tx, row, decision.promote_count, requests, claims, parent)
    if row.source_run is None:
        return ActivationResult(task_messages, promoted, claims)
    taken = reused_activations.take_over(tx, row.id, row.source_run)
    ready = [*task_messages, *(promoted.result() if promoted is not None else ())]
    return ActivationResult([message for message in ready if message.activation_id not in taken])


def _insert(tx: Transaction, run_id: RunId, revision: int, activated: Sequence[Activation]) -> None:
    rows = [_columns_of(run_id, revision, new) for new in activated]
    if len(rows) < BATCH_FROM:
        tx.write_many(ACTIVATE, rows)
        return
    for start in range(0, len(rows), BATCH_SIZE):
        batch = [
            {**row, "trail": encode(row["trail"]), "limits": encode(row["limits"]) if row["limits"] else None}
            for row in rows[start : start + BATCH_SIZE]
        ]
        columns = {name: [row[name] for row in batch] for name in batch[0] if name not in ("run_id", "activated_rev")}
        tx.write(ACTIVATE_MANY, run_id=run_id, revision=revision, **columns)


def _activate_claimed(
    tx: Transaction,
    row: RunRow,
    revision: int,
    new: Activation,
    requests: list[InlineReport],
    claims: dict[ActivationId, PendingClaim],
) -> bool:
    """Write a new activation as claimed if a request is left for it; return whether it was."""
    report, lease_id = _next_request(requests, new.id)
    if report is None or report.request is None:
        return False
    columns = {**_columns_of(row.id, revision, new), "status": ActivationStatus.RUNNING.value, "lease_id": lease_id}
    tx.write(ACTIVATE_CLAIMED, **columns, lease=report.request.lease, worker=report.request.worker)
    claim = claim_from_rows({**columns, "attempt": 1, "crash_count": 0, "answers": None}, row.claim_columns())
    claims[report.claim.id] = PendingClaim(row, known=claim)
    return True


def _promote(
    tx: Transaction,
    row: RunRow,
    count: int,
    requests: list[InlineReport],
    claims: dict[ActivationId, PendingClaim],
    parent: ActivationId | None,
) -> PendingTaskMessages | None:
    """Promote queued activations in canonical order: first one for each request, then the others for the queue."""
    for _ in range(count):
        report, lease_id = _next_request(requests, None)
        if report is None or report.request is None:
            break
        count -= 1
        promoted = tx.send(
            PROMOTE_CLAIMED,
            run_id=row.id,
            lease_id=lease_id,
            lease=report.request.lease,
            worker=report.request.worker,
        )
        claims[report.claim.id] = PendingClaim(row, promoted=promoted)
    return PendingTaskMessages(row, tx.send(PROMOTE, run_id=row.id, most=count), parent) if count else None


def _next_request(
    requests: list[InlineReport], activation_id: ActivationId | None
) -> tuple[InlineReport | None, LeaseId | None]:
    """Return the first report whose request reserves the activation, and the lease id; remove those tried."""
    while requests:
        report = requests.pop(0)
        lease_id = report.request.reserve(activation_id) if report.request is not None else None
        if lease_id is not None:
            return report, lease_id
    return None, None


def _columns_of(run_id: RunId, revision: int, new: Activation) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "id": new.id,
        "node_id": new.node_id,
        "component": new.component,
        "scope": scope_text(new.scope),
        "ordinal": new.ordinal,
        "order_key": new.order_key.key,
        "region": new.order_key.region,
        "level": new.order_key.level,
        "trail": new.order_key.branch_path,
        "limits": new.limits or None,
        "status": new.status.value,
        "stream_id": new.stream_id,
        "activated_rev": revision,
    }
