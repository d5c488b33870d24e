"""The simulator's tables and twins are held to the truth: the same calls, on PostgreSQL and on them, give the same.

What the simulator finds out rests on this: its twins (tests/simulator/twins_*.py) must do what the statements do.
"""

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any
from uuid import UUID

import orjson
import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import Executable

from canvas.errors import ExecutorError
from canvas.outcome import POSTPONED, Failed, Finished, Outcome
from scheduler.coordinator import run_snapshots
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import Start
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.dispatch import Dispatch
from store.agents import conversation_runs
from store.db.database import Database
from store.db.transaction import Transaction
from store.monitoring import queue_probes, sweep_queries
from store.primitives import outcome_codec
from store.runs import activations, decisions, events, message_streams, reports, run_rows, scopes, values
from store.runs.activations import Claim
from store.runs.decisions import CachedRun
from store.runs.new_activations import ContinuationRequest, InlineReport
from store.runs.reports import ReportPayload
from store.tables.runs import metadata
from store.tables.tenants import canvases, tenants, versions
from store.tenants import idempotency
from tests.builders import At
from tests.integration.engine import Outbox, values_of, variable_of
from tests.simulator import stage
from tests.simulator.database import TWINS, SimulatedDatabase
from tests.simulator.messages import Redis, SimulatedBus
from tests.simulator.processes import Plays, Watched
from tests.simulator.schedule import playing
from tests.simulator.stories import Play, plays
from tests.simulator.tables import Server
from tests.simulator.twins_runs import unpacked
from tests.simulator.world import World

TENANT, CANVAS = UUID(int=7), UUID(int=8)
OPERATIONS = 60
COMPARED = (
    "runs",
    "scopes",
    "activations",
    "node_values",
    "variables",
    "run_events",
    "turns",
    "conversations",
    "conversation_messages",
    "canaries",
)
NOT_PLAYED = {
    message_streams.OF_RUN,
    events.AFTER,
    values.LATEST_OUTPUTS,
    values.LATEST_OUTPUTS_IN_REGION,
    values.AWAITED_OUTPUTS,
    values.LATEST_VARIABLES,
    values.ITERATION_OUTPUTS,
    idempotency.STORE_REPLY,
    idempotency.DELETE_EXPIRED,
    queue_probes.CLAIM_MAINTENANCE,
    queue_probes.RELEASE_MAINTENANCE,
}
"""What readers and the hourly work ask for; no transition of the protocol does."""


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database for each test: a sweeper sees all that is in it."""
    database = Database(database_url)
    _put_plays(database)
    yield database
    database.close()


def _put_plays(database: Database) -> None:
    """Rows for the versions that are there without any in the simulator."""
    named: Mapping[str, Any] = {"tenant_id": TENANT, "canvas_id": CANVAS, "title": "play", "digest": b""}
    with database.transaction() as tx:
        tx.execute(insert(tenants), id=TENANT, name="players")
        tx.execute(insert(canvases), id=CANVAS, tenant_id=TENANT, title="plays", draft={})
        tx.write_many(insert(versions), [{"id": UUID(int=n), "dsl": {}, **named} for n in range(len(plays()))])


# -- two of everything -----------------------------------------------------------------------------------------------
@dataclass(eq=False)
class Side:
    """One of the two stores, with production code on it. Both choose the same ids."""

    database: Database
    world: World = field(default_factory=lambda: World(1))
    outbox: Outbox = field(default_factory=Outbox)
    claims: dict[UUID, Claim] = field(default_factory=dict[UUID, Claim])
    # by what was taken behind it
    left: dict[UUID, CachedRun | None] = field(default_factory=dict[UUID, CachedRun | None])
    lifecycle: Lifecycle = field(init=False)

    def __post_init__(self) -> None:
        app: Any = self.outbox
        dispatch = Dispatch(app, SimulatedBus(Redis(self.world)))
        self.lifecycle = Lifecycle(Watched(self.database, dispatch, Plays(), max_running=3))

    def does(self, operation: Callable[["Side"], Any]) -> Any:
        """What an operation gives, or how it is refused."""
        stage.enter(self.world)
        self.world.now += 0.01
        self.outbox.sent.clear()
        try:
            result = operation(self)
        except ExecutorError as error:
            result = (type(error).__name__, str(error))
        return plain(result), in_order(plain(self.outbox.sent))  # whom a statement returns first is its own affair


class Simulated(Side):
    """The simulator's store, seen from outside of any actor."""

    @property
    def server(self) -> Server:
        assert isinstance(self.database, SimulatedDatabase)
        return self.database.server

    def rows(self, table: str) -> list[Any]:
        """What everybody sees of a table, with its JSON read."""
        found = [
            {name: unpacked(value) if is_json(table, name) else value for name, value in row.items()}
            for row in self.server[table].committed()
        ]
        return in_order([plain(row) for row in found])


def is_json(table: str, column: str) -> bool:
    kind = metadata.tables[table].c[column].type.__class__.__name__
    return kind == "JSON" and table != "conversation_messages"


def rows_of(database: Database, table: str) -> list[Any]:
    """A table of the real database."""
    with database.transaction() as tx:
        return in_order([plain(row._asdict()) for row in tx.rows(select(metadata.tables[table]))])


def in_order(rows: Sequence[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: orjson.dumps(row, default=str, option=orjson.OPT_SORT_KEYS))


def plain(value: Any) -> Any:
    """Anything without its times: of those only whether there is one."""
    match value:
        case datetime():
            return "a time"
        case set() | frozenset():
            return sorted(plain(item) for item in value)
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case UUID():
            return value.hex
        case bytes() | memoryview():
            return value.hex()
        case None | bool() | int() | float() | str():
            return value
        case _:
            return plain({name: getattr(value, name) for name in _members(value)})


def _members(value: Any) -> Sequence[str]:
    return tuple(getattr(value, "__dataclass_fields__", ())) or tuple(getattr(value, "_fields", ()))


class Refused(Exception):
    """A report under a lease that is gone."""


@contextmanager
def rolled_back_if_refused(database: Database) -> Generator[Transaction]:
    """A transaction of which nothing stays if a report is refused."""
    try:
        with suppress(Refused), database.transaction() as tx:
            yield tx
    except DBAPIError as error:
        if not reports.is_lease_lost(error) and not decisions.is_stale_cache(error):
            raise


# -- what may be done ------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class Author:
    """Chooses the next operation, by what the simulated store holds."""

    chance: random.Random
    model: Simulated

    def next(self) -> tuple[str, Callable[[Side], Any]]:
        """An operation and its name."""
        rows = list(self.model.server["activations"].committed())
        running = [row for row in rows if row["status"] == "running"]
        ready = [row for row in rows if row["status"] == "ready"]
        waiting = [run for run in self.model.server["runs"].committed() if run["status"] == "waiting"]
        kinds = ["start", "sweep", "look", "again", "held"]
        kinds += ["claim"] * 4 + ["together"] * 3 if ready else []
        kinds += ["report"] * 6 + ["renew", "firm", "act", "speak", "wrong"] if running else []
        kinds += ["resume"] * 2 if waiting else []
        kinds += ["cancel"] if self.chance.random() < 0.15 else []
        kind = self.chance.choice(kinds) if rows else "start"
        return kind, getattr(self, f"_{kind}")(rows, ready, running)

    def _pick(self, rows: Sequence[Any]) -> tuple[UUID, UUID]:
        chosen = self.chance.choice(rows)
        return chosen["run_id"], chosen["id"]

    def _start(self, *_: Any) -> Callable[[Side], Any]:
        known = [row["id"] for row in self.model.server["conversations"].committed()]
        number = self.chance.randrange(len(plays()))
        run_id = UUID(int=self.chance.getrandbits(48) << 80 | 0x7 << 76 | 0b10 << 62)
        start = Start(
            TENANT,
            CANVAS,
            UUID(int=number),
            RunRequest(query="hello", user_id="somebody"),
            run_id=run_id,
            conversation_id=self.chance.choice(known) if known and self.chance.random() < 0.4 else None,
            on_busy=self.chance.choice(("refuse", "enqueue", "interrupt")),
            idempotency=("runs", str(self.chance.randrange(4)), b"digest") if self.chance.random() < 0.3 else None,
        )
        return lambda side: side.lifecycle.start_run(start)

    def _claim(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        run_id, activation_id = self._pick(ready)
        lease_id = UUID(int=self.chance.getrandbits(128))
        lease = timedelta(hours=1) if self.chance.random() < 0.8 else timedelta(seconds=-5)
        most = self.chance.choice((None, 0, 1))

        def claim(side: Side) -> Any:
            with side.database.statements() as tx:
                claimed = activations.claim(
                    tx, run_id, activation_id, lease_id=lease_id, lease=lease, worker="one", max_crash_count=most
                )
            if claimed is not None:
                side.claims[activation_id] = claimed
            return claimed

        return claim

    def _together(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        """Claims of some rows, of which most are to be had."""
        chosen = [self._pick(ready), *(self._pick(rows) for _ in range(self.chance.randrange(4)))]
        wanted = [(*pair, UUID(int=self.chance.getrandbits(128))) for pair in dict.fromkeys(chosen)]
        most = self.chance.choice((0, 1, 2))

        def claim(side: Side) -> Any:
            with side.database.statements() as tx:
                claimed = activations.claim_batch(
                    tx, wanted, lease=timedelta(hours=1), worker="one", max_crash_count=most
                )
            side.claims |= {each.id: each for each in claimed.values()}
            return sorted(claimed.items())

        return claim

    def _again(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        """A claim of whatever there is, with a lease that may be its own."""
        run_id, activation_id = self._pick(rows)

        def claim(side: Side) -> Any:
            known = side.claims.get(activation_id)
            lease_id = known.lease_id if known is not None else UUID(int=5)
            with side.database.statements() as tx:
                found = activations.is_ready(tx, run_id, activation_id), activations.find_by_lease(tx, run_id, lease_id)
                claimed = activations.claim(
                    tx, run_id, activation_id, lease_id=lease_id, lease=timedelta(hours=1), worker="one"
                )
            if claimed is not None:
                side.claims[activation_id] = claimed
            return found, claimed

        return claim

    def _report(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        run_id, activation_id = self._pick(running)
        dice = self.chance.random()
        is_folded = self.chance.random() < 0.7
        is_settled = self.chance.random() < 0.5
        lease_id = UUID(int=self.chance.getrandbits(128)) if self.chance.random() < 0.7 else None
        remembers = self.chance.random() < 0.7
        request = ContinuationRequest("one", timedelta(hours=1), lambda _: lease_id)

        def report(side: Side) -> Any:
            claim = side.claims[activation_id]
            outcome = self._outcome(side, claim) if dice < 0.9 else Failed("gone", "released", retryable=True)
            if dice > 0.98:
                outcome = Failed("waits", POSTPONED, retryable=True, retry_in=3600.0)
            advance, stored = None, 0
            coordinator, told = side.lifecycle.coordinator, written(claim, outcome)
            with rolled_back_if_refused(side.database) as tx:
                if is_settled:
                    left = side.left.get(activation_id) if remembers else None
                    snapshot = run_snapshots.from_cache(left) if left else run_snapshots.try_lock(tx, run_id)
                    inline = [InlineReport(claim, told, request)]
                    advance = coordinator.apply_reports(tx, snapshot, inline) if snapshot else None
                stored = int(advance is not None)
                if advance is None:
                    stored = reports.report(tx, run_id, activation_id, claim.lease_id, told).count()
                    if not stored:
                        raise Refused
                    snapshot = run_snapshots.try_lock(tx, run_id) if is_folded else None
                    advance = coordinator.apply_reports(tx, snapshot) if snapshot else None
            with side.database.transaction() as tx:
                was_stored = reports.was_stored(tx, run_id, activation_id, claim.lease_id)
            if advance is None or not was_stored:
                return stored, was_stored
            side.lifecycle.coordinator.dispatch.publish(advance.notifications)
            continuations = advance.continuations
            taken = {reported: pending.result() for reported, pending in continuations.claims.items()}
            for claimed in taken.values():
                if claimed is not None:
                    side.claims[claimed.id] = claimed
                    side.left[claimed.id] = continuations.cached_run
            return stored, was_stored, taken

        return report

    def _outcome(self, side: Side, claim: Claim) -> Outcome:
        play: Play = plays()[claim.version_id.int]
        count: int | None = None
        if claim.scope:
            around = list(self.model.server["activations"].committed(claim.run_id))
            told = [row["outcome"] for row in around if row["node_id"] == claim.scope[-1][0] and row["outcome"]]
            count = orjson.loads(told[0]).get("count") if told else None
        is_answered = claim.answers is not None
        at = At(play.canvas, claim.node_id, claim.scope, claim.ordinal, 2, is_answered, count)
        return play.script(at)

    def _wrong(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        """A report and a renewal under a lease that nobody has."""
        run_id, activation_id = self._pick(running)

        def wrong(side: Side) -> Any:
            claim, stranger = side.claims[activation_id], UUID(int=3)
            with side.database.transaction() as tx:
                kept = activations.renew(tx, [(run_id, activation_id, stranger)], timedelta(hours=1))
            with rolled_back_if_refused(side.database) as tx:
                if not reports.report(tx, run_id, activation_id, stranger, written(claim, Finished())).count():
                    raise Refused
                return kept, True
            return kept, False

        return wrong

    def _renew(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        ids = [(row["run_id"], row["id"], row["lease_id"]) for row in running]

        def renew(side: Side) -> Any:
            with side.database.transaction() as tx:
                tx.commit_asynchronously()
                kept = activations.renew(tx, sorted(ids), timedelta(hours=1))
                return kept, activations.find_cancelled(tx, ids)

        return renew

    def _firm(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        _, activation_id = self._pick(running)

        def firm(side: Side) -> Any:
            with side.database.transaction() as tx:
                return activations.make_claim_durable(tx, side.claims[activation_id], timedelta(hours=1))

        return firm

    def _act(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        _, activation_id = self._pick(running)
        effect = self.chance.choice(("keyed", "unsafe"))

        def act(side: Side) -> Any:
            with side.database.transaction() as tx:
                return activations.record_effect(tx, side.claims[activation_id], timedelta(seconds=-5), effect)

        return act

    def _speak(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        _, activation_id = self._pick(running)

        def speak(side: Side) -> Any:
            claim = side.claims[activation_id]
            if claim.stream_id is None:
                return None
            with side.database.transaction() as tx:
                taken = message_streams.claim_stream(tx, claim.run_id, claim.stream_id, claim.node_id, claim.lease_id)
                said = f"{taken.text}more"
                stored = [
                    message_streams.write(tx, claim.run_id, claim.stream_id, lease_id, epoch, said)
                    for lease_id, epoch in ((claim.lease_id, taken.epoch), (UUID(int=3), 0), (claim.lease_id, 99))
                ]
            return taken, stored

        return speak

    def _look(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        run_id, _ = self._pick(rows)
        return lambda side: side.lifecycle.coordinator.advance_run(run_id)

    def _cancel(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        run_id, _ = self._pick(rows)
        return lambda side: side.lifecycle.cancel_run(TENANT, run_id)

    def _resume(self, *_: Any) -> Callable[[Side], Any]:
        waiting = [run["id"] for run in self.model.server["runs"].committed() if run["status"] == "waiting"]
        run_id = self.chance.choice(waiting)
        inputs = {"answer": "yes"} if self.chance.random() < 0.8 else None
        return lambda side: side.lifecycle.resume_run(TENANT, run_id, RunRequest(query="", inputs=inputs))

    def _held(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        """Somebody holds a run and an activation; others pass by, and see what was committed."""
        run_id, activation_id = self._pick(rows)

        def held(side: Side) -> Any:
            with ExitStack() as both:
                first = both.enter_context(side.database.transaction())
                mine = run_rows.try_lock(first, run_id)()
                first.execute(run_rows.REQUEST_CANCEL, run_id=run_id)
                second = both.enter_context(side.database.transaction())
                theirs = run_rows.try_lock(second, run_id)()
                seen = sweep_queries.expire_leases(second)
                kept = [
                    activations.renew(second, [(claim.run_id, claim.id, claim.lease_id)], timedelta(hours=1))
                    for claim in side.claims.values()
                    if claim.id == activation_id
                ]
                return mine, theirs, set(seen), kept, reports.has_unapplied_reports(second, run_id)

        return held

    def _sweep(self, *_: Any) -> Callable[[Side], Any]:
        sent_before = self.chance.choice((datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)))
        now = datetime(2020, 5, 1, tzinfo=UTC)

        def sweep(side: Side) -> Any:
            with side.database.transaction() as tx:
                is_ours, _ = sweep_queries.try_sweep(tx)
                lost = sweep_queries.expire_leases(tx)
                queue_probes.record_return(tx, "nodes", now)
                remembered = queue_probes.last_observation(tx)
                back = queue_probes.save_observation(tx, queue_probes.SweeperObservation(now, now), "nodes")
                hints = {
                    (hint.run_id, hint.activation_id) for hint in sweep_queries.redispatch_unclaimed(tx, sent_before)
                }
                found = [
                    set(sweep_queries.stuck_runs(tx)),
                    sweep_queries.runs_to_interrupt(tx),
                    set(sweep_queries.stalled_runs(tx)),
                ]
                found += [set(sweep_queries.open_runs(tx)), sweep_queries.expired_forms(tx)]
                return is_ours, set(lost), remembered, back, hints, sweep_queries.runs_with_unapplied_reports(tx), found

        return sweep


def written(claim: Claim, outcome: Outcome) -> ReportPayload:
    """What a worker stores: outputs, a variable, and its turn's text if it has one."""
    outputs = {"result": claim.node_id, "nothing": None}
    turn: dict[str, Any] | None = None
    if claim.stream_id is not None:
        turn = {"run_id": claim.run_id, "id": claim.stream_id, "node_id": claim.node_id, "speaker": claim.lease_id}
        turn |= {"epoch": None if claim.attempt > 1 else 0, "keep": 4, "text": "said by all"}
    leaves_nothing = isinstance(outcome, Failed) and outcome.stores_no_values
    return ReportPayload(
        outcome=outcome_codec.encode_outcome(outcome, error=None, restarts_text=False, has_written=False),
        usage={"calls": 1, "total_tokens": 3},
        values=[] if leaves_nothing else [values_of(claim, outputs)],
        variables=[] if leaves_nothing else [variable_of(claim, "env.count", claim.ordinal)],
        stream=turn,
    )


# -- the tests -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(8))
def test_the_same_calls_give_the_same_on_postgresql_and_in_the_simulator(seed: int, database: Database):
    world = World(1)
    model = Simulated(SimulatedDatabase(Server(world)), world)
    truth = Side(database)
    author = Author(random.Random(seed), model)

    with playing():
        for number in range(OPERATIONS):
            kind, operation = author.next()
            expected, simulated = truth.does(operation), model.does(operation)
            assert simulated == expected, f"{number}: {kind}"
            for table in COMPARED:
                known = rows_of(database, table)
                names = known[0].keys() if known else ()
                shown = [{name: row.get(name) for name in names} for row in model.rows(table)]
                assert in_order(shown) == known, f"{number}: {kind}, {table}"


@pytest.mark.parametrize(
    "module",
    [
        run_rows,
        decisions,
        activations,
        reports,
        scopes,
        message_streams,
        events,
        conversation_runs,
        sweep_queries,
        queue_probes,
        values,
        idempotency,
    ],
)
def test_every_statement_of_the_protocol_has_a_twin(module: ModuleType):
    named = {name: value for name, value in vars(module).items() if name[0].isupper() and name.isupper()}
    statements = {name: value for name, value in named.items() if isinstance(value, Executable)}
    not_played = {id(statement) for statement in NOT_PLAYED}

    without = [name for name, value in statements.items() if id(value) not in TWINS and id(value) not in not_played]

    assert without == []


def test_transaction_is_visible_after_its_commit(database: Database):
    def look(side: Side) -> Any:
        with side.database.transaction() as first:
            queue_probes.record_return(first, "nodes", datetime(2020, 5, 1, tzinfo=UTC))
            with side.database.transaction() as second:
                before = queue_probes.latest_return(second, "nodes")
            mine = queue_probes.latest_return(first, "nodes")
        with side.database.transaction() as third:
            return before, mine, queue_probes.latest_return(third, "nodes"), _try(third)

    def _try(tx: Transaction) -> bool:
        return sweep_queries.try_sweep(tx)[0]

    world = World(1)
    simulated = Simulated(SimulatedDatabase(Server(world)), world).does(look)

    assert simulated == Side(database).does(look)
