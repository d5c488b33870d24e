"""One hint, from claim to report: claim, build the context, run the component, report, and take the run's next step.

Everything the attempt writes is guarded by its lease. Whatever happens between claim and report, the run goes on: a
lost worker's lease runs out, and a report that cannot be stored is refused.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from uuid import UUID, uuid4

import redis.asyncio
import structlog
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from canvas.errors import NodeFailure
from canvas.graph import Node
from canvas.outcome import Failed, Finished, Left, Outcome
from canvas.references import Ref
from canvas.state import entry_text
from components import message, registry
from components.base import Component
from components.context import THINK_END, THINK_START
from scheduler.coordinator import Coordinator
from scheduler.versions import Compiled
from store import activations, outcomes
from store.activations import Claim, Written
from store.database import is_lost_connection
from worker import failures
from worker.context import WorkerContext
from worker.lease import Attempt, Leases
from worker.loop import Loop
from worker.models import Models
from worker.reads import Reads, reads_of
from worker.slots import Slots
from worker.voice import Voice

log = structlog.get_logger()

REPORT_TRIES = 5
MOST_OUTPUT = 64 * 1024 * 1024  # code points of JSON; more harms neighbours before it helps anybody


@dataclass
class Execution:
    """What running nodes needs. One per process."""

    coordinator: Coordinator
    leases: Leases
    loop: Loop
    models: Models
    echo: redis.asyncio.Redis
    time_limit: Callable[[str], float]  # seconds by component
    read_file: Callable[[UUID, Mapping[str, Any], str], str]
    worker_name: str
    ride_along: bool = True

    def execute(self, run_id: UUID, activation_id: UUID) -> None:
        """Carry out an activation if it is still to be had. Safe to call twice at once, or for nothing."""
        attempt = Attempt(run_id, activation_id, uuid4())
        self.leases.register(attempt)
        try:
            claim = self._claim(attempt)
            if claim is None:
                return
            attempt.conversation_id = claim.conversation_id
            structlog.contextvars.bind_contextvars(run_id=str(run_id), node=claim.node_id, attempt=claim.attempt)
            _Run(self, attempt, claim).carry_out()
        finally:
            self.leases.forget(attempt)
            structlog.contextvars.clear_contextvars()

    def _claim(self, attempt: Attempt) -> Claim | None:
        with self.coordinator.database.transaction() as tx:
            tx.commit_without_waiting()
            return activations.claim(
                tx,
                attempt.run_id,
                attempt.activation_id,
                lease_id=attempt.lease_id,
                lease=self.leases.lease,
                worker=self.worker_name,
            )


class _Run:
    """One attempt."""

    def __init__(self, execution: Execution, attempt: Attempt, claim: Claim) -> None:
        self._x = execution
        self._attempt = attempt
        self._claim = claim
        self._started = time.monotonic()
        self._context: WorkerContext | None = None
        self._assigned: Mapping[str, Any] = {}
        attempt.abandon = self._abandon

    def carry_out(self) -> None:
        """Run the component and report what came of it."""
        try:
            outcome = self._outcome()
        except SQLAlchemyError as error:
            log.warning("attempt_lost_its_database", error=str(error).splitlines()[0])
            return  # the lease runs out, and another worker takes over
        if outcome is not None and self._attempt.claim_report():
            self._report(outcome)

    # -- working ------------------------------------------------------------------------------------------------
    def _outcome(self) -> Outcome | None:
        """What to report; None if the lease is gone."""
        component = registry.find(self._claim.component)
        with self._x.coordinator.database.transaction() as tx:
            compiled = self._x.coordinator.versions.get(tx, self._claim.version_id)
            node = compiled.canvas.node(self._claim.node_id)
            if component is None:
                return Failed(f"Can't import {self._claim.component}", "unknown_component")
            reads = _reads(compiled, node)
            slots = Slots(
                tx,
                self._claim,
                compiled,
                reads,
                declared=registry.default_outputs,
                read_file=partial(self._x.read_file, self._claim.tenant_id),
            )
        context = self._context = self._context_of(compiled, node, reads, slots)
        limit = self._x.time_limit(component.name)
        self._attempt.deadline = time.monotonic() + limit
        try:
            params = component.params.model_validate(dict(node.params))
            return self._checked(self._run(component, params, context), node, component)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (a component may raise anything)
            return self._of_error(error, node, component, limit)

    def _run(self, component: Component[Any], params: Any, context: WorkerContext) -> Outcome:
        """Run a component: what computes on this thread, what waits on the loop."""
        if not inspect.iscoroutinefunction(component.run):
            outcome = cast(Outcome, component.run(params, context))
            if context.voice.claim.turn is not None and self._attempt.stopped is None:
                self._x.loop.submit(context.voice.finish()).result()
            return outcome
        return self._x.loop.submit(self._waiting(component, params, context)).result()

    async def _waiting(self, component: Component[Any], params: Any, context: WorkerContext) -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        self._attempt.runs_as(cast("asyncio.Task[object]", task))
        opening = self._opening(context)
        if opening is not None:
            context.opening = opening
            await context.say(opening)
        outcome = await cast("Any", component.run(params, context))
        await context.voice.finish()
        return outcome

    def _opening(self, context: WorkerContext) -> str | None:
        """What the Message in whose turn this node speaks says before it; None where the node does not speak."""
        canvas = context.compiled.canvas
        turn = canvas.turns.get(context.node.number)
        if turn is None or self._claim.turn is None:
            return None
        listener = canvas.nodes[turn.message]

        def listens_to(node_id: str) -> bool:
            number = canvas.numbers.get(node_id)
            heard = canvas.turns.get(number) if number is not None else None
            return heard is not None and heard.message == listener.number

        def known(ref: Ref) -> bool:
            return ref.node is None or ref.node in canvas.numbers

        opening = message.opening(listener.params, context.node.id, context.lookup, known, listens_to)
        if opening is None:
            context.voice.retake = True  # nobody can tell yet where this text begins
        return opening

    def _context_of(self, compiled: Compiled, node: Node, reads: Reads, slots: Slots) -> WorkerContext:
        claim, x = self._claim, self._x
        voice = Voice(
            claim, x.coordinator.database, x.echo, self._firm, is_message=bool(compiled.canvas.messages & node.bit)
        )
        return WorkerContext(
            claim=claim,
            compiled=compiled,
            node=node,
            slots=slots,
            reads=reads,
            voice=voice,
            database=x.coordinator.database,
            open_model=partial(x.models.open, claim.tenant_id),
            read_file=partial(x.read_file, claim.tenant_id),
            before_first_request=self._firm,
        )

    def _firm(self) -> bool:
        with self._x.coordinator.database.transaction() as tx:
            return activations.firm(tx, self._claim, self._x.leases.lease)

    # -- what came of it ----------------------------------------------------------------------------------------
    def _checked(self, outcome: Outcome, node: Node, component: Component[Any]) -> Outcome:
        stopped = self._attempt.stopped
        if stopped is not None and stopped.reason == "user":
            return Failed(failures.CANCELLED, "cancelled")  # it swallowed its cancellation
        if isinstance(outcome, Failed):
            return failures.of_failed(outcome, node, component)
        if isinstance(outcome, Finished):
            self._assigned = outcome.assign
        return outcome

    def _of_error(self, error: BaseException, node: Node, component: Component[Any], limit: float) -> Outcome | None:
        stopped = self._attempt.stopped
        if stopped is not None:
            match stopped.reason:
                case "lease":
                    return None
                case "user":
                    return Failed(failures.CANCELLED, "cancelled")
                case "shutdown":
                    return Failed("released", "released", retryable=True)
                case _:
                    error = failures.timed_out(component.name, limit)
        if not isinstance(error, NodeFailure):
            log.info("component_raised", error_type=type(error).__name__)
        self._assigned = failures.assigned_by(error)
        return failures.of_exception(error, node, component)

    def _abandon(self) -> None:
        """The work does not let go: report in its name, and leave its thread behind."""
        if not self._attempt.claim_report():
            return
        stopped = self._attempt.stopped
        reason = stopped.reason if stopped else "user"
        if reason == "lease":
            return
        if reason == "deadline" and self._context is not None:
            component = registry.find(self._claim.component)
            assert component is not None
            error = failures.timed_out(component.name, time.monotonic() - self._started)
            self._report(failures.of_exception(error, self._context.node, component))
        elif reason == "shutdown":
            self._report(Failed("released", "released", retryable=True))
        else:
            self._report(Failed(failures.CANCELLED, "cancelled"))

    # -- reporting ----------------------------------------------------------------------------------------------
    def _report(self, outcome: Outcome) -> None:
        try:
            written = self._written(outcome)
        except (NodeFailure, ValueError, TypeError) as error:  # outputs that no row can hold
            written = self._written(Failed(failures.storable(str(error)), "unstorable_output"))
        for further in range(REPORT_TRIES):
            try:
                self._store(written)
            except DBAPIError as error:
                if not is_lost_connection(error) and further == REPORT_TRIES - 1:
                    raise
                log.warning("report_tried_again", error=str(error).splitlines()[0])
                time.sleep(0.1 * 2**further)
                continue
            return
        log.error("report_not_stored", activation_id=str(self._claim.id))

    def _store(self, written: Written) -> None:
        """Store the report; take the run's next step in the same transaction if nobody holds the run."""
        coordinator, claim = self._x.coordinator, self._claim
        applied = None
        with coordinator.database.transaction() as tx:
            if not activations.report(tx, claim.run_id, claim.id, claim.lease_id, written):
                if not activations.was_stored(tx, claim.run_id, claim.id, claim.lease_id):
                    log.info("report_refused", activation_id=str(claim.id))
                return
            if self._x.ride_along:
                applied = coordinator.try_fold(tx, claim.run_id)
        if applied is None and not self._x.ride_along:
            coordinator.dispatch.advance(claim.run_id)
        elif applied is None:
            coordinator.advance_run(claim.run_id)  # somebody held the run: once more, now that the report is visible
        else:
            coordinator.dispatch.flush(applied)
            if coordinator.sees_more(claim.run_id):
                coordinator.advance_run(claim.run_id)

    def _written(self, outcome: Outcome) -> Written:
        context, claim = self._context, self._claim
        elapsed = {"_created_time": time.time(), "_elapsed_time": time.monotonic() - self._started}
        outputs: dict[str, Any] = {}
        if context is not None:
            outputs |= {
                name: value
                for name, value in context.slots.outputs(claim.node_id).items()
                if name not in ("_ERROR", "_created_time", "_elapsed_time", "_spoken")
            }
        outputs |= outcome.outputs
        outputs |= elapsed
        if isinstance(outcome, Failed):
            outputs["_ERROR"] = outcome.error
        turn = None
        if context is not None and not (isinstance(outcome, Failed) and outcome.retryable):
            outputs |= _spoken(context, outputs)
            turn = context.voice.row()
        values = [self._values_row(claim.node_id, claim.scope, outputs)]
        if isinstance(outcome, Left) and outcome.container and claim.scope:
            values.append(self._values_row(claim.scope[-1][0], claim.scope[:-1], outcome.container))
        usage = context.usage if context is not None else None
        return Written(
            outcome=outcomes.to_column(
                outcome,
                error=outputs.get("_ERROR"),
                retake=context is not None and context.voice.retake and context.voice.is_message,
                spoke=context is not None and context.voice.has_spoken,
            ),
            usage={
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "total_tokens": usage.total_tokens,
                "calls": usage.calls,
            }
            if usage is not None and usage.calls
            else {},
            values=values,
            variables=[
                {**self._row(), "name": name, "value": failures.storable(value)}
                for name, value in self._assigned.items()
            ],
            turn=turn,
        )

    def _values_row(self, node_id: str, scope: Any, outputs: Mapping[str, Any]) -> dict[str, Any]:
        shown = failures.storable(outputs)
        inputs = self._context.inputs if self._context is not None and node_id == self._claim.node_id else {}
        _check_size(shown)
        return {
            **self._row(),
            "node_id": node_id,
            "pass_of": entry_text(scope),
            "item": scope[-1][2] if scope else 0,
            "outputs": shown,
            "inputs": failures.storable(inputs),
            "names": list(shown),
        }

    def _row(self) -> dict[str, Any]:
        return {
            "run_id": self._claim.run_id,
            "activation_id": self._claim.id,
            "place": self._claim.place.key,
            "region": self._claim.place.region,
        }


def _spoken(context: WorkerContext, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """What listeners heard of a speaking model node, where that is not its content (an error after some text)."""
    if not context.voice.has_spoken or context.voice.is_message:
        return {}
    heard = "".join(context.voice.said)[len(context.opening) :]
    heard = heard.replace(THINK_START, "<think>").replace(THINK_END, "</think>")
    return {"_spoken": heard} if heard != outputs.get("content") else {}


def _check_size(value: Any) -> None:
    """Refuse outputs that would harm others: texts are summed without making a copy."""
    left = MOST_OUTPUT
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            left -= len(top)
        elif isinstance(top, dict):
            stack.extend(cast("dict[str, Any]", top).values())
            left -= 16 * len(top)
        elif isinstance(top, list):
            stack.extend(cast("list[Any]", top))
            left -= 8 * len(top)
        if left < 0:
            raise NodeFailure(f"The outputs are larger than {MOST_OUTPUT // 2**20} MiB. Make them smaller.")


def _reads(compiled: Compiled, node: Node) -> Reads:
    found = compiled.notes.get(("reads", node.number))
    if not isinstance(found, Reads):
        found = compiled.notes["reads", node.number] = reads_of(compiled.canvas, node)
    return found
