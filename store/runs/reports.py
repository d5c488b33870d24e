"""Reports of attempts: stored with their values under the attempt's lease, and read by the next advance.

A row with status `reported` is a message to the coordinator. An inline report, which is stored together with the
advance that applies it, is written once, in the status that the decision gives the activation.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Double, bindparam, case, func, literal_column, select, update
from sqlalchemy.dialects.postgresql import insert

from canvas.ids import ActivationId, LeaseId, RunId
from canvas.outcome import LOST, UNKNOWN_OUTCOME, UNKNOWN_TEXT, Failed
from canvas.state.run_state import Report, scope_key
from store.db.guards import RowGuard, expect_rows, failed_guard
from store.db.transaction import PendingResult, Transaction
from store.primitives import outcome_codec
from store.primitives.json_codec import encode
from store.runs import model_calls
from store.runs.activations import (
    BY_KEY,
    BY_LEASE,
    BY_LEASE_OR_UNCLAIMED,
    STATUS_IS,
    Claim,
    Deferral,
    order_key_from_row,
)
from store.runs.model_calls import CallBatch
from store.tables.runs import activations, node_values, turns, variables

_result_columns: dict[str, Any] = {
    "outcome": bindparam("new_outcome"),
    "usage": bindparam("new_usage"),
    "crash_count": activations.c.crash_count + bindparam("new_crashes"),
    "finished_at": func.now(),
}
_SECOND = literal_column("interval '1 second'")
_claim_columns: dict[str, Any] = {
    "attempt": 1,
    "lease_id": bindparam("of_lease"),
    "worker": bindparam("worker_name"),
    "started_at": case(
        (STATUS_IS["ready"], func.now() - bindparam("elapsed", type_=Double) * _SECOND),
        else_=activations.c.started_at,
    ),
}

_report = update(activations).values(status="reported", **_result_columns)
REPORT = _report.where(*BY_KEY, *BY_LEASE)
REPORT_DEFERRED = _report.where(*BY_KEY, BY_LEASE_OR_UNCLAIMED).values(**_claim_columns)

_report_inline = (
    update(activations)
    .values(status=bindparam("new_status"), applied_rev=bindparam("new_revision"), **_result_columns)
    .returning(literal_column("1"))
)
REPORT_INLINE = _report_inline.where(*BY_KEY, *BY_LEASE)
REPORT_INLINE_DEFERRED = _report_inline.where(*BY_KEY, BY_LEASE_OR_UNCLAIMED).values(**_claim_columns)
EXPECT_LEASE = expect_rows(RowGuard.LEASE_HELD)

OVERWRITE_OUTCOME = (
    update(activations)
    .where(*BY_KEY, STATUS_IS["reported"])
    .values(outcome=bindparam("new_outcome"), finished_at=func.now())
)

WAS_STORED = select(activations.c.id).where(
    *BY_KEY, activations.c.lease_id == bindparam("of_lease"), activations.c.status != "running"
)

_values = insert(node_values)
PUT_VALUES = _values.on_conflict_do_update(  # a form writes twice: when it is shown, and when it is answered
    index_elements=["run_id", "activation_id", "node_id"],
    set_={name: _values.excluded[name] for name in ("outputs", "inputs", "names", "large")},
)
_stream = insert(turns)
PUT_STREAM = _stream.on_conflict_do_update(
    index_elements=["run_id", "id"],
    set_={name: _stream.excluded[name] for name in ("text", "writer", "epoch", "retained_length")},
)
PUT_STREAM_NEXT_EPOCH = _stream.on_conflict_do_update(  # for a writer that could not read the epoch
    index_elements=["run_id", "id"],
    set_={
        **{name: _stream.excluded[name] for name in ("text", "writer", "retained_length")},
        "epoch": turns.c.epoch + 1,
    },
)
_variables = insert(variables)
PUT_VARIABLES = _variables.on_conflict_do_update(
    index_elements=["run_id", "activation_id", "name"],
    set_={name: _variables.excluded[name] for name in ("value", "large")},
)

UNAPPLIED = (
    select(
        activations.c.id,
        activations.c.node_id,
        activations.c.scope,
        activations.c.ordinal,
        activations.c.level,
        activations.c.trail,
        activations.c.region,
        activations.c.outcome,
        activations.c.usage,
        activations.c.crash_count,
        activations.c.effect,
        activations.c.stream_id,
    )
    .where(activations.c.run_id == bindparam("of_run"), STATUS_IS["reported"])
    .order_by(activations.c.id)
)

HAS_UNAPPLIED = (
    select(activations.c.id).where(activations.c.run_id == bindparam("of_run"), STATUS_IS["reported"]).limit(1)
)


@dataclass(frozen=True, slots=True)
class ReportPayload:
    """Everything that one report stores."""

    outcome: Mapping[str, Any]  # store/primitives/outcome_codec.py
    usage: Mapping[str, int]  # of all attempts that have reported; if this attempt adds less, the outcome has its part
    values: Sequence[Mapping[str, Any]]  # rows of node_values
    variables: Sequence[Mapping[str, Any]]  # rows of variables
    stream: Mapping[str, Any] | None = None  # row of the message stream, with its whole text; epoch None: the next one
    calls: CallBatch | None = None  # model calls that no journal entry has stored; written by `write_calls`
    crashes: int = 0  # crashes to add to the activation's crash count
    size: int = 0  # characters in its rows, if they are so many that the database needs time for them


def report_inline(tx: Transaction, claim: Claim, payload: ReportPayload, status: str, revision: int) -> None:
    """Store an inline report in the status that the decision gives its activation.

    If the lease is gone, the server refuses the report, and with it the whole transaction (`is_lease_lost`).
    """
    tx.write(
        REPORT_INLINE if claim.deferral is None else REPORT_INLINE_DEFERRED,
        EXPECT_LEASE,
        of_run=claim.run_id,
        of_activation=claim.id,
        of_lease=claim.lease_id,
        new_status=status,
        new_revision=revision,
        new_outcome=payload.outcome,
        new_usage=payload.usage,
        new_crashes=payload.crashes,
        **_values_of(claim.deferral),
    )
    _write_values(tx, payload)


def write_calls(tx: Transaction, run_id: RunId, payloads: Iterable[ReportPayload]) -> None:
    """Queue the writes of the model calls of reports for the end of the transaction that stores the reports."""
    model_calls.write(tx, run_id, [payload.calls for payload in payloads])


def is_lease_lost(error: BaseException) -> bool:
    """Whether an inline report was refused because its lease is gone."""
    return failed_guard(error) is RowGuard.LEASE_HELD


def report(
    tx: Transaction,
    run_id: RunId,
    activation_id: ActivationId,
    lease_id: LeaseId,
    payload: ReportPayload,
    deferral: Deferral | None = None,
) -> PendingResult:
    """Send a report, guarded by its lease. The count of the result is 1, or 0 if the lease is gone.

    If it is 0, the caller must roll back: the report's values are sent without a guard of their own.
    """
    stored = tx.send(
        REPORT if deferral is None else REPORT_DEFERRED,
        of_run=run_id,
        of_activation=activation_id,
        of_lease=lease_id,
        new_outcome=payload.outcome,
        new_usage=payload.usage,
        new_crashes=payload.crashes,
        **_values_of(deferral),
    )
    _write_values(tx, payload)
    return stored


def _values_of(deferral: Deferral | None) -> dict[str, Any]:
    """Return the values that a report stores with a deferred claim."""
    return {"worker_name": deferral.worker, "elapsed": deferral.age} if deferral is not None else {}


def _write_values(tx: Transaction, payload: ReportPayload) -> None:
    tx.write_many(PUT_VALUES, payload.values)
    tx.write_many(PUT_VARIABLES, payload.variables)
    if payload.stream is not None:
        epoch = payload.stream["epoch"]
        put = PUT_STREAM if epoch is not None else PUT_STREAM_NEXT_EPOCH
        tx.write(put, **{**payload.stream, "epoch": 1 if epoch is None else epoch})


def report_from_claim(claim: Claim, payload: ReportPayload) -> Report:
    """Return an inline report as an advance would read it from its row."""
    decoded = outcome_codec.decode_outcome(json.loads(encode(payload.outcome)))
    return Report(
        activation=claim.id,
        node_id=claim.node_id,
        scope=claim.scope,
        ordinal=claim.ordinal,
        order_key=claim.order_key,
        outcome=decoded.outcome,
        error=decoded.error,
        crash_count=claim.crash_count + payload.crashes,
        stream_id=claim.stream_id,
        restarts_text=decoded.restarts_text,
        has_written=decoded.has_written,
        usage=payload.usage if decoded.used is None else decoded.used,
    )


def overwrite_outcome(tx: Transaction, run_id: RunId, activation_id: ActivationId, outcome: Mapping[str, Any]) -> None:
    """Write the outcome that a person states of a `reported` activation. The caller has locked the run."""
    tx.execute(OVERWRITE_OUTCOME, of_run=run_id, of_activation=activation_id, new_outcome=outcome)


def was_stored(tx: Transaction, run_id: RunId, activation_id: ActivationId, lease_id: LeaseId) -> bool:
    """Whether a report under this lease is stored already, by a commit whose answer was lost."""
    return tx.scalar(WAS_STORED, of_run=run_id, of_activation=activation_id, of_lease=lease_id) is not None


def unapplied_reports(tx: Transaction, run_id: RunId) -> Callable[[], list[Report]]:
    """Send the query for the reports that no advance has applied; the function returned gives them.

    It must be a later statement than the one that locks the run, so that it sees what was committed before the lock.
    """
    result = tx.send(UNAPPLIED, of_run=run_id)
    return lambda: _decode_reports(result.rows())


def _decode_reports(rows: Sequence[Any]) -> list[Report]:
    found: list[Report] = []
    for row in rows:
        fields = row._asdict()
        decoded = outcome_codec.decode_outcome(fields["outcome"])
        outcome = decoded.outcome
        if isinstance(outcome, Failed) and outcome.code == LOST and fields["effect"] == "unsafe":
            outcome = Failed(UNKNOWN_TEXT, UNKNOWN_OUTCOME)  # a sweeper of an earlier release knows no effect classes
        found.append(
            Report(
                activation=fields["id"],
                node_id=fields["node_id"],
                scope=scope_key(fields["scope"]),
                ordinal=fields["ordinal"],
                order_key=order_key_from_row(fields),
                outcome=outcome,
                error=decoded.error,
                crash_count=fields["crash_count"],
                stream_id=fields["stream_id"],
                restarts_text=decoded.restarts_text,
                has_written=decoded.has_written,
                usage=(fields["usage"] or {}) if decoded.used is None else decoded.used,
            )
        )
    return found


def has_unapplied_reports(tx: Transaction, run_id: RunId) -> bool:
    """The re-check: whether a report of the run is stored that no advance has applied."""
    return tx.scalar(HAS_UNAPPLIED, of_run=run_id) is not None


ORDER_KEY = select(activations.c.order_key, activations.c.region).where(*BY_KEY)


def put_variables(tx: Transaction, run_id: RunId, activation_id: ActivationId, values: Mapping[str, Any]) -> None:
    """Write variables as those of an activation, under the run's lock (the globals of a new turn)."""
    row = tx.rows(ORDER_KEY, of_run=run_id, of_activation=activation_id)[0]
    tx.write_many(
        PUT_VARIABLES,
        [
            {
                "run_id": run_id,
                "activation_id": activation_id,
                "name": name,
                "order_key": row.order_key,
                "region": row.region,
                "value": value,
            }
            for name, value in values.items()
        ],
    )
