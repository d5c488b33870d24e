"""One attempt, from its claim to its report: read the node's values, run the component, return its outcome.

Every write is guarded by the attempt's lease. An attempt is reported once: by its own thread, or on its behalf if it
does not stop in time (`worker/leases/leases.py`). Storing the report is the work of `worker/execution/reporter.py`.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast, get_args

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.document.references import Ref
from canvas.document.secret_fields import SecretPosition
from canvas.errors import AttemptStopped, BudgetExceeded, ExecutorError, NodeFailure
from canvas.graph.canvas import Node
from canvas.ids import RunId, TenantId
from canvas.outcome import (
    OVER_BUDGET,
    POSTPONED,
    UNKNOWN_OUTCOME,
    UNKNOWN_TEXT,
    Failed,
    Finished,
    Outcome,
    WaitingForInput,
)
from components import registry, tools
from components.base import Component, Effect
from components.nodes.flow import message
from components.recorded_steps import RunRecording
from components.text.extraction.file_texts import UnparsedFile
from providers.interfaces import Services
from providers.models.billing.cost_estimates import CostModel
from providers.models.billing.metering import set_billing_context
from providers.models.limits.rate_limiter import RateLimiter, VendorLimiter
from providers.models.types.chat import Usage
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.version_cache import CompiledVersion
from scheduler.messaging.redis_bus import TextDeltaPublisher
from store.agents import canvas_secrets
from store.agents.canvas_secrets import CanvasSecrets
from store.db.db_errors import is_outage
from store.db.transaction import Transaction
from store.files.blobs import Blobs
from store.primitives.encryption import CannotUnseal, EncryptionKey
from store.runs import activations, scopes
from store.runs.activations import Claim
from store.runs.prepared_claims import CachedRun
from worker.caches.value_caches import ValueCaches
from worker.context import outcomes
from worker.context.attempt_storage import AttemptStorage
from worker.context.model_calls import CallLog, CallPolicy
from worker.context.node_context import TimeLimit, WorkerContext
from worker.context.output_limits import OutputLimits
from worker.context.rate_limit_wait import AttemptRateLimitWait, reschedule_delay
from worker.context.read_set import ReadSet, compute_read_set
from worker.context.run_budget import RunBudget
from worker.context.run_passwords import RunPasswords
from worker.context.side_effects import SideEffectGuard
from worker.context.text_stream import MessageStreamWriter
from worker.context.variables import NodeVariables
from worker.execution.reporter import Reporter
from worker.fastpath.continuation import Continuation
from worker.fastpath.report_batcher import ReportBatcher
from worker.fastpath.switches import FastPath
from worker.leases.attempt_handle import Attempt
from worker.leases.leases import LeaseKeeper
from worker.services.models import CachedTenantModels
from worker.task_end import CANCELLED_BY_OPERATOR, TaskEnd, task_end_of
from worker.threads.event_loop import WorkerLoop

log = structlog.get_logger()

GATE_INTERVAL = 0.05  # seconds between looks at whether a replayed step that waits was stopped
RELEASE_DELAY = 1.0  # seconds before an attempt that met an outage is released, so that it does not fail again at once
MAX_OUTAGES = 20  # attempts; a node that meets more outages may cause them, and its lease expires like after a crash

WITH_TOOLS = frozenset({"agent", "deepresearch"})  # components whose tools may cite sources


@dataclass(kw_only=True)
class AttemptDependencies:
    """What attempts need. One per process."""

    coordinator: Coordinator
    leases: LeaseKeeper
    loop: WorkerLoop
    models: CachedTenantModels
    text_deltas: TextDeltaPublisher
    time_limit: TimeLimit
    read_file: Callable[[TenantId, RunId, Mapping[str, Any], str], str | UnparsedFile]
    services: Callable[[TenantId], Services]  # by tenant
    blobs: Blobs | None
    inline_advance: bool = True
    fast_path: FastPath = field(default_factory=FastPath)
    report_batcher: ReportBatcher = field(default_factory=ReportBatcher)
    caches: ValueCaches = field(default_factory=ValueCaches)
    output_limits: OutputLimits = field(default_factory=OutputLimits)
    caller_headers: Callable[[TenantId, Mapping[str, Any]], Mapping[str, str]] = lambda tenant_id, request: {}
    cost_model: CostModel = field(default_factory=CostModel)
    encryption_key: EncryptionKey | None = None  # None: secrets of canvases stay encrypted
    rate_limiter: RateLimiter | None = None  # None: requests of tools do not wait for their vendors' rate limits
    call_policy: CallPolicy = field(default_factory=CallPolicy)  # what is stored of model calls
    recording_of: Callable[[RunId], RunRecording | None] = lambda run_id: None  # what a run replays

    def persist_claim(self, claim: Claim, tx: Transaction) -> bool:
        """Make a claim durable, before anything of the attempt leaves the worker. False: the lease is gone.

        The lease cannot be taken away before the transaction ends.
        """
        return activations.make_claim_durable(tx, claim, self.leases.lease)

    def record_side_effect(self, claim: Claim, attempt: Attempt, effect: Effect) -> None:
        """Record the effect class of what the attempt does next; durable when it returns. Raises AttemptStopped."""
        with self.coordinator.database.transaction() as tx:
            is_cancelled = activations.record_effect(tx, claim, self.leases.lease, effect)
        if is_cancelled is None:
            raise AttemptStopped("lease")
        if is_cancelled:
            attempt.stop("user", self.loop)
        if attempt.stopped is not None:
            raise attempt.stopped


class AttemptRunner:
    """Runs one attempt, from its claim to its report."""

    def __init__(
        self,
        dependencies: AttemptDependencies,
        attempt: Attempt,
        claim: Claim,
        continuation: Continuation | None,
        cached_run: CachedRun | None,
    ) -> None:
        self._dependencies = dependencies
        self._attempt = attempt
        self._claim = claim
        self._reporter = Reporter(
            dependencies.coordinator,
            claim,
            dependencies.inline_advance,
            lambda: dependencies.leases.is_closed,
            dependencies.output_limits,
            continuation=continuation,
            batcher=dependencies.report_batcher
            if dependencies.fast_path.batch_reports
            else ReportBatcher(),  # its own: nothing to join
            cached_run=cached_run if dependencies.fast_path.cache_run_state else None,
            outputs=dependencies.caches.outputs,
        )
        self._limit = 0.0
        self._context: WorkerContext | None = None
        self._recording = dependencies.recording_of(claim.run_id)
        self._passwords: RunPasswords | None = None
        self._assigned: Mapping[str, Any] = {}
        self._rate_limit_wait = AttemptRateLimitWait(
            attempt,
            SideEffectGuard(partial(dependencies.record_side_effect, claim, attempt)),
            partial(attempt.stop, loop=dependencies.loop),
        )
        attempt.report_on_behalf = self._report_on_behalf

    def run(self) -> TaskEnd:
        """Run the component and report what came of it; return how the task ends."""
        if self._attempt.is_reported:  # it was stopped before it began
            return task_end_of(self._outcome_of_stop())
        try:
            outcome = self._mask_texts(self._execute())
        except SQLAlchemyError as error:
            log.warning("attempt_lost_its_database", error=str(error).splitlines()[0])
            if not is_outage(error) or self._claim.attempt > MAX_OUTAGES:
                return task_end_of(None)  # the lease expires, and another worker executes the activation
            time.sleep(RELEASE_DELAY)
            outcome = self._release_outcome()  # stored when the database is back: an outage does not count as a crash
        if outcome is None:
            return task_end_of(None)
        if not self._attempt.acquire_report_right():
            return task_end_of(self._outcome_of_stop())
        self._report(outcome)
        if self._reporter.is_refused:  # a cancel has closed a ready activation, or another attempt has it
            is_cancelled = self._attempt.stopped is not None and self._attempt.stopped.reason == "user"
            return task_end_of(Failed(outcomes.CANCELLED, "cancelled") if is_cancelled else None)
        return replace(task_end_of(outcome), advance_seconds=self._reporter.advance_seconds)

    def _mask_texts(self, outcome: Outcome | None) -> Outcome | None:
        """Return an outcome whose error or question, which lists and Flower show, contains no password of the run."""
        if not isinstance(outcome, Failed | WaitingForInput) or self._passwords is None:
            return outcome
        mask = self._passwords.mask()
        if isinstance(outcome, WaitingForInput):
            return replace(outcome, tips=mask.text(outcome.tips))
        return replace(outcome, error=mask.text(outcome.error), details=mask.value(outcome.details))

    def _outcome_of_stop(self) -> Failed | None:
        """Return what was reported on behalf of the attempt, to show it."""
        stopped = self._attempt.stopped
        match stopped.reason if stopped is not None else "lease":
            case "lease":
                return None
            case "deadline":
                return Failed(f"It did not stop at its time limit of {self._limit:g} s.", "timeout")
            case "shutdown" | "postponed":
                return Failed("released", "released", retryable=True)
            case _:
                return Failed(outcomes.CANCELLED, "cancelled")

    def _report(self, outcome: Outcome) -> None:
        self._reporter.report(outcome, self._context, self._assigned)

    # -- running ------------------------------------------------------------------------------------------------
    def _execute(self) -> Outcome | None:
        """Return what to report; None if the lease is gone."""
        component = registry.find(self._claim.component)
        if component is None:
            return Failed(f"Can't import {self._claim.component}", "unknown_component")
        try:
            context = self._context = self._prepare_context()
        except ExecutorError as error:
            return Failed(outcomes.sanitize_json(str(error)), error.code)
        try:
            if self._recording is not None:
                component = self._replayed_component(self._recording, component, context)
            params = component.params.model_validate(dict(self._decrypt_params(context)))
            self._limit = _find_time_limit(self._dependencies.time_limit, component, params)
            self._attempt.deadline = time.monotonic() + self._limit
            context.variables.read_files(context.read_text)
            context.side_effects.declare_effect(component.effect_of(params))
            return self._check_outcome(self._run_component(component, params, context), context.node, component)
        except BudgetExceeded as refused:
            if self._attempt.stopped is not None:
                return self._outcome_of_error(refused, context.node, component)
            return Failed(outcomes.sanitize_json(refused.message), OVER_BUDGET, details=refused.details)
        except AttemptStopped as stop:  # it has noticed by itself that it must not continue
            return self._outcome_of_error(stop, context.node, component) if self._attempt.stopped is not None else None
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (a component may raise anything)
            return self._outcome_of_error(error, context.node, component)

    def _replayed_component(
        self, recording: RunRecording, component: Component[Any], context: WorkerContext
    ) -> Component[Any]:
        """Return what a replayed activation executes, when it may begin. Raises StepNotRecorded, AttemptStopped."""
        step = recording.step(self._claim.id)
        while step.gate is not None and not step.gate.wait(GATE_INTERVAL):
            if self._attempt.stopped is not None:
                raise self._attempt.stopped
        replayed = recording.component_of(self._claim.id, component)
        if step.chunks or step.documents:
            context.storage.cite_now(step.chunks, step.documents)
        return replayed

    def _decrypt_params(self, context: WorkerContext) -> Mapping[str, Any]:
        """Return the node's parameters with its secrets decrypted, for this attempt only. Raises NodeFailure."""
        node = context.node
        if not _holds_secrets(context.compiled, node):
            return node.params
        try:
            known = _canvas_secrets(self._dependencies.encryption_key, self._claim)
            return known.open_params(_position_of(node), node.params)
        except CannotUnseal as error:
            raise NodeFailure(error.message) from error

    def _prepare_context(self) -> WorkerContext:
        """Read everything that the node refers to, as of the revision in which it was activated."""
        with self._dependencies.coordinator.database.statements() as tx:
            compiled = self._dependencies.coordinator.versions.get(tx, self._claim.version_id)
            node = compiled.canvas.node(self._claim.node_id)
            reads = _cached_read_set(compiled, node)
            variables = NodeVariables(
                tx,
                self._claim,
                compiled,
                reads,
                self._dependencies.caches,
                declared=registry.default_outputs,
                may_be_assigned=self._claim.first_event > 1 or _assigns(compiled),
            )
        return self._make_context(compiled, node, variables)

    def _run_component(self, component: Component[Any], params: Any, context: WorkerContext) -> Outcome:
        """Run a component: a sync function on this thread, a coroutine on the event loop."""
        if not inspect.iscoroutinefunction(component.run):
            self._attempt.raise_if_stopped()
            try:
                outcome = cast(Outcome, component.run(params, context))
            except (SystemExit, KeyboardInterrupt) as error:
                raise _exit_refused(component) from error
            if context.stream.claim.stream_id is not None and self._attempt.stopped is None:
                self._dependencies.loop.wait_for(context.stream.finish())
            return outcome
        return self._dependencies.loop.wait_for(self._run_coroutine(component, params, context))

    async def _run_coroutine(self, component: Component[Any], params: Any, context: WorkerContext) -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        self._attempt.bind_task(cast("asyncio.Task[object]", task))
        set_billing_context(context.billing_context)
        opening = self._message_opening(context)
        if opening is not None:
            context.opening = opening
            await context.write(opening)
        try:
            outcome = await cast("Any", component.run(params, context))
        except (
            SystemExit,
            KeyboardInterrupt,
        ) as error:  # they would end the event loop, and with it every other attempt
            raise _exit_refused(component) from error
        except asyncio.CancelledError:
            context.stream.stop_sending()
            raise
        finally:
            if not task.cancelling():
                await context.stream.finish()
        return outcome

    def _message_opening(self, context: WorkerContext) -> str | None:
        """Return the text of the Message before the part that this node streams; None if the node does not stream."""
        canvas = context.compiled.canvas
        target = canvas.stream_targets.get(context.node.number)
        if target is None or self._claim.stream_id is None:
            return None
        listener = canvas.nodes[target.message]

        def listens_to(node_id: str) -> bool:
            number = canvas.numbers.get(node_id)
            target_of_node = canvas.stream_targets.get(number) if number is not None else None
            return target_of_node is not None and target_of_node.message == listener.number

        def exists(ref: Ref) -> bool:
            return ref.node is None or ref.node in canvas.numbers

        opening = message.leading_text(listener.params, context.node.id, context.lookup, exists, listens_to)
        if opening is None:
            context.stream.restarts_text = True  # it is not known yet where this text begins
        return opening

    def _make_context(self, compiled: CompiledVersion, node: Node, variables: NodeVariables) -> WorkerContext:
        claim, dependencies = self._claim, self._dependencies
        passwords = self._passwords = RunPasswords(claim, dependencies.coordinator.database, compiled.canvas)
        self._reporter.scope_keys = (
            None if compiled.canvas.needs_stream_order else frozenset(scopes.scope_chain(claim.scope))
        )
        # an answered Answer streams nothing
        is_message = bool(compiled.canvas.stream_owners & node.bit) and claim.answers is None
        persist_claim = partial(dependencies.persist_claim, claim)
        stream = MessageStreamWriter(
            claim,
            dependencies.coordinator.database,
            dependencies.text_deltas,
            persist_claim,
            is_message,
            dependencies.output_limits,
            self._attempt.is_stopped,
        )
        recorded = self._recording.step(claim.id) if self._recording is not None else None
        return WorkerContext(
            claim=claim,
            compiled=compiled,
            node=node,
            variables=variables,
            stream=stream,
            database=dependencies.coordinator.database,
            open_model=partial(dependencies.models.open_unmetered, claim.tenant_id)
            if recorded is None or recorded.answers is None
            else recorded.answers.open_model,
            read_text=partial(dependencies.read_file, claim.tenant_id, claim.run_id),
            rate_limit_wait=self._rate_limit_wait,
            storage=AttemptStorage(
                claim,
                dependencies.coordinator.database,
                dependencies.blobs,
                dependencies.coordinator.dispatch.bus,
                passwords.mask,
                _may_cite(compiled),
                recorded.journal if recorded is not None else {},
            ),
            choice_seed=self._recording.seed if self._recording is not None else "",
            side_effects=self._rate_limit_wait.side_effects,
            open_services=partial(dependencies.services, claim.tenant_id),
            find_time_limit=dependencies.time_limit,
            history_cache=dependencies.caches.history,
            decrypt_headers=partial(dependencies.caller_headers, claim.tenant_id),
            run_budget=self._make_budget(),
            calls=self._make_call_log(node, passwords),
            vendor_limits=VendorLimiter(dependencies.rate_limiter, str(claim.tenant_id), self._rate_limit_wait)
            if dependencies.rate_limiter
            else None,
        )

    def _make_call_log(self, node: Node, passwords: RunPasswords) -> CallLog | None:
        policy, key = self._dependencies.call_policy, self._dependencies.encryption_key
        if not policy.is_on:
            return None
        return CallLog(self._claim, policy, partial(_find_secrets, key, self._claim, node), passwords.mask)

    def _make_budget(self) -> RunBudget:
        coordinator = self._dependencies.coordinator
        refused = coordinator.dispatch.counters.refusal
        return RunBudget(
            self._claim, coordinator.database, self._dependencies.cost_model, refused, self._claim.budgeted
        )

    # -- the outcome --------------------------------------------------------------------------------------------
    def _check_outcome(self, outcome: Outcome, node: Node, component: Component[Any]) -> Outcome:
        stopped = self._attempt.stopped
        if stopped is not None and stopped.reason == "user":
            return Failed(outcomes.CANCELLED, "cancelled")  # the component swallowed the cancellation
        if stopped is not None and stopped.reason == "operator":
            return Failed(outcomes.CANCELLED_BY_OPERATOR, CANCELLED_BY_OPERATOR)
        if stopped is not None and stopped.reason == "deadline":
            return outcomes.outcome_of_exception(outcomes.timeout_error(component.name, self._limit), node, component)
        if not isinstance(outcome, get_args(Outcome)):
            raise NodeFailure(f"{component.name} returned {type(outcome).__name__}, which is not an outcome.")
        if isinstance(outcome, Failed):
            return outcomes.apply_failure_policy(outcome, node, component)
        if isinstance(outcome, Finished):
            self._assigned = outcome.assign
        return outcome

    def _outcome_of_error(self, error: BaseException, node: Node, component: Component[Any]) -> Outcome | None:
        stopped = self._attempt.stopped
        if stopped is not None:
            match stopped.reason:
                case "lease":
                    return None
                case "user":
                    return Failed(outcomes.CANCELLED, "cancelled")
                case "operator":
                    return Failed(outcomes.CANCELLED_BY_OPERATOR, CANCELLED_BY_OPERATOR)
                case "shutdown":
                    return self._release_outcome()
                case "postponed":
                    return self._reschedule_outcome()
                case _:
                    error = outcomes.timeout_error(component.name, self._limit)
        if isinstance(error, SQLAlchemyError) and is_outage(error):
            raise error  # not a failure of the node
        if not isinstance(error, NodeFailure):
            log.info("component_raised", error_type=type(error).__name__)
        self._assigned = outcomes.assignments_before_failure(error)
        return outcomes.outcome_of_exception(error, node, component)

    def _report_on_behalf(self) -> None:
        """Report on behalf of an attempt that does not stop. Its thread is abandoned."""
        if not self._attempt.acquire_report_right():
            return
        self._reporter.continuation = None  # the abandoned thread must not continue, and this one does not
        stopped = self._attempt.stopped
        reason = stopped.reason if stopped else "user"
        if reason == "lease":
            return
        if reason == "deadline" and self._context is not None:
            component = registry.find(self._claim.component)
            assert component is not None
            error = outcomes.timeout_error(component.name, self._limit)
            self._report(outcomes.outcome_of_exception(error, self._context.node, component))
        elif reason == "shutdown":
            self._report(self._release_outcome())
        elif reason == "postponed":
            self._report(self._reschedule_outcome())
        elif reason == "operator":
            self._report(Failed(outcomes.CANCELLED_BY_OPERATOR, CANCELLED_BY_OPERATOR))
        else:
            self._report(Failed(outcomes.CANCELLED, "cancelled"))

    def _release_outcome(self) -> Failed:
        """Return the failure that releases the activation to other workers, unless its effect may have happened."""
        if self._context is not None and self._context.side_effects.is_unsafe:
            return Failed(UNKNOWN_TEXT, UNKNOWN_OUTCOME)
        return Failed("released", "released", retryable=True)

    def _reschedule_outcome(self) -> Failed:
        """Return the failure that reschedules the activation. A later attempt reports the usage, which is recorded."""
        _, title = self._attempt.postponed or (0.0, "")
        if self._context is not None:
            self._context.usage = Usage()
        self._dependencies.coordinator.dispatch.counters.postponed()
        return Failed(
            f"waits for the allowance of {title}",
            POSTPONED,
            retryable=True,
            retry_in=round(reschedule_delay(self._attempt), 3),
        )


def _may_cite(compiled: CompiledVersion) -> bool:
    """Return whether a node of the canvas may cite sources: a tool, or a component that may have tools."""
    found = compiled.computed.get(("may be cited", 0))
    if not isinstance(found, bool):
        named = {node.component.lower() for node in compiled.canvas.nodes}
        found = compiled.computed["may be cited", 0] = bool(named & WITH_TOOLS) or any(map(tools.find, named))
    return found


def _assigns(compiled: CompiledVersion) -> bool:
    """Return whether a node of the canvas assigns variables. Besides, only later turns of a run change them."""
    found = compiled.computed.get(("assigns", 0))
    if not isinstance(found, bool):
        named = (registry.find(node.component) for node in compiled.canvas.nodes)
        found = compiled.computed["assigns", 0] = any(component is None or component.assigns for component in named)
    return found


def _find_time_limit(time_limit: TimeLimit, component: Component[Any], params: Any) -> float:
    if component.needed_seconds is None:
        return time_limit(component.name)
    return time_limit(component.name, component.needed_seconds(params))


def _exit_refused(component: Component[Any]) -> NodeFailure:
    return NodeFailure(f"{component.name} tried to end the process.")


def _canvas_secrets(key: EncryptionKey | None, claim: Claim) -> CanvasSecrets:
    return CanvasSecrets.for_canvas(key, claim.tenant_id, claim.canvas_id, registry.secret_fields)


def _position_of(node: Node) -> SecretPosition:
    return SecretPosition(node.id, node.name, node.component, "")


def _find_secrets(key: EncryptionKey | None, claim: Claim, node: Node) -> Sequence[str]:
    """Return the secrets in a node's parameters, which no stored body may contain."""
    try:
        return _canvas_secrets(key, claim).find_secrets(_position_of(node), node.params)
    except CannotUnseal:  # then the node has failed
        return ()


def _holds_secrets(compiled: CompiledVersion, node: Node) -> bool:
    """Return whether parameters of the node are encrypted. Computed once per process."""
    found = compiled.computed.get(("secrets", node.number))
    if found is None:
        found = compiled.computed["secrets", node.number] = canvas_secrets.holds_sealed(node.params)
    return bool(found)


def _cached_read_set(compiled: CompiledVersion, node: Node) -> ReadSet:
    found = compiled.computed.get(("reads", node.number))
    if not isinstance(found, ReadSet):
        found = compiled.computed["reads", node.number] = compute_read_set(compiled.canvas, node)
    return found
