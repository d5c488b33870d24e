"""One turn of a conversation with an agent: start it, follow it, print it, and cancel it on Ctrl-C.

The processes of a running `easel up` execute it, or else a scheduler, worker and sweeper as threads of this process.
"""

import signal
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import local_engine
from canvas.budget import parse_limits
from canvas.events.stream_sequencer import Position
from canvas.ids import RunId, TenantId, VersionId
from canvas.state.run_state import RunStatus
from cli.agents.drafts import canvas_secrets_of
from cli.runs import start_options
from cli.runs.builtin_models import find_builtin_models
from cli.runs.follow import RunFollower, RunSubscription
from cli.runs.inputs import TurnRequest
from cli.runs.printer import AnswerPrinter, FramePrinter, JsonPrinter, read_mask
from cli.shell import connection, output
from cli.shell.actor import find_actor
from cli.shell.connection import CommandConnection, find_run_id, find_tenant_id
from cli.shell.exit_codes import OF_STATUS, Exit
from cli.shell.output import DIM, YELLOW
from cli.shell.page_server import find_run_address
from cli.shell.servers import CommandServers
from scheduler.coordinator.run_start import RunRequest
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle import run_copies
from scheduler.lifecycle.accept import Start, Started
from scheduler.lifecycle.run_copies import CopyOptions, ForkOptions
from store.db.transaction import Transaction
from store.primitives.ids import new_id


class Interrupts:
    """Handles Ctrl-C: the first sets `is_interrupted`, the second raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.is_interrupted = False
        self._before: Any = None

    def __enter__(self) -> "Interrupts":
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.is_interrupted = True


@contextmanager
def connect_to_workers(found: CommandServers) -> Generator[CommandConnection]:
    """Connect to servers whose runs are executed: by `easel up`, or else by this process until the block ends."""
    connection.configure_logging(found.settings)
    connection.ensure_migrated(found)
    if found.up is not None:
        with connection.connect(found) as connected:
            yield connected
        return
    database_url, redis_url, broker_url = found.settings.servers()
    connection.require_redis(redis_url)
    with local_engine.run_engine(found.settings, database_url, redis_url, broker_url=broker_url) as engine:
        yield CommandConnection(engine.lifecycle, found)


def start(found: CommandServers, turn: TurnRequest, *, as_json: bool) -> Exit:
    """Start a run and follow it."""
    with connect_to_workers(found) as connected:
        run_id = RunId(new_id())
        with connected.database.transaction() as tx:
            chosen = start_options.build_start(tx, turn, run_id)
        begin = partial(connected.lifecycle.start_run, chosen)
        return _follow(connected, chosen.tenant_id, run_id, begin, as_json=as_json)


def resume(found: CommandServers, tenant: str, run: str, options: Mapping[str, Any], *, as_json: bool) -> Exit:
    """Answer a run that waits, and follow it."""
    request = RunRequest(query=options["query"], inputs=options["inputs"])
    with connect_to_workers(found) as connected:
        with connected.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
            run_id = find_run_id(tx, tenant_id, run)
        budget = parse_limits(options["budget"]) if options.get("budget") is not None else None
        begin = partial(connected.lifecycle.resume_run, tenant_id, run_id, request, budget=budget, by=find_actor())
        return _follow(connected, tenant_id, run_id, begin, as_json=as_json)


def rerun(found: CommandServers, tenant: str, run: str, options: Mapping[str, Any], *, as_json: bool) -> Exit:
    """Do all of a run again, and follow it."""
    chosen = CopyOptions(**options)
    return _follow_copy(
        found,
        tenant,
        run,
        lambda tx, cache, tenant_id, source, new_run: run_copies.plan_rerun(
            tx, cache, tenant_id, source, chosen, new_run
        ),
        as_json=as_json,
    )


def fork(
    found: CommandServers,
    tenant: str,
    run: str,
    options: Mapping[str, Any],
    confirmed: Collection[str],
    *,
    as_json: bool,
) -> Exit:
    """Go on from a step of a run, and follow the new run. Raises NeedsConfirmation."""
    chosen = _fork_options(options)

    def plan(tx: Transaction, cache: VersionCache, tenant_id: TenantId, source: RunId, new_run: RunId) -> Start:
        planned = run_copies.plan_fork(tx, cache, tenant_id, source, chosen, new_run, canvas_secrets_of)
        run_copies.require_confirmation(planned, confirmed)
        return planned.start

    return _follow_copy(found, tenant, run, plan, as_json=as_json)


def preview_fork(found: CommandServers, tenant: str, run: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a fork would do; writes nothing."""
    with connection.connect(found) as connected:
        return run_copies.preview(
            connected.database,
            connected.versions,
            lambda tx: find_tenant_id(tx, tenant),
            lambda tx, tenant_id: find_run_id(tx, tenant_id, run),
            _fork_options(options),
            canvas_secrets_of,
        )


def _fork_options(options: Mapping[str, Any]) -> ForkOptions:
    fields: dict[str, Any] = {**options, "copy": CopyOptions(**options["copy"])}
    return ForkOptions(**fields)


def _follow_copy(
    found: CommandServers,
    tenant: str,
    run: str,
    plan: Callable[[Transaction, VersionCache, TenantId, RunId, RunId], Start],
    *,
    as_json: bool,
) -> Exit:
    with connect_to_workers(found) as connected:
        new_run = RunId(new_id())
        with connected.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
            source = find_run_id(tx, tenant_id, run)
            planned = plan(tx, connected.versions, tenant_id, source, new_run)
            chosen = replace(planned, by=find_actor())
        begin = partial(connected.lifecycle.start_run, chosen)
        return _follow(connected, tenant_id, new_run, begin, as_json=as_json)


def _follow(
    connected: CommandConnection, tenant_id: TenantId, run_id: RunId, begin: Callable[[], Started], *, as_json: bool
) -> Exit:
    """Subscribe to the run, start the turn, print it until it ends, and return the exit code."""
    with closing(RunSubscription(connected.bus.url)) as subscription, Interrupts() as interrupts:
        subscription.subscribe(run_id)
        started = begin()
        if started.run_id != run_id:  # the conversation's run had been waiting for this turn
            subscription.subscribe(started.run_id)
        following = RunFollower(connected.database, tenant_id, started.run_id, subscription, Position(started.after))
        output.print_message(f"run {started.run_id.hex}  session {started.conversation_id.hex}", DIM)
        address = find_run_address(connected.servers.up, started.run_id)
        if address is not None:
            output.print_message(f"page: {address}", DIM)
        try:
            return _print_run(connected, following, interrupts, as_json)
        except KeyboardInterrupt:
            output.print_message("Detached. The cancelled run ends in the background.", YELLOW)
            return Exit.CANCELLED


def _print_run(connected: CommandConnection, following: RunFollower, interrupts: Interrupts, as_json: bool) -> Exit:
    printer: FramePrinter | None = None
    has_cancelled = False
    for frame in following.frames():
        if interrupts.is_interrupted and not has_cancelled:
            has_cancelled = True
            output.print_message("Cancelling the run. Press Ctrl-C again to detach at once.", YELLOW)
            connected.lifecycle.cancel_run(following.tenant_id, following.run_id, by=find_actor())
        if frame is None:
            continue
        if printer is None:
            printer = _make_printer(connected, following.run.version_id, as_json)
        printer.show(frame, following.run)
    if printer is not None:
        printer.end()
    return OF_STATUS[RunStatus(following.run.status)]


def _make_printer(connected: CommandConnection, version_id: VersionId, as_json: bool) -> FramePrinter:
    with connected.database.transaction() as tx:
        compiled = connected.versions.get_or_empty(tx, version_id)
    if as_json:
        return JsonPrinter(compiled.canvas, partial(read_mask, connected, compiled.canvas))
    for label in find_builtin_models(compiled.document):
        output.print_message(f"model: {label}", YELLOW)
    return AnswerPrinter(compiled.canvas, partial(read_mask, connected, compiled.canvas))
