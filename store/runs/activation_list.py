"""Activations of a run as flat rows for people: paged, filtered, and those that changed since a revision.

A row has small values only: neither inputs nor outputs, and of the outcome what a list shows. A page is read in one
snapshot with the run's revision. So a reader that keeps a copy, and applies the rows since that revision again and
again, has the rows of the table (`CHANGED`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Integer, Text, TextClause, bindparam, text

from canvas.ids import ActivationId, RunId, TenantId, VersionId
from canvas.outcome import ContainerOpened
from canvas.state.run_state import ScopeKey, scope_key, scope_text
from store.db.transaction import USE_SNAPSHOT, PendingResult, Transaction
from store.primitives.outcome_codec import STORED_NAMES

MAX_ERROR_LENGTH = 300  # characters of an error in a row

RUN = text("""
    select id, version_id, status, revision, now() as now from runs where id = :run_id and tenant_id = :tenant_id
""")

CHANGED = """(
    a.activated_rev > :since or a.applied_rev > :since or (a.applied_rev is null and a.status <> 'queued')
    or (a.status <> 'done' and (
        a.status in ('ready', 'running', 'reported') or (a.status = 'closed' and a.started_at is not null)
    ))
)"""
"""Whether an activation may have changed after a revision.

Every advance that writes an activation sets `activated_rev` or `applied_rev`. Between two advances, claims, reports,
retries and sweepers change rows, and these are ready, running or reported then. Two more kinds of rows are always
included: what pipelined items did ahead of a failure loses its `applied_rev` at the end of the run, and the end of a
closed container follows from rows below it, which may report later. Finished activations, which are nearly all of a
large run, need one comparison of texts.
"""

_COLUMNS = f"""
    encode(uuid_send(a.id), 'hex') as id, a.node_id, a.component, a.scope, a.ordinal, a.order_key, a.status, a.attempt,
    a.crash_count, {
    ", ".join(
        f"cast(round(date_part('epoch', a.{name}) * 1000) as bigint) as {name}"
        for name in ("created_at", "not_before", "enqueued_at", "started_at", "finished_at")
    )
},
    a.worker, a.effect, a.usage, encode(uuid_send(a.stream_id), 'hex') as stream, a.cancel_requested,
    o."is" as outcome, left(coalesce(o.error, o.told), {MAX_ERROR_LENGTH + 1}) as error, o.code, o."to" as routed_to,
    o.count as item_count
"""
_OUTCOME = """
    left join lateral json_to_record(case when json_typeof(a.outcome) = 'object' then a.outcome end)
        as o("is" text, error text, told text, code text, "to" json, count int) on true
"""
_CONDITIONS: Mapping[str, str] = {
    "scope": "a.scope = :scope",
    "entry": """case when starts_with(a.scope, :entry)
        then cast(split_part(substr(a.scope, length(:entry) + 1), '/', 1) as int) between :first_item and :last_item
        end""",
    "node_ids": "a.node_id = any(cast(:node_ids as text[]))",
    "statuses": "a.status = any(cast(:statuses as text[]))",
    "ids": "a.id = any(cast(:ids as uuid[]))",
    "since": CHANGED,
}
_TYPES: Mapping[str, Any] = {
    "scope": Text,
    "entry": Text,
    "first_item": Integer,
    "last_item": Integer,
    "since": Integer,
}
ORDER_KEY = text("select order_key from activations where run_id = :run_id and id = :id")
LAST_FINISHED = text("""
    select rtrim(scope, '0123456789') as entry, cast(round(date_part('epoch', max(finished_at)) * 1000) as bigint)
    from activations where run_id = :run_id and scope <> '' group by 1
""")
"""The time at which the last activation directly inside of each container entry finished, by `Iteration:A#0.`."""
LAST_FINISHED_IN = text("""
    select cast(round(date_part('epoch', max(finished_at)) * 1000) as bigint)
    from activations where run_id = :run_id and starts_with(scope, :entry)
""")
MAX_SINGLE_CONTAINERS = 4  # containers of a page; for more, all entries are read at once


@cache
def _where(names: tuple[str, ...]) -> str:
    return " and ".join(("a.run_id = :run_id", *(_CONDITIONS[name] for name in names)))


@cache
def count_of(names: tuple[str, ...]) -> TextClause:
    """Return the statement that counts the activations that meet these conditions."""
    return _statement(f"select count(*) from activations a where {_where(names)}")  # noqa: S608 (constants only)


@cache
def page_by_id(names: tuple[str, ...]) -> TextClause:
    """Return the statement that reads the activations that meet these conditions, in the order of their ids."""
    return _statement(f"""
        select {_COLUMNS} from activations a {_OUTCOME}
        where {_where(names)} and a.id > :after order by a.id limit :most
    """)  # noqa: S608 (constants only)


@cache
def page_in_order(names: tuple[str, ...]) -> TextClause:
    """Return the statement that reads the activations that meet these conditions, in canonical order.

    Outcomes are parsed only for the rows of the page.
    """
    return _statement(f"""
        select {_COLUMNS} from (
            select a.* from activations a
            where {_where(names)} and (a.order_key, a.id) > (:after_key, cast(:after as uuid))
            order by a.order_key, a.id limit :most
        ) a {_OUTCOME} order by a.order_key, a.id
    """)  # noqa: S608 (constants only)


def _statement(sql: str) -> TextClause:
    return text(sql).bindparams(*(bindparam(name, type_=kind) for name, kind in _TYPES.items() if f":{name}" in sql))


class ActivationListRow(NamedTuple):
    """An activation. Times are milliseconds since 1970; `not_before` is 0 if it is due at once.

    `started_at` and `finished_at` of a row that is ready again are those of the attempt before. `error` has one
    character more than MAX_ERROR_LENGTH if it was cut.
    """

    id: str
    node_id: str
    component: str
    scope: str
    ordinal: int
    order_key: bytes
    status: str
    attempt: int
    crash_count: int
    created_at: int
    not_before: int
    enqueued_at: int | None
    started_at: int | None
    finished_at: int | None
    worker: str | None
    effect: str | None
    usage: Mapping[str, int] | None
    stream: str | None
    cancel_requested: bool
    outcome: str | None  # a name of store/primitives/outcome_codec.py
    error: str | None
    code: str | None
    routed_to: Sequence[str] | None
    item_count: int | None


@dataclass(frozen=True, slots=True)
class ActivationFilter:
    """Which activations a list shows; None: no restriction.

    `entry`: those inside of a container entry (`Iteration:A#0`), at any depth; `items`: in its items from the first to
    the last of these numbers.
    """

    scope: str | None = None
    entry: str | None = None
    items: tuple[int, int] | None = None
    node_ids: Sequence[str] | None = None
    statuses: Sequence[str] | None = None
    ids: Sequence[ActivationId] | None = None

    def values(self) -> dict[str, Any]:
        """Return the parameters of the conditions; empty if all activations of the run are shown."""
        named: dict[str, Any] = {
            "scope": self.scope,
            "entry": f"{self.entry}." if self.entry is not None else None,
            "node_ids": self.node_ids,
            "statuses": self.statuses,
            "ids": self.ids,
        }
        return {
            name: value if isinstance(value, str) else list(value) for name, value in named.items() if value is not None
        }


@dataclass(frozen=True, slots=True)
class ActivationPage:
    """A page of a run's activations, and the run's state in the same snapshot.

    `last_finished`: for containers that have ended, when the last activation inside of them finished, by their id.
    `has_more`: whether activations follow. `total`: how many the filter selects, on all pages and since any revision.
    """

    version_id: VersionId
    status: str
    revision: int
    now: datetime
    rows: Sequence[ActivationListRow]
    last_finished: Mapping[str, int]
    has_more: bool
    total: int


class UnknownActivation(Exception):
    """The activation after which the page was to begin is not one of the run."""


_BEFORE_ALL = ActivationId(UUID(int=0))
CONTAINER_OPENED = STORED_NAMES[ContainerOpened]


def read_page(
    tx: Transaction,
    tenant_id: TenantId,
    run_id: RunId,
    chosen: ActivationFilter,
    *,
    since: int | None = None,
    after: ActivationId | None = None,
    limit: int = 500,
) -> ActivationPage | None:
    """Return a page of a tenant's run; None if the tenant has no such run. Raises UnknownActivation.

    Without a filter the rows are in the order of their ids, else in canonical order. `since`: only rows that may have
    changed after this revision. If there are several pages, read them all with the same `since`; the revision of the
    first is the next `since`. Call it first in a transaction: it reads everything in one snapshot.
    """
    tx.send(USE_SNAPSHOT)
    run = tx.send(RUN, run_id=run_id, tenant_id=tenant_id)
    values = chosen.values()
    names = tuple(values)
    if "entry" in values:
        values["first_item"], values["last_item"] = chosen.items or (0, 2**31 - 1)
    counted = tx.send(count_of(names), run_id=run_id, **values)
    of_page = {**values, "run_id": run_id, "after": after or _BEFORE_ALL, "most": limit + 1}
    if since is not None:
        names, of_page = (*names, "since"), {**of_page, "since": since}
    if not values:
        found = tx.send(page_by_id(names), **of_page)
    else:
        key = b"" if after is None else tx.scalar(ORDER_KEY, run_id=run_id, id=after)
        if key is None:
            if run.one_or_none() is None:
                return None
            raise UnknownActivation
        found = tx.send(page_in_order(names), **of_page, after_key=key)
    state = run.one_or_none()
    if state is None:
        return None
    rows = [ActivationListRow(*row) for row in found.rows()]
    shown = rows[:limit]
    return ActivationPage(
        version_id=state["version_id"],
        status=state["status"],
        revision=state["revision"],
        now=state["now"],
        rows=shown,
        last_finished=_last_finished(tx, run_id, shown),
        has_more=len(rows) > limit,
        total=counted.scalar(),
    )


class PendingChanges(NamedTuple):
    """Changed activations whose statement was sent (`send_changes`)."""

    run_id: RunId
    found: PendingResult
    limit: int

    def read(self, tx: Transaction) -> "Changes":
        """Return the changed activations."""
        rows = [ActivationListRow(*row) for row in self.found.rows()]
        shown = rows[: self.limit]
        return Changes(shown, _last_finished(tx, self.run_id, shown), len(rows) > self.limit)


@dataclass(frozen=True, slots=True)
class Changes:
    """Activations that may have changed since a revision, in the order of their ids; see ActivationPage."""

    rows: Sequence[ActivationListRow]
    last_finished: Mapping[str, int]
    has_more: bool


def send_changes(
    tx: Transaction, run_id: RunId, since: int, *, after: ActivationId | None = None, limit: int
) -> PendingChanges:
    """Send the statement that reads the activations that may have changed since a revision, in the order of their ids.

    The caller has read the run, with its tenant, in the same snapshot.
    """
    values = {"run_id": run_id, "since": since, "after": after or _BEFORE_ALL, "most": limit + 1}
    return PendingChanges(run_id, tx.send(page_by_id(("since",)), **values), limit)


def _last_finished(tx: Transaction, run_id: RunId, rows: Sequence[ActivationListRow]) -> dict[str, int]:
    """Return when the last activation inside of each container that has ended finished, by the container's id."""
    ended = [row for row in rows if row.outcome == CONTAINER_OPENED and row.status in ("done", "closed")]
    if not ended:
        return {}
    entries = {row.id: entry_prefix(scope_key(row.scope), row.node_id, row.ordinal) for row in ended}
    if len(entries) > MAX_SINGLE_CONTAINERS:
        latest = _last_finished_by_entry(tx, run_id)
        return {id_: latest[entry] for id_, entry in entries.items() if entry in latest}
    sent = {id_: tx.send(LAST_FINISHED_IN, run_id=run_id, entry=entry) for id_, entry in entries.items()}
    return {id_: finished for id_, result in sent.items() if (finished := result.scalar()) is not None}


def _last_finished_by_entry(tx: Transaction, run_id: RunId) -> dict[str, int]:
    """Return when the last activation inside of each container entry finished, at any depth."""
    latest: dict[str, int] = {}
    for entry, finished in tx.rows(LAST_FINISHED, run_id=run_id):
        if finished is None:
            continue
        latest[entry] = max(finished, latest.get(entry, 0))
        outer, _, _ = entry.rpartition("/")
        while outer:
            around = outer.rstrip("0123456789")
            latest[around] = max(finished, latest.get(around, 0))
            outer, _, _ = around.rpartition("/")
    return latest


def entry_prefix(scope: ScopeKey, node_id: str, ordinal: int) -> str:
    """Return what the scopes inside of a container entry begin with: `Iteration:A#0.`; the item number follows."""
    return scope_text((*scope, (node_id, ordinal, 0))).removesuffix("0")
