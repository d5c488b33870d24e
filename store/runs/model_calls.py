"""Model calls of runs: written with a report or a journal entry, read for people.

A call's row refers to the parts of its bodies, which are rows of their own: messages, lists of tools, answers. A run
stores each part once, whichever of its calls has it. The format of bodies: worker/context/call_bodies.py.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from time import monotonic
from typing import Any
from uuid import UUID

from sqlalchemy import Uuid, bindparam, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY

from canvas.ids import ActivationId, RunId, TenantId
from store.db.transaction import Transaction
from store.primitives.ids import NO_ID
from store.primitives.json_codec import encode
from store.tables.runs import call_parts, model_calls, runs

MAX_LISTED = 500  # calls of a page

PUT_CALLS = text("""
    insert into model_calls (run_id, id, activation_id, attempt, round, kind, model, account, started_at,
        first_token_at, ended_at, status, error, tries, waited_ms, usage, request, response)
    select :run_id, c.id, c.activation_id, c.attempt, c.round, c.kind, c.model, c.account,
        now() - make_interval(secs => c.age), now() - make_interval(secs => c.token_age),
        now() - make_interval(secs => c.end_age), c.status, c.error, c.tries, c.waited_ms, c.usage,
        cast(c.request as json), c.response
    from json_to_recordset(cast(:calls as json)) as c (id uuid, activation_id uuid, attempt int, round text, kind text,
        model text, account text, age float8, token_age float8, end_age float8, status text, error text, tries int,
        waited_ms int, usage json, request text, response uuid)
    on conflict do nothing
""")
"""A call that a lost commit has stored already is not stored again."""
PUT_PARTS = text("""
    insert into call_parts (run_id, digest, body)
    select :run_id, p.digest, cast(p.body as json)
    from unnest(cast(:digests as uuid[]), cast(:bodies as text[])) as p(digest, body)
    on conflict do nothing
""")
"""Digests are in order, so that two transactions that write the same parts do not wait for each other."""

_columns = [column for column in model_calls.c if column.name != "run_id"]
_of_run = (
    model_calls.c.run_id == bindparam("of_run"),
    select(runs.c.id).where(runs.c.id == bindparam("of_run"), runs.c.tenant_id == bindparam("of_tenant")).exists(),
)
LIST = (
    select(*_columns)
    .where(*_of_run, model_calls.c.id > bindparam("after"))
    .order_by(model_calls.c.id)
    .limit(bindparam("most"))
)
LIST_OF_ACTIVATION = LIST.where(model_calls.c.activation_id == bindparam("of_activation"))
LIST_OF_SOME = LIST.where(
    model_calls.c.activation_id == func.any(bindparam("activation_ids", type_=ARRAY(Uuid))),
    model_calls.c.id != func.all(bindparam("known_ids", type_=ARRAY(Uuid))),
)
GET = select(*_columns).where(*_of_run, model_calls.c.id == bindparam("of_call"))
PARTS = select(call_parts.c.digest, call_parts.c.body).where(
    call_parts.c.run_id == bindparam("of_run"),
    call_parts.c.digest == func.any(bindparam("digests", type_=ARRAY(Uuid))),
)


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call to be written. `began`, `first_token` and `ended` are on the monotonic clock; the row gets times."""

    id: UUID
    activation_id: UUID
    attempt: int
    round: str | None
    kind: str
    model: str
    account: str
    began: float
    first_token: float | None
    ended: float
    status: str
    error: str | None
    tries: int
    waited_ms: int
    usage: Mapping[str, int]
    request: str | None  # JSON
    response: str | None  # digest


@dataclass(frozen=True, slots=True)
class CallBatch:
    """Calls that are written together, and the parts of their bodies by digest, in order.

    `calls` are what the rows were made of, for the writer.
    """

    calls: Sequence[Any]
    rows: Sequence[CallRow]
    parts: Mapping[UUID, str]


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call as its row has it. `request` is None if bodies are not stored, `{"hidden": true}` for hidden nodes."""

    id: UUID
    activation_id: ActivationId
    attempt: int
    round: str | None
    kind: str
    model: str
    account: str
    started_at: datetime | None
    first_token_at: datetime | None
    ended_at: datetime | None
    status: str
    error: str | None
    tries: int
    waited_ms: int
    usage: Mapping[str, int] | None
    request: Mapping[str, Any] | None
    response: UUID | None


@dataclass(frozen=True, slots=True)
class CallBodies:
    """The bodies of a call, put together. Each is None if it is not stored."""

    request: Mapping[str, Any] | None
    response: Any


def write(tx: Transaction, run_id: RunId, batches: Sequence[CallBatch | None]) -> None:
    """Queue the writes of calls for the end of a transaction, after everything that waits for locks of others.

    Another transaction may be writing the same parts; this one waits until that one commits.
    """
    written = [batch for batch in batches if batch is not None]
    if not written:
        return
    now = monotonic()
    calls = [_values(row, now) for batch in written for row in batch.rows]
    tx.write_at_end(PUT_CALLS, run_id=run_id, calls=encode(calls))
    parts = {digest: body for batch in written for digest, body in batch.parts.items()}
    if parts:
        digests = sorted(parts)
        tx.write_at_end(PUT_PARTS, run_id=run_id, digests=digests, bodies=[parts[digest] for digest in digests])


def list_calls(
    tx: Transaction,
    tenant_id: TenantId,
    run_id: RunId,
    *,
    activation_id: ActivationId | None = None,
    after: UUID = NO_ID,
    limit: int = MAX_LISTED,
) -> list[StoredCall]:
    """Return the calls of a tenant's run, or of one activation, after a call, oldest first."""
    values = {"of_tenant": tenant_id, "of_run": run_id, "after": after, "most": limit}
    if activation_id is not None:
        return [StoredCall(*row) for row in tx.rows(LIST_OF_ACTIVATION, **values, of_activation=activation_id)]
    return [StoredCall(*row) for row in tx.rows(LIST, **values)]


def list_calls_of(
    tx: Transaction,
    tenant_id: TenantId,
    run_id: RunId,
    activation_ids: Collection[ActivationId],
    *,
    known_ids: Collection[UUID] = (),
    after: UUID = NO_ID,
    limit: int = MAX_LISTED,
) -> list[StoredCall]:
    """Return the calls of some activations of a tenant's run after a call, oldest first, without known ones."""
    found = tx.rows(
        LIST_OF_SOME,
        of_tenant=tenant_id,
        of_run=run_id,
        after=after,
        most=limit,
        activation_ids=sorted(activation_ids),
        known_ids=sorted(known_ids),
    )
    return [StoredCall(*row) for row in found]


def get_call(tx: Transaction, tenant_id: TenantId, run_id: RunId, call_id: UUID) -> StoredCall | None:
    """Return a call of a tenant's run; None if there is none."""
    row = tx.one_or_none(GET, of_tenant=tenant_id, of_run=run_id, of_call=call_id)
    return StoredCall(**row) if row else None


def load_bodies(tx: Transaction, run_id: RunId, call: StoredCall) -> CallBodies:
    """Return the bodies of a call with their parts in place. A part that is gone is `{"$gone": true}`."""
    if call.request is None:
        return CallBodies(None, None)
    named = [UUID(hex=digest) for digest in _digests_in(call.request)]
    named += [call.response] if call.response is not None else []
    parts = _load_parts(tx, run_id, named)
    parts |= _load_parts(tx, run_id, [digest for part in parts.values() for digest in _data_parts_in(part)])

    def part_of(digest: str) -> Any:
        return _with_data(parts.get(UUID(hex=digest), {"$gone": True}), parts)

    request = dict(call.request)
    for name in ("messages", "texts"):
        if name in request:
            request[name] = [part_of(digest) for digest in request[name]]
    if "tools" in request:
        request["tools"] = part_of(request["tools"])
    return CallBodies(request, part_of(call.response.hex) if call.response is not None else None)


def _values(row: CallRow, now: float) -> dict[str, Any]:
    values = asdict(row)
    began, token, ended = values.pop("began"), values.pop("first_token"), values.pop("ended")
    return {**values, "age": now - began, "token_age": None if token is None else now - token, "end_age": now - ended}


def _digests_in(request: Mapping[str, Any]) -> list[str]:
    tools = [request["tools"]] if "tools" in request else []
    return [*request.get("messages", ()), *request.get("texts", ()), *tools]


def _load_parts(tx: Transaction, run_id: RunId, digests: Sequence[UUID]) -> dict[UUID, Any]:
    if not digests:
        return {}
    return dict(map(tuple, tx.rows(PARTS, of_run=run_id, digests=sorted(set(digests)))))


def _data_parts_in(value: Any) -> list[UUID]:
    """Return the digests of the data URLs in a part."""
    match value:
        case dict():
            digest = _data_part_of(value)
            return [digest] if digest else [found for member in value.values() for found in _data_parts_in(member)]
        case list():
            return [found for item in value for found in _data_parts_in(item)]
        case _:
            return []


def _with_data(value: Any, parts: Mapping[UUID, Any]) -> Any:
    """Return a part with its data URLs in place of their descriptions, where they are stored."""
    match value:
        case dict():
            digest = _data_part_of(value)
            if digest is not None and digest in parts:
                return parts[digest]
            return {name: _with_data(member, parts) for name, member in value.items()}
        case list():
            return [_with_data(item, parts) for item in value]
        case _:
            return value


def _data_part_of(value: Mapping[str, Any]) -> UUID | None:
    """Return the digest in the description of a data URL; None for any other object."""
    described = value.get("$data") if len(value) == 1 else None
    digest = described.get("part") if isinstance(described, dict) else None
    try:
        return UUID(hex=digest) if isinstance(digest, str) else None
    except ValueError:  # an author's own object
        return None
