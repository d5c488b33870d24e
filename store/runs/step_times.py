"""The times of a run's activations and of their earlier attempts, without anything else, for whole runs at once."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import text

from canvas.ids import ActivationId, RunId
from canvas.state.run_state import ActivationStatus
from store.db.transaction import Transaction

MAX_STEPS = 20_000  # activations of a run whose times are read


def _milliseconds(column: str) -> str:
    return f"cast(round(date_part('epoch', {column}) * 1000) as bigint)"


STEPS = text(f"""
    select encode(uuid_send(id), 'hex'), node_id, scope, ordinal, order_key, status, attempt,
        {_milliseconds("created_at")},
        {
    _milliseconds(
        "case when not_before > created_at then not_before "
        "else least(coalesce(enqueued_at, created_at), case when status <> 'ready' then started_at end) end"
    )
},
        {_milliseconds("started_at")}, {_milliseconds("finished_at")}, coalesce(stream_id = id, false)
    from activations where run_id = :run_id limit :most
""")  # noqa: S608 (constants only)
ATTEMPTS = text(f"""
    select encode(uuid_send(activation_id), 'hex'), attempt, {_milliseconds("ready_at")}, {_milliseconds("started_at")},
        {_milliseconds("ended_at")}, end_reason
    from attempts where run_id = :run_id and activation_id = any(cast(:ids as uuid[]))
    order by activation_id, attempt limit :most
""")  # noqa: S608 (constants only)
WAITED = text("""
    select encode(uuid_send(activation_id), 'hex'), attempt, cast(sum(waited_ms) as bigint) from model_calls
    where run_id = :run_id and waited_ms > 0 and activation_id = any(cast(:ids as uuid[])) group by 1, 2
""")


class StepTimes(NamedTuple):
    """An activation. Times are milliseconds since 1970.

    `ready_at`: when its current attempt was or will be ready. `started_at` and `finished_at` of a ready one are those
    of the attempt before. `has_stream`: it is a Message or the like, whose text may wait for other message streams.
    """

    id: str
    node_id: str
    scope: str
    ordinal: int
    order_key: bytes
    status: str
    attempt: int
    created_at: int
    ready_at: int
    started_at: int | None
    finished_at: int | None
    has_stream: bool


class AttemptTimes(NamedTuple):
    """An attempt after which its activation became ready again. Times are milliseconds since 1970."""

    activation_id: str
    attempt: int
    ready_at: int | None
    started_at: int | None
    ended_at: int | None
    end_reason: str


def may_have_attempts(status: str, attempt: int) -> bool:
    """Return whether an activation in this status, after so many attempts, may have earlier ones that are stored."""
    return attempt > 1 or (attempt == 1 and status == ActivationStatus.READY)


def load_steps(tx: Transaction, run_id: RunId) -> list[StepTimes] | None:
    """Return the activations of a run, without an order; None if there are more than MAX_STEPS."""
    rows = tx.rows(STEPS, run_id=run_id, most=MAX_STEPS + 1)
    return [StepTimes(*row) for row in rows] if len(rows) <= MAX_STEPS else None


def load_attempts(tx: Transaction, run_id: RunId, ids: Sequence[ActivationId], most: int) -> list[AttemptTimes]:
    """Return the first `most` earlier attempts of some activations, by activation and number."""
    return [AttemptTimes(*row) for row in tx.rows(ATTEMPTS, run_id=run_id, ids=list(ids), most=most)] if ids else []


def load_waits(tx: Transaction, run_id: RunId, ids: Sequence[ActivationId]) -> dict[tuple[str, int], int]:
    """Return how long the model calls of some activations waited for rate limits, by activation and attempt.

    Milliseconds; attempts whose calls did not wait, or are not stored, are absent.
    """
    return {(row[0], row[1]): row[2] for row in tx.rows(WAITED, run_id=run_id, ids=list(ids))} if ids else {}
