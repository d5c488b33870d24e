"""A test bench for runs on real rows, driven one message at a time or all at once.

    bench.does(work=lambda ctx: Finished({"result": 1}))
    run = bench.start("begin -> work -> say", say=content("done"))
    bench.play()
    assert run.status == "succeeded"

Canvases are written as in `tests/builders.py`. A plain node runs the function that the test gives for its id: a
coroutine function on the worker's event loop, a plain function on a worker thread (node ids that begin with `compute`).
Messages to Celery are recorded in `bench.outbox`; `play` processes them in the order in which they were sent.
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
from canvas.ids import CanvasId, TenantId
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
from scheduler.messaging.celery_app import ADVANCE, EXECUTE, PREPARED_CLAIM
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.redis_bus import Bus
from settings import Settings
from store.agents import canvases, versions
from store.agents.canvas_secrets import CanvasSecrets
from store.db.database import Database
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.runs import activations, events, message_streams, prepared_claims, reports, run_rows
from store.runs.activations import Claim
from store.runs.reports import ReportPayload
from store.tables.runs import activations as activation_rows
from store.tables.runs import node_values
from store.tenants import tenants
from tests import builders
from worker.bootstrap import Environment, assemble
from worker.execution.reporter import AttemptLeaseLost, Reporter
from worker.worker import Worker

WAIT_TIMEOUT = 60.0  # seconds to wait for other threads or processes
LEASE = timedelta(seconds=10)
REDIS_AWAY = "redis://127.0.0.1:1/0"

FORM = {"inputs": {"name": {"type": "line", "name": "Name"}}, "tips": "Who are you?"}
"""Params of a form with one field."""

NodeFunction = Callable[[NodeContext], Any]


# -- node functions --------------------------------------------------------------------------------------------------
class NodeFunctions:
    """Functions by node id, which the components `Act`, `Compute`, `Keyed` and `Unsafe` call."""

    def __init__(self) -> None:
        self.by_node: dict[str, NodeFunction] = {}

    def components(self) -> dict[str, Component[Any]]:
        async def act(params: Params, ctx: NodeContext) -> Outcome:
            result = self._of(ctx)(ctx)
            return await result if inspect.isawaitable(result) else result

        def compute(params: Params, ctx: NodeContext) -> Outcome:
            return self._of(ctx)(ctx)

        return {
            "act": Component("Act", Params, act, assigns=True),
            "compute": Component("Compute", Params, compute, assigns=True),
            "keyed": Component("Keyed", Params, act, "keyed", assigns=True),
            "unsafe": Component("Unsafe", Params, act, "unsafe", assigns=True),
        }

    def _of(self, ctx: NodeContext) -> NodeFunction:
        return self.by_node.get(ctx.node_id, lambda ctx: Finished(outputs={"result": ctx.node_id}))


def dsl_of(*parts: str, variables: Mapping[str, Any] | None = None, **params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a canvas in upstream's format; `variables` are its env.* with their initial values."""
    document = builders.document_of(*parts, **params)
    return {
        "components": {node: _component(document, node) for node in document.entries},
        "globals": {f"env.{name}": value for name, value in (variables or {}).items()},
        "variables": {name: {"name": name, "value": value} for name, value in (variables or {}).items()},
    }


def _component(document: Document, node: str) -> dict[str, Any]:
    entry = document.entries[node]
    name, params = entry.component, dict(entry.params)
    if name == "StringTransform" and "method" not in params:
        name = "Compute" if node.startswith("compute") else "Act"
    if name == "LLM":
        params = {"llm_id": "scripted", "prompts": [{"role": "user", "content": node}], **params}
    if name == "VariableAssigner":
        params.pop("component", None)
    return {
        "obj": {"component_name": str(params.pop("component", name)), "params": params},
        "downstream": list(entry.downstream),
        "upstream": [other.id for other in document.entries.values() if node in other.downstream],
        **({"parent_id": entry.parent} if entry.parent else {}),
    }


# -- messages --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message to Celery."""

    task: str
    args: tuple[str, ...]
    options: Mapping[str, Any]


@dataclass
class Outbox:
    """Replaces the Celery app and records the messages that are sent."""

    sent: list[SentMessage] = field(default_factory=list)

    def producer_or_acquire(self) -> Any:
        return nullcontext()

    def send_task(self, task: str, args: Sequence[str] = (), **options: Any) -> None:
        self.sent.append(SentMessage(task, tuple(args), options))

    def of(self, task: str) -> list[tuple[str, ...]]:
        """Return the arguments of all messages of a task."""
        return [message.args for message in self.sent if message.task == task]

    def pop(self) -> SentMessage | None:
        """Remove and return the oldest message; None if there is none."""
        try:
            return self.sent.pop(0)
        except IndexError:
            return None

    def lose(self) -> None:
        """Lose all messages that were not processed yet."""
        self.sent.clear()


# -- the bench -------------------------------------------------------------------------------------------------------
@dataclass
class Bench:
    """A coordinator and workers on real servers, driven by the test."""

    database: Database
    redis_url: str
    node_functions: NodeFunctions
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

    def does(self, **work: NodeFunction) -> None:
        """Set the functions of the nodes with these ids."""
        self.node_functions.by_node.update(work)

    def draw(self, *parts: str, tenant_id: UUID | None = None, **params: Any) -> tuple[UUID, UUID]:
        """Create a canvas and a version of it; return the ids of both."""
        tenant = tenant_id or self.tenant_id
        with self.database.transaction() as tx:
            canvas_id = canvases.create(tx, tenant, f"canvas {new_id()}", dsl_of(*parts, **params))
            return canvas_id, versions.lock_draft_version(tx, tenant, canvas_id).id

    def a_start(self, *parts: str, query: Any = "hello", **options: Any) -> Start:
        """Return a start request for a new canvas, or for the version in `drawn`. Mappings are params of nodes."""
        params = {name: value for name, value in options.items() if isinstance(value, Mapping) and name != "inputs"}
        more = {name: value for name, value in options.items() if name not in params}
        tenant = more.pop("tenant_id", self.tenant_id)
        canvas_id, version_id = more.pop("drawn", None) or self.draw(*parts, tenant_id=tenant, **params)
        request = RunRequest(query=query, inputs=more.pop("inputs", None), files=more.pop("files", ()))
        return Start(tenant, canvas_id, version_id, request, **more)

    def start(self, *parts: str, **options: Any) -> "Run":
        """Start a run of a new canvas."""
        return self.start_run(self.a_start(*parts, **options))

    def start_run(self, start: Start) -> "Run":
        return Run(self, self.lifecycle.start_run(start))

    # -- workers -----------------------------------------------------------------------------------------------------
    @property
    def worker(self) -> Worker:
        """The default worker, created at its first use."""
        if self._worker is None:
            self._worker = self.a_worker()
        return self._worker

    def a_worker(self, coordinator: Coordinator | None = None, **more: Any) -> Worker:
        """Create a worker; `more` are settings, which are not validated together, and fields of its environment."""
        environment = {name: more.pop(name) for name in Environment.__dataclass_fields__ if name in more}
        settings = {"lease": LEASE, "shutdown_grace": timedelta(milliseconds=300), **more}
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
        """Process all messages, including those that they cause, until there are none or `until` is true."""
        while not until():
            message = self.outbox.pop()
            if message is None:
                return
            if message.task == EXECUTE:
                run_id, activation_id = map(UUID, message.args)
                carried = (message.options.get("headers") or {}).get(PREPARED_CLAIM)
                prepared = prepared_claims.decode(run_id, activation_id, carried)
                if not (worker or self.worker).execute(run_id, activation_id, prepared=prepared):
                    self.outbox.sent.append(message)  # the worker shuts down, and Celery returns the message
                    return
            elif message.task == ADVANCE:
                self.coordinator.advance_run(UUID(message.args[0]))

    def claim(self, run: "Run", node: str, *, lease: timedelta = LEASE) -> Claim:
        """Claim the ready activation of a node without a worker."""
        claimed = self.try_claim(run, node, lease=lease)
        assert claimed is not None, f"{node} cannot be claimed: {run.statuses}"
        return claimed

    def try_claim(self, run: "Run", node: str, *, lease: timedelta = LEASE) -> Claim | None:
        row = run.activation(node)
        with self.database.transaction() as tx:
            return activations.claim(tx, run.id, row.id, lease_id=uuid4(), lease=lease, worker="by hand")

    def report(self, claimed: Claim, outcome: str = "Finished", **fields: Any) -> bool:
        """Store a report without a worker and without an advance; return whether it was accepted."""
        with suppress(AttemptLeaseLost), self.database.transaction() as tx:
            stored = reports.report(tx, claimed.run_id, claimed.id, claimed.lease_id, report_payload(outcome, **fields))
            if not stored.count():
                raise AttemptLeaseLost
            return True
        return False

    def close(self) -> None:
        self._open.close()


def execute_with_continuations(worker: Worker, run_id: UUID, activation_id: UUID) -> bool:
    """Execute an activation and its local continuations, as a thread of Celery does."""
    continuation = worker.execution.new_continuation()
    is_done = worker.execute(run_id, activation_id, continuation)
    while continuation.next is not None:
        worker.execute(run_id, continuation.next.attempt.activation_id, continuation)
    return is_done


def new_reporter(coordinator: Coordinator, claimed: Claim) -> Reporter:
    """Return the reporter of a worker that has this claim."""
    return Reporter(coordinator, claimed, inline_advance=True, is_closed=lambda: False)


def report_payload(outcome: str = "Finished", **fields: Any) -> ReportPayload:
    """Return the content of a report that has only the given fields."""
    column = {"is": outcome, **fields.pop("column", {})}
    return ReportPayload(**{"outcome": column, "usage": {}, "values": (), "variables": (), **fields})


def values_of(claimed: Claim, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of node_values that an attempt may write."""
    return {
        "run_id": claimed.run_id,
        "activation_id": claimed.id,
        "order_key": claimed.order_key.key,
        "region": claimed.order_key.region,
        "node_id": claimed.node_id,
        "container_entry": "",
        "item": 0,
        "outputs": dict(outputs),
        "inputs": {},
        "names": list(outputs),
    }


def variable_of(claimed: Claim, name: str, value: Any) -> dict[str, Any]:
    """Return a row of variables that an attempt may write."""
    return {
        "run_id": claimed.run_id,
        "activation_id": claimed.id,
        "order_key": claimed.order_key.key,
        "region": claimed.order_key.region,
        "name": name,
        "value": value,
    }


# -- the state of a run ----------------------------------------------------------------------------------------------
class Run:
    """One run; each property reads its rows anew."""

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
        query = select(activation_rows).where(activation_rows.c.run_id == self.id).order_by(activation_rows.c.order_key)
        return list(self._read(lambda tx: tx.rows(query)))

    def activation(self, node: str) -> Any:
        """Return the latest activation of a node."""
        return [row for row in self.activations if row.node_id == node][-1]

    @property
    def statuses(self) -> dict[str, str]:
        """Status of the latest activation of each node."""
        return {row.node_id: row.status for row in self.activations}

    @property
    def events(self) -> list[events.EventRow]:
        return self._read(lambda tx: events.read_after(tx, self.id, 0, most=10_000))

    @property
    def event_names(self) -> list[str]:
        """The names of all events of the run."""
        return [event.name for event in self.events]

    def outputs(self, node: str) -> dict[str, Any]:
        """Return the outputs of the last activation of a node, without those whose names begin with `_`."""
        rows = self.rows_of_values(node)
        return {name: value for name, value in rows[-1].items() if not name.startswith("_")} if rows else {}

    def rows_of_values(self, node: str) -> list[dict[str, Any]]:
        """Return the outputs of all activations of a node, in canonical order."""
        query = select(node_values.c.outputs).where(node_values.c.run_id == self.id, node_values.c.node_id == node)
        return [row[0] for row in self._read(lambda tx: tx.rows(query.order_by(node_values.c.order_key)))]

    @property
    def streams(self) -> Sequence[message_streams.StreamRow]:
        return self._read(lambda tx: message_streams.list_opened(tx, self.id))

    @property
    def text(self) -> str:
        """The text of all message streams, joined."""
        return "".join(stream.text for stream in self.streams)


def subscribe(pubsub: Any, channel: str) -> None:
    """Subscribe to a channel of Redis, and return once Redis has confirmed it."""
    pubsub.subscribe(channel)
    until(lambda: (pubsub.get_message(timeout=0.1) or {}).get("type") == "subscribe")


def secrets_of(tenant_id: TenantId, canvas_id: CanvasId) -> CanvasSecrets:
    """Return the secrets of a canvas without a key: the canvases of a bench have none."""
    return CanvasSecrets.for_canvas(None, tenant_id, canvas_id, registry.secret_fields)


def until(condition: Callable[[], Any], *, seconds: float = WAIT_TIMEOUT) -> Any:
    """Wait until a condition is true; return its value. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {inspect.getsource(condition).strip()}"
        time.sleep(0.005)
    return value


@contextmanager
def at_work(bench: Bench, *workers: Worker, threads: int = 4) -> Generator[None]:
    """Let workers process messages on threads until the block ends, which raises an error if a thread had one."""
    stop, errors = Event(), list[BaseException]()

    def work(worker: Worker) -> None:
        try:
            while not stop.wait(0.002):
                bench.play(worker, until=stop.is_set)
        except BaseException as error:
            errors.append(error)

    assigned = [workers[number % len(workers)] if workers else bench.worker for number in range(threads)]
    running = [Thread(target=work, args=(worker,), daemon=True) for worker in assigned]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in running:
            thread.join(WAIT_TIMEOUT)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in running), "a worker thread does not end"


@contextmanager
def bench_on(database: Database, redis_url: str, monkeypatch: Any) -> Generator[Bench]:
    """Yield a bench whose nodes run the functions of the test."""
    node_functions = NodeFunctions()
    monkeypatch.setattr(registry, "COMPONENTS", {**registry.COMPONENTS, **node_functions.components()})
    bench = Bench(database, redis_url, node_functions)
    try:
        yield bench
    finally:
        bench.close()
