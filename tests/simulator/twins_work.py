"""Twins of the statements of workers and sweepers: claims, leases, reports, values, sweeper queries."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from canvas.outcome import LOST, UNKNOWN_OUTCOME, UNKNOWN_TEXT
from store.db.guards import RowGuard
from store.knowledge import chunk_indexes, documents, former_rows, memory_extractions
from store.monitoring import queue_probes, sweep_queries
from store.runs import activations, external_ids, reports, values
from store.tenants import budgets
from tests.simulator.database import twin
from tests.simulator.tables import Data, Row, ServerTransaction, guard_failed
from tests.simulator.twins_runs import NEW_STREAM, Change, Predicate, any_row, by_id, decode_json, encode_json

JSON_OF_ACTIVATIONS = ("trail", "limits", "answers", "outcome", "usage")
OF_THE_RUN = (
    "tenant_id",
    "canvas_id",
    "version_id",
    "conversation_id",
    "message_id",
    "first_event",
    "history_upto",
    "budgeted",
)


def plain(data: Data) -> dict[str, Any]:
    """An activation's row as a reader gets it."""
    return {name: decode_json(value) if name in JSON_OF_ACTIVATIONS else value for name, value in data.items()}


def _change(
    tx: ServerTransaction, run_id: UUID, activation_id: UUID, predicate: Predicate, change: Change
) -> Data | None:
    row = tx.server["activations"].rows.get((run_id, activation_id))
    seen = tx.visible(row) if row is not None else None
    if row is None or seen is None or not predicate(seen):
        return None
    data = tx.lock_row(row, predicate)
    if data is None:
        return None
    new = {**data, **change(data)}
    tx.put(row, new)
    return new


# -- claim, make durable, renew, report -------------------------------------------------------------------------------
@twin(activations.CLAIM)
def claim(
    tx: ServerTransaction,
    of_run: UUID,
    of_activation: UUID,
    new_lease: UUID,
    lease: timedelta,
    worker_name: str,
    most_crashes: int | None = None,
) -> list[dict[str, Any]]:
    run = tx.server["runs"].rows.get(of_run)
    of_run_seen = tx.visible(run) if run is not None else None
    if of_run_seen is None:
        return []
    tx.is_synchronous = False

    def predicate(a: Data) -> bool:
        if a["status"] == "running":
            return a["lease_id"] == new_lease and not a["cancel_requested"]
        is_due = a["status"] == "ready" and a["not_before"] <= tx.now
        return is_due and (most_crashes is None or a["crash_count"] <= most_crashes)

    claimed = _change(
        tx, of_run, of_activation, predicate, lambda a: _claim_columns(tx, a, new_lease, lease, worker_name)
    )
    return [_with_run(claimed, of_run_seen)] if claimed is not None else []


@twin(activations.CLAIM_BATCH)
def claim_batch(
    tx: ServerTransaction,
    run_ids: list[UUID],
    ids: list[UUID],
    leases: list[UUID],
    lease: timedelta,
    worker: str,
    most_crashes: int,
) -> list[dict[str, Any]]:
    tx.is_synchronous = False

    def predicate(a: Data) -> bool:
        return a["status"] == "ready" and a["not_before"] <= tx.now and a["crash_count"] <= most_crashes

    claimed: list[dict[str, Any]] = []
    for run_id, activation_id, lease_id in sorted(zip(run_ids, ids, leases, strict=True)):
        row = tx.server["activations"].rows.get((run_id, activation_id))
        run = tx.server["runs"].rows.get(run_id)
        seen, run_seen = (tx.visible(each) if each is not None else None for each in (row, run))
        if row is None or seen is None or run_seen is None or not predicate(seen):
            continue
        data = tx.lock_row(row, predicate, skip_locked=True)
        if data is not None:
            new = {**data, **_claim_columns(tx, data, lease_id, lease, worker)}
            tx.put(row, new)
            claimed.append(_with_run(new, run_seen))
    return claimed


def _claim_columns(tx: ServerTransaction, a: Data, lease_id: UUID, lease: timedelta, worker: str) -> dict[str, Any]:
    return {
        "status": "running",
        "attempt": a["attempt"] + (a["status"] == "ready"),
        "lease_id": lease_id,
        "lease_until": tx.now + lease,
        "worker": worker,
        "started_at": tx.now,
        "cancel_requested": False,
        "effect": None,
    }


def _with_run(claimed: Data, run: Data) -> dict[str, Any]:
    of_the_run = {name: run[name] for name in OF_THE_RUN}
    return {**plain(claimed), **of_the_run, "run_created_at": run["created_at"]}


@twin(activations.FIND_BY_LEASE)
def find_by_lease(tx: ServerTransaction, of_run: UUID, of_lease: UUID) -> list[dict[str, Any]]:
    found = tx.find_rows(tx.server["activations"], of_run, lambda a: a["status"] == "running")
    return [{"id": a["id"]} for _, a in found if a["lease_id"] == of_lease]


def _is_unclaimed(a: Data) -> bool:
    return a["status"] == "ready" and a["attempt"] == 0


@twin(activations.CLAIM_DEFERRED)
def claim_deferred(
    tx: ServerTransaction,
    run_ids: list[UUID],
    ids: list[UUID],
    leases: list[UUID],
    elapsed: list[float],
    lease: timedelta,
    worker: str,
) -> int:
    claimed = 0
    for run_id, activation_id, lease_id, seconds in sorted(zip(run_ids, ids, leases, elapsed, strict=True)):
        row = tx.server["activations"].rows.get((run_id, activation_id))
        seen = tx.visible(row) if row is not None else None
        if row is None or seen is None or not _is_unclaimed(seen):
            continue
        data = tx.lock_row(row, _is_unclaimed, skip_locked=True)
        if data is not None:
            columns = _deferred_columns(tx, data, lease_id, worker, seconds)
            tx.put(row, {**data, **columns, "status": "running", "lease_until": tx.now + lease})
            claimed += 1
    return claimed


def _deferred_columns(tx: ServerTransaction, a: Data, lease_id: UUID, worker: str, elapsed: float) -> dict[str, Any]:
    started_at = tx.now - timedelta(seconds=elapsed) if a["status"] == "ready" else a["started_at"]
    return {"attempt": 1, "lease_id": lease_id, "worker": worker, "started_at": started_at}


@twin(activations.FIND_DEFERRED)
def find_deferred(
    tx: ServerTransaction, run_ids: list[UUID], ids: list[UUID], leases: list[UUID]
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for run_id, activation_id, lease_id in zip(run_ids, ids, leases, strict=True):
        row = tx.server["activations"].rows.get((run_id, activation_id))
        data = tx.visible(row) if row is not None else None
        if data is not None and (data["lease_id"] == lease_id or _is_unclaimed(data)):
            found.append({"lease_id": lease_id, "is_running": data["status"] == "running"})
    return found


def _held_or_unclaimed(lease_id: UUID) -> Predicate:
    return lambda a: _is_unclaimed(a) or _held(lease_id)(a)


@twin(activations.IS_HELD_OR_UNCLAIMED)
def is_held_or_unclaimed(
    tx: ServerTransaction, of_run: UUID, of_activation: UUID, of_lease: UUID
) -> list[dict[str, Any]]:
    row = tx.server["activations"].rows.get((of_run, of_activation))
    a = tx.visible(row) if row is not None else None
    return [{"id": a["id"]}] if a is not None and _held_or_unclaimed(of_lease)(a) else []


def _claim_unclaimed(
    tx: ServerTransaction, of_run: UUID, of_activation: UUID, of_lease: UUID, worker: str, elapsed: float
) -> None:
    """Write the deferred claim of an activation, if it has none: the first half of a report with such a claim."""
    _change(
        tx,
        of_run,
        of_activation,
        _is_unclaimed,
        lambda a: {**_deferred_columns(tx, a, of_lease, worker, elapsed), "status": "running"},
    )


@twin(reports.REPORT_DEFERRED)
def report_deferred(
    tx: ServerTransaction,
    of_run: UUID,
    of_activation: UUID,
    of_lease: UUID,
    worker_name: str,
    elapsed: float,
    **values: Any,
) -> int:
    _claim_unclaimed(tx, of_run, of_activation, of_lease, worker_name, elapsed)
    return report(tx, of_run, of_activation, of_lease, **values)


@twin(reports.REPORT_INLINE_DEFERRED)
def report_inline_deferred(
    tx: ServerTransaction,
    of_run: UUID,
    of_activation: UUID,
    of_lease: UUID,
    worker_name: str,
    elapsed: float,
    **values: Any,
) -> list[dict[str, Any]]:
    _claim_unclaimed(tx, of_run, of_activation, of_lease, worker_name, elapsed)
    return report_inline(tx, of_run, of_activation, of_lease, **values)


@twin(activations.IS_READY)
def is_ready(tx: ServerTransaction, of_run: UUID, of_activation: UUID) -> list[dict[str, Any]]:
    row = tx.server["activations"].rows.get((of_run, of_activation))
    a = tx.visible(row) if row is not None else None
    return [{"id": a["id"]}] if a is not None and a["status"] == "ready" and a["not_before"] <= tx.now else []


def _held(lease_id: UUID) -> Predicate:
    return lambda a: a["lease_id"] == lease_id and a["status"] == "running"


@twin(activations.MAKE_DURABLE)
def make_durable(tx: ServerTransaction, of_run: UUID, of_activation: UUID, of_lease: UUID, lease: timedelta) -> int:
    changed = _change(
        tx,
        of_run,
        of_activation,
        _held(of_lease),
        lambda _: {"lease_until": tx.now + lease},
    )
    return int(changed is not None)


@twin(activations.RECORD_EFFECT)
def record_effect(
    tx: ServerTransaction, of_run: UUID, of_activation: UUID, of_lease: UUID, lease: timedelta, new_effect: str
) -> list[dict[str, Any]]:
    changes = {"lease_until": tx.now + lease, "effect": new_effect}
    changed = _change(tx, of_run, of_activation, _held(of_lease), lambda _: changes)
    return [{"cancel_requested": changed["cancel_requested"]}] if changed is not None else []


@twin(activations.FIND_CANCELLED)
def find_cancelled(
    tx: ServerTransaction, run_ids: list[UUID], ids: list[UUID], leases: list[UUID]
) -> list[dict[str, Any]]:
    table, found = tx.server["activations"], list[dict[str, Any]]()
    for run_id, activation_id, lease_id in zip(run_ids, ids, leases, strict=True):
        row = table.rows.get((run_id, activation_id))
        data = tx.visible(row) if row is not None else None
        is_cancelled = data is not None and data["status"] == "running" and data["cancel_requested"]
        if is_cancelled and data is not None and data["lease_id"] == lease_id:
            found.append({"lease_id": lease_id})
    return found


@twin(reports.REPORT_INLINE)
def report_inline(
    tx: ServerTransaction,
    of_run: UUID,
    of_activation: UUID,
    of_lease: UUID,
    new_status: str,
    new_revision: int,
    new_outcome: Any,
    new_usage: Any,
    new_crashes: int,
) -> list[dict[str, Any]]:
    hit = report(tx, of_run, of_activation, of_lease, new_outcome, new_usage, new_crashes)
    if not hit:
        raise guard_failed(RowGuard.LEASE_HELD)
    row = tx.server["activations"].rows[of_run, of_activation]
    data = tx.visible(row)
    assert data is not None
    tx.put(row, {**data, "status": new_status, "applied_rev": new_revision})
    return [{"count": 1}]


@twin(reports.OVERWRITE_OUTCOME)
def overwrite_outcome(tx: ServerTransaction, of_run: UUID, of_activation: UUID, new_outcome: Any) -> int:
    changed = _change(
        tx,
        of_run,
        of_activation,
        lambda a: a["status"] == "reported",
        lambda _: {"outcome": encode_json(new_outcome), "finished_at": tx.now},
    )
    return int(changed is not None)


def _held_rows(
    tx: ServerTransaction, run_ids: list[UUID], ids: list[UUID], leases: list[UUID]
) -> list[tuple[Row, Data]]:
    table, found = tx.server["activations"], list[tuple[Row, Data]]()
    for run_id, activation_id, lease_id in zip(run_ids, ids, leases, strict=True):
        row = table.rows.get((run_id, activation_id))
        data = tx.visible(row) if row is not None else None
        if row is not None and data is not None and data["lease_id"] == lease_id and _has_valid_lease(data):
            found.append((row, data))
    return sorted(found, key=lambda each: (each[1]["run_id"], each[1]["id"]))


def _has_valid_lease(a: Data) -> bool:
    return a["status"] == "running" and not a["cancel_requested"]


@twin(activations.RENEW)
def renew(
    tx: ServerTransaction, lease: timedelta, run_ids: list[UUID], ids: list[UUID], leases: list[UUID]
) -> list[dict[str, Any]]:
    renewed: list[dict[str, Any]] = []
    for row, seen in _held_rows(tx, run_ids, ids, leases):
        data = tx.lock_row(
            row, lambda a, seen=seen: _has_valid_lease(a) and a["lease_id"] == seen["lease_id"], skip_locked=True
        )
        if data is not None:
            tx.put(row, {**data, "lease_until": tx.now + lease})
            renewed.append({"lease_id": data["lease_id"]})
    return renewed


@twin(activations.FIND_VALID)
def find_valid(tx: ServerTransaction, run_ids: list[UUID], ids: list[UUID], leases: list[UUID]) -> list[dict[str, Any]]:
    return [{"lease_id": data["lease_id"]} for _, data in _held_rows(tx, run_ids, ids, leases)]


@twin(reports.REPORT)
def report(
    tx: ServerTransaction,
    of_run: UUID,
    of_activation: UUID,
    of_lease: UUID,
    new_outcome: Any,
    new_usage: Any,
    new_crashes: int,
) -> int:
    changed = _change(
        tx,
        of_run,
        of_activation,
        _held(of_lease),
        lambda a: {
            "status": "reported",
            "outcome": encode_json(new_outcome),
            "usage": encode_json(new_usage),
            "crash_count": a["crash_count"] + new_crashes,
            "finished_at": tx.now,
        },
    )
    return int(changed is not None)


@twin(reports.WAS_STORED)
def was_stored(tx: ServerTransaction, of_run: UUID, of_activation: UUID, of_lease: UUID) -> list[dict[str, Any]]:
    row = tx.server["activations"].rows.get((of_run, of_activation))
    a = tx.visible(row) if row is not None else None
    return [{"id": a["id"]}] if a is not None and a["lease_id"] == of_lease and a["status"] != "running" else []


@twin(reports.PUT_VALUES)
def put_values(tx: ServerTransaction, **row: Any) -> int:
    new = {
        **row,
        "outputs": encode_json(row["outputs"]),
        "inputs": encode_json(row["inputs"]),
        "names": list(row["names"]),
    }
    new["large"] = row.get("large")
    changes = {name: new[name] for name in ("outputs", "inputs", "names", "large")}
    key = (row["run_id"], row["activation_id"], row["node_id"])
    tx.upsert(tx.server["node_values"], key, row["run_id"], new, lambda old: {**old, **changes})
    return 1


@twin(reports.PUT_VARIABLES)
def put_variables(tx: ServerTransaction, **row: Any) -> int:
    new = {**row, "value": encode_json(row["value"]), "large": row.get("large")}
    changes = {name: new[name] for name in ("value", "large")}
    key = (row["run_id"], row["activation_id"], row["name"])
    tx.upsert(tx.server["variables"], key, row["run_id"], new, lambda old: {**old, **changes})
    return 1


@twin(reports.PUT_STREAM)
def put_stream(tx: ServerTransaction, **row: Any) -> int:
    new = {**NEW_STREAM, **row}
    changes = {name: new[name] for name in ("text", "writer", "epoch", "retained_length")}
    key = (row["run_id"], row["id"])
    tx.upsert(tx.server["turns"], key, row["run_id"], new, lambda old: {**old, **changes})
    return 1


@twin(reports.PUT_STREAM_NEXT_EPOCH)
def put_stream_next_epoch(tx: ServerTransaction, **row: Any) -> int:
    new = {**NEW_STREAM, **row}
    changes = {name: new[name] for name in ("text", "writer", "retained_length")}
    key = (row["run_id"], row["id"])
    tx.upsert(tx.server["turns"], key, row["run_id"], new, lambda old: {**old, **changes, "epoch": old["epoch"] + 1})
    return 1


@twin(reports.UNAPPLIED)
def unapplied_reports(tx: ServerTransaction, of_run: UUID) -> list[dict[str, Any]]:
    names = ["id", "node_id", "scope", "ordinal", "level", "trail", "region", "outcome", "usage"]
    names += ["crash_count", "effect", "stream_id"]
    found = tx.find_rows(tx.server["activations"], of_run, lambda a: a["status"] == "reported")
    rows = [plain(data) for _, data in sorted(found, key=by_id)]
    return [{name: row[name] for name in names} for row in rows]


@twin(reports.HAS_UNAPPLIED)
def has_unapplied_reports(tx: ServerTransaction, of_run: UUID) -> list[dict[str, Any]]:
    return [{"id": a["id"]} for _, a in tx.find_rows(tx.server["activations"], of_run, _is_reported)][:1]


def _is_reported(a: Data) -> bool:
    return a["status"] == "reported"


@twin(reports.ORDER_KEY)
def order_key(tx: ServerTransaction, of_run: UUID, of_activation: UUID) -> list[dict[str, Any]]:
    row = tx.server["activations"].rows.get((of_run, of_activation))
    a = tx.visible(row) if row is not None else None
    return [{"order_key": a["order_key"], "region": a["region"]}] if a is not None else []


# -- values ----------------------------------------------------------------------------------------------------------
def _applied_values(tx: ServerTransaction, table: str, run_id: UUID, predicate: Predicate) -> list[Data]:
    """Return the values of applied activations, in canonical order."""
    rows = tx.server["activations"].rows
    found: list[Data] = []
    for _, value in tx.find_rows(tx.server[table], run_id, predicate):
        writer = rows.get((run_id, value["activation_id"]))
        seen = tx.visible(writer) if writer is not None else None
        if seen is not None and seen["applied_rev"] is not None:
            found.append(value)
    return sorted(found, key=lambda value: value["order_key"])


@twin(values.FINAL_OUTPUTS)
def final_outputs(tx: ServerTransaction, run_id: UUID) -> list[dict[str, Any]]:
    last = {v["node_id"]: v for v in _applied_values(tx, "node_values", run_id, lambda v: v["region"] == b"")}
    return [
        {"node_id": name, "outputs": decode_json(v["outputs"]), "order_key": v["order_key"], "large": v["large"]}
        for name, v in sorted(last.items())
    ]


@twin(values.FINAL_VARIABLES)
def final_variables(tx: ServerTransaction, run_id: UUID) -> list[dict[str, Any]]:
    last = {v["name"]: v for v in _applied_values(tx, "variables", run_id, lambda v: v["region"] == b"")}
    return [
        {"name": name, "value": decode_json(v["value"]), "order_key": v["order_key"], "large": v["large"]}
        for name, v in sorted(last.items())
    ]


@twin(values.INPUTS)
def inputs_of(tx: ServerTransaction, run_id: UUID, node_id: str) -> list[dict[str, Any]]:
    found = tx.find_rows(tx.server["node_values"], run_id, lambda v: v["node_id"] == node_id and v["region"] == b"")
    last = sorted((data for _, data in found), key=lambda v: v["order_key"], reverse=True)[:1]
    return [{"inputs": decode_json(v["inputs"]), "large": v["large"]} for v in last]


@twin(values.PREVIOUS_OUTPUTS)
def previous_outputs(tx: ServerTransaction, run_id: UUID, activation_id: UUID) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = []
    for _, own in tx.find_rows(tx.server["node_values"], run_id, lambda v: v["activation_id"] == activation_id):
        before = _applied_values(
            tx,
            "node_values",
            run_id,
            lambda v, own=own: (
                v["node_id"] == own["node_id"] and v["region"] == own["region"] and v["order_key"] < own["order_key"]
            ),
        )
        if before:
            left = before[-1]
            result.append(
                {
                    "node_id": own["node_id"],
                    "outputs": decode_json(own["outputs"]),
                    "large": own["large"],
                    "left_before": decode_json(left["outputs"]),
                    "large_before": left["large"],
                }
            )
    return result


@twin(values.PUT_OUTPUTS)
def put_outputs(
    tx: ServerTransaction,
    of_run: UUID,
    of_activation: UUID,
    of_node: str,
    new_outputs: Any,
    new_names: list[str],
    new_large: Any,
) -> int:
    row = tx.server["node_values"].rows.get((of_run, of_activation, of_node))
    if row is None or tx.visible(row) is None:
        return 0
    data = tx.lock_row(row, any_row)
    if data is None:
        return 0
    tx.put(row, {**data, "outputs": encode_json(new_outputs), "names": list(new_names), "large": new_large})
    return 1


@twin(values.SCOPE)
def scope_of(tx: ServerTransaction, run_id: UUID, activation_id: UUID) -> list[dict[str, Any]]:
    row = tx.server["activations"].rows.get((run_id, activation_id))
    a = tx.visible(row) if row is not None else None
    return [{"scope": a["scope"]}] if a is not None else []


@twin(values.PUT_ON_BEHALF)
def put_on_behalf(
    tx: ServerTransaction,
    run_id: UUID,
    activation_id: UUID,
    container_entry: str,
    item: int,
    outputs: str,
    names: list[str],
) -> int:
    row = tx.server["activations"].rows.get((run_id, activation_id))
    a = tx.visible(row) if row is not None else None
    if a is None:
        return 0
    changes = {"outputs": outputs.encode(), "names": list(names), "large": None}
    new = {
        "run_id": run_id,
        "activation_id": activation_id,
        "node_id": a["node_id"],
        "container_entry": container_entry,
        "item": item,
    }
    new |= {"order_key": a["order_key"], "region": a["region"], "inputs": encode_json({}), **changes}
    key = (run_id, activation_id, a["node_id"])
    tx.upsert(tx.server["node_values"], key, run_id, new, lambda old: {**old, **changes})
    return 1


@twin(values.INPUTS_AND_OUTPUTS)
def inputs_and_outputs(tx: ServerTransaction, run_id: UUID, activation_id: UUID, node_id: str) -> list[dict[str, Any]]:
    row = tx.server["node_values"].rows.get((run_id, activation_id, node_id))
    v = tx.visible(row) if row is not None else None
    if v is None:
        return []
    shown = {"inputs": decode_json(v["inputs"]), "outputs": decode_json(v["outputs"])}
    return [{"node_id": node_id, **shown, "large": v["large"]}]


# -- queries of the sweeper ------------------------------------------------------------------------------------------
def _find_all(tx: ServerTransaction, table: str, predicate: Predicate) -> list[tuple[Row, Data]]:
    found: list[tuple[Row, Data]] = []
    for row in tx.server[table].rows.values():
        data = tx.visible(row)
        if data is not None and predicate(data):
            found.append((row, data))
    return found


@twin(sweep_queries.TRY_SWEEP)
def try_sweep(tx: ServerTransaction) -> list[dict[str, Any]]:
    return [{"is_ours": tx.try_advisory("sweeper"), "now": tx.now}]


@twin(sweep_queries.EXPIRE_LEASES)
def expire_leases(tx: ServerTransaction, most: int, longest: timedelta) -> list[dict[str, Any]]:
    def predicate(a: Data) -> bool:
        return a["status"] == "running" and not tx.now <= a["lease_until"] <= tx.now + longest

    found = sorted(_find_all(tx, "activations", predicate), key=lambda each: (each[1]["run_id"], each[1]["id"]))
    lost = encode_json({"is": "Failed", "error": "The worker was lost.", "code": LOST, "retryable": True, "used": {}})
    unknown = encode_json({"is": "Failed", "error": UNKNOWN_TEXT, "code": UNKNOWN_OUTCOME, "used": {}})
    hit: list[dict[str, Any]] = []
    for row, _ in found:
        data = tx.lock_row(row, predicate, skip_locked=True) if len(hit) < most else None
        if data is not None:
            changes = {"status": "reported", "crash_count": data["crash_count"] + 1, "finished_at": tx.now}
            changes["outcome"] = unknown if data["effect"] == "unsafe" else lost
            tx.put(row, {**data, **changes})
            hit.append({"run_id": data["run_id"], "id": data["id"]})
    return hit


@twin(sweep_queries.REDISPATCH_UNCLAIMED)
def redispatch_unclaimed(tx: ServerTransaction, sent_before: datetime, most: int) -> list[dict[str, Any]]:
    def predicate(a: Data) -> bool:
        is_due = a["status"] == "ready" and a["not_before"] <= tx.now
        enqueued_at = a["enqueued_at"]
        ahead = tx.now + timedelta(seconds=15)
        return is_due and (enqueued_at is None or enqueued_at < sent_before or enqueued_at > ahead)

    found = sorted(
        _find_all(tx, "activations", predicate),
        key=lambda each: (each[1]["enqueued_at"] is not None, each[1]["enqueued_at"] or tx.now, each[1]["id"]),
    )
    hit: list[dict[str, Any]] = []
    for row, _ in found:
        data = tx.lock_row(row, predicate, skip_locked=True) if len(hit) < most else None
        if data is not None:
            tx.put(row, {**data, "enqueued_at": tx.now})
            hit.append({name: data[name] for name in ("run_id", "id", "component", "node_id")})
    return hit


@twin(documents.WAITING)
def waiting_documents(tx: ServerTransaction) -> list[dict[str, Any]]:
    return [{"count": 0}]


@twin(memory_extractions.WAITING)
def waiting_messages(tx: ServerTransaction) -> list[dict[str, Any]]:
    return [{"count": 0}]


@twin(chunk_indexes.IS_DUE)
def due_indexes(tx: ServerTransaction) -> list[dict[str, Any]]:
    return [{"exists": False}]


@twin(former_rows.IS_WAITING)
def waiting_former_rows(tx: ServerTransaction) -> list[dict[str, Any]]:
    return [{"exists": False}]


@twin(sweep_queries.UNAPPLIED)
def runs_with_reports(tx: ServerTransaction, most: int) -> list[dict[str, Any]]:
    found = dict.fromkeys(data["run_id"] for _, data in _find_all(tx, "activations", _is_reported))
    return [{"run_id": run_id} for run_id in list(found)[:most]]


def _runs(tx: ServerTransaction, most: int, predicate: Predicate, *names: str) -> list[dict[str, Any]]:
    found = sorted((data for _, data in _find_all(tx, "runs", predicate)), key=lambda run: run["id"])
    return [{name: data[name] for name in names} for data in found[:most]]


@twin(budgets.OVER_TIME)
def over_time(tx: ServerTransaction, **_: Any) -> list[dict[str, Any]]:
    return []  # no run of the simulator has a budget


@twin(budgets.RELEASE_ORPHANS)
def release_orphans(tx: ServerTransaction, **_: Any) -> int:
    return 0


@twin(budgets.CLEAR_DEADLINES)
def clear_deadlines(tx: ServerTransaction) -> int:
    return 0


@twin(sweep_queries.STUCK_QUEUED)
def stuck_queued(tx: ServerTransaction, most: int) -> list[dict[str, Any]]:
    rows = tx.server["conversations"].rows

    def predicate(run: Data) -> bool:
        row = rows.get(run["conversation_id"])
        conversation = tx.visible(row) if row is not None else None
        active = conversation["active_run"] if conversation is not None else None
        return run["status"] == "queued" and active in (None, run["id"])

    found = sorted((data for _, data in _find_all(tx, "runs", predicate)), key=lambda run: run["created_at"])
    return [{"id": data["id"]} for data in found[:most]]


@twin(sweep_queries.INTERRUPTED)
def interrupted(tx: ServerTransaction, most: int) -> list[dict[str, Any]]:
    later = [
        data
        for _, data in _find_all(tx, "runs", lambda run: run["status"] in NOT_OVER)
        if decode_json(data["request"]).get("options", {}).get("on_busy") == "interrupt"
    ]
    found = [
        data
        for queued in later
        for _, data in _find_all(tx, "runs", lambda run: run["status"] in NOT_OVER and not run["cancel_requested"])
        if data["conversation_id"] == queued["conversation_id"] and data["created_at"] < queued["created_at"]
    ]
    found.sort(key=lambda run: run["created_at"], reverse=True)
    return [{"id": data["id"]} for data in found[:most]]


MOVING = ("running", "ready", "reported", "queued")


@twin(sweep_queries.STALLED)
def stalled(tx: ServerTransaction, most: int) -> list[dict[str, Any]]:
    moving = {data["run_id"] for _, data in _find_all(tx, "activations", lambda a: a["status"] in MOVING)}
    return _runs(tx, most, lambda r: r["status"] in ("running", "stopping") and r["id"] not in moving, "id")


@twin(sweep_queries.EXPIRED_FORMS)
def expired_forms(tx: ServerTransaction, most: int) -> list[dict[str, Any]]:
    return _runs(tx, most, lambda r: r["status"] == "waiting" and r["expires_at"] < tx.now, "id", "tenant_id")


@twin(sweep_queries.STOPPING)
def stopping(tx: ServerTransaction, most: int) -> list[dict[str, Any]]:
    return _runs(tx, most, lambda r: r["status"] == "stopping", "id")


NOT_OVER = ("queued", "running", "waiting", "stopping")


@twin(sweep_queries.OPEN)
def open_runs(tx: ServerTransaction, most: int) -> list[dict[str, Any]]:
    found = _runs(tx, most, lambda run: run["status"] in NOT_OVER, "id", "conversation_id", "external_id")
    return [{**run, "keys": []} for run in found]  # no external service starts runs in the simulator


@twin(external_ids.KEYS_OF_RUN)
def keys_of_run(tx: ServerTransaction, run_id: UUID) -> list[dict[str, Any]]:
    return [{"keys": []}]


@twin(queue_probes.RECORD_RETURN)
def record_return(tx: ServerTransaction, queue: str, sent_at: datetime) -> int:
    if sent_at > tx.now:
        return 0
    new = {"queue": queue, "sent_at": sent_at}

    def latest(old: Data) -> Data:
        return new if old["sent_at"] > tx.now else {**new, "sent_at": max(old["sent_at"], sent_at)}

    tx.upsert(tx.server["canaries"], queue, None, new, latest)
    return 1


@twin(queue_probes.OBSERVATION)
def observation(tx: ServerTransaction) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for queue in ("sweeper:since", "sweeper:seen"):
        row = tx.server["canaries"].rows.get(queue)
        data = tx.visible(row) if row is not None else None
        if data is not None:
            found.append(dict(data))
    return found


@twin(queue_probes.SAVE_OBSERVATION)
def save_observation(tx: ServerTransaction, since: datetime, now: datetime, queue: str) -> list[dict[str, Any]]:
    returned = latest_probe(tx, queue)
    # both parts of the statement see what was there when it began
    found = [each for each in returned if each["sent_at"] <= now]
    for name, moment in (("sweeper:since", since), ("sweeper:seen", now)):
        new = {"queue": name, "sent_at": moment}
        tx.upsert(tx.server["canaries"], name, None, new, lambda _, new=new: new)
    return found


@twin(queue_probes.LATEST)
def latest_probe(tx: ServerTransaction, queue: str) -> list[dict[str, Any]]:
    row = tx.server["canaries"].rows.get(queue)
    data = tx.visible(row) if row is not None else None
    return [{"sent_at": data["sent_at"]}] if data is not None else []


# -- lists for people -------------------------------------------------------------------------------------------------
def has_changed(a: Data, since: int) -> bool:
    """The twin of `store.runs.activation_list.CHANGED`."""
    is_open = a["status"] in ("ready", "running", "reported")
    return (
        a["activated_rev"] > since
        or (a["applied_rev"] or 0) > since
        or (a["applied_rev"] is None and a["status"] != "queued")
        or is_open
        or (a["status"] == "closed" and a["started_at"] is not None)
    )
