"""Twins of the statements of advances and lifecycle operations: runs, scopes, events, streams, conversations."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from canvas.outcome import LOST, OVER_BUDGET, POSTPONED, UNKNOWN_OUTCOME
from store.agents import conversation_runs, conversations, versions
from store.db import transaction
from store.db.guards import RowGuard
from store.runs import attempts, decisions, events, message_streams, new_activations, run_rows, scopes
from store.runs.activations import CLAIM_COLUMNS
from store.tenants import budgets, idempotency
from tests.simulator.database import twin
from tests.simulator.tables import STATEMENT_TIMEOUT, Data, Row, ServerTransaction, guard_failed

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Predicate = Callable[[Data], bool]
Change = Callable[[Data], Data]

JSON_CLAIMED = ("trail", "limits", "answers")
JSON_OF_RUNS = ("state", "request", "baseline", "usage")
DEFAULTS_OF_RUNS: Mapping[str, Any] = {
    "budgeted": False,
    "has_callbacks": False,
    "external_id": None,
    "previous_run": None,
    "revision": 0,
    "last_event": 0,
    "first_event": 1,
    "cancel_requested": False,
    "open_stream": None,
    "history_upto": 0,
    "error": "",
    "started_at": None,
    "finished_at": None,
    "expires_at": None,
}
DEFAULTS_OF_ACTIVATIONS: Mapping[str, Any] = {
    "attempt": 0,
    "crash_count": 0,
    "lease_id": None,
    "lease_until": None,
    "worker": None,
    "cancel_requested": False,
    "effect": None,
    "answers": None,
    "applied_rev": None,
    "outcome": None,
    "usage": None,
    "started_at": None,
    "finished_at": None,
}
NEW_STREAM: Mapping[str, Any] = {
    "epoch": 0,
    "writer": None,
    "retained_length": 0,
    "text": "",
    "opened_at": None,
    "epoch_at": None,
    "closed_at": None,
}


def encode_json(value: Any) -> bytes:
    """Encode a JSON column, so that rows share no objects."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def decode_json(data: bytes | None) -> Any:
    """Decode a JSON column."""
    return orjson.loads(data) if data is not None else None


def any_row(_: Data) -> bool:
    """Match every row."""
    return True


def by_id(found: tuple[Row, Data]) -> UUID:
    """Sort key: the id of an activation."""
    return found[1]["id"]


# -- the run's row ---------------------------------------------------------------------------------------------------
@twin(run_rows.CREATE)
def create_run(tx: ServerTransaction, **row: Any) -> int:
    columns = {name: value for name, value in row.items() if not name.startswith(("of_", "has_"))}  # without budgets
    stored = {name: encode_json(value) if name in JSON_OF_RUNS else value for name, value in columns.items()}
    tx.insert(
        tx.server["runs"],
        row["id"],
        row["id"],
        {"created_at": tx.server.simulation.database_time, **DEFAULTS_OF_RUNS, **stored},
    )
    return 1


INPUT_COLUMNS = ("baseline", "request")


@twin(run_rows.TRY_LOCK)
def try_lock(tx: ServerTransaction, of_run: UUID) -> list[dict[str, Any]]:
    row = tx.server["runs"].rows.get(of_run)
    data = tx.lock_row(row, any_row, skip_locked=True) if row is not None and tx.visible(row) is not None else None
    return (
        [{name: value for name, value in _run(data).items() if name not in INPUT_COLUMNS}] if data is not None else []
    )


@twin(run_rows.LOCK_WITH_TIMEOUT)
def lock_with_timeout(tx: ServerTransaction, of_run: UUID) -> list[dict[str, Any]]:
    row = tx.server["runs"].rows.get(of_run)
    data = tx.lock_row(row, any_row) if row is not None and tx.visible(row) is not None else None
    return (
        [{name: value for name, value in _run(data).items() if name not in INPUT_COLUMNS}] if data is not None else []
    )


@twin(run_rows.SELECT_INPUTS)
def select_inputs(tx: ServerTransaction, of_run: UUID) -> list[dict[str, Any]]:
    return [{name: row[name] for name in ("request", "baseline")} for row in read_run(tx, of_run)]


@twin(run_rows.WAIT_LOCK)
def wait_lock(tx: ServerTransaction, run_id: UUID) -> list[dict[str, Any]]:
    row = tx.server["runs"].rows.get(run_id)
    if row is None or tx.visible(row) is None or tx.lock_row(row, any_row) is None:
        return []
    return [{"id": run_id}]


@twin(transaction.SET_LIMIT)
def set_limit(tx: ServerTransaction, limit: str, milliseconds: str) -> list[dict[str, Any]]:
    assert limit == "lock_timeout", limit
    tx.lock_timeout = int(milliseconds) / 1000 or STATEMENT_TIMEOUT
    return [{"set_config": milliseconds}]


def _run(data: Data) -> dict[str, Any]:
    return {name: decode_json(value) if name in JSON_OF_RUNS else value for name, value in data.items()}


def _seen_run(tx: ServerTransaction, run_id: UUID) -> Data | None:
    row = tx.server["runs"].rows.get(run_id)
    return tx.visible(row) if row is not None else None


@twin(run_rows.READ)
def read_run(tx: ServerTransaction, of_run: UUID) -> list[dict[str, Any]]:
    data = _seen_run(tx, of_run)
    return [_run(data)] if data is not None else []


@twin(run_rows.READ_OF_TENANT)
def read_run_of_tenant(tx: ServerTransaction, of_run: UUID, of_tenant: UUID) -> list[dict[str, Any]]:
    data = _seen_run(tx, of_run)
    return [_run(data)] if data is not None and data["tenant_id"] == of_tenant else []


@twin(run_rows.TENANT_OF)
def tenant_of(tx: ServerTransaction, of_run: UUID) -> list[dict[str, Any]]:
    data = _seen_run(tx, of_run)
    return [{"tenant_id": data["tenant_id"]}] if data is not None else []


def _change_run(tx: ServerTransaction, run_id: UUID, predicate: Predicate, **changes: Any) -> int:
    row = tx.server["runs"].rows.get(run_id)
    seen = tx.visible(row) if row is not None else None
    if row is None or seen is None or not predicate(seen):
        return 0
    data = tx.lock_row(row, predicate)
    if data is None:
        return 0
    tx.put(row, {**data, **changes})
    return 1


@twin(decisions.SAVE_RUN)
def save(
    tx: ServerTransaction,
    of_run: UUID,
    old_revision: int,
    new_status: str,
    new_last_event: int,
    new_open_stream: UUID | None,
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
        "open_stream": new_open_stream,
        "state": encode_json(new_state),
        "usage": encode_json(new_usage),
        "error": new_error,
        "expires_at": tx.now + form_expiry if is_waiting else None,
    }
    if is_over:
        changes["finished_at"] = tx.now
    if _change_run(tx, of_run, lambda run: run["revision"] == old_revision, **changes) != 1:
        raise guard_failed(RowGuard.RUN_UNCHANGED)
    return [{"case": 0}]


@twin(decisions.SAVE_CACHED_RUN)
def save_cached(
    tx: ServerTransaction, of_run: UUID, old_revision: int, was_budgeted: bool, **changes: Any
) -> list[dict[str, Any]]:
    def is_unchanged(run: Data) -> bool:
        return run["revision"] == old_revision and run["budgeted"] == was_budgeted

    row = tx.server["runs"].rows.get(of_run)
    seen = tx.visible(row) if row is not None else None
    is_there = seen is not None and is_unchanged(seen)
    data = tx.lock_row(row, is_unchanged, skip_locked=True) if row and is_there else None
    if data is None:
        tx.server.simulation.count("cached run was stale")
        raise guard_failed(RowGuard.CACHE_FRESH)
    return save(tx, of_run, old_revision, **changes)


@twin(run_rows.MARK_CANCELLED)
def mark_cancelled(tx: ServerTransaction, run_id: UUID) -> int:
    return _change_run(tx, run_id, any_row, cancel_requested=True)


@twin(budgets.FLAG)
def flag_budget(tx: ServerTransaction, run_id: UUID, tenant_id: UUID) -> int:
    return _change_run(tx, run_id, lambda run: run["tenant_id"] == tenant_id, budgeted=True)


@twin(run_rows.SET_BASELINE)
def set_baseline(
    tx: ServerTransaction, of_run: UUID, new_baseline: Any, new_previous: UUID | None, new_upto: int
) -> int:
    changes = {"baseline": encode_json(new_baseline), "previous_run": new_previous, "history_upto": new_upto}
    return _change_run(tx, of_run, any_row, **changes, started_at=tx.now)


@twin(run_rows.NEXT_TURN)
def next_turn(
    tx: ServerTransaction,
    of_run: UUID,
    new_request: Any,
    new_baseline: Any,
    new_message: UUID,
    new_upto: int,
    new_first: int,
) -> int:
    changes = {
        "request": encode_json(new_request), "baseline": encode_json(new_baseline), "message_id": new_message,
    }  # fmt: skip
    return _change_run(tx, of_run, any_row, **changes, history_upto=new_upto, first_event=new_first)


# -- activations, as an advance writes them ---------------------------------------------------------------------------
@twin(new_activations.ACTIVATE)
def activate(tx: ServerTransaction, **row: Any) -> int:
    stored = {**row, "trail": encode_json(row["trail"]), "limits": encode_json(row["limits"])}
    tx.insert(
        tx.server["activations"],
        (row["run_id"], row["id"]),
        row["run_id"],
        {**DEFAULTS_OF_ACTIVATIONS, "not_before": EPOCH, "enqueued_at": tx.now, "created_at": tx.now, **stored},
    )
    return 1


@twin(new_activations.ACTIVATE_MANY)
def activate_many(tx: ServerTransaction, run_id: UUID, revision: int, **columns: list[Any]) -> int:
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        read = {
            name: decode_json(row[name].encode()) if row[name] is not None else None for name in ("trail", "limits")
        }
        activate(tx, run_id=run_id, activated_rev=revision, **{**row, **read})
    return len(columns["id"])


@twin(new_activations.ACTIVATE_CLAIMED)
def activate_claimed(tx: ServerTransaction, lease: timedelta, **row: Any) -> int:
    return activate(tx, **row, attempt=1, lease_until=tx.now + lease, started_at=tx.now)


MOVABLE = ("reported", "saying", "open", "waiting")


@twin(decisions.MOVE)
def move(
    tx: ServerTransaction, run_id: UUID, revision: int, ids: list[UUID], statuses: list[str]
) -> list[dict[str, Any]]:
    table, hit = tx.server["activations"], 0
    found = [(table.rows.get((run_id, each)), status) for each, status in zip(ids, statuses, strict=True)]
    for row, status in found:
        data = tx.lock_row(row, lambda a: a["status"] in MOVABLE) if row is not None else None
        if row is not None and data is not None:
            tx.put(row, {**data, "status": status, "applied_rev": revision})
            hit += 1
    if hit != len(ids):
        raise guard_failed(RowGuard.ACTIVATIONS_UNCHANGED)
    return [{"case": 0}]


def _make_ready(tx: ServerTransaction, run_id: UUID, ids: list[UUID], **changes: Any) -> list[dict[str, Any]]:
    table, hit = tx.server["activations"], list[dict[str, Any]]()
    for each in ids:
        row = table.rows.get((run_id, each))
        data = tx.lock_row(row, lambda a: a["status"] == "ready") if row is not None else None
        if row is not None and data is not None:
            fresh = {"status": "ready", "lease_id": None, "lease_until": None}
            tx.put(row, {**data, **fresh, "not_before": EPOCH, "enqueued_at": tx.now, **changes})
            hit.append({name: data[name] for name in ("id", "component", "node_id")})
    return hit


END_REASONS: Mapping[str, str] = {
    LOST: "worker_lost",
    "released": "released",
    POSTPONED: "postponed",
    OVER_BUDGET: "over_budget",
    UNKNOWN_OUTCOME: "unknown_outcome",
}


@twin(attempts.KEEP)
def keep_attempts(tx: ServerTransaction, run_id: UUID, ids: list[UUID], seconds: list[float]) -> int:
    kept = 0
    for each, delay in zip(ids, seconds, strict=True):
        row = tx.server["activations"].rows.get((run_id, each))
        data = tx.visible(row) if row is not None else None
        key = (run_id, each, data["attempt"]) if data is not None else None
        known = tx.server["attempts"].rows.get(key)
        if data is None or (known is not None and tx.visible(known) is not None):
            continue
        outcome = decode_json(data["outcome"]) or {}
        code = outcome.get("code")
        reason = END_REASONS.get(str(code), "retried")
        if outcome.get("is") == "Waiting":
            reason = "waited_for_input"
        elif code == LOST and data["effect"] == "unsafe":
            reason = "unknown_outcome"
        was_postponed = data["not_before"] > data["created_at"]
        tx.insert(
            tx.server["attempts"],
            key,
            run_id,
            {
                "run_id": run_id,
                "activation_id": each,
                "attempt": data["attempt"],
                "ready_at": data["not_before"] if was_postponed else data["enqueued_at"] or data["created_at"],
                "started_at": data["started_at"],
                "ended_at": data["finished_at"],
                "worker": data["worker"],
                "end_reason": reason,
                "code": code,
                "error": outcome["error"][: attempts.MAX_ERROR_CHARS] if "error" in outcome else None,
                "next_attempt_at": tx.now + timedelta(seconds=delay),
                "usage": encode_json(outcome["used"]) if "used" in outcome else data["usage"],
                "crash_count": data["crash_count"],
            },
        )
        kept += 1
    return kept


@twin(decisions.RETRY)
def retry(tx: ServerTransaction, run_id: UUID, ids: list[UUID]) -> list[dict[str, Any]]:
    return _make_ready(tx, run_id, ids, outcome=None)


@twin(decisions.POSTPONE)
def postpone(tx: ServerTransaction, run_id: UUID, ids: list[UUID], seconds: list[float]) -> int:
    later = [tx.now + timedelta(seconds=each) for each in seconds]
    return sum(
        len(_make_ready(tx, run_id, [each], not_before=due, enqueued_at=None))
        for each, due in zip(ids, later, strict=True)
    )


@twin(decisions.ANSWER)
def answer(tx: ServerTransaction, run_id: UUID, ids: list[UUID], answers: Any) -> list[dict[str, Any]]:
    return _make_ready(tx, run_id, ids, answers=encode_json(answers))


@twin(new_activations.PROMOTE)
def promote(tx: ServerTransaction, run_id: UUID, most: int) -> list[dict[str, Any]]:
    found = tx.find_rows(tx.server["activations"], run_id, lambda a: a["status"] == "queued")
    hit: list[dict[str, Any]] = []
    for row, _ in sorted(found, key=lambda each: each[1]["order_key"])[:most]:
        data = tx.lock_row(row, any_row)
        if data is not None:
            new: Data = {**data, "status": "ready", "not_before": EPOCH, "enqueued_at": tx.now}
            tx.put(row, new)
            hit.append({name: decode_json(new[name]) if name in JSON_CLAIMED else new[name] for name in CLAIM_COLUMNS})
    return hit


@twin(new_activations.PROMOTE_CLAIMED)
def promote_claimed(
    tx: ServerTransaction, run_id: UUID, lease_id: UUID, lease: timedelta, worker: str
) -> list[dict[str, Any]]:
    found = tx.find_rows(tx.server["activations"], run_id, lambda a: a["status"] == "queued")
    for row, _ in sorted(found, key=lambda each: each[1]["order_key"])[:1]:
        data = tx.lock_row(row, any_row)
        if data is not None:
            new: Data = {
                **data,
                "status": "running",
                "attempt": data["attempt"] + 1,
                "lease_id": lease_id,
                "lease_until": tx.now + lease,
                "worker": worker,
                "started_at": tx.now,
                "not_before": EPOCH,
                "enqueued_at": tx.now,
            }
            tx.put(row, new)
            return [{name: decode_json(new[name]) if name in JSON_CLAIMED else new[name] for name in CLAIM_COLUMNS}]
    return []


@twin(run_rows.CLOSE)
def close(tx: ServerTransaction, run_id: UUID, revision: int, level: int, all: bool) -> int:  # noqa: A002 (its name there)
    def predicate(a: Data) -> bool:
        status = a["status"]
        if status not in ("queued", "ready", "waiting", "saying", "open"):
            return False
        if status in ("queued", "ready", "saying") and not (level < 0 or a["level"] > level or a["region"] != b""):
            return False
        return status != "open" or all

    return _change_all(tx, run_id, predicate, status="closed", applied_rev=revision)


def _change_all(tx: ServerTransaction, run_id: UUID, predicate: Predicate, **changes: Any) -> int:
    hit = 0
    for row, _ in sorted(tx.find_rows(tx.server["activations"], run_id, predicate), key=by_id):
        data = tx.lock_row(row, predicate)
        if data is not None:
            tx.put(row, {**data, **changes})
            hit += 1
    return hit


@twin(run_rows.REQUEST_CANCEL)
def request_cancel(tx: ServerTransaction, run_id: UUID) -> int:
    return _change_all(
        tx, run_id, lambda a: a["status"] == "running" and not a["cancel_requested"], cancel_requested=True
    )


@twin(decisions.CANCEL_ITEMS)
def cancel_items(tx: ServerTransaction, run_id: UUID, entry: str, item: int) -> int:
    def predicate(a: Data) -> bool:
        if a["status"] != "running" or not a["scope"].startswith(f"{entry}."):
            return False
        return int(a["scope"][len(entry) + 1 :].split("/")[0]) > item

    outcome = encode_json({"is": "Failed", "error": "An earlier item has failed.", "code": "cancelled", "used": {}})
    return _change_all(
        tx, run_id, predicate, cancel_requested=True, status="reported", finished_at=tx.now, outcome=outcome
    )


@twin(run_rows.CLOSE_ALL)
def close_all(tx: ServerTransaction, run_id: UUID, revision: int) -> list[dict[str, Any]]:
    found = tx.find_rows(tx.server["activations"], run_id, lambda a: a["status"] not in ("done", "closed"))
    closed: list[dict[str, Any]] = []
    for row, _ in sorted(found, key=by_id):
        data = tx.lock_row(row, lambda a: a["status"] not in ("done", "closed"))
        if data is not None:
            closed.append({"status": data["status"]})
            tx.put(row, {**data, "status": "closed", "applied_rev": revision, "cancel_requested": True})
    return closed


@twin(run_rows.COUNT_OPEN)
def count_open(tx: ServerTransaction, run_id: UUID) -> list[dict[str, Any]]:
    found = [
        data["status"]
        for _, data in tx.find_rows(
            tx.server["activations"], run_id, lambda a: a["status"] in ("queued", "ready", "running", "reported")
        )
    ]
    queued = found.count("queued")
    return [{"busy": len(found) - queued, "queued": queued}]


# -- scopes ----------------------------------------------------------------------------------------------------------
@twin(scopes.SCOPES)
def all_scopes(tx: ServerTransaction, of_run: UUID) -> list[dict[str, Any]]:
    found = tx.find_rows(tx.server["scopes"], of_run, any_row)
    return [{"key": data["key"], "state": decode_json(data["state"])} for _, data in found]


@twin(scopes.SCOPES_BY_KEY)
def scopes_by_key(tx: ServerTransaction, of_run: UUID, keys: list[str]) -> list[dict[str, Any]]:
    found = tx.find_rows(tx.server["scopes"], of_run, lambda scope: scope["key"] in keys)
    return [{"key": data["key"], "state": decode_json(data["state"])} for _, data in found]


@twin(scopes.PUT_SCOPE)
def put_scope(tx: ServerTransaction, run_id: UUID, key: str, state: Any) -> int:
    data = {"run_id": run_id, "key": key, "state": encode_json(state)}
    tx.upsert(tx.server["scopes"], (run_id, key), run_id, data, lambda _: data)
    return 1


@twin(scopes.DROP_SCOPES)
def drop_scopes(tx: ServerTransaction, of_run: UUID) -> int:
    return _drop(tx, of_run, any_row)


@twin(scopes.DROP_SCOPE)
def drop_scope(tx: ServerTransaction, of_run: UUID, of_key: str) -> int:
    return _drop(tx, of_run, lambda scope: scope["key"] == of_key)


def _drop(tx: ServerTransaction, run_id: UUID, predicate: Predicate) -> int:
    hit = 0
    for row, _ in tx.find_rows(tx.server["scopes"], run_id, predicate):
        if tx.lock_row(row, predicate) is not None:
            tx.put(row, None)
            hit += 1
    return hit


@twin(scopes.MARK_NOT_APPLIED)
def mark_not_applied(tx: ServerTransaction, run_id: UUID, prefix: str, shown: int) -> int:
    def predicate(a: Data) -> bool:
        rest = a["scope"][len(prefix) :]
        return a["scope"].startswith(prefix) and rest.isdigit() and int(rest) > shown

    return _change_all(tx, run_id, predicate, applied_rev=None)


@twin(scopes.LAST_SCOPE)
def last_scope(tx: ServerTransaction, run_id: UUID, node_id: str) -> list[dict[str, Any]]:
    def predicate(a: Data) -> bool:
        return a["node_id"] == node_id and (a["applied_rev"] is not None or a["status"] not in ("done", "closed"))

    found = [data for _, data in tx.find_rows(tx.server["activations"], run_id, predicate)]
    last = max(found, key=lambda a: a["order_key"], default=None)
    return [{"scope": last["scope"]}] if last is not None else []


@twin(scopes.NODE_OF)
def node_of(tx: ServerTransaction, run_id: UUID, activation_id: UUID) -> list[dict[str, Any]]:
    row = tx.server["activations"].rows.get((run_id, activation_id))
    data = tx.visible(row) if row is not None else None
    return [{"node_id": data["node_id"]}] if data is not None else []


# -- events and message streams -------------------------------------------------------------------------------------
def append_some(tx: ServerTransaction, **rows: Any) -> int:
    places = sorted({int(name.rpartition("_")[2]) for name in rows})
    for place in places:
        append(tx, **{name.rpartition("_")[0]: value for name, value in rows.items() if name.endswith(f"_{place}")})
    return len(places)


for _some in events.APPEND_SOME:
    twin(_some)(append_some)


@twin(events.APPEND_MANY)
def append_many(tx: ServerTransaction, run_id: UUID, **columns: list[Any]) -> int:
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        append(tx, run_id=run_id, **{**row, "body": decode_json(row["body"].encode())})
    return len(columns["number"])


@twin(events.APPEND)
def append(tx: ServerTransaction, **row: Any) -> int:
    stored = {**row, "body": encode_json(row["body"]), "created_at": tx.now}
    tx.insert(tx.server["run_events"], (row["run_id"], row["number"]), row["run_id"], stored)
    return 1


def _put_stream(
    tx: ServerTransaction, run_id: UUID, stream_id: UUID, new: Mapping[str, Any], change: Mapping[str, Any]
) -> Data:
    fresh = {"run_id": run_id, "id": stream_id, **NEW_STREAM, **new}
    return tx.upsert(tx.server["turns"], (run_id, stream_id), run_id, fresh, lambda old: {**old, **change})


def _change_stream(tx: ServerTransaction, run_id: UUID, stream_id: UUID, predicate: Predicate, change: Change) -> int:
    row = tx.server["turns"].rows.get((run_id, stream_id))
    seen = tx.visible(row) if row is not None else None
    if row is None or seen is None or not predicate(seen):
        return 0
    data = tx.lock_row(row, predicate)
    if data is None:
        return 0
    tx.put(row, {**data, **change(data)})
    return 1


@twin(message_streams.CLAIM)
def claim_stream(
    tx: ServerTransaction, run_id: UUID, stream_id: UUID, node_id: str, lease_id: UUID
) -> list[dict[str, Any]]:
    new = {"node_id": node_id, "writer": lease_id}
    data = _put_stream(tx, run_id, stream_id, new, {"writer": lease_id})
    return [{name: data[name] for name in ("epoch", "text", "retained_length")}]


@twin(message_streams.WRITE)
def write_stream(tx: ServerTransaction, run_id: UUID, stream_id: UUID, lease_id: UUID, epoch: int, content: str) -> int:
    def predicate(t: Data) -> bool:
        return t["writer"] == lease_id and t["epoch"] == epoch and t["closed_at"] is None

    return _change_stream(tx, run_id, stream_id, predicate, lambda _: {"text": content})


@twin(message_streams.OPEN)
def open_stream(tx: ServerTransaction, run_id: UUID, stream_id: UUID, node_id: str, number: int) -> int:
    at = {"opened_at": number, "epoch_at": number}
    _put_stream(tx, run_id, stream_id, {"node_id": node_id, **at}, {**at, "closed_at": None})
    return 1


@twin(message_streams.CLOSE)
def close_stream(tx: ServerTransaction, run_id: UUID, stream_id: UUID, number: int) -> int:
    return _change_stream(tx, run_id, stream_id, any_row, lambda _: {"closed_at": number})


@twin(message_streams.TRUNCATE)
def truncate_stream(tx: ServerTransaction, run_id: UUID, stream_id: UUID, number: int | None) -> int:
    def change(t: Data) -> dict[str, Any]:
        at = number if number is not None else t["epoch_at"]
        return {"epoch": t["epoch"] + 1, "text": t["text"][: t["retained_length"]], "epoch_at": at}

    return _change_stream(tx, run_id, stream_id, any_row, change)


@twin(message_streams.PUT_TEXT)
def put_text(tx: ServerTransaction, run_id: UUID, stream_id: UUID, node_id: str, content: str) -> int:
    _put_stream(tx, run_id, stream_id, {"node_id": node_id, "text": content}, {"text": content})
    return 1


# -- conversations, and the versions they are on ---------------------------------------------------------------------
@twin(versions.LOCK)
def lock_version(tx: ServerTransaction, tenant_id: UUID, canvas_id: UUID, version_id: UUID) -> list[dict[str, Any]]:
    if version_id in tx.server.deleted_versions:
        raise guard_failed(RowGuard.VERSION_EXISTS)
    return [{"id": version_id}]


@twin(conversations.INSERT)
def create_conversation(tx: ServerTransaction, **row: Any) -> int:
    fresh = {"active_run": None, "last_run": None, "has_queue": False, "messages": 0, "rounds": 0, "error": ""}
    at = {"created_at": tx.now, "updated_at": tx.now}
    tx.insert(tx.server["conversations"], row["id"], None, {**row, **fresh, **at})
    return 1


@twin(conversations.CONVERSATION)
def conversation(tx: ServerTransaction, tenant_id: UUID, conversation_id: UUID) -> list[dict[str, Any]]:
    row = tx.server["conversations"].rows.get(conversation_id)
    data = tx.visible(row) if row is not None else None
    if data is None or data["tenant_id"] != tenant_id:
        return []
    shown = {name: value for name, value in data.items() if name != "has_queue"}
    return [{**shown, "version_title": ""}]


@twin(conversation_runs.LOCK)
def lock_conversation(tx: ServerTransaction, of_conversation: UUID, of_tenant: UUID) -> list[dict[str, Any]]:
    row = tx.server["conversations"].rows.get(of_conversation)
    data = tx.lock_row(row, lambda c: c["tenant_id"] == of_tenant) if row is not None else None
    return [dict(data)] if data is not None else []


def _change_conversation(
    tx: ServerTransaction, conversation_id: UUID, predicate: Predicate, change: Change
) -> Data | None:
    row = tx.server["conversations"].rows.get(conversation_id)
    seen = tx.visible(row) if row is not None else None
    if row is None or seen is None or not predicate(seen):
        return None
    data = tx.lock_row(row, predicate)
    if data is None:
        return None
    new = {**data, **change(data), "updated_at": tx.now}
    tx.put(row, new)
    return new


@twin(conversation_runs.SET_ACTIVE_RUN)
def set_active_run(tx: ServerTransaction, run_id: UUID, conversation_id: UUID) -> int:
    def predicate(c: Data) -> bool:
        return c["active_run"] in (None, run_id)

    changed = _change_conversation(tx, conversation_id, predicate, lambda _: {"active_run": run_id, "last_run": run_id})
    return int(changed is not None)


@twin(conversation_runs.COUNT_MESSAGE)
def count_message(tx: ServerTransaction, conversation_id: UUID) -> list[dict[str, Any]]:
    changed = _change_conversation(tx, conversation_id, any_row, lambda c: {"messages": c["messages"] + 1})
    return [{"messages": changed["messages"], "has_queue": changed["has_queue"]}] if changed is not None else []


@twin(conversation_runs.PUT_MESSAGE)
def put_message(tx: ServerTransaction, **row: Any) -> int:
    fresh = {"run_id": None, "content": None, "activation_id": None, "node_id": None, "created_at": tx.now}
    tx.insert(
        tx.server["conversation_messages"],
        (row["conversation_id"], row["number"]),
        row["conversation_id"],
        {**fresh, **row},
    )
    return 1


@twin(conversation_runs.LOCK_QUEUE)
def lock_queue(tx: ServerTransaction, conversation_id: UUID) -> list[dict[str, Any]]:
    row = tx.server["conversations"].rows.get(conversation_id)
    seen = tx.visible(row) if row is not None else None
    data = tx.lock_row(row, any_row) if row is not None and seen is not None else None
    return [{"id": data["id"], "has_queue": data["has_queue"]}] if data is not None else []


@twin(conversation_runs.SET_HAS_QUEUE)
def set_has_queue(tx: ServerTransaction, conversation_id: UUID) -> int:
    changed = _change_conversation(tx, conversation_id, lambda c: not c["has_queue"], lambda _: {"has_queue": True})
    return int(changed is not None)


def _runs_of(tx: ServerTransaction, conversation_id: UUID, statuses: tuple[str, ...]) -> list[Data]:
    return [
        data
        for data in map(tx.visible, tx.server["runs"].rows.values())
        if data is not None and data["conversation_id"] == conversation_id and data["status"] in statuses
    ]


@twin(conversation_runs.NEXT_QUEUED)
def next_queued(tx: ServerTransaction, conversation_id: UUID) -> list[dict[str, Any]]:
    queued = _runs_of(tx, conversation_id, ("queued",))
    interrupting = [
        run
        for run in queued
        if decode_json(run["request"]).get("options", {}).get(conversation_runs.ON_BUSY) == "interrupt"
    ]
    first = max(interrupting, key=lambda run: run["created_at"], default=None)
    first = first or min(queued, key=lambda run: (run["created_at"], run["id"]), default=None)
    return [{"id": first["id"]}] if first is not None else []


@twin(conversation_runs.OPEN_RUNS)
def open_runs_of(tx: ServerTransaction, conversation_id: UUID) -> list[dict[str, Any]]:
    found = _runs_of(tx, conversation_id, ("queued", "running", "waiting", "stopping"))
    found.sort(key=lambda run: (run["created_at"], run["id"]), reverse=True)
    return [{"id": run["id"]} for run in found]


@twin(conversation_runs.RELEASE)
def release(
    tx: ServerTransaction,
    conversation_id: UUID,
    run_id: UUID,
    next_run: UUID | None,
    has_queue: bool,
    completed: int,
    error: str,
) -> int:
    changed = _change_conversation(
        tx,
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
def claim_key(tx: ServerTransaction, tenant_id: UUID, route: str, key: str, **offered: Any) -> list[dict[str, Any]]:
    """Store the key of the first request; later requests find it for a day."""
    row = tx.server["idempotency_keys"].row((tenant_id, route, key))
    if row.holder is not None and row.holder is not tx:
        tx.wait_for(row)
    old = tx.visible(row)
    if old is not None and old["created_at"] >= tx.now - idempotency.KEY_LIFETIME:
        return []
    stored = {**offered, "reply": encode_json(offered["reply"]), "created_at": tx.now}
    tx.put(row, {"tenant_id": tenant_id, "route": route, "key": key, **stored})
    return [{"key": key}]


@twin(idempotency.FIRST)
def first_of_key(tx: ServerTransaction, of_tenant: UUID, of_route: str, of_key: str) -> list[dict[str, Any]]:
    row = tx.server["idempotency_keys"].rows.get((of_tenant, of_route, of_key))
    data = tx.visible(row) if row is not None else None
    if data is None or data["created_at"] < tx.now - idempotency.KEY_LIFETIME:
        return []
    return [{"digest": data["digest"], "run_id": data["run_id"], "reply": decode_json(data["reply"])}]
