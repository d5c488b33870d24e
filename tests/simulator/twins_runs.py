"""Twins of the statements that folds and people's verbs make: runs, scopes, events, turns, conversations."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from store.agents import conversation_runs, conversations, versions
from store.db import transaction
from store.db.guards import RowGuard
from store.runs import decisions, events, message_streams, new_activations, run_rows, scopes
from store.runs.activations import CLAIM_COLUMNS
from store.tenants import budgets, idempotency
from tests.simulator.database import twin
from tests.simulator.tables import STATEMENT_AT_MOST, Data, Row, Work, guard_failed

SINCE_EVER = datetime(1970, 1, 1, tzinfo=UTC)
Holds = Callable[[Data], bool]
Change = Callable[[Data], Data]

JSON_CLAIMED = ("trail", "limits", "answers")
JSON_OF_RUNS = ("state", "request", "base", "usage")
DEFAULTS_OF_RUNS: Mapping[str, Any] = {
    "budgeted": False,
    "external_id": None,
    "previous_run": None,
    "revision": 0,
    "last_event": 0,
    "first_event": 1,
    "asked": None,
    "turn": None,
    "history_upto": 0,
    "error": "",
    "started_at": None,
    "finished_at": None,
    "expires_at": None,
}
DEFAULTS_OF_ACTIVATIONS: Mapping[str, Any] = {
    "attempt": 0,
    "strikes": 0,
    "lease_id": None,
    "lease_until": None,
    "worker": None,
    "called_off": False,
    "effect": None,
    "answers": None,
    "folded_rev": None,
    "outcome": None,
    "usage": None,
    "started_at": None,
    "finished_at": None,
}
LIVE_TURN: Mapping[str, Any] = {
    "epoch": 0,
    "speaker": None,
    "keep": 0,
    "text": "",
    "opened_at": None,
    "epoch_at": None,
    "closed_at": None,
}


def packed(value: Any) -> bytes:
    """A JSON column, so that nobody shares what he has written."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def unpacked(data: bytes | None) -> Any:
    """What was written into a JSON column."""
    return orjson.loads(data) if data is not None else None


def anything(_: Data) -> bool:
    """Whatever it is."""
    return True


def by_id(found: tuple[Row, Data]) -> UUID:
    """Order of activations."""
    return found[1]["id"]


# -- the run's row ---------------------------------------------------------------------------------------------------
@twin(run_rows.CREATE)
def create_run(work: Work, **row: Any) -> int:
    told = {name: value for name, value in row.items() if not name.startswith(("of_", "has_"))}  # no budgets here
    kept = {name: packed(value) if name in JSON_OF_RUNS else value for name, value in told.items()}
    work.insert(
        work.server["runs"],
        row["id"],
        row["id"],
        {"created_at": work.server.world.database_time, **DEFAULTS_OF_RUNS, **kept},
    )
    return 1


HIDDEN = ("base", "request")


@twin(run_rows.TRY_LOCK)
def try_lock(work: Work, of_run: UUID) -> list[dict[str, Any]]:
    row = work.server["runs"].rows.get(of_run)
    data = work.take(row, anything, skip_locked=True) if row is not None and work.sees(row) is not None else None
    return [{name: value for name, value in _run(data).items() if name not in HIDDEN}] if data is not None else []


@twin(run_rows.LOCK_WITH_TIMEOUT)
def lock_soon(work: Work, of_run: UUID) -> list[dict[str, Any]]:
    row = work.server["runs"].rows.get(of_run)
    data = work.take(row, anything) if row is not None and work.sees(row) is not None else None
    return [{name: value for name, value in _run(data).items() if name not in HIDDEN}] if data is not None else []


@twin(run_rows.SELECT_INPUTS)
def given(work: Work, of_run: UUID) -> list[dict[str, Any]]:
    return [{name: row[name] for name in ("request", "base")} for row in read_run(work, of_run)]


@twin(run_rows.WAIT_LOCK)
def wait_lock(work: Work, run_id: UUID) -> list[dict[str, Any]]:
    row = work.server["runs"].rows.get(run_id)
    if row is None or work.sees(row) is None or work.take(row, anything) is None:
        return []
    return [{"id": run_id}]


@twin(transaction.SET_LIMIT)
def set_limit(work: Work, limit: str, milliseconds: str) -> list[dict[str, Any]]:
    assert limit == "lock_timeout", limit
    work.lock_timeout = int(milliseconds) / 1000 or STATEMENT_AT_MOST
    return [{"set_config": milliseconds}]


def _run(data: Data) -> dict[str, Any]:
    return {name: unpacked(value) if name in JSON_OF_RUNS else value for name, value in data.items()}


def _seen_run(work: Work, run_id: UUID) -> Data | None:
    row = work.server["runs"].rows.get(run_id)
    return work.sees(row) if row is not None else None


@twin(run_rows.READ)
def read_run(work: Work, of_run: UUID) -> list[dict[str, Any]]:
    data = _seen_run(work, of_run)
    return [_run(data)] if data is not None else []


@twin(run_rows.READ_OF_TENANT)
def read_run_of_tenant(work: Work, of_run: UUID, of_tenant: UUID) -> list[dict[str, Any]]:
    data = _seen_run(work, of_run)
    return [_run(data)] if data is not None and data["tenant_id"] == of_tenant else []


@twin(run_rows.TENANT_OF)
def tenant_of(work: Work, of_run: UUID) -> list[dict[str, Any]]:
    data = _seen_run(work, of_run)
    return [{"tenant_id": data["tenant_id"]}] if data is not None else []


def _change_run(work: Work, run_id: UUID, holds: Holds, **changes: Any) -> int:
    row = work.server["runs"].rows.get(run_id)
    seen = work.sees(row) if row is not None else None
    if row is None or seen is None or not holds(seen):
        return 0
    data = work.take(row, holds)
    if data is None:
        return 0
    work.put(row, {**data, **changes})
    return 1


@twin(decisions.SAVE_RUN)
def save(
    work: Work,
    of_run: UUID,
    old_revision: int,
    new_status: str,
    new_last_event: int,
    new_turn: UUID | None,
    new_state: Any,
    new_usage: Any,
    new_error: str,
    is_over: bool,
    is_waiting: bool,
    form_expiry: timedelta,
) -> list[dict[str, Any]]:
    changes = {
        "status": new_status,
        "revision": old_revision + 1,
        "last_event": new_last_event,
        "turn": new_turn,
        "state": packed(new_state),
        "usage": packed(new_usage),
        "error": new_error,
        "expires_at": work.now + form_expiry if is_waiting else None,
    }
    if is_over:
        changes["finished_at"] = work.now
    if _change_run(work, of_run, lambda run: run["revision"] == old_revision, **changes) != 1:
        raise guard_failed(RowGuard.RUN_UNCHANGED)
    return [{"case": 0}]


@twin(decisions.SAVE_CACHED_RUN)
def save_as_left(
    work: Work, of_run: UUID, old_revision: int, was_budgeted: bool, **changes: Any
) -> list[dict[str, Any]]:
    def is_as_left(run: Data) -> bool:
        return run["revision"] == old_revision and run["budgeted"] == was_budgeted

    row = work.server["runs"].rows.get(of_run)
    seen = work.sees(row) if row is not None else None
    is_there = seen is not None and is_as_left(seen)
    data = work.take(row, is_as_left, skip_locked=True) if row and is_there else None
    if data is None:
        work.server.world.count("a run had moved on")
        raise guard_failed(RowGuard.CACHE_FRESH)
    return save(work, of_run, old_revision, **changes)


@twin(run_rows.MARK_CANCELLED)
def ask(work: Work, run_id: UUID) -> int:
    return _change_run(work, run_id, anything, asked="cancel")


@twin(budgets.FLAG)
def mark(work: Work, run_id: UUID, tenant_id: UUID) -> int:
    return _change_run(work, run_id, lambda run: run["tenant_id"] == tenant_id, budgeted=True)


@twin(run_rows.SET_BASELINE)
def put_base(work: Work, of_run: UUID, new_base: Any, new_previous: UUID | None, new_upto: int) -> int:
    changes = {"base": packed(new_base), "previous_run": new_previous, "history_upto": new_upto}
    return _change_run(work, of_run, anything, **changes, started_at=work.now)


@twin(run_rows.NEXT_TURN)
def next_turn(work: Work, of_run: UUID, new_request: Any, new_message: UUID, new_upto: int, new_first: int) -> int:
    changes = {"request": packed(new_request), "message_id": new_message}
    return _change_run(work, of_run, anything, **changes, history_upto=new_upto, first_event=new_first)


# -- activations, as a fold writes them ------------------------------------------------------------------------------
@twin(new_activations.ACTIVATE)
def activate(work: Work, **row: Any) -> int:
    kept = {**row, "trail": packed(row["trail"]), "limits": packed(row["limits"])}
    work.insert(
        work.server["activations"],
        (row["run_id"], row["id"]),
        row["run_id"],
        {**DEFAULTS_OF_ACTIVATIONS, "not_before": SINCE_EVER, "hinted_at": work.now, "created_at": work.now, **kept},
    )
    return 1


@twin(new_activations.ACTIVATE_MANY)
def activate_many(work: Work, run_id: UUID, revision: int, **columns: list[Any]) -> int:
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        read = {name: unpacked(row[name].encode()) if row[name] is not None else None for name in ("trail", "limits")}
        activate(work, run_id=run_id, activated_rev=revision, **{**row, **read})
    return len(columns["id"])


@twin(new_activations.ACTIVATE_CLAIMED)
def activate_taken(work: Work, lease: timedelta, **row: Any) -> int:
    return activate(work, **row, attempt=1, lease_until=work.now + lease, started_at=work.now)


MOVABLE = ("reported", "saying", "open", "waiting")


@twin(decisions.MOVE)
def move(work: Work, run_id: UUID, revision: int, ids: list[UUID], statuses: list[str]) -> list[dict[str, Any]]:
    table, hit = work.server["activations"], 0
    found = [(table.rows.get((run_id, each)), status) for each, status in zip(ids, statuses, strict=True)]
    for row, status in found:
        data = work.take(row, lambda a: a["status"] in MOVABLE) if row is not None else None
        if row is not None and data is not None:
            work.put(row, {**data, "status": status, "folded_rev": revision})
            hit += 1
    if hit != len(ids):
        raise guard_failed(RowGuard.ACTIVATIONS_UNCHANGED)
    return [{"case": 0}]


def _again(work: Work, run_id: UUID, ids: list[UUID], **changes: Any) -> list[dict[str, Any]]:
    table, hit = work.server["activations"], list[dict[str, Any]]()
    for each in ids:
        row = table.rows.get((run_id, each))
        data = work.take(row, lambda a: a["status"] == "ready") if row is not None else None
        if row is not None and data is not None:
            fresh = {"status": "ready", "lease_id": None, "lease_until": None}
            work.put(row, {**data, **fresh, "not_before": SINCE_EVER, "hinted_at": work.now, **changes})
            hit.append({"id": data["id"], "component": data["component"]})
    return hit


@twin(decisions.RETRY)
def retry(work: Work, run_id: UUID, ids: list[UUID]) -> list[dict[str, Any]]:
    return _again(work, run_id, ids, outcome=None)


@twin(decisions.POSTPONE)
def postpone(work: Work, run_id: UUID, ids: list[UUID], seconds: list[float]) -> int:
    later = [work.now + timedelta(seconds=each) for each in seconds]
    return sum(
        len(_again(work, run_id, [each], not_before=due, hinted_at=None)) for each, due in zip(ids, later, strict=True)
    )


@twin(decisions.ANSWER)
def answer(work: Work, run_id: UUID, ids: list[UUID], answers: Any) -> list[dict[str, Any]]:
    return _again(work, run_id, ids, answers=packed(answers))


@twin(new_activations.PROMOTE)
def promote(work: Work, run_id: UUID, most: int) -> list[dict[str, Any]]:
    found = work.found(work.server["activations"], run_id, lambda a: a["status"] == "queued")
    hit: list[dict[str, Any]] = []
    for row, _ in sorted(found, key=lambda each: each[1]["place"])[:most]:
        data = work.take(row, anything)
        if data is not None:
            work.put(row, {**data, "status": "ready", "not_before": SINCE_EVER, "hinted_at": work.now})
            hit.append({"id": data["id"], "component": data["component"]})
    return hit


@twin(new_activations.PROMOTE_CLAIMED)
def promote_taken(work: Work, run_id: UUID, lease_id: UUID, lease: timedelta, worker: str) -> list[dict[str, Any]]:
    found = work.found(work.server["activations"], run_id, lambda a: a["status"] == "queued")
    for row, _ in sorted(found, key=lambda each: each[1]["place"])[:1]:
        data = work.take(row, anything)
        if data is not None:
            new: Data = {
                **data,
                "status": "running",
                "attempt": data["attempt"] + 1,
                "lease_id": lease_id,
                "lease_until": work.now + lease,
                "worker": worker,
                "started_at": work.now,
                "not_before": SINCE_EVER,
                "hinted_at": work.now,
            }
            work.put(row, new)
            return [{name: unpacked(new[name]) if name in JSON_CLAIMED else new[name] for name in CLAIM_COLUMNS}]
    return []


@twin(run_rows.CLOSE)
def close(work: Work, run_id: UUID, revision: int, wave: int, all: bool) -> int:  # noqa: A002 (its name there)
    def holds(a: Data) -> bool:
        status = a["status"]
        if status not in ("queued", "ready", "waiting", "saying", "open"):
            return False
        if status in ("queued", "ready", "saying") and not (wave < 0 or a["wave"] > wave or a["region"] != b""):
            return False
        return status != "open" or all

    return _change_all(work, run_id, holds, status="closed", folded_rev=revision)


def _change_all(work: Work, run_id: UUID, holds: Holds, **changes: Any) -> int:
    hit = 0
    for row, _ in sorted(work.found(work.server["activations"], run_id, holds), key=by_id):
        data = work.take(row, holds)
        if data is not None:
            work.put(row, {**data, **changes})
            hit += 1
    return hit


@twin(run_rows.REQUEST_CANCEL)
def call_off(work: Work, run_id: UUID) -> int:
    return _change_all(work, run_id, lambda a: a["status"] == "running" and not a["called_off"], called_off=True)


@twin(decisions.CANCEL_ITEMS)
def call_off_items(work: Work, run_id: UUID, entry: str, item: int) -> int:
    def holds(a: Data) -> bool:
        if a["status"] != "running" or not a["scope"].startswith(f"{entry}."):
            return False
        return int(a["scope"][len(entry) + 1 :].split("/")[0]) > item

    outcome = packed({"is": "Failed", "error": "An earlier item has failed.", "code": "called_off", "used": {}})
    return _change_all(work, run_id, holds, called_off=True, status="reported", finished_at=work.now, outcome=outcome)


@twin(run_rows.CLOSE_ALL)
def close_all(work: Work, run_id: UUID, revision: int) -> list[dict[str, Any]]:
    found = work.found(work.server["activations"], run_id, lambda a: a["status"] not in ("done", "closed"))
    was: list[dict[str, Any]] = []
    for row, _ in sorted(found, key=by_id):
        data = work.take(row, lambda a: a["status"] not in ("done", "closed"))
        if data is not None:
            was.append({"status": data["status"]})
            work.put(row, {**data, "status": "closed", "folded_rev": revision, "called_off": True})
    return was


@twin(run_rows.COUNT_OPEN)
def busy(work: Work, run_id: UUID) -> list[dict[str, Any]]:
    found = [
        data["status"]
        for _, data in work.found(
            work.server["activations"], run_id, lambda a: a["status"] in ("queued", "ready", "running", "reported")
        )
    ]
    queued = found.count("queued")
    return [{"busy": len(found) - queued, "queued": queued}]


# -- scopes ----------------------------------------------------------------------------------------------------------
@twin(scopes.SCOPES)
def all_scopes(work: Work, of_run: UUID) -> list[dict[str, Any]]:
    found = work.found(work.server["scopes"], of_run, anything)
    return [{"key": data["key"], "state": unpacked(data["state"])} for _, data in found]


@twin(scopes.SCOPES_BY_KEY)
def named_scopes(work: Work, of_run: UUID, keys: list[str]) -> list[dict[str, Any]]:
    found = work.found(work.server["scopes"], of_run, lambda scope: scope["key"] in keys)
    return [{"key": data["key"], "state": unpacked(data["state"])} for _, data in found]


@twin(scopes.PUT_SCOPE)
def put_scope(work: Work, run_id: UUID, key: str, state: Any) -> int:
    data = {"run_id": run_id, "key": key, "state": packed(state)}
    work.upsert(work.server["scopes"], (run_id, key), run_id, data, lambda _: data)
    return 1


@twin(scopes.DROP_SCOPES)
def drop_scopes(work: Work, of_run: UUID) -> int:
    return _drop(work, of_run, anything)


@twin(scopes.DROP_SCOPE)
def drop_scope(work: Work, of_run: UUID, of_key: str) -> int:
    return _drop(work, of_run, lambda scope: scope["key"] == of_key)


def _drop(work: Work, run_id: UUID, holds: Holds) -> int:
    hit = 0
    for row, _ in work.found(work.server["scopes"], run_id, holds):
        if work.take(row, holds) is not None:
            work.put(row, None)
            hit += 1
    return hit


@twin(scopes.MARK_NOT_APPLIED)
def hide(work: Work, run_id: UUID, prefix: str, shown: int) -> int:
    def holds(a: Data) -> bool:
        rest = a["scope"][len(prefix) :]
        return a["scope"].startswith(prefix) and rest.isdigit() and int(rest) > shown

    return _change_all(work, run_id, holds, folded_rev=None)


@twin(scopes.LAST_SCOPE)
def last_scope(work: Work, run_id: UUID, node_id: str) -> list[dict[str, Any]]:
    def holds(a: Data) -> bool:
        return a["node_id"] == node_id and (a["folded_rev"] is not None or a["status"] not in ("done", "closed"))

    found = [data for _, data in work.found(work.server["activations"], run_id, holds)]
    last = max(found, key=lambda a: a["place"], default=None)
    return [{"scope": last["scope"]}] if last is not None else []


@twin(scopes.NODE_OF)
def node_of(work: Work, run_id: UUID, activation_id: UUID) -> list[dict[str, Any]]:
    row = work.server["activations"].rows.get((run_id, activation_id))
    data = work.sees(row) if row is not None else None
    return [{"node_id": data["node_id"]}] if data is not None else []


# -- events and turns ------------------------------------------------------------------------------------------------
def append_some(work: Work, **rows: Any) -> int:
    places = sorted({int(name.rpartition("_")[2]) for name in rows})
    for place in places:
        append(work, **{name.rpartition("_")[0]: value for name, value in rows.items() if name.endswith(f"_{place}")})
    return len(places)


for _some in events.APPEND_SOME:
    twin(_some)(append_some)


@twin(events.APPEND_MANY)
def append_many(work: Work, run_id: UUID, **columns: list[Any]) -> int:
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        append(work, run_id=run_id, **{**row, "body": unpacked(row["body"].encode())})
    return len(columns["number"])


@twin(events.APPEND)
def append(work: Work, **row: Any) -> int:
    kept = {**row, "body": packed(row["body"]), "created_at": work.now}
    work.insert(work.server["run_events"], (row["run_id"], row["number"]), row["run_id"], kept)
    return 1


def _put_turn(work: Work, run_id: UUID, turn: UUID, new: Mapping[str, Any], change: Mapping[str, Any]) -> Data:
    fresh = {"run_id": run_id, "id": turn, **LIVE_TURN, **new}
    return work.upsert(work.server["turns"], (run_id, turn), run_id, fresh, lambda old: {**old, **change})


def _change_turn(work: Work, run_id: UUID, turn: UUID, holds: Holds, change: Change) -> int:
    row = work.server["turns"].rows.get((run_id, turn))
    seen = work.sees(row) if row is not None else None
    if row is None or seen is None or not holds(seen):
        return 0
    data = work.take(row, holds)
    if data is None:
        return 0
    work.put(row, {**data, **change(data)})
    return 1


@twin(message_streams.CLAIM)
def take(work: Work, run_id: UUID, turn: UUID, node_id: str, lease_id: UUID) -> list[dict[str, Any]]:
    new = {"node_id": node_id, "speaker": lease_id}
    data = _put_turn(work, run_id, turn, new, {"speaker": lease_id})
    return [{name: data[name] for name in ("epoch", "text", "keep")}]


@twin(message_streams.WRITE)
def write(work: Work, run_id: UUID, turn: UUID, lease_id: UUID, epoch: int, said: str) -> int:
    def holds(t: Data) -> bool:
        return t["speaker"] == lease_id and t["epoch"] == epoch and t["closed_at"] is None

    return _change_turn(work, run_id, turn, holds, lambda _: {"text": said})


@twin(message_streams.OPEN)
def open_turn(work: Work, run_id: UUID, turn: UUID, node_id: str, number: int) -> int:
    at = {"opened_at": number, "epoch_at": number}
    _put_turn(work, run_id, turn, {"node_id": node_id, **at}, {**at, "closed_at": None})
    return 1


@twin(message_streams.CLOSE)
def close_turn(work: Work, run_id: UUID, turn: UUID, number: int) -> int:
    return _change_turn(work, run_id, turn, anything, lambda _: {"closed_at": number})


@twin(message_streams.TRUNCATE)
def take_back(work: Work, run_id: UUID, turn: UUID, number: int | None) -> int:
    def change(t: Data) -> dict[str, Any]:
        at = number if number is not None else t["epoch_at"]
        return {"epoch": t["epoch"] + 1, "text": t["text"][: t["keep"]], "epoch_at": at}

    return _change_turn(work, run_id, turn, anything, change)


@twin(message_streams.PUT_TEXT)
def put_text(work: Work, run_id: UUID, turn: UUID, node_id: str, said: str) -> int:
    _put_turn(work, run_id, turn, {"node_id": node_id, "text": said}, {"text": said})
    return 1


# -- conversations, and the versions they are on ---------------------------------------------------------------------
@twin(versions.LOCK)
def hold_version(work: Work, tenant_id: UUID, canvas_id: UUID, version_id: UUID) -> list[dict[str, Any]]:
    if version_id in work.server.versions_gone:
        raise guard_failed(RowGuard.VERSION_EXISTS)
    return [{"id": version_id}]


@twin(conversations.INSERT)
def create_conversation(work: Work, **row: Any) -> int:
    fresh = {"active_run": None, "last_run": None, "has_queue": False, "messages": 0, "rounds": 0, "error": ""}
    at = {"created_at": work.now, "updated_at": work.now}
    work.insert(work.server["conversations"], row["id"], None, {**row, **fresh, **at})
    return 1


@twin(conversations.CONVERSATION)
def conversation(work: Work, tenant_id: UUID, conversation_id: UUID) -> list[dict[str, Any]]:
    row = work.server["conversations"].rows.get(conversation_id)
    data = work.sees(row) if row is not None else None
    if data is None or data["tenant_id"] != tenant_id:
        return []
    shown = {name: value for name, value in data.items() if name != "has_queue"}
    return [{**shown, "version_title": ""}]


@twin(conversation_runs.LOCK)
def lock_conversation(work: Work, of_conversation: UUID, of_tenant: UUID) -> list[dict[str, Any]]:
    row = work.server["conversations"].rows.get(of_conversation)
    data = work.take(row, lambda c: c["tenant_id"] == of_tenant) if row is not None else None
    return [dict(data)] if data is not None else []


def _change_conversation(work: Work, conversation_id: UUID, holds: Holds, change: Change) -> Data | None:
    row = work.server["conversations"].rows.get(conversation_id)
    seen = work.sees(row) if row is not None else None
    if row is None or seen is None or not holds(seen):
        return None
    data = work.take(row, holds)
    if data is None:
        return None
    new = {**data, **change(data), "updated_at": work.now}
    work.put(row, new)
    return new


@twin(conversation_runs.SET_ACTIVE_RUN)
def occupy(work: Work, run_id: UUID, conversation_id: UUID) -> int:
    def holds(c: Data) -> bool:
        return c["active_run"] in (None, run_id)

    changed = _change_conversation(work, conversation_id, holds, lambda _: {"active_run": run_id, "last_run": run_id})
    return int(changed is not None)


@twin(conversation_runs.COUNT_MESSAGE)
def count_message(work: Work, conversation_id: UUID) -> list[dict[str, Any]]:
    changed = _change_conversation(work, conversation_id, anything, lambda c: {"messages": c["messages"] + 1})
    return [{"messages": changed["messages"], "has_queue": changed["has_queue"]}] if changed is not None else []


@twin(conversation_runs.PUT_MESSAGE)
def put_message(work: Work, **row: Any) -> int:
    fresh = {"run_id": None, "content": None, "activation_id": None, "node_id": None, "created_at": work.now}
    work.insert(
        work.server["conversation_messages"],
        (row["conversation_id"], row["number"]),
        row["conversation_id"],
        {**fresh, **row},
    )
    return 1


@twin(conversation_runs.LOCK_QUEUE)
def hold(work: Work, conversation_id: UUID) -> list[dict[str, Any]]:
    row = work.server["conversations"].rows.get(conversation_id)
    seen = work.sees(row) if row is not None else None
    data = work.take(row, anything) if row is not None and seen is not None else None
    return [{"id": data["id"], "has_queue": data["has_queue"]}] if data is not None else []


@twin(conversation_runs.SET_HAS_QUEUE)
def queue(work: Work, conversation_id: UUID) -> int:
    changed = _change_conversation(work, conversation_id, lambda c: not c["has_queue"], lambda _: {"has_queue": True})
    return int(changed is not None)


def _runs_of(work: Work, conversation_id: UUID, statuses: tuple[str, ...]) -> list[Data]:
    return [
        data
        for data in map(work.sees, work.server["runs"].rows.values())
        if data is not None and data["conversation_id"] == conversation_id and data["status"] in statuses
    ]


@twin(conversation_runs.NEXT_QUEUED)
def next_queued(work: Work, conversation_id: UUID) -> list[dict[str, Any]]:
    queued = _runs_of(work, conversation_id, ("queued",))
    interrupting = [
        run
        for run in queued
        if unpacked(run["request"]).get("options", {}).get(conversation_runs.ON_BUSY) == "interrupt"
    ]
    first = max(interrupting, key=lambda run: run["created_at"], default=None)
    first = first or min(queued, key=lambda run: (run["created_at"], run["id"]), default=None)
    return [{"id": first["id"]}] if first is not None else []


@twin(conversation_runs.OPEN_RUNS)
def not_over(work: Work, conversation_id: UUID) -> list[dict[str, Any]]:
    found = _runs_of(work, conversation_id, ("queued", "running", "waiting", "stopping"))
    found.sort(key=lambda run: (run["created_at"], run["id"]), reverse=True)
    return [{"id": run["id"]} for run in found]


@twin(conversation_runs.RELEASE)
def release(
    work: Work,
    conversation_id: UUID,
    run_id: UUID,
    next_run: UUID | None,
    has_queue: bool,
    completed: int,
    error: str,
) -> int:
    changed = _change_conversation(
        work,
        conversation_id,
        lambda c: c["active_run"] == run_id,
        lambda c: {
            "active_run": next_run,
            "has_queue": has_queue,
            "rounds": c["rounds"] + completed,
            "error": error,
        },
    )
    return int(changed is not None)


# -- idempotency -----------------------------------------------------------------------------------------------------
@twin(idempotency.CLAIM)
def claim_key(work: Work, tenant_id: UUID, route: str, key: str, **offered: Any) -> list[dict[str, Any]]:
    """A key's first request writes it; later ones find it, for a day."""
    row = work.server["idempotency_keys"].row((tenant_id, route, key))
    if row.holder is not None and row.holder is not work:
        work.wait_for(row)
    old = work.sees(row)
    if old is not None and old["created_at"] >= work.now - idempotency.KEY_LIFETIME:
        return []
    kept = {**offered, "reply": packed(offered["reply"]), "created_at": work.now}
    work.put(row, {"tenant_id": tenant_id, "route": route, "key": key, **kept})
    return [{"key": key}]


@twin(idempotency.FIRST)
def first_of_key(work: Work, of_tenant: UUID, of_route: str, of_key: str) -> list[dict[str, Any]]:
    row = work.server["idempotency_keys"].rows.get((of_tenant, of_route, of_key))
    data = work.sees(row) if row is not None else None
    if data is None or data["created_at"] < work.now - idempotency.KEY_LIFETIME:
        return []
    return [{"digest": data["digest"], "run_id": data["run_id"], "reply": unpacked(data["reply"])}]
