"""Twins of the statements that workers and sweepers make: claims, leases, reports, values, what nobody sees."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from canvas.outcome import LOST, UNKNOWN_OUTCOME, UNKNOWN_TEXT
from store.db.guards import RowGuard
from store.knowledge import documents, memory_extractions
from store.monitoring import queue_probes, sweep_queries
from store.runs import activations, external_ids, reports, values
from store.tenants import budgets
from tests.simulator.database import twin
from tests.simulator.tables import Data, Row, Work, guard_failed
from tests.simulator.twins_runs import LIVE_TURN, Change, Holds, anything, by_id, packed, unpacked

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
    return {name: unpacked(value) if name in JSON_OF_ACTIVATIONS else value for name, value in data.items()}


def _change(work: Work, run_id: UUID, activation_id: UUID, holds: Holds, change: Change) -> Data | None:
    row = work.server["activations"].rows.get((run_id, activation_id))
    seen = work.sees(row) if row is not None else None
    if row is None or seen is None or not holds(seen):
        return None
    data = work.take(row, holds)
    if data is None:
        return None
    new = {**data, **change(data)}
    work.put(row, new)
    return new


# -- claim, firm, renew, report --------------------------------------------------------------------------------------
@twin(activations.CLAIM)
def claim(
    work: Work,
    of_run: UUID,
    of_activation: UUID,
    new_lease: UUID,
    lease: timedelta,
    worker_name: str,
    most_strikes: int | None = None,
) -> list[dict[str, Any]]:
    run = work.server["runs"].rows.get(of_run)
    of_run_seen = work.sees(run) if run is not None else None
    if of_run_seen is None:
        return []
    work.waits_for_disk = False

    def holds(a: Data) -> bool:
        if a["status"] == "running":
            return a["lease_id"] == new_lease and not a["called_off"]
        is_due = a["status"] == "ready" and a["not_before"] <= work.now
        return is_due and (most_strikes is None or a["strikes"] <= most_strikes)

    claimed = _change(work, of_run, of_activation, holds, lambda a: _claimed(work, a, new_lease, lease, worker_name))
    return [_with_run(claimed, of_run_seen)] if claimed is not None else []


@twin(activations.CLAIM_BATCH)
def claim_together(
    work: Work,
    run_ids: list[UUID],
    ids: list[UUID],
    leases: list[UUID],
    lease: timedelta,
    worker: str,
    most_strikes: int,
) -> list[dict[str, Any]]:
    work.waits_for_disk = False

    def holds(a: Data) -> bool:
        return a["status"] == "ready" and a["not_before"] <= work.now and a["strikes"] <= most_strikes

    claimed: list[dict[str, Any]] = []
    for run_id, activation_id, lease_id in sorted(zip(run_ids, ids, leases, strict=True)):
        row = work.server["activations"].rows.get((run_id, activation_id))
        run = work.server["runs"].rows.get(run_id)
        seen, run_seen = (work.sees(each) if each is not None else None for each in (row, run))
        if row is None or seen is None or run_seen is None or not holds(seen):
            continue
        data = work.take(row, holds, skip_locked=True)
        if data is not None:
            new = {**data, **_claimed(work, data, lease_id, lease, worker)}
            work.put(row, new)
            claimed.append(_with_run(new, run_seen))
    return claimed


def _claimed(work: Work, a: Data, lease_id: UUID, lease: timedelta, worker: str) -> dict[str, Any]:
    return {
        "status": "running",
        "attempt": a["attempt"] + (a["status"] == "ready"),
        "lease_id": lease_id,
        "lease_until": work.now + lease,
        "worker": worker,
        "started_at": work.now,
        "called_off": False,
        "effect": None,
    }


def _with_run(claimed: Data, run: Data) -> dict[str, Any]:
    of_the_run = {name: run[name] for name in OF_THE_RUN}
    return {**plain(claimed), **of_the_run, "run_created_at": run["created_at"]}


@twin(activations.FIND_BY_LEASE)
def held_under(work: Work, of_run: UUID, of_lease: UUID) -> list[dict[str, Any]]:
    found = work.found(work.server["activations"], of_run, lambda a: a["status"] == "running")
    return [{"id": a["id"]} for _, a in found if a["lease_id"] == of_lease]


@twin(activations.IS_READY)
def is_ready(work: Work, of_run: UUID, of_activation: UUID) -> list[dict[str, Any]]:
    row = work.server["activations"].rows.get((of_run, of_activation))
    a = work.sees(row) if row is not None else None
    return [{"id": a["id"]}] if a is not None and a["status"] == "ready" and a["not_before"] <= work.now else []


def _held(lease_id: UUID) -> Holds:
    return lambda a: a["lease_id"] == lease_id and a["status"] == "running"


@twin(activations.MAKE_DURABLE)
def firm(work: Work, of_run: UUID, of_activation: UUID, of_lease: UUID, lease: timedelta) -> int:
    changed = _change(
        work,
        of_run,
        of_activation,
        _held(of_lease),
        lambda _: {"lease_until": work.now + lease},
    )
    return int(changed is not None)


@twin(activations.RECORD_EFFECT)
def act(
    work: Work, of_run: UUID, of_activation: UUID, of_lease: UUID, lease: timedelta, new_effect: str
) -> list[dict[str, Any]]:
    changes = {"lease_until": work.now + lease, "effect": new_effect}
    changed = _change(work, of_run, of_activation, _held(of_lease), lambda _: changes)
    return [{"called_off": changed["called_off"]}] if changed is not None else []


@twin(activations.FIND_CANCELLED)
def called_off(work: Work, run_ids: list[UUID], ids: list[UUID], leases: list[UUID]) -> list[dict[str, Any]]:
    table, found = work.server["activations"], list[dict[str, Any]]()
    for run_id, activation_id, lease_id in zip(run_ids, ids, leases, strict=True):
        row = table.rows.get((run_id, activation_id))
        data = work.sees(row) if row is not None else None
        is_so = data is not None and data["status"] == "running" and data["called_off"]
        if is_so and data is not None and data["lease_id"] == lease_id:
            found.append({"lease_id": lease_id})
    return found


@twin(reports.REPORT_INLINE)
def settle(
    work: Work,
    of_run: UUID,
    of_activation: UUID,
    of_lease: UUID,
    new_status: str,
    new_revision: int,
    new_outcome: Any,
    new_usage: Any,
    new_strikes: int,
) -> list[dict[str, Any]]:
    hit = report(work, of_run, of_activation, of_lease, new_outcome, new_usage, new_strikes)
    if not hit:
        raise guard_failed(RowGuard.LEASE_HELD)
    row = work.server["activations"].rows[of_run, of_activation]
    data = work.sees(row)
    assert data is not None
    work.put(row, {**data, "status": new_status, "folded_rev": new_revision})
    return [{"count": 1}]


@twin(reports.OVERWRITE_OUTCOME)
def tell(work: Work, of_run: UUID, of_activation: UUID, new_outcome: Any) -> int:
    changed = _change(
        work,
        of_run,
        of_activation,
        lambda a: a["status"] == "reported",
        lambda _: {"outcome": packed(new_outcome), "finished_at": work.now},
    )
    return int(changed is not None)


def _mine(work: Work, run_ids: list[UUID], ids: list[UUID], leases: list[UUID]) -> list[tuple[Row, Data]]:
    table, found = work.server["activations"], list[tuple[Row, Data]]()
    for run_id, activation_id, lease_id in zip(run_ids, ids, leases, strict=True):
        row = table.rows.get((run_id, activation_id))
        data = work.sees(row) if row is not None else None
        if row is not None and data is not None and data["lease_id"] == lease_id and _is_kept(data):
            found.append((row, data))
    return sorted(found, key=lambda each: (each[1]["run_id"], each[1]["id"]))


def _is_kept(a: Data) -> bool:
    return a["status"] == "running" and not a["called_off"]


@twin(activations.RENEW)
def renew(
    work: Work, lease: timedelta, run_ids: list[UUID], ids: list[UUID], leases: list[UUID]
) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for row, seen in _mine(work, run_ids, ids, leases):
        data = work.take(row, lambda a, seen=seen: _is_kept(a) and a["lease_id"] == seen["lease_id"], skip_locked=True)
        if data is not None:
            work.put(row, {**data, "lease_until": work.now + lease})
            kept.append({"lease_id": data["lease_id"]})
    return kept


@twin(activations.FIND_VALID)
def still_held(work: Work, run_ids: list[UUID], ids: list[UUID], leases: list[UUID]) -> list[dict[str, Any]]:
    return [{"lease_id": data["lease_id"]} for _, data in _mine(work, run_ids, ids, leases)]


@twin(reports.REPORT)
def report(
    work: Work, of_run: UUID, of_activation: UUID, of_lease: UUID, new_outcome: Any, new_usage: Any, new_strikes: int
) -> int:
    changed = _change(
        work,
        of_run,
        of_activation,
        _held(of_lease),
        lambda a: {
            "status": "reported",
            "outcome": packed(new_outcome),
            "usage": packed(new_usage),
            "strikes": a["strikes"] + new_strikes,
            "finished_at": work.now,
        },
    )
    return int(changed is not None)


@twin(reports.WAS_STORED)
def was_stored(work: Work, of_run: UUID, of_activation: UUID, of_lease: UUID) -> list[dict[str, Any]]:
    row = work.server["activations"].rows.get((of_run, of_activation))
    a = work.sees(row) if row is not None else None
    return [{"id": a["id"]}] if a is not None and a["lease_id"] == of_lease and a["status"] != "running" else []


@twin(reports.PUT_VALUES)
def put_values(work: Work, **row: Any) -> int:
    new = {**row, "outputs": packed(row["outputs"]), "inputs": packed(row["inputs"]), "names": list(row["names"])}
    new["large"] = row.get("large")
    changes = {name: new[name] for name in ("outputs", "inputs", "names", "large")}
    key = (row["run_id"], row["activation_id"], row["node_id"])
    work.upsert(work.server["node_values"], key, row["run_id"], new, lambda old: {**old, **changes})
    return 1


@twin(reports.PUT_VARIABLES)
def put_variables(work: Work, **row: Any) -> int:
    new = {**row, "value": packed(row["value"]), "large": row.get("large")}
    changes = {name: new[name] for name in ("value", "large")}
    key = (row["run_id"], row["activation_id"], row["name"])
    work.upsert(work.server["variables"], key, row["run_id"], new, lambda old: {**old, **changes})
    return 1


@twin(reports.PUT_STREAM)
def put_turn(work: Work, **row: Any) -> int:
    new = {**LIVE_TURN, **row}
    changes = {name: new[name] for name in ("text", "speaker", "epoch", "keep")}
    key = (row["run_id"], row["id"])
    work.upsert(work.server["turns"], key, row["run_id"], new, lambda old: {**old, **changes})
    return 1


@twin(reports.PUT_STREAM_NEXT_EPOCH)
def put_turn_anew(work: Work, **row: Any) -> int:
    new = {**LIVE_TURN, **row}
    changes = {name: new[name] for name in ("text", "speaker", "keep")}
    key = (row["run_id"], row["id"])
    work.upsert(
        work.server["turns"], key, row["run_id"], new, lambda old: {**old, **changes, "epoch": old["epoch"] + 1}
    )
    return 1


@twin(reports.UNAPPLIED)
def reported(work: Work, of_run: UUID) -> list[dict[str, Any]]:
    names = ["id", "node_id", "scope", "ordinal", "wave", "trail", "region", "outcome", "usage"]
    names += ["strikes", "effect", "turn"]
    found = work.found(work.server["activations"], of_run, lambda a: a["status"] == "reported")
    rows = [plain(data) for _, data in sorted(found, key=by_id)]
    return [{name: row[name] for name in names} for row in rows]


@twin(reports.HAS_UNAPPLIED)
def has_reported(work: Work, of_run: UUID) -> list[dict[str, Any]]:
    return [{"id": a["id"]} for _, a in work.found(work.server["activations"], of_run, _is_reported)][:1]


def _is_reported(a: Data) -> bool:
    return a["status"] == "reported"


@twin(reports.ORDER_KEY)
def places(work: Work, of_run: UUID, of_activation: UUID) -> list[dict[str, Any]]:
    row = work.server["activations"].rows.get((of_run, of_activation))
    a = work.sees(row) if row is not None else None
    return [{"place": a["place"], "region": a["region"]}] if a is not None else []


# -- values ----------------------------------------------------------------------------------------------------------
def _folded(work: Work, table: str, run_id: UUID, holds: Holds) -> list[Data]:
    """Values whose writers a fold has seen, in order of place."""
    rows = work.server["activations"].rows
    found: list[Data] = []
    for _, value in work.found(work.server[table], run_id, holds):
        writer = rows.get((run_id, value["activation_id"]))
        seen = work.sees(writer) if writer is not None else None
        if seen is not None and seen["folded_rev"] is not None:
            found.append(value)
    return sorted(found, key=lambda value: value["place"])


@twin(values.FINAL_OUTPUTS)
def final_outputs(work: Work, run_id: UUID) -> list[dict[str, Any]]:
    last = {v["node_id"]: v for v in _folded(work, "node_values", run_id, lambda v: v["region"] == b"")}
    return [
        {"node_id": name, "outputs": unpacked(v["outputs"]), "place": v["place"], "large": v["large"]}
        for name, v in sorted(last.items())
    ]


@twin(values.FINAL_VARIABLES)
def final_variables(work: Work, run_id: UUID) -> list[dict[str, Any]]:
    last = {v["name"]: v for v in _folded(work, "variables", run_id, lambda v: v["region"] == b"")}
    return [
        {"name": name, "value": unpacked(v["value"]), "place": v["place"], "large": v["large"]}
        for name, v in sorted(last.items())
    ]


@twin(values.INPUTS)
def inputs_of(work: Work, run_id: UUID, node_id: str) -> list[dict[str, Any]]:
    found = work.found(work.server["node_values"], run_id, lambda v: v["node_id"] == node_id and v["region"] == b"")
    last = sorted((data for _, data in found), key=lambda v: v["place"], reverse=True)[:1]
    return [{"inputs": unpacked(v["inputs"]), "large": v["large"]} for v in last]


@twin(values.PREVIOUS_OUTPUTS)
def left_before(work: Work, run_id: UUID, activation_id: UUID) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = []
    for _, mine in work.found(work.server["node_values"], run_id, lambda v: v["activation_id"] == activation_id):
        before = _folded(
            work,
            "node_values",
            run_id,
            lambda v, mine=mine: (
                v["node_id"] == mine["node_id"] and v["region"] == mine["region"] and v["place"] < mine["place"]
            ),
        )
        if before:
            left = before[-1]
            result.append(
                {
                    "node_id": mine["node_id"],
                    "outputs": unpacked(mine["outputs"]),
                    "large": mine["large"],
                    "left_before": unpacked(left["outputs"]),
                    "large_before": left["large"],
                }
            )
    return result


@twin(values.PUT_OUTPUTS)
def put_outputs(
    work: Work,
    of_run: UUID,
    of_activation: UUID,
    of_node: str,
    new_outputs: Any,
    new_names: list[str],
    new_large: Any,
) -> int:
    row = work.server["node_values"].rows.get((of_run, of_activation, of_node))
    if row is None or work.sees(row) is None:
        return 0
    data = work.take(row, anything)
    if data is None:
        return 0
    work.put(row, {**data, "outputs": packed(new_outputs), "names": list(new_names), "large": new_large})
    return 1


@twin(values.SCOPE)
def scope_of(work: Work, run_id: UUID, activation_id: UUID) -> list[dict[str, Any]]:
    row = work.server["activations"].rows.get((run_id, activation_id))
    a = work.sees(row) if row is not None else None
    return [{"scope": a["scope"]}] if a is not None else []


@twin(values.PUT_ON_BEHALF)
def put_for(
    work: Work, run_id: UUID, activation_id: UUID, pass_of: str, item: int, outputs: str, names: list[str]
) -> int:
    row = work.server["activations"].rows.get((run_id, activation_id))
    a = work.sees(row) if row is not None else None
    if a is None:
        return 0
    changes = {"outputs": outputs.encode(), "names": list(names), "large": None}
    new = {"run_id": run_id, "activation_id": activation_id, "node_id": a["node_id"], "pass_of": pass_of, "item": item}
    new |= {"place": a["place"], "region": a["region"], "inputs": packed({}), **changes}
    key = (run_id, activation_id, a["node_id"])
    work.upsert(work.server["node_values"], key, run_id, new, lambda old: {**old, **changes})
    return 1


@twin(values.INPUTS_AND_OUTPUTS)
def inputs_and_outputs(work: Work, run_id: UUID, activation_id: UUID, node_id: str) -> list[dict[str, Any]]:
    row = work.server["node_values"].rows.get((run_id, activation_id, node_id))
    v = work.sees(row) if row is not None else None
    if v is None:
        return []
    shown = {"inputs": unpacked(v["inputs"]), "outputs": unpacked(v["outputs"])}
    return [{"node_id": node_id, **shown, "large": v["large"]}]


# -- what nobody sees ------------------------------------------------------------------------------------------------
def _everywhere(work: Work, table: str, holds: Holds) -> list[tuple[Row, Data]]:
    found: list[tuple[Row, Data]] = []
    for row in work.server[table].rows.values():
        data = work.sees(row)
        if data is not None and holds(data):
            found.append((row, data))
    return found


@twin(sweep_queries.TRY_SWEEP)
def try_sweep(work: Work) -> list[dict[str, Any]]:
    return [{"is_ours": work.try_advisory("sweeper"), "now": work.now}]


@twin(sweep_queries.EXPIRE_LEASES)
def silent(work: Work, most: int, longest: timedelta) -> list[dict[str, Any]]:
    def holds(a: Data) -> bool:
        return a["status"] == "running" and not work.now <= a["lease_until"] <= work.now + longest

    found = sorted(_everywhere(work, "activations", holds), key=lambda each: (each[1]["run_id"], each[1]["id"]))
    lost = packed({"is": "Failed", "error": "The worker was lost.", "code": LOST, "retryable": True, "used": {}})
    unknown = packed({"is": "Failed", "error": UNKNOWN_TEXT, "code": UNKNOWN_OUTCOME, "used": {}})
    hit: list[dict[str, Any]] = []
    for row, _ in found:
        data = work.take(row, holds, skip_locked=True) if len(hit) < most else None
        if data is not None:
            told = {"status": "reported", "strikes": data["strikes"] + 1, "finished_at": work.now}
            told["outcome"] = unknown if data["effect"] == "unsafe" else lost
            work.put(row, {**data, **told})
            hit.append({"run_id": data["run_id"], "id": data["id"]})
    return hit


@twin(sweep_queries.REDISPATCH_UNCLAIMED)
def unclaimed(work: Work, sent_before: datetime, most: int) -> list[dict[str, Any]]:
    def holds(a: Data) -> bool:
        is_due = a["status"] == "ready" and a["not_before"] <= work.now
        hinted_at = a["hinted_at"]
        ahead = work.now + timedelta(seconds=15)
        return is_due and (hinted_at is None or hinted_at < sent_before or hinted_at > ahead)

    found = sorted(
        _everywhere(work, "activations", holds),
        key=lambda each: (each[1]["hinted_at"] is not None, each[1]["hinted_at"] or work.now, each[1]["id"]),
    )
    hit: list[dict[str, Any]] = []
    for row, _ in found:
        data = work.take(row, holds, skip_locked=True) if len(hit) < most else None
        if data is not None:
            work.put(row, {**data, "hinted_at": work.now})
            hit.append({name: data[name] for name in ("run_id", "id", "component")})
    return hit


@twin(documents.WAITING)
def waiting_documents(work: Work) -> list[dict[str, Any]]:
    return [{"count": 0}]


@twin(memory_extractions.WAITING)
def waiting_messages(work: Work) -> list[dict[str, Any]]:
    return [{"count": 0}]


@twin(sweep_queries.UNAPPLIED)
def unseen(work: Work, most: int) -> list[dict[str, Any]]:
    found = dict.fromkeys(data["run_id"] for _, data in _everywhere(work, "activations", _is_reported))
    return [{"run_id": run_id} for run_id in list(found)[:most]]


def _runs(work: Work, most: int, holds: Holds, *names: str) -> list[dict[str, Any]]:
    found = sorted((data for _, data in _everywhere(work, "runs", holds)), key=lambda run: run["id"])
    return [{name: data[name] for name in names} for data in found[:most]]


@twin(budgets.OVER_TIME)
def overtime(work: Work, **_: Any) -> list[dict[str, Any]]:
    return []  # no run of the simulator has a budget


@twin(budgets.RELEASE_ORPHANS)
def free(work: Work, **_: Any) -> int:
    return 0


@twin(budgets.CLEAR_DEADLINES)
def no_longer_due(work: Work) -> int:
    return 0


@twin(sweep_queries.STUCK_QUEUED)
def stuck_queued(work: Work, most: int) -> list[dict[str, Any]]:
    rows = work.server["conversations"].rows

    def holds(run: Data) -> bool:
        row = rows.get(run["conversation_id"])
        conversation = work.sees(row) if row is not None else None
        active = conversation["active_run"] if conversation is not None else None
        return run["status"] == "queued" and active in (None, run["id"])

    found = sorted((data for _, data in _everywhere(work, "runs", holds)), key=lambda run: run["created_at"])
    return [{"id": data["id"]} for data in found[:most]]


@twin(sweep_queries.INTERRUPTED)
def interrupted(work: Work, most: int) -> list[dict[str, Any]]:
    later = [
        data
        for _, data in _everywhere(work, "runs", lambda run: run["status"] in NOT_OVER)
        if unpacked(data["request"]).get("options", {}).get("on_busy") == "interrupt"
    ]
    found = [
        data
        for queued in later
        for _, data in _everywhere(work, "runs", lambda run: run["status"] in NOT_OVER and run["asked"] is None)
        if data["conversation_id"] == queued["conversation_id"] and data["created_at"] < queued["created_at"]
    ]
    found.sort(key=lambda run: run["created_at"], reverse=True)
    return [{"id": data["id"]} for data in found[:most]]


MOVING = ("running", "ready", "reported", "queued")


@twin(sweep_queries.STALLED)
def still(work: Work, most: int) -> list[dict[str, Any]]:
    moving = {data["run_id"] for _, data in _everywhere(work, "activations", lambda a: a["status"] in MOVING)}
    return _runs(work, most, lambda r: r["status"] in ("running", "stopping") and r["id"] not in moving, "id")


@twin(sweep_queries.EXPIRED_FORMS)
def expired_forms(work: Work, most: int) -> list[dict[str, Any]]:
    return _runs(work, most, lambda r: r["status"] == "waiting" and r["expires_at"] < work.now, "id", "tenant_id")


@twin(sweep_queries.STOPPING)
def stopping(work: Work, most: int) -> list[dict[str, Any]]:
    return _runs(work, most, lambda r: r["status"] == "stopping", "id")


NOT_OVER = ("queued", "running", "waiting", "stopping")


@twin(sweep_queries.OPEN)
def open_runs(work: Work, most: int) -> list[dict[str, Any]]:
    found = _runs(work, most, lambda run: run["status"] in NOT_OVER, "id", "conversation_id", "external_id")
    return [{**run, "keys": []} for run in found]  # nobody in the simulator is another service


@twin(external_ids.KEYS_OF_RUN)
def keys_of_run(work: Work, run_id: UUID) -> list[dict[str, Any]]:
    return [{"keys": []}]


@twin(queue_probes.RECORD_RETURN)
def came_back(work: Work, queue: str, sent_at: datetime) -> int:
    if sent_at > work.now:
        return 0
    new = {"queue": queue, "sent_at": sent_at}

    def latest(old: Data) -> Data:
        return new if old["sent_at"] > work.now else {**new, "sent_at": max(old["sent_at"], sent_at)}

    work.upsert(work.server["canaries"], queue, None, new, latest)
    return 1


@twin(queue_probes.OBSERVATION)
def remembered(work: Work) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for queue in ("sweeper:since", "sweeper:seen"):
        row = work.server["canaries"].rows.get(queue)
        data = work.sees(row) if row is not None else None
        if data is not None:
            found.append(dict(data))
    return found


@twin(queue_probes.SAVE_OBSERVATION)
def see(work: Work, since: datetime, now: datetime, queue: str) -> list[dict[str, Any]]:
    came = latest_canary(work, queue)
    # both parts of the statement see what was there when it began
    found = [each for each in came if each["sent_at"] <= now]
    for name, moment in (("sweeper:since", since), ("sweeper:seen", now)):
        new = {"queue": name, "sent_at": moment}
        work.upsert(work.server["canaries"], name, None, new, lambda _, new=new: new)
    return found


@twin(queue_probes.LATEST)
def latest_canary(work: Work, queue: str) -> list[dict[str, Any]]:
    row = work.server["canaries"].rows.get(queue)
    data = work.sees(row) if row is not None else None
    return [{"sent_at": data["sent_at"]}] if data is not None else []
