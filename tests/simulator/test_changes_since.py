"""Lists of what changed since a revision: applied to a copy again and again, they give the rows, in any schedule.

`has_changed` is the twin of `store.runs.activation_list.CHANGED`; tests/integration/store/test_activation_list.py
compares the two.
"""

import random
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from canvas.outcome import Finished, Outcome
from tests.builders import NodeAttempt, canvas_of, failed, items, script_of
from tests.simulator import scenarios
from tests.simulator import schedule as schedule_module
from tests.simulator.invariants import Invariants
from tests.simulator.scenarios import make_scenario
from tests.simulator.schedule import Schedule, patched_modules
from tests.simulator.tables import Change, Data, Observer, Row, Server, ServerTransaction
from tests.simulator.twins_work import has_changed

SCHEDULES = 1_000
CHUNKS = 4
BRIEF = 2  # chunks in every test run
BEFORE_ALL = UUID(int=0)
SHOWN = (
    "status", "attempt", "crash_count", "not_before", "enqueued_at", "started_at", "finished_at", "worker", "effect",
    "usage", "outcome", "stream_id", "cancel_requested",
)  # fmt: skip


@dataclass
class Copy:
    """A client's copy of a run's activations, kept by pages of what has changed since a revision."""

    run_id: UUID
    page_size: int
    rows: dict[UUID, Any] = field(default_factory=dict[UUID, Any])
    since: int | None = None
    first_revision: int | None = None  # of the page that the client began with
    after: UUID = BEFORE_ALL

    def read(self, server: Server) -> None:
        """Read the next page, from one snapshot."""
        run = server["runs"].rows[self.run_id].committed
        assert run is not None
        changed = [
            row
            for row in server["activations"].committed(self.run_id)
            if row["id"] > self.after and (self.since is None or has_changed(row, self.since))
        ]
        page = sorted(changed, key=lambda row: row["id"])[: self.page_size]
        self.rows |= {row["id"]: shown(row) for row in page}
        self.first_revision = run["revision"] if self.first_revision is None else self.first_revision
        if len(page) < len(changed):
            self.after = page[-1]["id"]
        else:
            self.since, self.first_revision, self.after = self.first_revision, None, BEFORE_ALL


def shown(row: Data) -> tuple[Any, ...]:
    return tuple(row[name] for name in SHOWN)


class Reader(Observer):
    """Reads pages at random commits, and passes everything on to the observer behind it."""

    def __init__(self, server: Server, behind: Observer, seed: int) -> None:
        self.server, self.behind, self.rng = server, behind, random.Random(seed)
        self.copies: dict[UUID, list[Copy]] = {}

    def on_write(self, tx: ServerTransaction, row: Row, before: Data | None, after: Data | None) -> None:
        self.behind.on_write(tx, row, before, after)

    def on_commit(self, changes: list[Change]) -> None:
        self.behind.on_commit(changes)
        self.read_some()

    def on_crash(self, changes: list[Change]) -> None:
        self.behind.on_crash(changes)
        self.read_some()

    def read_some(self) -> None:
        for run in self.server["runs"].committed():
            copies = self.copies.setdefault(run["id"], [Copy(run["id"], size) for size in (1, 2, 1_000)])
            for copy in copies:
                if self.rng.random() < 0.3:
                    copy.read(self.server)
                    if copy.page_size == 1_000:
                        self.compare(copy)

    def compare(self, copy: Copy) -> None:
        rows = {row["id"]: shown(row) for row in self.server["activations"].committed(copy.run_id)}
        assert copy.rows == rows, "a copy differs from the rows"

    def finish(self) -> None:
        """Read every copy to its end, twice, since the first reading may have begun long ago."""
        for copy in (copy for copies in self.copies.values() for copy in copies):
            for _ in range(2):
                copy.read(self.server)
                while copy.first_revision is not None:
                    copy.read(self.server)
            self.compare(copy)


def follow(seeds: range, *, checks_invariants: bool = True) -> None:
    """Run schedules with readers, and compare their copies with the rows."""
    with patched_modules():
        for seed in seeds:
            schedule = Schedule(seed)
            server = schedule.installation.server
            assert server.observer is not None
            reader = Reader(server, server.observer if checks_invariants else Observer(), seed)
            server.observer = reader
            schedule.run()
            reader.finish()


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[pytest.mark.long] if part >= BRIEF else []) for part in range(CHUNKS)]
)
def test_copy_that_applies_changes_has_the_rows_after_any_schedule(part: int) -> None:  # T140
    size = SCHEDULES // CHUNKS

    follow(range(part * size, (part + 1) * size))


def test_copy_has_the_rows_after_a_failure_before_which_later_items_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_second(at: NodeAttempt) -> Outcome:
        return failed("broken") if at.item == 1 else Finished()

    canvas = canvas_of("begin -> each -> say", "each: item -> work -> more")
    made = (make_scenario("items ahead of a failure", canvas, script_of(each=items(8), work=fail_second)),)
    for module in (scenarios, schedule_module):
        monkeypatch.setattr(module, "scenarios", lambda: made)
    monkeypatch.setattr(Invariants, "check_end", lambda _: None)

    # an advance copies outputs of an earlier item beside the failure, which the invariants take for another attempt's
    follow(range(200), checks_invariants=False)
