"""Runs on real rows, one step at a time or all at once.

    bench.does(work=lambda ctx: Finished({"result": 1}))
    run = bench.start("begin -> work -> say", say=says("done"))
    bench.play()
    assert run.status == "succeeded"

Parts are drawn as in `tests/builders.py`. What is a plain node there is one whose work a test gives here: a coroutine
function runs on the worker's loop, a plain function on its thread (node ids that begin with `compute`). Messages to
Celery land in `bench.outbox`; `play` carries them out in the order in which they were sent.
"""

import inspect
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event, Thread
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import select

from canvas.document.document import Document
from canvas.outcome import Finished, Outcome
from components import registry
from components.base import Component, Params
from components.context import NodeContext
from providers.models.chat.scripted import Script
from providers.models.vendors.accounts import VendorAccount
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.run_start import RunRequest
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle.accept import Start, Started
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import ADVANCE, EXECUTE
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.redis_bus import Bus
from settings import Settings
from store.agents import canvases, versions
from store.db.database import Database
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.runs import activations, events, message_streams, reports, run_rows
from store.runs.activations import Claim
from store.runs.reports import ReportPayload
from store.tables.runs import activations as activation_rows
from store.tables.runs import node_values
from store.tenants import tenants
from tests import builders
from worker.bootstrap import Environment, assemble
from worker.reporter import AttemptLeaseLost, Reporter
from worker.worker import Worker

PATIENCE = 60.0  # seconds for a fact that other threads or processes bring about
LEASE = timedelta(seconds=10)
REDIS_AWAY = "redis://127.0.0.1:1/0"

FORM = {"inputs": {"name": {"type": "line", "name": "Name"}}, "tips": "Who are you?"}
"""Params of a form with one field."""

Work = Callable[[NodeContext], Any]


# -- what nodes do ---------------------------------------------------------------------------------------------------
class Acts:
    """Work by node id; the components `Act`, `Compute`, `Keyed` and `Unsafe` look here."""

    def __init__(self) -> None:
        self.work: dict[str, Work] = {}

    def components(self) -> dict[str, Component[Any]]:
        async def act(params: Params, ctx: NodeContext) -> Outcome:
            done = self._of(ctx)(ctx)
            return await done if inspect.isawaitable(done) else done

        def compute(params: Params, ctx: NodeContext) -> Outcome:
            return self._of(ctx)(ctx)

        return {
            "act": Component("Act", Params, act, assigns=True),
            "compute": Component("Compute", Params, compute, assigns=True),
            "keyed": Component("Keyed", Params, act, "keyed", assigns=True),
            "unsafe": Component("Unsafe", Params, act, "unsafe", assigns=True),
        }

    def _of(self, ctx: NodeContext) -> Work:
        return self.work.get(ctx.node_id, lambda ctx: Finished(outputs={"result": ctx.node_id}))


def dsl_of(*parts: str, variables: Mapping[str, Any] | None = None, **params: Mapping[str, Any]) -> dict[str, Any]:
    """The upstream-shaped document that the parts draw; `variables` are its env.* with their first values."""
    document = builders.document_of(*parts, **params)
    return {
        "components": {node: _component(document, node) for node in document.entries},
        "globals": {f"env.{name}": value for name, value in (variables or {}).items()},
        "variables": {name: {"name": name, "value": value} for name, value in (variables or {}).items()},
    }


def _component(document: Document, node: str) -> dict[str, Any]:
    entry = document.entries[node]
    name, given = entry.component, dict(entry.params)
    if name == "StringTransform" and "method" not in given:
        name = "Compute" if node.startswith("compute") else "Act"
    if name == "LLM":
        given = {"llm_id": "scripted", "prompts": [{"role": "user", "content": node}], **given}
    if name == "VariableAssigner":
        given.pop("component", None)
    return {
        "obj": {"component_name": str(given.pop("component", name)), "params": given},
        "downstream": list(entry.downstream),
        "upstream": [other.id for other in document.entries.values() if node in other.downstream],
        **({"parent_id": entry.parent} if entry.parent else {}),
    }


# -- messages --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Sent:
    """A message to Celery."""

    task: str
    args: tuple[str, ...]
    options: Mapping[str, Any]


@dataclass
class Outbox:
    """Stands where the Celery app is, and keeps what is sent."""

    sent: list[Sent] = field(default_factory=list)

    def producer_or_acquire(self) -> Any:
        return nullcontext()

    def send_task(self, task: str, args: Sequence[str] = (), **options: Any) -> None:
        self.sent.append(Sent(task, tuple(args), options))

    def of(self, task: str) -> list[tuple[str, ...]]:
        """The arguments of all messages of a task."""
        return [message.args for message in self.sent if message.task == task]

    def take(self) -> Sent | None:
        """The oldest message, which is then gone."""
        try:
            return self.sent.pop(0)
        except IndexError:
            return None

    def lose(self) -> None:
        """Everything on its way is gone."""
        self.sent.clear()


# -- the bench -------------------------------------------------------------------------------------------------------
@dataclass
class Bench:
    """Parts of the engine on real servers, driven by hand."""

    database: Database
    redis_url: str
    acts: Acts
    outbox: Outbox = field(default_factory=Outbox)
    script: Script | None = None
    accounts: Sequence[VendorAccount] = ()
    _open: ExitStack = field(default_factory=ExitStack)
    _worker: Worker | None = None

    def __post_init__(self) -> None:
        self.tenant_id = self.a_tenant()
        self.coordinator = self.a_coordinator()
        self.lifecycle = Lifecycle(self.coordinator)

    def a_tenant(self) -> UUID:
        with self.database.transaction() as tx:
            return tenants.create_tenant(tx, f"tenant {new_id()}")

    def a_coordinator(self, *, redis_url: str | None = None, **more: Any) -> Coordinator:
        bus = Bus(redis_url or self.redis_url)
        self._open.callback(bus.close)
        kind = more.pop("kind", Coordinator)
        return kind(self.database, Dispatch(self.outbox, bus), VersionCache(), **more)

    def does(self, **work: Work) -> None:
        """What nodes of these ids do from now on."""
        self.acts.work.update(work)

    def draw(self, *parts: str, tenant_id: UUID | None = None, **params: Any) -> tuple[UUID, UUID]:
        """A canvas and a version of it."""
        tenant = tenant_id or self.tenant_id
        with self.database.transaction() as tx:
            canvas_id = canvases.create(tx, tenant, f"canvas {new_id()}", dsl_of(*parts, **params))
            return canvas_id, versions.lock_draft_version(tx, tenant, canvas_id).id

    def a_start(self, *parts: str, query: Any = "hello", **options: Any) -> Start:
        """A start of a new canvas, or of the one given as `drawn`. Mappings are params of nodes."""
        params = {name: value for name, value in options.items() if isinstance(value, Mapping) and name != "inputs"}
        given = {name: value for name, value in options.items() if name not in params}
        tenant = given.pop("tenant_id", self.tenant_id)
        canvas_id, version_id = given.pop("drawn", None) or self.draw(*parts, tenant_id=tenant, **params)
        request = RunRequest(query=query, inputs=given.pop("inputs", None), files=given.pop("files", ()))
        return Start(tenant, canvas_id, version_id, request, **given)

    def start(self, *parts: str, **options: Any) -> "Run":
        """Start a run of a new canvas."""
        return self.begun(self.a_start(*parts, **options))

    def begun(self, start: Start) -> "Run":
        return Run(self, self.lifecycle.start_run(start))

    # -- working -----------------------------------------------------------------------------------------------------
    @property
    def worker(self) -> Worker:
        """The bench's own worker, made when it is first needed."""
        if self._worker is None:
            self._worker = self.a_worker()
        return self._worker

    def a_worker(self, coordinator: Coordinator | None = None, **given: Any) -> Worker:
        """A worker; settings, whatever their relations, and what is in its environment may be given."""
        environment = {name: given.pop(name) for name in Environment.__dataclass_fields__ if name in given}
        settings = {"lease": LEASE, "shutdown_grace": timedelta(milliseconds=300), **given}
        assert settings.keys() <= Settings.model_fields.keys()
        worker = assemble(
            Settings().model_copy(update=settings),
            coordinator or self.coordinator,
            self.redis_url,
            Environment(
                **{"time_limit": lambda *_: 60.0, **environment},
                accounts=self.accounts,
                script=lambda _: self.script,
            ),
        )
        self._open.callback(worker.close)
        return worker

    def play(self, worker: Worker | None = None, *, until: Callable[[], bool] = lambda: False) -> None:
        """Carry out everything that was sent, and what that leads to."""
        while not until():
            message = self.outbox.take()
            if message is None:
                return
            if message.task == EXECUTE:
                if not (worker or self.worker).execute(*map(UUID, message.args)):
                    self.outbox.sent.append(message)  # the worker goes down, and Celery takes the message back
                    return
            elif message.task == ADVANCE:
                self.coordinator.advance_run(UUID(message.args[0]))

    def claim(self, run: "Run", node: str, *, lease: timedelta = LEASE) -> Claim:
        """Claim a node's ready activation by hand."""
        claimed = self.try_claim(run, node, lease=lease)
        assert claimed is not None, f"{node} is not to be had: {run.statuses}"
        return claimed

    def try_claim(self, run: "Run", node: str, *, lease: timedelta = LEASE) -> Claim | None:
        row = run.activation(node)
        with self.database.transaction() as tx:
            return activations.claim(tx, run.id, row.id, lease_id=uuid4(), lease=lease, worker="by hand")

    def report(self, claimed: Claim, outcome: str = "Finished", **written: Any) -> bool:
        """Store a report by hand, without any fold; whether it was taken."""
        with suppress(AttemptLeaseLost), self.database.transaction() as tx:
            stored = reports.report(tx, claimed.run_id, claimed.id, claimed.lease_id, told(outcome, **written))
            if not stored.count():
                raise AttemptLeaseLost
            return True
        return False

    def close(self) -> None:
        self._open.close()


def carried_out(worker: Worker, run_id: UUID, activation_id: UUID) -> bool:
    """Carry out a node and whatever its thread goes on with, as a thread of Celery's does."""
    eager = worker.execution.new_continuation()
    is_done = worker.execute(run_id, activation_id, eager)
    while eager.next is not None:
        worker.execute(run_id, eager.next.attempt.activation_id, eager)
    return is_done


def reporting(coordinator: Coordinator, claimed: Claim) -> Reporter:
    """How a worker reports that has claimed this."""
    return Reporter(coordinator, claimed, inline_advance=True, is_closed=lambda: False)


def told(outcome: str = "Finished", **written: Any) -> ReportPayload:
    """What a report stores, with nothing in it but what is given."""
    column = {"is": outcome, **written.pop("column", {})}
    return ReportPayload(**{"outcome": column, "usage": {}, "values": (), "variables": (), **written})


def values_of(claimed: Claim, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """A row of node_values that an attempt may write."""
    return {
        "run_id": claimed.run_id,
        "activation_id": claimed.id,
        "place": claimed.order_key.key,
        "region": claimed.order_key.region,
        "node_id": claimed.node_id,
        "pass_of": "",
        "item": 0,
        "outputs": dict(outputs),
        "inputs": {},
        "names": list(outputs),
    }


def variable_of(claimed: Claim, name: str, value: Any) -> dict[str, Any]:
    """A row of variables that an attempt may write."""
    return {
        "run_id": claimed.run_id,
        "activation_id": claimed.id,
        "place": claimed.order_key.key,
        "region": claimed.order_key.region,
        "name": name,
        "value": value,
    }


# -- what became of a run --------------------------------------------------------------------------------------------
class Run:
    """One run, read from its rows whenever it is asked."""

    def __init__(self, bench: Bench, started: Started) -> None:
        self.bench = bench
        self.started = started
        self.id = started.run_id
        self.conversation_id = started.conversation_id

    def _read(self, read: Callable[[Transaction], Any]) -> Any:
        with self.bench.database.transaction() as tx:
            return read(tx)

    @property
    def row(self) -> Mapping[str, Any]:
        row = self._read(lambda tx: tx.one_or_none(run_rows.READ, of_run=self.id))
        assert row is not None
        return row

    @property
    def status(self) -> str:
        return self.row["status"]

    @property
    def activations(self) -> list[Any]:
        """All rows, in canonical order."""
        wanted = select(activation_rows).where(activation_rows.c.run_id == self.id).order_by(activation_rows.c.place)
        return list(self._read(lambda tx: tx.rows(wanted)))

    def activation(self, node: str) -> Any:
        """The latest activation of a node."""
        return [row for row in self.activations if row.node_id == node][-1]

    @property
    def statuses(self) -> dict[str, str]:
        """Status of the latest activation of each node."""
        return {row.node_id: row.status for row in self.activations}

    @property
    def events(self) -> list[events.EventRow]:
        return self._read(lambda tx: events.read_after(tx, self.id, 0, most=10_000))

    @property
    def told(self) -> list[str]:
        """The names of its events."""
        return [event.name for event in self.events]

    def outputs(self, node: str) -> dict[str, Any]:
        """What a node has left, of several activations the last; without the attempt's own."""
        found = self.rows_of_values(node)
        return {name: value for name, value in found[-1].items() if not name.startswith("_")} if found else {}

    def rows_of_values(self, node: str) -> list[dict[str, Any]]:
        """Everything a node has left, in canonical order."""
        wanted = select(node_values.c.outputs).where(node_values.c.run_id == self.id, node_values.c.node_id == node)
        return [row[0] for row in self._read(lambda tx: tx.rows(wanted.order_by(node_values.c.place)))]

    @property
    def turns(self) -> Sequence[message_streams.StreamRow]:
        return self._read(lambda tx: message_streams.list_opened(tx, self.id))

    @property
    def said(self) -> str:
        """All that was heard."""
        return "".join(turn.text for turn in self.turns)


def until(fact: Callable[[], Any], *, seconds: float = PATIENCE) -> Any:
    """Wait for a fact, with a deadline; what it gave."""
    deadline = time.monotonic() + seconds
    while not (found := fact()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {inspect.getsource(fact).strip()}"
        time.sleep(0.005)
    return found


@contextmanager
def at_work(bench: Bench, *workers: Worker, threads: int = 4) -> Generator[None]:
    """Workers that carry out what is sent, in threads of their own, until the block ends. Errors come out there."""
    ending, errors = Event(), list[BaseException]()

    def work(worker: Worker) -> None:
        try:
            while not ending.wait(0.002):
                bench.play(worker, until=ending.is_set)
        except BaseException as error:
            errors.append(error)

    hands = [workers[number % len(workers)] if workers else bench.worker for number in range(threads)]
    working = [Thread(target=work, args=(worker,), daemon=True) for worker in hands]
    for thread in working:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in working:
            thread.join(PATIENCE)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in working), "a worker does not come to an end"


@contextmanager
def bench_on(database: Database, redis_url: str, monkeypatch: Any) -> Generator[Bench]:
    """A bench whose nodes do what a test says."""
    acts = Acts()
    monkeypatch.setattr(registry, "COMPONENTS", {**registry.COMPONENTS, **acts.components()})
    bench = Bench(database, redis_url, acts)
    try:
        yield bench
    finally:
        bench.close()
