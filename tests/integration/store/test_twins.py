"""The simulated store against PostgreSQL: the same calls have the same results on both.

The simulator depends on this: its twins (tests/simulator/twins_*.py) must behave like the SQL statements.
"""

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
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
from store.runs.activations import Claim, Deferral, claim_from_rows
from store.runs.new_activations import ContinuationRequest, InlineReport
from store.runs.prepared_claims import CachedRun
from store.runs.reports import ReportPayload
from store.tables.runs import metadata
from store.tables.tenants import canvases, tenants, versions
from store.tenants import idempotency
from tests.builders import NodeAttempt
from tests.integration.engine import Outbox, values_of, variable_of
from tests.simulator import patches
from tests.simulator.database import TWINS, SimulatedDatabase
from tests.simulator.messages import Redis, SimulatedBus
from tests.simulator.processes import ScenarioVersions, StrictCoordinator
from tests.simulator.scenarios import Scenario, scenarios
from tests.simulator.schedule import patched_modules
from tests.simulator.simulation import Simulation
from tests.simulator.tables import Server
from tests.simulator.twins_runs import decode_json
from tests.simulator.twins_work import plain

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
    "attempts",
    "conversations",
    "conversation_messages",
    "canaries",
)
NOT_SIMULATED = {
    message_streams.OF_RUN,
    events.AFTER,
    values.LATEST_OUTPUTS,
    values.LATEST_OUTPUTS_IN_REGION,
    values.AWAITED_OUTPUTS,
    values.LATEST_VARIABLES,
    values.ITERATION_OUTPUTS,
    values.OUTPUT_WRITERS,
    values.VARIABLE_WRITERS,
    idempotency.STORE_REPLY,
    idempotency.DELETE_EXPIRED,
    queue_probes.CLAIM_MAINTENANCE,
    queue_probes.RELEASE_MAINTENANCE,
}
"""Statements of readers and of the hourly maintenance, which no transition of the protocol uses."""


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database for each test, since a sweeper sees all of its rows."""
    database = Database(database_url)
    _insert_versions(database)
    yield database
    database.close()


def _insert_versions(database: Database) -> None:
    """Insert rows for the versions, which the simulator does not need."""
    named: Mapping[str, Any] = {"tenant_id": TENANT, "canvas_id": CANVAS, "title": "play", "digest": b""}
    with database.transaction() as tx:
        tx.execute(insert(tenants), id=TENANT, name="players")
        tx.execute(insert(canvases), id=CANVAS, tenant_id=TENANT, title="plays", draft={})
        tx.write_many(insert(versions), [{"id": UUID(int=n), "dsl": {}, **named} for n in range(len(scenarios()))])


# -- the two stores --------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class Side:
    """One of the two stores, with production code on it. Both choose the same ids."""

    database: Database
    simulation: Simulation = field(default_factory=lambda: Simulation(1))
    outbox: Outbox = field(default_factory=Outbox)
    claims: dict[UUID, Claim] = field(default_factory=dict[UUID, Claim])
    # by the id of the activation that was claimed together with the report
    cached_runs: dict[UUID, CachedRun | None] = field(default_factory=dict[UUID, CachedRun | None])
    lifecycle: Lifecycle = field(init=False)

    def __post_init__(self) -> None:
        app: Any = self.outbox
        dispatch = Dispatch(app, SimulatedBus(Redis(self.simulation)))
        self.lifecycle = Lifecycle(StrictCoordinator(self.database, dispatch, ScenarioVersions(), max_running=3))

    def execute(self, operation: Callable[["Side"], Any]) -> Any:
        """Execute an operation; return its result or its error."""
        patches.activate(self.simulation)
        self.simulation.now += 0.01
        self.outbox.sent.clear()
        try:
            result = operation(self)
        except ExecutorError as error:
            result = (type(error).__name__, str(error))
        return comparable(result), in_order(
            comparable(self.outbox.sent)
        )  # statements do not define the order of their rows


class Simulated(Side):
    """The simulator's store, seen from outside of any actor."""

    @property
    def server(self) -> Server:
        assert isinstance(self.database, SimulatedDatabase)
        return self.database.server

    def rows(self, table: str) -> list[Any]:
        """Return the committed rows of a table, with its JSON parsed."""
        found = [
            {name: decode_json(value) if is_json(table, name) else value for name, value in row.items()}
            for row in self.server[table].committed()
        ]
        return in_order([comparable(row) for row in found])


def is_json(table: str, column: str) -> bool:
    kind = metadata.tables[table].c[column].type.__class__.__name__
    return kind == "JSON" and table != "conversation_messages"


def rows_of(database: Database, table: str) -> list[Any]:
    """Return the rows of a table of the real database."""
    with database.transaction() as tx:
        return in_order([comparable(row._asdict()) for row in tx.rows(select(metadata.tables[table]))])


def in_order(rows: Sequence[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: orjson.dumps(row, default=str, option=orjson.OPT_SORT_KEYS))


def comparable(value: Any) -> Any:
    """Return a comparable form of a value; of a time only that it is one."""
    match value:
        case datetime():
            return "a time"
        case set() | frozenset():
            return sorted(comparable(item) for item in value)
        case {"easel_claim": str(prepared), **others}:
            fields = orjson.loads(prepared)
            fields["turn"][2] = "a time"  # when the run was created
            return comparable({"prepared claim": fields, **others})
        case {"task_id": str(task_id), "argsrepr": str(shown), **others} if task_id not in shown:
            return comparable({"shown": shown, **others})  # a later task of an activation has a random id
        case Mapping():
            return {str(name): comparable(item) for name, item in value.items()}
        case list() | tuple():
            return [comparable(item) for item in value]
        case UUID():
            return value.hex
        case bytes() | memoryview():
            return value.hex()
        case None | bool() | int() | float() | str():
            return value
        case _:
            return comparable({name: getattr(value, name) for name in _members(value)})


def _members(value: Any) -> Sequence[str]:
    return tuple(getattr(value, "__dataclass_fields__", ())) or tuple(getattr(value, "_fields", ()))


class Refused(Exception):
    """A report under a lost lease."""


@contextmanager
def rolled_back_if_refused(database: Database) -> Generator[Transaction]:
    """A transaction that is rolled back if a report is refused."""
    try:
        with suppress(Refused), database.transaction() as tx:
            yield tx
    except DBAPIError as error:
        if not reports.is_lease_lost(error) and not decisions.is_stale_cache(error):
            raise


# -- operations ------------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class OperationGenerator:
    """Chooses the next operation from the state of the simulated store."""

    rng: random.Random
    model: Simulated

    def next(self) -> tuple[str, Callable[[Side], Any]]:
        """Return an operation and its name."""
        rows = list(self.model.server["activations"].committed())
        running = [row for row in rows if row["status"] == "running"]
        ready = [row for row in rows if row["status"] == "ready"]
        waiting = [run for run in self.model.server["runs"].committed() if run["status"] == "waiting"]
        kinds = ["start", "sweep", "advance", "claim_again", "contend"]
        kinds += ["claim"] * 4 + ["claim_batch"] * 3 if ready else []
        kinds += (
            ["report"] * 6 + ["renew", "make_durable", "record_effect", "write_stream", "use_wrong_lease"]
            if running
            else []
        )
        unclaimed = [row for row in ready if not row["attempt"]]
        kinds += ["report_deferred"] * 3 + ["claim_deferred"] if unclaimed else []
        kinds += ["resume"] * 2 if waiting else []
        kinds += ["cancel"] if self.rng.random() < 0.15 else []
        kind = self.rng.choice(kinds) if rows else "start"
        return kind, getattr(self, f"_{kind}")(rows, ready, running)

    def _pick(self, rows: Sequence[Any]) -> tuple[UUID, UUID]:
        chosen = self.rng.choice(rows)
        return chosen["run_id"], chosen["id"]

    def _start(self, *_: Any) -> Callable[[Side], Any]:
        known = [row["id"] for row in self.model.server["conversations"].committed()]
        number = self.rng.randrange(len(scenarios()))
        run_id = UUID(int=self.rng.getrandbits(48) << 80 | 0x7 << 76 | 0b10 << 62)
        start = Start(
            TENANT,
            CANVAS,
            UUID(int=number),
            RunRequest(query="hello", user_id="somebody"),
            run_id=run_id,
            conversation_id=self.rng.choice(known) if known and self.rng.random() < 0.4 else None,
            on_busy=self.rng.choice(("refuse", "enqueue", "interrupt")),
            idempotency=("runs", str(self.rng.randrange(4)), b"digest") if self.rng.random() < 0.3 else None,
        )
        return lambda side: side.lifecycle.start_run(start)

    def _claim(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        run_id, activation_id = self._pick(ready)
        lease_id = UUID(int=self.rng.getrandbits(128))
        lease = timedelta(hours=1) if self.rng.random() < 0.8 else timedelta(seconds=-5)
        most = self.rng.choice((None, 0, 1))

        def claim(side: Side) -> Any:
            with side.database.statements() as tx:
                claimed = activations.claim(
                    tx, run_id, activation_id, lease_id=lease_id, lease=lease, worker="one", max_crash_count=most
                )
            if claimed is not None:
                side.claims[activation_id] = claimed
            return claimed

        return claim

    def _claim_batch(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        """A batch of claims, some of them of activations that are not ready."""
        chosen = [self._pick(ready), *(self._pick(rows) for _ in range(self.rng.randrange(4)))]
        requests = [(*pair, UUID(int=self.rng.getrandbits(128))) for pair in dict.fromkeys(chosen)]
        most = self.rng.choice((0, 1, 2))

        def claim(side: Side) -> Any:
            with side.database.statements() as tx:
                claimed = activations.claim_batch(
                    tx, requests, lease=timedelta(hours=1), worker="one", max_crash_count=most
                )
            side.claims |= {each.id: each for each in claimed.values()}
            return sorted(claimed.items())

        return claim

    def _claim_again(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        """A claim of any activation, with a lease that may be its own."""
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

    def _claim_deferred(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        """Deferred claims of a ready activation and of some others, one of which may be held."""
        chosen = dict.fromkeys([self._pick(ready), *(self._pick(rows) for _ in range(self.rng.randrange(3)))])
        attempts = sorted((*pair, UUID(int=self.rng.getrandbits(128)), self.rng.random()) for pair in chosen)

        def claim(side: Side) -> Any:
            with side.database.transaction() as tx:
                claimed, lost = activations.claim_deferred(tx, attempts, lease=timedelta(hours=1), worker="one")
            for run_id, activation_id, lease_id, _ in attempts:
                if lease_id in claimed:
                    side.claims[activation_id] = self._defer(run_id, activation_id, lease_id)
            return claimed, lost

        return claim

    def _report_deferred(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        """The report of an attempt whose claim is deferred, at an activation that may have been claimed before."""
        unclaimed = [row for row in ready if not row["attempt"]]
        chosen = self.rng.choice(unclaimed if self.rng.random() < 0.8 else [*unclaimed, *ready, *running])
        deferred = self._defer(chosen["run_id"], chosen["id"], UUID(int=self.rng.getrandbits(128)))
        report = self._report(rows, ready, [chosen])

        def claim_and_report(side: Side) -> Any:
            before = side.claims.get(deferred.id)
            with side.database.statements() as tx:
                is_held = activations.is_held(tx, deferred)
            side.claims[deferred.id] = deferred
            result = report(side)
            if not is_held and before is not None:
                side.claims[deferred.id] = before
            return is_held, result

        return claim_and_report

    def _defer(self, run_id: UUID, activation_id: UUID, lease_id: UUID) -> Claim:
        """Return the claim that a task message of an activation carries."""
        row = plain(self.model.server["activations"].rows[run_id, activation_id].committed or {})
        run = self.model.server["runs"].rows[run_id].committed or {}
        first = {"lease_id": lease_id, "attempt": 1, "crash_count": 0}
        return replace(claim_from_rows({**row, **first}, run), deferral=Deferral("one", 0.0))

    def _report(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        run_id, activation_id = self._pick(running)
        dice = self.rng.random()
        advances = self.rng.random() < 0.7
        is_inline = self.rng.random() < 0.5
        lease_id = UUID(int=self.rng.getrandbits(128)) if self.rng.random() < 0.7 else None
        uses_cache = self.rng.random() < 0.7
        request = ContinuationRequest("one", timedelta(hours=1), lambda _: lease_id)

        def report(side: Side) -> Any:
            claim = side.claims[activation_id]
            outcome = self._outcome(side, claim) if dice < 0.9 else Failed("gone", "released", retryable=True)
            if dice > 0.98:
                outcome = Failed("waits", POSTPONED, retryable=True, retry_in=3600.0)
            advance, stored = None, 0
            coordinator, payload = side.lifecycle.coordinator, payload_of(claim, outcome)
            with rolled_back_if_refused(side.database) as tx:
                if is_inline:
                    cached = side.cached_runs.get(activation_id) if uses_cache else None
                    snapshot = run_snapshots.from_cache(cached) if cached else run_snapshots.try_lock(tx, run_id)
                    inline = [InlineReport(claim, payload, request)]
                    advance = coordinator.apply_reports(tx, snapshot, inline) if snapshot else None
                stored = int(advance is not None)
                if advance is None:
                    stored = reports.report(tx, run_id, activation_id, claim.lease_id, payload, claim.deferral).count()
                    if not stored:
                        raise Refused
                    snapshot = run_snapshots.try_lock(tx, run_id) if advances else None
                    advance = coordinator.apply_reports(tx, snapshot) if snapshot else None
            with side.database.transaction() as tx:
                was_stored = reports.was_stored(tx, run_id, activation_id, claim.lease_id)
            if advance is None or not was_stored:
                return stored, was_stored
            side.lifecycle.coordinator.dispatch.publish(advance.notifications)
            continuations = advance.continuations
            claims = {reported: pending.result() for reported, pending in continuations.claims.items()}
            for claimed in claims.values():
                if claimed is not None:
                    side.claims[claimed.id] = claimed
                    side.cached_runs[claimed.id] = continuations.cached_run
            return stored, was_stored, claims

        return report

    def _outcome(self, side: Side, claim: Claim) -> Outcome:
        scenario: Scenario = scenarios()[claim.version_id.int]
        count: int | None = None
        if claim.scope:
            around = list(self.model.server["activations"].committed(claim.run_id))
            outcomes = [row["outcome"] for row in around if row["node_id"] == claim.scope[-1][0] and row["outcome"]]
            count = orjson.loads(outcomes[0]).get("count") if outcomes else None
        is_answered = claim.answers is not None
        at = NodeAttempt(scenario.canvas, claim.node_id, claim.scope, claim.ordinal, 2, is_answered, count)
        return scenario.script(at)

    def _use_wrong_lease(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        """A report and a renewal under an unknown lease."""
        run_id, activation_id = self._pick(running)

        def use_wrong_lease(side: Side) -> Any:
            claim, stranger = side.claims[activation_id], UUID(int=3)
            with side.database.transaction() as tx:
                renewed = activations.renew(tx, [(run_id, activation_id, stranger)], timedelta(hours=1))
            with rolled_back_if_refused(side.database) as tx:
                if not reports.report(tx, run_id, activation_id, stranger, payload_of(claim, Finished())).count():
                    raise Refused
                return renewed, True
            return renewed, False

        return use_wrong_lease

    def _renew(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        ids = [(row["run_id"], row["id"], row["lease_id"]) for row in running]

        def renew(side: Side) -> Any:
            with side.database.transaction() as tx:
                tx.commit_asynchronously()
                renewed = activations.renew(tx, sorted(ids), timedelta(hours=1))
                return renewed, activations.find_cancelled(tx, ids)

        return renew

    def _make_durable(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        _, activation_id = self._pick(running)

        def make_durable(side: Side) -> Any:
            with side.database.transaction() as tx:
                return activations.make_claim_durable(tx, side.claims[activation_id], timedelta(hours=1))

        return make_durable

    def _record_effect(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        _, activation_id = self._pick(running)
        effect = self.rng.choice(("keyed", "unsafe"))

        def record(side: Side) -> Any:
            with side.database.transaction() as tx:
                return activations.record_effect(tx, side.claims[activation_id], timedelta(seconds=-5), effect)

        return record

    def _write_stream(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        _, activation_id = self._pick(running)

        def write(side: Side) -> Any:
            claim = side.claims[activation_id]
            if claim.stream_id is None:
                return None
            with side.database.transaction() as tx:
                stream = message_streams.claim_stream(tx, claim.run_id, claim.stream_id, claim.node_id, claim.lease_id)
                content = f"{stream.text}more"
                stored = [
                    message_streams.write(tx, claim.run_id, claim.stream_id, lease_id, epoch, content)
                    for lease_id, epoch in ((claim.lease_id, stream.epoch), (UUID(int=3), 0), (claim.lease_id, 99))
                ]
            return stream, stored

        return write

    def _advance(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        run_id, _ = self._pick(rows)
        return lambda side: side.lifecycle.coordinator.advance_run(run_id)

    def _cancel(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        run_id, _ = self._pick(rows)
        return lambda side: side.lifecycle.cancel_run(TENANT, run_id)

    def _resume(self, *_: Any) -> Callable[[Side], Any]:
        waiting = [run["id"] for run in self.model.server["runs"].committed() if run["status"] == "waiting"]
        run_id = self.rng.choice(waiting)
        inputs = {"answer": "yes"} if self.rng.random() < 0.8 else None
        return lambda side: side.lifecycle.resume_run(TENANT, run_id, RunRequest(query="", inputs=inputs))

    def _contend(self, rows: Any, ready: Any, running: Any) -> Callable[[Side], Any]:
        """One transaction locks a run and an activation; another one skips them and sees committed rows."""
        run_id, activation_id = self._pick(rows)

        def contend(side: Side) -> Any:
            with ExitStack() as both:
                first = both.enter_context(side.database.transaction())
                mine = run_rows.try_lock(first, run_id)()
                first.execute(run_rows.REQUEST_CANCEL, run_id=run_id)
                second = both.enter_context(side.database.transaction())
                theirs = run_rows.try_lock(second, run_id)()
                seen = sweep_queries.expire_leases(second)
                renewed = [
                    activations.renew(second, [(claim.run_id, claim.id, claim.lease_id)], timedelta(hours=1))
                    for claim in side.claims.values()
                    if claim.id == activation_id
                ]
                return mine, theirs, set(seen), renewed, reports.has_unapplied_reports(second, run_id)

        return contend

    def _sweep(self, *_: Any) -> Callable[[Side], Any]:
        sent_before = self.rng.choice((datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)))
        now = datetime(2020, 5, 1, tzinfo=UTC)

        def sweep(side: Side) -> Any:
            with side.database.transaction() as tx:
                is_ours, _ = sweep_queries.try_sweep(tx)
                expired = sweep_queries.expire_leases(tx)
                queue_probes.record_return(tx, "nodes", now)
                remembered = queue_probes.last_observation(tx)
                back = queue_probes.save_observation(tx, queue_probes.SweeperObservation(now, now), "nodes")
                resent = {
                    (message.run_id, message.activation_id)
                    for message in sweep_queries.redispatch_unclaimed(tx, sent_before)
                }
                found = [
                    set(sweep_queries.stuck_runs(tx)),
                    sweep_queries.runs_to_interrupt(tx),
                    set(sweep_queries.stalled_runs(tx)),
                ]
                found += [set(sweep_queries.open_runs(tx)), sweep_queries.expired_forms(tx)]
                return (
                    is_ours,
                    set(expired),
                    remembered,
                    back,
                    resent,
                    sweep_queries.runs_with_unapplied_reports(tx),
                    found,
                )

        return sweep


def payload_of(claim: Claim, outcome: Outcome) -> ReportPayload:
    """Return a report with outputs, a variable and, if the node has a stream, its text."""
    outputs = {"result": claim.node_id, "nothing": None}
    stream: dict[str, Any] | None = None
    if claim.stream_id is not None:
        stream = {"run_id": claim.run_id, "id": claim.stream_id, "node_id": claim.node_id, "writer": claim.lease_id}
        stream |= {"epoch": None if claim.attempt > 1 else 0, "retained_length": 4, "text": "said by all"}
    stores_nothing = isinstance(outcome, Failed) and outcome.stores_no_values
    return ReportPayload(
        outcome=outcome_codec.encode_outcome(outcome, error=None, restarts_text=False, has_written=False),
        usage={"calls": 1, "total_tokens": 3},
        values=[] if stores_nothing else [values_of(claim, outputs)],
        variables=[] if stores_nothing else [variable_of(claim, "env.count", claim.ordinal)],
        stream=stream,
    )


# -- the tests -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 8))])
def test_same_calls_have_the_same_results_on_postgresql_and_in_the_simulator(seed: int, database: Database):
    simulation = Simulation(1)
    model = Simulated(SimulatedDatabase(Server(simulation)), simulation)
    real = Side(database)
    generator = OperationGenerator(random.Random(seed), model)

    with patched_modules():
        for number in range(OPERATIONS):
            kind, operation = generator.next()
            expected, simulated = real.execute(operation), model.execute(operation)
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
    not_simulated = {id(statement) for statement in NOT_SIMULATED}

    without = [name for name, value in statements.items() if id(value) not in TWINS and id(value) not in not_simulated]

    assert without == []


def test_transaction_is_visible_after_its_commit(database: Database):
    def record_and_read(side: Side) -> Any:
        with side.database.transaction() as first:
            queue_probes.record_return(first, "nodes", datetime(2020, 5, 1, tzinfo=UTC))
            with side.database.transaction() as second:
                before = queue_probes.latest_return(second, "nodes")
            mine = queue_probes.latest_return(first, "nodes")
        with side.database.transaction() as third:
            return before, mine, queue_probes.latest_return(third, "nodes"), _try(third)

    def _try(tx: Transaction) -> bool:
        return sweep_queries.try_sweep(tx)[0]

    simulation = Simulation(1)
    simulated = Simulated(SimulatedDatabase(Server(simulation)), simulation).execute(record_and_read)

    assert simulated == Side(database).execute(record_and_read)
