"""External ids: the ids that other services choose for the runs they start, unique within a tenant.

A run has an id of Easel's own, a UUIDv7, by which it is sorted and partitioned. An external id is any text of 1 to 255
printable characters. A row here maps it to its run, or to the row of a refused start. The column `key` is the external
id, with all spellings of a UUID (without hyphens, upper case) mapped to one.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Uuid, bindparam, delete, func, literal_column, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import ARRAY, insert

from canvas.errors import Conflict, InvalidRequest
from canvas.ids import CanvasId, RunId, TenantId
from canvas.state.run_state import RunStatus
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.tables.runs import runs
from store.tables.tenants import external_ids

MAX_LENGTH = 255  # characters
OWN_ID_WINDOW = timedelta(days=1)
BATCH = 500

_UUID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = OWN_ID_WINDOW // timedelta(milliseconds=1)

_is_it = (external_ids.c.tenant_id == bindparam("of_tenant"), external_ids.c.key == bindparam("of_key"))
LOCK = select(external_ids.c.run_id, external_ids.c.digest).where(*_is_it).with_for_update()
READ = select(external_ids.c.run_id, external_ids.c.digest).where(*_is_it)
ADD = (
    insert(external_ids)
    .values(
        tenant_id=bindparam("tenant_id"),
        key=bindparam("key"),
        run_id=bindparam("run_id"),
        digest=bindparam("digest"),
    )
    .on_conflict_do_nothing()
    .returning(external_ids.c.run_id)
)
REMAP = (
    update(external_ids)
    .where(*_is_it)
    .values(run_id=bindparam("new_run"), digest=bindparam("new_digest", type_=external_ids.c.digest.type))
)
READ_MANY = select(external_ids.c.key, external_ids.c.run_id).where(
    external_ids.c.tenant_id == bindparam("of_tenant"), external_ids.c.key == func.any(bindparam("keys"))
)
RUNS_OF_TENANT = select(runs.c.id).where(
    runs.c.id == func.any(bindparam("run_ids", type_=ARRAY(Uuid))), runs.c.tenant_id == bindparam("of_tenant")
)
RUNS_OF_CANVAS = RUNS_OF_TENANT.where(runs.c.canvas_id == bindparam("of_canvas"))
RUN_OF_TENANT = select(runs.c.id).where(runs.c.id == bindparam("of_run"), runs.c.tenant_id == bindparam("of_tenant"))
_refused = literal_column(f"'{RunStatus.REFUSED}'")
STARTED_RUN = select(runs.c.id, runs.c.canvas_id, runs.c.request, runs.c.first_event).where(
    runs.c.id == bindparam("of_run"), runs.c.tenant_id == bindparam("of_tenant"), runs.c.status != _refused
)
COMPARED_FIELDS = ("query", "inputs", "files", "user_id", "chat_template_kwargs")
"""What the row of a run has of the request that started it."""
TENANT_OF_RUN = select(runs.c.tenant_id).where(runs.c.id == bindparam("of_run"))
DROP_REFUSED = delete(runs).where(
    runs.c.id == bindparam("of_run"), runs.c.status == literal_column(f"'{RunStatus.REFUSED}'")
)
KEYS_OF_RUN = text("select array(select key from external_ids where run_id = :run_id)")
OPEN_RUNS_NAMED = text("""
    select r.id from runs r
    where r.status in ('queued', 'running', 'waiting', 'stopping') and r.id <> :besides
      and (r.id = :as_id or r.external_id = :written
        or exists (select from external_ids x where x.run_id = r.id and x.key = :key))
""")
_ORPHANED = (
    select(external_ids.c.tenant_id, external_ids.c.key)
    .where(
        external_ids.c.created_at < bindparam("before"),
        ~select(runs.c.id).where(runs.c.id == external_ids.c.run_id).exists(),
    )
    .order_by(external_ids.c.created_at)
    .limit(BATCH)
    .with_for_update(skip_locked=True, of=external_ids)
)
DELETE_ORPHANED = delete(external_ids).where(tuple_(external_ids.c.tenant_id, external_ids.c.key).in_(_ORPHANED))


@dataclass(frozen=True, slots=True)
class ExternalId:
    """An external id as its sender wrote it, and the request it came with: SHA-256, agent, and what runs show of it."""

    text: str
    digest: bytes
    canvas_id: CanvasId
    request: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Return the key under which the id is stored."""
        return key_of(self.text)


def validate(written: Any) -> str:
    """Return a valid external id. Raises InvalidRequest."""
    if not isinstance(written, str):
        raise InvalidRequest(f"The run id must be a string, not {type(written).__name__}.")
    if not written.strip() or len(written) > MAX_LENGTH or not written.isprintable():
        raise InvalidRequest(
            f"The run id must have 1 to {MAX_LENGTH} printable characters. Send a UUID, or order-4711."
        )
    return written


def uuid_of(written: str) -> UUID | None:
    """Return the UUID that a text spells, with or without hyphens; None for any other text."""
    return UUID(written) if _UUID.fullmatch(written) else None


def key_of(written: str) -> str:
    """Return the key of an external id: a UUID in its canonical spelling, any other text unchanged."""
    parsed = uuid_of(written)
    return str(parsed) if parsed is not None else written


def choose_run_id(written: str, now: datetime) -> RunId:
    """Return the id of a run that is to be started under this external id.

    A UUIDv7 of within a day of now is used itself; for any other text a new id is created.
    """
    parsed = uuid_of(written)
    if parsed is not None and parsed.version == 7 and abs((parsed.int >> 80) - _milliseconds(now)) < _DAY:
        return RunId(parsed)
    return RunId(new_id())


def find_run(tx: Transaction, tenant_id: TenantId, written: str) -> RunId | None:
    """Return the id of the tenant's run or refused start that a run id or external id names; None if there is none."""
    parsed = uuid_of(written)
    if parsed is not None and tx.scalar(RUN_OF_TENANT, of_run=parsed, of_tenant=tenant_id) is not None:
        return RunId(parsed)
    if not written or len(written) > MAX_LENGTH or not written.isprintable():
        return None
    return tx.scalar(READ, of_tenant=tenant_id, of_key=key_of(written))


def is_run_of(tx: Transaction, tenant_id: TenantId, written: str, canvas_id: CanvasId) -> bool:
    """Return whether a run id or external id names a run, or a refused start, of this agent of the tenant."""
    run_id = find_run(tx, tenant_id, written)
    return run_id is not None and bool(filter_runs_of(tx, tenant_id, [run_id], canvas_id))


def filter_runs_of(tx: Transaction, tenant_id: TenantId, run_ids: Collection[RunId], canvas_id: CanvasId) -> set[RunId]:
    """Return those of these runs that are runs of this agent of the tenant."""
    rows = tx.rows(RUNS_OF_CANVAS, of_tenant=tenant_id, run_ids=sorted(run_ids), of_canvas=canvas_id)
    return {run_id for (run_id,) in rows}


def find_runs(tx: Transaction, tenant_id: TenantId, written: Collection[str]) -> dict[str, RunId]:
    """Return what `find_run` returns for each of several ids, without those that name no run. Takes two statements."""
    uuids = {each: parsed for each in written if (parsed := uuid_of(each)) is not None}
    own = {row[0] for row in tx.rows(RUNS_OF_TENANT, of_tenant=tenant_id, run_ids=sorted(set(uuids.values())))}
    found = {each: RunId(parsed) for each, parsed in uuids.items() if parsed in own}
    keys = {
        each: key_of(each) for each in set(written) - found.keys() if each.isprintable() and len(each) <= MAX_LENGTH
    }
    named = dict(tx.rows(READ_MANY, of_tenant=tenant_id, keys=sorted(set(keys.values()))))
    return found | {each: RunId(named[key]) for each, key in keys.items() if key in named}


def find_started_run(tx: Transaction, tenant_id: TenantId, external: ExternalId) -> RunId | None:
    """Return the run that this request started before; None if its external id is new or that start was refused.

    Raises Conflict if another request has this external id.
    """
    existing = tx.one_or_none(READ, of_tenant=tenant_id, of_key=external.key)
    if existing is None:
        return _find_run_by_own_id(tx, tenant_id, external)
    return _require_same_request(external, existing["run_id"], existing["digest"])


def claim(tx: Transaction, tenant_id: TenantId, external: ExternalId, run_id: RunId) -> RunId | None:
    """Map the external id to `run_id` and return None; or return the run that this request started before.

    A second request with this external id waits here until the first has committed or rolled back. The row of an
    earlier, refused start is deleted. Raises Conflict if another request has this external id.
    """
    while True:
        existing = tx.one_or_none(LOCK, of_tenant=tenant_id, of_key=external.key)
        if existing is not None:
            if existing["digest"] is not None:
                return _require_same_request(external, existing["run_id"], existing["digest"])
            tx.execute(DROP_REFUSED, of_run=existing["run_id"])
            remap(tx, tenant_id, external, run_id)
            return None
        earlier = _find_run_by_own_id(tx, tenant_id, external)
        if earlier is not None:
            return earlier
        values = {"tenant_id": tenant_id, "key": external.key, "run_id": run_id, "digest": external.digest}
        if tx.scalar(ADD, **values) is not None:
            return None


def started_run(tx: Transaction, tenant_id: TenantId, written: str) -> Mapping[str, Any] | None:
    """Return the tenant's run whose own id is the external id: of an earlier release, or started over HTTP."""
    parsed = uuid_of(written)
    return tx.one_or_none(STARTED_RUN, of_run=parsed, of_tenant=tenant_id) if parsed is not None else None


def _find_run_by_own_id(tx: Transaction, tenant_id: TenantId, external: ExternalId) -> RunId | None:
    """Return the run whose own id is the external id, if this request may have started it. Raises Conflict if not.

    Such a run has no digest: the agent is compared and, in the run's first turn, what the row shows of the request.
    """
    row = started_run(tx, tenant_id, external.text)
    if row is None:
        return None
    is_first_turn = row["first_event"] <= 1
    differs = any(
        (row["request"].get(name) or None) != (external.request.get(name) or None) for name in COMPARED_FIELDS
    )
    if row["canvas_id"] != external.canvas_id or (is_first_turn and differs):
        raise _other_request_conflict(external, row["id"])
    return row["id"]


def remap(tx: Transaction, tenant_id: TenantId, external: ExternalId, run_id: RunId) -> None:
    """Map an external id that this transaction has claimed to another run."""
    tx.execute(REMAP, of_tenant=tenant_id, of_key=external.key, new_run=run_id, new_digest=external.digest)


def find_open_runs(tx: Transaction, written: str, excluded: RunId) -> list[RunId]:
    """Return the open runs of all tenants that an external id names, except one: a cancel key names no tenant.

    Reads all open runs, so use it only in the rare case that such a key is set.
    """
    named = {"written": written, "key": key_of(written), "as_id": uuid_of(written) or UUID(int=0)}
    return [run_id for (run_id,) in tx.rows(OPEN_RUNS_NAMED, **named, besides=excluded)]


def is_free(tx: Transaction, run_id: RunId) -> bool:
    """Return whether no tenant has a run with this id."""
    return tx.scalar(TENANT_OF_RUN, of_run=run_id) is None


def delete_orphaned(tx: Transaction, before: datetime) -> int:
    """Delete up to 500 external ids from before `before` whose runs are deleted; return how many."""
    return tx.execute(DELETE_ORPHANED, before=before)


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _require_same_request(external: ExternalId, run_id: RunId, digest: bytes | None) -> RunId | None:
    if digest is None:
        return None
    if digest != external.digest:
        raise _other_request_conflict(external, run_id)
    return run_id


def _other_request_conflict(external: ExternalId, run_id: RunId) -> Conflict:
    return Conflict(
        f'The run id "{external.text}" belongs to another request. Use a new id for a new request.', run_id=str(run_id)
    )
