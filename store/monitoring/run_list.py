"""The list of a tenant's runs for people: pages by key, filters, a bounded search, and the states of rows in view.

A row reads small parts of the columns `request` and `state` only. Conditions that no index serves are checked on the
newest SEARCHED_ROWS rows; a page says how far it has searched.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import TextClause, text

from canvas.budget import budget_stop
from canvas.ids import CanvasId, RunId, SessionId, TenantId, VersionId
from store.db.transaction import Transaction
from store.primitives.ids import created_at_of

SEARCHED_ROWS = 20_000  # of one request, where no index serves a condition
MAX_COUNTED = 10_000
MAX_NEWER = 100
MAX_WORDS = 10
QUERY_LENGTH = 200  # characters of a query in a row

_INDEXED: Mapping[str, str] = {
    "before_at": "(r.created_at, r.id) < (cast(:before_at as timestamptz), cast(:before_id as uuid))",
    "newer_at": "(r.created_at, r.id) > (cast(:newer_at as timestamptz), cast(:newer_id as uuid))",
    "canvas_ids": "r.canvas_id = any(cast(:canvas_ids as uuid[]))",
    "version_id": "r.version_id = cast(:version_id as uuid)",
    "session_id": "r.conversation_id = cast(:session_id as uuid)",
    "source_run": "r.source_run = cast(:source_run as uuid)",
    "since_at": "r.created_at >= cast(:since_at as timestamptz)",
    "until_at": "r.created_at < cast(:until_at as timestamptz)",
    "exact": "(r.id = cast(:exact as uuid) or r.conversation_id = cast(:exact as uuid))",
}
_SEARCHED: Mapping[str, str] = {
    "statuses": "r.status = any(cast(:statuses as text[]))",
    "user_id": "r.request ->> 'user_id' = :user_id",
    "origin": """case when :origin = 'any' then r.origin is not null when :origin = 'none' then r.origin is null
        else r.origin ->> 'kind' = :origin end""",
    "message_id": "r.message_id = cast(:message_id as uuid)",
    "patterns": """concat_ws(' ', r.request ->> 'query', r.error,
            (select c.title from canvases c where c.id = r.canvas_id),
            (select k.name from conversations k where k.id = r.conversation_id)
        ) ilike all (cast(:patterns as text[]))""",
    "trouble": """(r.status = 'failed' or r.error <> '' or exists (
            select from activations a where a.run_id = r.id
                and (a.crash_count > 0 or a.attempt > 1 or (a.status = 'ready' and a.not_before > now()))
        ))""",
}
_NEWEST_FIRST = "order by r.created_at desc, r.id desc"
_STATE = """
    r.id, r.status, r.usage, left(r.error, :error_length) as error, r.started_at, r.finished_at,
    case when r.status = 'waiting' then r.state -> 'forms' end as forms,
    cast(coalesce(r.state ->> 'activated', '0') as int) as activated,
    cast(coalesce(r.state ->> 'live', '0') as int) as active, cast(coalesce(r.state ->> 'queued', '0') as int) as queued
"""
STATES = text(f"select {_STATE} from runs r where r.id = any(cast(:run_ids as uuid[])) and r.tenant_id = :tenant_id")  # noqa: S608 (constants only)
CREATED_AT = text("select created_at from runs where id = :run_id and tenant_id = :tenant_id")
NOW = text("select now()")

_ANCHORS = ("before_id", "newer_id")
_NO_LIMIT = 2**31 - 1


class ListedState(NamedTuple):
    """What changes of a run in a list. `forms`: its open forms if it waits (canvas/state/checkpoint.py)."""

    id: RunId
    status: str
    usage: Mapping[str, int]
    error: str
    started_at: datetime | None
    finished_at: datetime | None
    forms: Mapping[str, Sequence[Any]] | None
    activated: int  # activations so far
    active: int  # ready or running
    queued: int

    @property
    def waits_for(self) -> str | None:
        """Return `person` or `budget` if the run waits for one, `person` before `budget`; else None."""
        stops = [budget_stop(form[3]) for form in (self.forms or {}).values()]
        return None if not stops else "person" if None in stops else "budget"


class ListedRun(NamedTuple):
    """A run of a list, with the names of what it belongs to; None where that is gone."""

    state: ListedState
    canvas_id: CanvasId
    version_id: VersionId
    conversation_id: SessionId
    message_id: UUID
    last_event: int
    created_at: datetime
    external_id: str | None
    query: str | None  # its first QUERY_LENGTH characters
    user_id: str | None
    failed_node: str | None
    agent_title: str | None
    version_title: str | None
    version_number: int | None
    conversation_name: str | None
    origin: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a list shows; None: no restriction. `words`: all of them, in any case.

    `exact`: the run, session or message with this id.
    """

    statuses: Sequence[str] | None = None
    canvas_ids: Sequence[CanvasId] | None = None
    version_id: VersionId | None = None
    session_id: SessionId | None = None
    user_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    words: Sequence[str] | None = None
    exact: UUID | None = None
    has_trouble: bool = False
    source_run: RunId | None = None
    origin: str | None = None  # a kind (rerun, fork), `any` or `none`

    def values(self) -> dict[str, Any]:
        """Return the parameters of the conditions, without those of `exact`."""
        named: dict[str, Any] = {
            "canvas_ids": list(self.canvas_ids) if self.canvas_ids is not None else None,
            "version_id": self.version_id,
            "source_run": self.source_run,
            "origin": self.origin,
            "session_id": self.session_id,
            "since_at": self.since,
            "until_at": self.until,
            "statuses": list(self.statuses) if self.statuses is not None else None,
            "user_id": self.user_id,
            "patterns": [_pattern(word) for word in self.words] if self.words else None,
            "trouble": self.has_trouble or None,
        }
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs, the newest first. `next_id`: the page after it begins below this run; None: there is none.

    `searched_until`: the time that the search has reached, if there may be more before it. `total`: None if it was not
    requested; it stops at MAX_COUNTED (`is_capped`).
    """

    runs: Sequence[ListedRun]
    next_id: RunId | None
    searched_until: datetime | None
    now: datetime
    total: int | None = None
    is_capped: bool = False


@cache
def _window(names: tuple[str, ...]) -> str:
    indexed = [_INDEXED[name] for name in names if name in _INDEXED]
    return " and ".join(("r.tenant_id = :tenant_id", *indexed))


@cache
def _selection(names: tuple[str, ...]) -> str:
    """Return a query of the runs that meet these conditions, among the newest that meet the indexed ones."""
    searched = [_SEARCHED[name] for name in names if name in _SEARCHED]
    if not searched:
        return f"(select r.* from runs r where {_window(names)} {_NEWEST_FIRST} limit :most)"  # noqa: S608 (constants)
    return f"""(
        select r.* from (select r.* from runs r where {_window(names)} {_NEWEST_FIRST} limit :searched) r
        where {" and ".join(searched)} {_NEWEST_FIRST} limit :most
    )"""  # noqa: S608 (constants only)


@cache
def page_statement(names: tuple[str, ...]) -> TextClause:
    """Return the statement that reads a page of runs that meet these conditions."""
    return text(f"""
        select {_STATE}, r.canvas_id, r.version_id, r.conversation_id, r.message_id, r.last_event, r.created_at,
            r.external_id, left(r.request ->> 'query', {QUERY_LENGTH}), r.request ->> 'user_id',
            r.state -> 'failing' ->> 2, c.title, v.title,
            case when v.id is not null then (
                select count(*) from versions n where n.tenant_id = v.tenant_id and n.canvas_id = v.canvas_id
                    and (n.created_at, n.id) <= (v.created_at, v.id)
            ) end, k.name, r.origin
        from {_selection(names)} r
        left join canvases c on c.id = r.canvas_id and c.tenant_id = r.tenant_id
        left join versions v on v.id = r.version_id and v.tenant_id = r.tenant_id
        left join conversations k on k.id = r.conversation_id and k.tenant_id = r.tenant_id
        {_NEWEST_FIRST}
    """)  # noqa: S608 (constants only)


@cache
def count_statement(names: tuple[str, ...]) -> TextClause:
    """Return the statement that counts runs that meet these conditions, up to a maximum."""
    return text(f"select count(*) from {_selection(names)} r")  # noqa: S608 (constants only)


@cache
def end_statement(names: tuple[str, ...]) -> TextClause:
    """Return the statement that reads the last run that was searched; it has no row if all were."""
    return text(f"""
        select r.id, r.created_at from runs r where {_window(names)} {_NEWEST_FIRST} offset :searched - 1 limit 1
    """)  # noqa: S608 (constants only)


def read_page(
    tx: Transaction,
    tenant_id: TenantId,
    chosen: RunFilter,
    *,
    before: RunId | None = None,
    limit: int = 30,
    has_total: bool = False,
) -> RunPage:
    """Return a page of runs, the newest first, from below the run `before` on.

    The run of an id is found wherever it is; of other conditions see the module.
    """
    values = chosen.values()
    now: datetime = tx.scalar(NOW)
    if before is not None:
        at = tx.scalar(CREATED_AT, run_id=before, tenant_id=tenant_id)
        values |= {"before_at": at or created_at_of(before), "before_id": before}
    if chosen.exact is not None:
        page = _read(tx, tenant_id, {**values, "exact": chosen.exact}, limit, now)
        if page.runs:
            return page
        values["message_id"] = chosen.exact
    page = _read(tx, tenant_id, values, limit, now)
    if not has_total:
        return page
    total = _count(tx, tenant_id, {k: v for k, v in values.items() if not k.startswith("before_")}, MAX_COUNTED + 1)
    return RunPage(page.runs, page.next_id, page.searched_until, now, min(total, MAX_COUNTED), total > MAX_COUNTED)


def count_newer(tx: Transaction, tenant_id: TenantId, chosen: RunFilter, newer_than: RunId) -> int:
    """Return how many runs are newer than this one, at most MAX_NEWER."""
    at = tx.scalar(CREATED_AT, run_id=newer_than, tenant_id=tenant_id)
    values = {**chosen.values(), "newer_at": at or created_at_of(newer_than), "newer_id": newer_than}
    if chosen.exact is not None:
        values["exact"] = chosen.exact
    return _count(tx, tenant_id, values, MAX_NEWER)


def read_states(tx: Transaction, tenant_id: TenantId, run_ids: Sequence[RunId]) -> tuple[datetime, list[ListedState]]:
    """Return the time of the database, and the states of a tenant's runs; unknown ids are left out."""
    now = tx.send(NOW)
    rows = tx.rows(STATES, run_ids=list(run_ids), tenant_id=tenant_id, error_length=QUERY_LENGTH) if run_ids else ()
    return now.scalar(), [ListedState(*row) for row in rows]


def _read(tx: Transaction, tenant_id: TenantId, values: Mapping[str, Any], limit: int, now: datetime) -> RunPage:
    names = _names(values)
    arguments = {"tenant_id": tenant_id, **_bounds(names), **_arguments(values)}
    found = tx.rows(page_statement(names), most=limit + 1, error_length=_NO_LIMIT, **arguments)
    size = len(ListedState._fields)
    runs = [ListedRun(ListedState(*row[:size]), *row[size:]) for row in found]
    if len(runs) > limit:
        return RunPage(runs[:limit], runs[limit - 1].state.id, None, now)
    if not _bounds(names):
        return RunPage(runs, None, None, now)
    window = tuple(name for name in names if name in _INDEXED)
    of_window = {name: value for name, value in values.items() if name in _INDEXED or name in _ANCHORS}
    last = tx.rows(end_statement(window), tenant_id=tenant_id, searched=SEARCHED_ROWS, **of_window)
    return RunPage(runs, last[0].id if last else None, last[0].created_at if last else None, now)


def _count(tx: Transaction, tenant_id: TenantId, values: Mapping[str, Any], most: int) -> int:
    names = _names(values)
    arguments = {"tenant_id": tenant_id, **_bounds(names), **_arguments(values)}
    return int(tx.scalar(count_statement(names), most=most, **arguments))


def _names(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in values if name in _INDEXED or name in _SEARCHED)


def _bounds(names: Sequence[str]) -> dict[str, int]:
    return {"searched": SEARCHED_ROWS} if any(name in _SEARCHED for name in names) else {}


def _arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "trouble"}


def _pattern(word: str) -> str:
    """Return the pattern of texts that contain a word."""
    escaped = re.sub(r"([%_\\])", r"\\\1", word)
    return f"%{escaped}%"
