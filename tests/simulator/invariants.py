"""What must hold after every commit (protocol.md, "Invariants"), and at the end of a schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from canvas.outcome import UNKNOWN_OUTCOME
from canvas.state.run_state import ACTIVATION_MOVES, RUN_MOVES, ActivationStatus, RunStatus, scope_key
from tests.simulator import stories
from tests.simulator.stories import Play
from tests.simulator.tables import Change, Data, Row, Server, Watch, Work
from tests.simulator.twins_runs import unpacked
from tests.simulator.world import Broken, Process

FINAL = frozenset({"done", "closed"})
BUSY = frozenset({"ready", "running", "reported"})
OVER = frozenset({"succeeded", "failed", "cancelled"})
LAST_CHANCE = 2
LEASE_ID = "made by"
"""An output by which every result names the lease under which it was made."""
NOT_HEARD_OF = 20.0  # seconds for which who stood still may be taken for dead: a lease, and its sweeper's own


@dataclass(eq=False)
class Invariants(Watch):
    """Watches one server. Whatever does not hold raises Broken where it happens."""

    server: Server
    events: dict[UUID, int] = field(default_factory=dict[UUID, int])  # run -> number of its last event
    results: set[tuple[UUID, int]] = field(default_factory=set[tuple[UUID, int]])  # (activation, attempt)
    third_strikes: set[UUID] = field(default_factory=set[UUID])  # runs in which somebody had his last
    unknown: set[UUID] = field(default_factory=set[UUID])  # runs in which nobody knows what a node has done
    cancelled: set[UUID] = field(default_factory=set[UUID])  # runs that somebody asked to stop
    claimed_at: dict[UUID, float] = field(default_factory=dict[UUID, float])
    limited: set[tuple[UUID, int]] = field(default_factory=set[tuple[UUID, int]])  # taken when a budget was set
    leaves_behind: bool = True  # nodes may not let go, and their process goes on without them
    workers: dict[str, Process] = field(default_factory=dict[str, Process])

    # -- single writes -----------------------------------------------------------------------------------------------
    def written(self, work: Work, row: Row, before: Data | None, after: Data | None) -> None:
        """Statuses move as the tables say, over is over, and what was said stays said."""
        match row.table.name:
            case "activations":
                self._activation_written(work, before, after)
            case "runs":
                if before is None or after is None or before["status"] == after["status"]:
                    _check(before is None or before["status"] not in OVER, "a run is written after its end")
                else:
                    was, now = RunStatus(before["status"]), RunStatus(after["status"])
                    _check(now in RUN_MOVES[was], f"a run moves from {was} to {now}")
            case _:
                pass

    def _activation_written(self, work: Work, before: Data | None, after: Data | None) -> None:
        _check(after is not None, "an activation is gone")
        assert after is not None
        run = self.server["runs"].rows.get(after["run_id"])
        seen = work.sees(run) if run is not None else None
        _check(seen is not None, "an activation has no run")
        assert seen is not None
        if before is None:
            is_taken = after["status"] == "running" and after["lease_id"] is not None and after["attempt"] == 1
            begins = after["status"] in ("queued", "ready") or is_taken
            _check(begins, "an activation begins elsewhere than at its beginning")
            _check(seen["status"] not in OVER, "a node is activated after the end")
            _check(seen["asked"] != "cancel", "a node is activated after a cancel")
            return
        if before["status"] != after["status"]:
            was, now = ActivationStatus(before["status"]), ActivationStatus(after["status"])
            is_forced = now is ActivationStatus.CLOSED and seen["version_id"] in self.server.versions_gone
            _check(is_forced or now in ACTIVATION_MOVES[was], f"{after['node_id']} moves from {was} to {now}")
        if before["status"] == "running" and after["status"] != "running":
            _check(before["lease_id"] == after["lease_id"], "a report under another lease is taken")

    # -- commits -----------------------------------------------------------------------------------------------------
    def committed(self, changes: list[Change]) -> None:
        """A commit leaves a run as the protocol promises it."""
        folded: dict[UUID, Change] = {}
        told: dict[UUID, list[int]] = {}
        touched: dict[UUID, None] = {}
        for change in changes:
            after = change.after
            match change.row.table.name:
                case "runs" if after is not None:
                    folded[after["id"]] = change
                case "activations" if after is not None:
                    touched[after["run_id"]] = None
                    self._attempted(change.before, after)
                case "turns" if after is not None and change.before is not None:
                    _check_speech(change.before, after)
                case "node_values" | "variables":
                    self._value_kept(change.before, after)
                case "run_events" if after is not None:
                    told.setdefault(after["run_id"], []).append(after["number"])
                case _:
                    pass
        for run_id, numbers in told.items():
            self._told(run_id, numbers)
        for run_id, change in folded.items():
            self._folded(run_id, change.before, change.after)
        for run_id in touched:
            if run_id not in folded:
                run = self.server["runs"].rows[run_id].committed
                _check(run is not None and run["status"] not in OVER, "an activation moves after its run's end")
                self._check_owner(run_id)

    def _value_kept(self, before: Data | None, after: Data | None) -> None:
        assert after is not None  # values stay
        row = self.server["activations"].rows.get((after["run_id"], after["activation_id"]))
        writer = row.committed if row is not None else None
        _check(writer is not None, "values lie beside no activation")
        assert writer is not None
        if before is None:
            has_reported = writer["attempt"] > 0 and writer["status"] != "running"
            _check(has_reported, "values lie beside no report")
        made_by = _made_by(after)
        if made_by is not None and (before is None or made_by != _made_by(before)):
            _check(made_by == str(writer["lease_id"]), "a result is stored that another attempt has made")

    def _attempted(self, before: Data | None, after: Data) -> None:
        was = before["status"] if before is not None else None
        if was == "ready" and after["status"] == "running":
            self._claimed(after)
        if was in (None, "queued") and after["status"] == "running":  # under its run's lock
            run = self.server["runs"].rows[after["run_id"]].committed
            if run is not None and run["budgeted"]:
                self.limited.add((after["id"], after["attempt"]))
        if after["strikes"] >= 3:
            self.third_strikes.add(after["run_id"])
        if after["strikes"] > (before["strikes"] if before is not None else 0):
            self._struck(after)
        if was == "running" and after["status"] != "running" and UNKNOWN_OUTCOME.encode() in (after["outcome"] or b""):
            self.unknown.add(after["run_id"])
        if was == "running" and after["status"] != "running":
            result = (after["id"], after["attempt"])
            _check(result not in self.results, f"{after['node_id']}: an attempt has two results")
            self.results.add(result)

    def _struck(self, after: Data) -> None:
        """Only who was dead or stood still is given up."""
        worker = self.workers.get(after["worker"])
        is_known = after["lease_id"] not in self.server.unheard
        if worker is not None and is_known and not worker.is_dead and worker.stopped_until is None:
            away = self.server.world.now - worker.was_away
            _check(away < NOT_HEARD_OF, f"the lease of {after['worker']} was taken away, which is well")

    def _claimed(self, after: Data) -> None:
        run = self.server["runs"].rows[after["run_id"]].committed
        _check(run is not None and run["asked"] != "cancel", "a node is claimed after a cancel")
        _check(run is not None and run["status"] not in OVER, "a node is claimed after the end")
        self.claimed_at[after["id"]] = self.server.world.now
        if after["strikes"] >= LAST_CHANCE:
            others = [
                row
                for row in self.server["activations"].committed()
                if row["status"] == "running" and row["worker"] == after["worker"] and row["strikes"] >= LAST_CHANCE
            ]
            _check(len(others) <= 1 or self.leaves_behind, "two that are on their last chance share a process")

    def _told(self, run_id: UUID, numbers: list[int]) -> None:
        first = self.events.get(run_id, 0) + 1
        last = first + len(numbers) - 1
        _check(sorted(numbers) == list(range(first, last + 1)), f"events {numbers} come after {first - 1}")
        self.events[run_id] = last

    def _folded(self, run_id: UUID, before: Data | None, run: Data | None) -> None:
        _check(run is not None, "a run is gone")
        assert run is not None
        if before is not None:
            _check(run["revision"] >= before["revision"], "a checkpoint goes back")
            _check(before["asked"] is None or run["asked"] == before["asked"], "a cancel was forgotten")
        if run["asked"] == "cancel":
            self.cancelled.add(run_id)
        _check(run["last_event"] == self.events.get(run_id, 0), "a run's last event is not its last")
        rows = list(self.server["activations"].committed(run_id))
        statuses = [row["status"] for row in rows]
        turns = [turn["id"] for turn in self.server["turns"].committed(run_id) if _is_open(turn)]
        _check(len(turns) <= 1, "two turns are open")
        _check(run["turn"] in turns if turns else run["turn"] is None, "the open turn is another than the run's")
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
            _check({"waiting", "open"}.issuperset(set(statuses) - FINAL), "a run waits for a person, and works")
            _check("waiting" in statuses, "a run waits for nobody")
        if status in ("running", "waiting"):
            self._check_state(run, rows, statuses)
        self._check_owner(run_id)

    def _check_state(self, run: Data, rows: list[Data], statuses: list[str]) -> None:
        """What the run's state says of its activations is what they are."""
        state = unpacked(run["state"])
        _check(state["live"] == sum(status in BUSY for status in statuses), "a run counts its nodes wrongly")
        _check(state["queued"] == statuses.count("queued"), "a run counts its queue wrongly")
        _check(state["live"] <= state["max_running"], "more nodes run than may")
        numbers = stories.named(run["version_id"]).canvas.numbers
        alive: dict[str, int] = {}
        for row in rows:
            if row["status"] not in FINAL:
                alive[row["scope"]] = alive.get(row["scope"], 0) | 1 << numbers[row["node_id"]]
        for scope in self.server["scopes"].committed(run["id"]):
            known = int(unpacked(scope["state"])["alive"], 16)
            _check(known == alive.pop(scope["key"], 0), "what is alive in a scope is something else")
        _check(not alive, "an activation lives in a scope that is not open")

    def _check_owner(self, run_id: UUID) -> None:
        """A run that is not over has a lease, a hint, a report, a place in a queue, or a person."""
        run = self.server["runs"].rows[run_id].committed
        assert run is not None
        if run["status"] in ("running", "stopping"):
            statuses = {row["status"] for row in self.server["activations"].committed(run_id)}
            _check(not statuses.isdisjoint(BUSY), f"a run that is {run['status']} has no owner")

    def forgotten(self, changes: list[Change]) -> None:
        """A crash undoes claims and renewals, nothing else."""
        for change in changes:
            _check(change.row.table.name == "activations", f"a crash has undone {change.row.table.name}")
            after = change.after or {}
            _check(after.get("status") == "running", "a crash has undone more than a claim")

    # -- the end -----------------------------------------------------------------------------------------------------
    def check_end(self) -> None:
        """Every run is over, and came to what it comes to undisturbed."""
        for run in self.server["runs"].committed():
            _check(run["status"] in OVER, f"a run is {run['status']} at the end")
            play = stories.named(run["version_id"])
            if run["id"] in self.cancelled | self.third_strikes | self.unknown:
                continue
            if run["version_id"] in self.server.versions_gone:  # it was over before, or it ends for that
                _check(run["status"] in (play.status, RunStatus.FAILED), f"a run without a version is {run['status']}")
                continue
            _check(run["status"] == play.status, f"a run of {play.name} has {run['status']}, not {play.status}")
            if play.status is RunStatus.SUCCEEDED:
                self._check_trace(run, play)

    def _check_trace(self, run: Data, play: Play) -> None:
        rows = {row["id"]: row for row in self.server["activations"].committed(run["id"])}
        key = {id: (row["node_id"], row["scope"], row["ordinal"]) for id, row in rows.items()}  # noqa: A001
        places = {key[id]: row["place"].hex() for id, row in rows.items()}  # noqa: A001
        _check(places == play.places, f"{play.name}: other nodes ran, or elsewhere, than undisturbed")
        turns = [turn for turn in self.server["turns"].committed(run["id"]) if turn["opened_at"] is not None]
        turns.sort(key=lambda turn: turn["opened_at"])
        messages = [turn for turn in turns if key[turn["id"]] in play.spoken]
        _check([key[turn["id"]] for turn in messages] == play.spoken, f"{play.name}: texts came in another order")
        for turn in turns:
            self._check_text(play, rows[turn["id"]], turn)

    def _check_text(self, play: Play, row: Data, turn: Mapping[str, Any]) -> None:
        outcome = unpacked(row["outcome"])
        if outcome is not None and outcome["is"] == "Finished":
            scope = scope_key(row["scope"])
            _check(turn["text"] == play.text(row["node_id"], scope), f"{row['node_id']} has said something else")


def _is_open(turn: Data) -> bool:
    return turn["opened_at"] is not None and turn["closed_at"] is None


def _made_by(data: Data) -> str | None:
    return unpacked(data["outputs"]).get(LEASE_ID) if "outputs" in data else None


def _check_speech(before: Data, after: Data) -> None:
    """Within an epoch a text only grows, and epochs only go up."""
    _check(after["epoch"] >= before["epoch"], "an epoch of a turn comes again")
    if after["epoch"] == before["epoch"]:
        _check(after["text"].startswith(before["text"]), f"what was said in an epoch has changed: {after['node_id']}")


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)
