"""The run of one node alone: start it, wait for its end, cancel it on Ctrl-C, and print what it has come to."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canvas.document import parsing
from canvas.document.single_node import NodeInputs
from canvas.errors import InvalidRequest
from canvas.events.stream_sequencer import Position
from canvas.ids import RunId, TenantId
from canvas.state.run_state import RunStatus
from cli.agents import agents, canvas_file, drafts
from cli.runs.follow import RunFollower, RunSubscription
from cli.runs.inputs import TurnRequest
from cli.runs.turn import Interrupts, connect_to_workers
from cli.shell import output
from cli.shell.actor import find_actor
from cli.shell.connection import CommandConnection, find_tenant_id
from cli.shell.exit_codes import OF_STATUS, Exit
from cli.shell.output import DIM, RED, YELLOW
from cli.shell.servers import CommandServers
from components import node_inputs, plugins, registry
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle import node_runs
from scheduler.lifecycle.accept import Start, Started
from scheduler.views.node_result import NodeResult, read_node_result
from store.agents import canvases, versions
from store.db.transaction import Transaction
from store.primitives.ids import new_id


@dataclass(frozen=True, slots=True)
class _Debugging:
    """A run of one node that this command follows."""

    connected: CommandConnection
    tenant_id: TenantId
    run_id: RunId
    node: str
    subscription: RunSubscription
    interrupts: Interrupts

    def follow(self, begin: Callable[[], Started]) -> NodeResult:
        """Start or continue the run, wait until it is over or waits, and return what it has come to."""
        started = begin()
        following = RunFollower(
            self.connected.database, self.tenant_id, self.run_id, self.subscription, Position(started.after)
        )
        has_cancelled = False
        for _ in following.frames():
            if self.interrupts.is_interrupted and not has_cancelled:
                has_cancelled = True
                output.print_message("Cancelling the run. Press Ctrl-C again to detach at once.", YELLOW)
                self.connected.lifecycle.cancel_run(self.tenant_id, self.run_id, by=find_actor())
        with self.connected.database.statements() as tx:  # large values are read from the storage in between
            return read_node_result(
                tx, self.connected.versions, self.tenant_id, self.run_id, self.node, registry.default_outputs
            )


def debug(found: CommandServers, turn: TurnRequest, node: str, given: Mapping[str, Any], *, as_json: bool) -> Exit:
    """Run one node alone, print its outputs, and return the exit code. Answers its form with the given inputs."""
    plugins.load(found.settings.allowed_plugins)
    with (
        connect_to_workers(found) as connected,
        closing(RunSubscription(connected.bus.url)) as subscription,
        Interrupts() as interrupts,
    ):
        with connected.database.transaction() as tx:
            start, placed = _plan(tx, turn, node, given)
        assert start.run_id is not None
        run = _Debugging(connected, start.tenant_id, start.run_id, node, subscription, interrupts)
        subscription.subscribe(run.run_id)
        output.print_message(f"run {run.run_id.hex}", DIM)
        ended = run.follow(lambda: connected.lifecycle.start_run(start))
        if placed.answers and ended.status is RunStatus.WAITING:
            answer = RunRequest(inputs=placed.answers)
            ended = run.follow(lambda: connected.lifecycle.resume_run(run.tenant_id, run.run_id, answer))
    _show(ended, placed.warnings, as_json=as_json)
    return OF_STATUS[ended.status]


def _plan(tx: Transaction, turn: TurnRequest, node: str, given: Mapping[str, Any]) -> tuple[Start, NodeInputs]:
    """Return the start of the run. A file becomes the draft of the agent named after it, as with `easel run`."""
    tenant_id = find_tenant_id(tx, turn.tenant)
    if turn.checked_canvas is not None:
        title = canvas_file.title_of(Path(turn.target))
        canvas_id, _ = drafts.save_draft(tx, tenant_id, title, turn.checked_canvas.dsl)
    else:
        canvas_id = agents.find(tx, tenant_id, turn.target).id
    stored = canvases.get(tx, tenant_id, canvas_id)
    document = parsing.parse(stored.draft, max_bytes=parsing.MAX_BYTES)
    if node not in document.entries:
        known = ", ".join(list(document.entries)[:20])
        raise InvalidRequest(f'Agent "{stored.title}" has no node {node[:64]!r}. It has: {known}.')
    placed = node_inputs.place_inputs(document, node, given)
    start = node_runs.plan_node_run(
        tx,
        tenant_id,
        canvas_id,
        document,
        node,
        placed,
        RunId(new_id()),
        title=stored.title,
        budget=turn.options["budget"],
    )
    canvas_file.require_runnable(f"Node {node}", versions.get(tx, start.version_id).dsl)
    return start, placed


def _show(ended: NodeResult, warnings: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        output.print_json({"outputs": ended.outputs, **ended.to_json(), "warnings": list(warnings)})
        return
    for warning in warnings:
        output.print_message(f"warning  {warning}", YELLOW)
    output.print_document(dict(ended.outputs))
    for name, value in ended.variables.items():
        output.print_message(f"{name} = {value!r}", DIM)
    if ended.waiting is not None:
        nodes = ", ".join(ended.waiting)
        output.print_message(f"The run waits: {nodes}. Answer it with `easel resume {ended.run_id.hex}`.", YELLOW)
    usage = ended.usage
    output.print_message(f"{usage.get('calls', 0)} model calls, {usage.get('total_tokens', 0)} tokens", DIM)
    if ended.error:
        output.print_message(ended.error, RED)
