"""Invariants of the protocol (protocol.md), checked after every commit and at the end of a schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from canvas.outcome import UNKNOWN_OUTCOME
from canvas.state.run_state import ACTIVATION_MOVES, RUN_MOVES, ActivationStatus, RunStatus, scope_key
from tests.simulator import scenarios
from tests.simulator.scenarios import Scenario
from tests.simulator.simulation import InvariantViolated, Process
from tests.simulator.tables import Change, Data, Observer, Row, Server, ServerTransaction
from tests.simulator.twins_runs import decode_json

FINAL = frozenset({"done", "closed"})
BUSY = frozenset({"ready", "running", "reported"})
OVER = frozenset({"succeeded", "failed", "cancelled"})
LAST_CRASH_COUNT = 2
LEASE_ID = "made by"
"""The output in which every result stores the lease under which it was made."""
ABSENCE_LIMIT = 20.0  # seconds after a pause in which a lease may still expire


@dataclass(eq=False)
class Invariants(Observer):
    """Checks every write and commit of one server; raises InvariantViolated at the violation."""

    server: Server
    events: dict[UUID, int] = field(default_factory=dict[UUID, int])  # run -> number of its last event
    results: set[tuple[UUID, int]] = field(default_factory=set[tuple[UUID, int]])  # (activation, attempt)
    poisoned_runs: set[UUID] = field(default_factory=set[UUID])  # runs with an activation that crashed 3 times
    unknown: set[UUID] = field(default_factory=set[UUID])  # runs with a node of unknown outcome
    cancelled: set[UUID] = field(default_factory=set[UUID])  # runs whose cancel was requested
    claimed_at: dict[UUID, float] = field(default_factory=dict[UUID, float])
    limited: set[tuple[UUID, int]] = field(default_factory=set[tuple[UUID, int]])  # attempts claimed under a budget
    tolerates_abandoned: bool = True  # nodes may ignore a cancel, and their process abandons them
    workers: dict[str, Process] = field(default_factory=dict[str, Process])

    # -- single writes -----------------------------------------------------------------------------------------------
    def on_write(self, tx: ServerTransaction, row: Row, before: Data | None, after: Data | None) -> None:
        """Check a write: statuses change only as the state machine allows."""
        match row.table.name:
            case "activations":
                self._check_activation_write(tx, before, after)
            case "runs":
                if before is None or after is None or before["status"] == after["status"]:
                    _check(before is None or before["status"] not in OVER, "a run is written after its end")
                else:
                    was, now = RunStatus(before["status"]), RunStatus(after["status"])
                    _check(now in RUN_MOVES[was], f"a run moves from {was} to {now}")
            case _:
                pass

    def _check_activation_write(self, tx: ServerTransaction, before: Data | None, after: Data | None) -> None:
        _check(after is not None, "an activation is gone")
        assert after is not None
        run = self.server["runs"].rows.get(after["run_id"])
        seen = tx.visible(run) if run is not None else None
        _check(seen is not None, "an activation has no run")
        assert seen is not None
        if before is None:
            is_claimed = after["status"] == "running" and after["lease_id"] is not None and after["attempt"] == 1
            begins = after["status"] in ("queued", "ready") or is_claimed
            _check(begins, "an activation begins with a wrong status")
            _check(seen["status"] not in OVER, "a node is activated after the end")
            _check(not seen["cancel_requested"], "a node is activated after a cancel")
            return
        if before["status"] != after["status"]:
            was, now = ActivationStatus(before["status"]), ActivationStatus(after["status"])
            is_forced = now is ActivationStatus.CLOSED and seen["version_id"] in self.server.deleted_versions
            _check(is_forced or now in ACTIVATION_MOVES[was], f"{after['node_id']} moves from {was} to {now}")
        if before["status"] == "running" and after["status"] != "running":
            _check(before["lease_id"] == after["lease_id"], "a report under another lease is accepted")

    # -- commits -----------------------------------------------------------------------------------------------------
    def on_commit(self, changes: list[Change]) -> None:
        """Check the rows that a commit has changed."""
        runs: dict[UUID, Change] = {}
        event_numbers: dict[UUID, list[int]] = {}
        touched: dict[UUID, None] = {}
        for change in changes:
            after = change.after
            match change.row.table.name:
                case "runs" if after is not None:
                    runs[after["id"]] = change
                case "activations" if after is not None:
                    touched[after["run_id"]] = None
                    self._check_attempt(change.before, after)
                case "turns" if after is not None and change.before is not None:
                    _check_text_growth(change.before, after)
                case "node_values" | "variables":
                    self._check_value(change.before, after)
                case "run_events" if after is not None:
                    event_numbers.setdefault(after["run_id"], []).append(after["number"])
                case _:
                    pass
        for run_id, numbers in event_numbers.items():
            self._check_event_numbers(run_id, numbers)
        for run_id, change in runs.items():
            self._check_run(run_id, change.before, change.after)
        for run_id in touched:
            if run_id not in runs:
                run = self.server["runs"].rows[run_id].committed
                _check(run is not None and run["status"] not in OVER, "an activation moves after its run's end")
                self._check_owner(run_id)

    def _check_value(self, before: Data | None, after: Data | None) -> None:
        assert after is not None  # values are never deleted
        row = self.server["activations"].rows.get((after["run_id"], after["activation_id"]))
        writer = row.committed if row is not None else None
        _check(writer is not None, "values belong to no activation")
        assert writer is not None
        if before is None:
            has_reported = writer["attempt"] > 0 and writer["status"] != "running"
            _check(has_reported, "values are stored without a report")
        made_by = _made_by(after)
        if made_by is not None and (before is None or made_by != _made_by(before)):
            _check(made_by == str(writer["lease_id"]), "a result is stored that another attempt has made")

    def _check_attempt(self, before: Data | None, after: Data) -> None:
        was = before["status"] if before is not None else None
        if was == "ready" and after["status"] == "running":
            self._check_claim(after)
        is_first_write = was == "ready" and before is not None and after["attempt"] > before["attempt"]
        if is_first_write and after["status"] != "running":  # a report that writes the claim, too
            run = self.server["runs"].rows[after["run_id"]].committed
            _check(run is not None and not run["cancel_requested"], "a deferred claim is written after a cancel")
        if was in (None, "queued") and after["status"] == "running":  # under its run's lock
            run = self.server["runs"].rows[after["run_id"]].committed
            if run is not None and run["budgeted"]:
                self.limited.add((after["id"], after["attempt"]))
        if after["crash_count"] >= 3:
            self.poisoned_runs.add(after["run_id"])
        if after["crash_count"] > (before["crash_count"] if before is not None else 0):
            self._check_crash(after)
        has_reported = (was == "running" or is_first_write) and after["status"] != "running"
        if has_reported and UNKNOWN_OUTCOME.encode() in (after["outcome"] or b""):
            self.unknown.add(after["run_id"])
        if has_reported:
            result = (after["id"], after["attempt"])
            _check(result not in self.results, f"{after['node_id']}: an attempt has two results")
            self.results.add(result)

    def _check_crash(self, after: Data) -> None:
        """Check that only a dead or paused worker loses its lease."""
        worker = self.workers.get(after["worker"])
        is_known = after["lease_id"] not in self.server.unconfirmed_leases
        if worker is not None and is_known and not worker.is_dead and worker.paused_until is None:
            absence = self.server.simulation.now - worker.last_absent_at
            _check(absence < ABSENCE_LIMIT, f"the lease of {after['worker']}, which is healthy, has expired")

    def _check_claim(self, after: Data) -> None:
        run = self.server["runs"].rows[after["run_id"]].committed
        _check(run is not None and not run["cancel_requested"], "a node is claimed after a cancel")
        _check(run is not None and run["status"] not in OVER, "a node is claimed after the end")
        self.claimed_at[after["id"]] = self.server.simulation.now
        if after["crash_count"] >= LAST_CRASH_COUNT:
            others = [
                row
                for row in self.server["activations"].committed()
                if row["status"] == "running"
                and row["worker"] == after["worker"]
                and row["crash_count"] >= LAST_CRASH_COUNT
            ]
            _check(len(others) <= 1 or self.tolerates_abandoned, "two activations with two crashes share a process")

    def _check_event_numbers(self, run_id: UUID, numbers: list[int]) -> None:
        first = self.events.get(run_id, 0) + 1
        last = first + len(numbers) - 1
        _check(sorted(numbers) == list(range(first, last + 1)), f"events {numbers} come after {first - 1}")
        self.events[run_id] = last

    def _check_run(self, run_id: UUID, before: Data | None, run: Data | None) -> None:
        _check(run is not None, "a run is gone")
        assert run is not None
        if before is not None:
            _check(run["revision"] >= before["revision"], "a checkpoint goes back")
            _check(not before["cancel_requested"] or run["cancel_requested"], "a cancel was forgotten")
        if run["cancel_requested"]:
            self.cancelled.add(run_id)
        _check(run["last_event"] == self.events.get(run_id, 0), "a run's last event is not its last")
        rows = list(self.server["activations"].committed(run_id))
        statuses = [row["status"] for row in rows]
        streams = [stream["id"] for stream in self.server["turns"].committed(run_id) if _is_open(stream)]
        _check(len(streams) <= 1, "two message streams are open")
        _check(
            run["open_stream"] in streams if streams else run["open_stream"] is None, "the open stream is not the run's"
        )
        status = run["status"]
        if status in OVER:
            _check(
                FINAL.issuperset(statuses), f"a run is over, and its activations are {sorted(set(statuses) - FINAL)}"
            )
            _check(not any(True for _ in self.server["scopes"].committed(run_id)), "a scope is left after the end")
            if status == "succeeded":
                _check("closed" not in statuses, "a run has succeeded without a node")
            return
        if status == "waiting":
            _check(
                {"waiting", "open"}.issuperset(set(statuses) - FINAL),
                "a run waits for a person and has busy activations",
            )
            _check("waiting" in statuses, "a run waits without a form")
        if status in ("running", "waiting"):
            self._check_state(run, rows, statuses)
        self._check_owner(run_id)

    def _check_state(self, run: Data, rows: list[Data], statuses: list[str]) -> None:
        """Check the counters in the run's state against its activations."""
        state = decode_json(run["state"])
        _check(state["live"] == sum(status in BUSY for status in statuses), "a run counts its busy activations wrongly")
        _check(state["queued"] == statuses.count("queued"), "a run counts its queue wrongly")
        _check(state["live"] <= state["max_running"], "more nodes run than may")
        numbers = scenarios.scenario_of(run["version_id"]).canvas.numbers
        alive: dict[str, int] = {}
        for row in rows:
            if row["status"] not in FINAL:
                alive[row["scope"]] = alive.get(row["scope"], 0) | 1 << numbers[row["node_id"]]
        for scope in self.server["scopes"].committed(run["id"]):
            known = int(decode_json(scope["state"])["alive"], 16)
            _check(known == alive.pop(scope["key"], 0), "the live nodes of a scope are counted wrongly")
        _check(not alive, "an activation lives in a scope that is not open")

    def _check_owner(self, run_id: UUID) -> None:
        """Check that a run that is not over has an activation in progress."""
        run = self.server["runs"].rows[run_id].committed
        assert run is not None
        if run["status"] in ("running", "stopping"):
            statuses = {row["status"] for row in self.server["activations"].committed(run_id)}
            _check(not statuses.isdisjoint(BUSY), f"a run that is {run['status']} has no owner")

    def on_crash(self, changes: list[Change]) -> None:
        """Check that a database crash undoes only claims and renewals."""
        for change in changes:
            _check(change.row.table.name == "activations", f"a crash has undone {change.row.table.name}")
            after = change.after or {}
            _check(after.get("status") == "running", "a crash has undone more than a claim")

    # -- the end -----------------------------------------------------------------------------------------------------
    def check_end(self) -> None:
        """Check that every run is over, with the same result as without faults."""
        for run in self.server["runs"].committed():
            _check(run["status"] in OVER, f"a run is {run['status']} at the end")
            scenario = scenarios.scenario_of(run["version_id"])
            if run["id"] in self.cancelled | self.poisoned_runs | self.unknown:
                continue
            if run["version_id"] in self.server.deleted_versions:  # it ended before the deletion, or because of it
                _check(
                    run["status"] in (scenario.status, RunStatus.FAILED), f"a run without a version is {run['status']}"
                )
                continue
            _check(
                run["status"] == scenario.status, f"a run of {scenario.name} has {run['status']}, not {scenario.status}"
            )
            if scenario.status is RunStatus.SUCCEEDED:
                self._check_trace(run, scenario)

    def _check_trace(self, run: Data, scenario: Scenario) -> None:
        rows = {row["id"]: row for row in self.server["activations"].committed(run["id"])}
        key = {id: (row["node_id"], row["scope"], row["ordinal"]) for id, row in rows.items()}  # noqa: A001
        order_keys = {key[id]: row["order_key"].hex() for id, row in rows.items()}  # noqa: A001
        _check(
            order_keys == scenario.order_keys,
            f"{scenario.name}: other nodes ran, or at other positions, than without faults",
        )
        streams = [stream for stream in self.server["turns"].committed(run["id"]) if stream["opened_at"] is not None]
        streams.sort(key=lambda stream: stream["opened_at"])
        messages = [stream for stream in streams if key[stream["id"]] in scenario.message_order]
        _check(
            [key[stream["id"]] for stream in messages] == scenario.message_order,
            f"{scenario.name}: texts came in another order",
        )
        for stream in streams:
            self._check_text(scenario, rows[stream["id"]], stream)

    def _check_text(self, scenario: Scenario, row: Data, stream: Mapping[str, Any]) -> None:
        outcome = decode_json(row["outcome"])
        if outcome is not None and outcome["is"] == "Finished":
            scope = scope_key(row["scope"])
            _check(
                stream["text"] == scenario.text(row["node_id"], scope), f"{row['node_id']} has streamed another text"
            )


def _is_open(stream: Data) -> bool:
    return stream["opened_at"] is not None and stream["closed_at"] is None


def _made_by(data: Data) -> str | None:
    return decode_json(data["outputs"]).get(LEASE_ID) if "outputs" in data else None


def _check_text_growth(before: Data, after: Data) -> None:
    """Check that a text only grows within an epoch, and that epochs only increase."""
    _check(after["epoch"] >= before["epoch"], "an epoch of a stream is used again")
    if after["epoch"] == before["epoch"]:
        _check(after["text"].startswith(before["text"]), f"a text has changed within its epoch: {after['node_id']}")


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantViolated(message)
