"""The routing functions: facts in, decision out. They use no database, broker, clock or randomness.

    decide(canvas, state, reports) -> Decision

The same facts give the same decision, ids included, so repeating an advance is safe. Reports are applied in canonical
order, so the decision does not depend on how reports were grouped into advances.
"""

from collections.abc import Collection, Sequence
from typing import assert_never

from canvas.document.document import Json
from canvas.errors import StateError
from canvas.events.run_events import (
    CANCELLED_TEXT,
    NODE_STARTED,
    RUN_FAILED,
    USER_INPUTS,
    WORKFLOW_FINISHED,
    WORKFLOW_STARTED,
    Event,
)
from canvas.graph.canvas import Canvas, Node, NodeKind, form_key
from canvas.ids import ActivationId
from canvas.outcome import ContainerExited, ContainerOpened, Failed, Finished, NextIteration, Routed, WaitingForInput
from canvas.routing import container_routing, failure_routing, message_streams, ready
from canvas.routing.decision import Decision
from canvas.routing.decision_builder import DecisionBuilder
from canvas.routing.form_expiry import form_expiry_of
from canvas.state.order_key import OrderKey
from canvas.state.run_state import ActivationStatus, OpenForm, Report, RunState, RunStatus, Scope

TOP = ()


def decide(canvas: Canvas, state: RunState, reports: Sequence[Report]) -> Decision:
    """Return what happens next, from the reports that no advance has applied yet.

    Changes `state` in place; the decision's `run` is that state.
    """
    builder = DecisionBuilder(canvas, state)
    for report in sorted(reports, key=lambda report: report.order_key.key):
        builder.run.in_flight -= 1
        _apply_report(builder, report)
    _activate_all(builder)
    if builder.run.status is RunStatus.RUNNING:
        _resolve_idle_run(builder)
    if not builder.run.is_cancel_requested and not builder.run.status.is_over:
        builder.activations.assign_run_slots()
    return builder.decision


def begin(canvas: Canvas, state: RunState, inputs: Json) -> Decision:
    """Return the first decision of a run: its top scope, the Begin node, `workflow_started` and `node_started`."""
    builder = DecisionBuilder(canvas, state)
    builder.emit(Event(WORKFLOW_STARTED, {"inputs": inputs}))
    builder.scopes.open(Scope(key=TOP))
    builder.activations.activate(canvas.nodes[canvas.begin], builder.scopes.get(TOP), OrderKey(0), None)
    builder.activations.assign_run_slots()
    return builder.decision


def resume(
    canvas: Canvas,
    state: RunState,
    *,
    answered: bool = True,
    again: Collection[ActivationId] = (),
    happened: Collection[ActivationId] = (),
) -> Decision:
    """Return the decision that continues a run with answers to its open forms. The caller stores the answers.

    answered: whether the forms of the canvas's own nodes were answered.
    again: activations with an unknown outcome, or stopped by a budget, that get another attempt.
    happened: activations with an unknown outcome that a person says have happened; that answer is their report, which
        the next advance applies. All other activations keep waiting.
    """
    builder = DecisionBuilder(canvas, state)
    for activation, form in sorted(state.forms.items(), key=lambda item: item[1].order_key):
        node = canvas.node(form.node_id)
        is_resolved = activation in again or activation in happened
        if not is_resolved and not (answered and node.kind.waits_for_user):
            continue
        scope = builder.scopes.get(form.scope)
        scope.idle &= ~node.bit
        builder.decision.new_statuses[activation] = (
            ActivationStatus.REPORTED if activation in happened else ActivationStatus.READY
        )
        builder.run.in_flight += 1
        if activation in again:
            builder.decision.retry_now.append(activation)
        if is_resolved:
            del state.forms[activation]
        if not form.has_started:
            form.has_started = True
            builder.emit(Event(NODE_STARTED, activation=activation, node_id=form.node_id))
    state.status = RunStatus.RUNNING
    if again:
        _activate_all(builder)  # the stream of a node that writes again may open while it does
    builder.containers.update_idle_state()
    return builder.decision


def show_forms_again(canvas: Canvas, state: RunState) -> Decision:
    """Return a decision that shows the open forms of a waiting run once more."""
    builder = DecisionBuilder(canvas, state)
    _show_forms(builder)
    return builder.decision


def finish_stopping(canvas: Canvas, state: RunState, busy: int) -> Decision:
    """Return the decision that ends a stopping run, once none of its activations is busy.

    `busy` counts activations that are queued, ready, running or reported and not applied; the caller has closed those
    that need not run.
    """
    builder = DecisionBuilder(canvas, state)
    if busy or state.status is not RunStatus.STOPPING:
        if not state.is_cancel_requested and not state.status.is_over:
            builder.activations.assign_run_slots()
        return builder.decision
    message_streams.flush_finished_streams(builder)
    failing = state.failure
    if state.is_cancel_requested or failing is None:
        builder.emit(Event(WORKFLOW_FINISHED, {"outputs": CANCELLED_TEXT}))
        state.status = RunStatus.CANCELLED
        builder.decision.error = CANCELLED_TEXT
    else:
        builder.emit(Event(RUN_FAILED, {"error": failing.error, "code": failing.code}, node_id=failing.node_id))
        state.status = RunStatus.FAILED
        builder.decision.error = canvas.error_of(failing.node_id, failing.error, failing.code)
    _clear(builder)
    return builder.decision


def _apply_report(builder: DecisionBuilder, report: Report) -> None:
    node = builder.canvas.node(report.node_id)
    scope = builder.scopes.get(report.scope)
    outcome = container_routing.validated_outcome(builder, report)
    if builder.run.is_cancel_requested:
        _apply_cancelled_report(builder, report)
        return
    match outcome:
        case Finished() if node.kind is NodeKind.MESSAGE:
            builder.record_last_node(report)
            message_streams.on_message_text(builder, report, outcome)
        case Finished():
            _finish(builder, report)
            builder.follow_edges(node, node.downstream, scope, report.order_key)
        case Routed(to=targets):
            _finish(builder, report)
            builder.follow_edges(node, builder.canvas.targets_of(targets), scope, report.order_key)
        case ContainerOpened():
            builder.record_last_node(report)
            container_routing.open_container(builder, report, outcome)
        case NextIteration():
            _finish(builder, report)
            builder.follow_edges(node, node.downstream, scope, report.order_key)
        case ContainerExited() if node.kind.is_item or container_routing.exits_a_loop(builder, node):
            builder.record_last_node(report)
            container_routing.on_container_exit(builder, report)
        case ContainerExited():
            _finish(builder, report)
            builder.follow_edges(node, node.downstream, scope, report.order_key)
        case WaitingForInput():
            earlier = builder.run.forms.get(report.activation)
            form = OpenForm(node.id, report.order_key.key.hex(), report.scope, dict(outcome.inputs), outcome.tips)
            form.has_started = earlier is not None and earlier.has_started
            builder.run.forms[report.activation] = form
            builder.decision.new_statuses[report.activation] = ActivationStatus.WAITING
            builder.activations.mark_idle(node, scope)
            if report.has_written:
                message_streams.on_answer_text(builder, report)
        case Failed() if _fails_pipelined_item(builder, node, report, outcome):
            container_routing.fail_pipelined_item(builder, report, outcome)
        case Failed():
            failure_routing.recover(builder, report, outcome)
        case _:
            assert_never(outcome)


def _apply_cancelled_report(builder: DecisionBuilder, report: Report) -> None:
    """Apply a report of a run that is being cancelled: its activation finishes, and no edge is followed."""
    builder.activations.finish(report, builder.scopes.get(report.scope))
    kind = builder.canvas.node(report.node_id).kind
    if kind.waits_for_user and report.activation not in builder.run.forms:
        return  # its `node_started` has not been emitted
    if kind is NodeKind.MESSAGE and not message_streams.close_cancelled(builder, report):
        return
    error = report.error
    if isinstance(report.outcome, Failed):
        error = report.outcome.error
        if builder.containers.pipelined_around(report.scope) is not None:
            builder.decision.copy_outputs_for.append(report.activation)
    builder.activations.emit_finished(report.activation, report.node_id, error, report.scope)


def _finish(builder: DecisionBuilder, report: Report) -> None:
    """Finish an activation. The `node_finished` of a node that writes to a Message's stream is deferred."""
    builder.record_last_node(report)
    builder.activations.finish(report, builder.scopes.get(report.scope))
    builder.activations.emit_form_started(report)
    builder.run.forms.pop(report.activation, None)
    if not message_streams.defer_node_finished(builder, report):
        builder.activations.emit_finished(report.activation, report.node_id, report.error, report.scope)


def _fails_pipelined_item(builder: DecisionBuilder, node: Node, report: Report, failed: Failed) -> bool:
    continues = failure_routing.may_be_retried(node, report, failed) or failure_routing.pause_for_user(
        builder, report, failed
    )
    return builder.containers.pipelined_around(report.scope) is not None and not continues


def _activate_all(builder: DecisionBuilder) -> None:
    """Activate ready nodes, end passes and open streams until nothing more follows from the reports."""
    changed = True
    while changed:
        changed = False
        for key in sorted(builder.scopes.touched, key=lambda key: (-len(key), key)):
            scope = builder.run.scopes.get(key)
            if scope is None:
                continue
            changed |= ready.activate_ready(builder, scope)
            if key and scope.is_empty:
                container_routing.on_iteration_end(builder, scope)
                changed = True
        while builder.containers.failed:
            failure_routing.recover_container(builder, *builder.containers.failed.pop())
            changed = True
        builder.containers.update_idle_state()
        if not builder.run.is_cancel_requested:
            changed = message_streams.open_next_stream(builder, at_rest=False) or changed


def _resolve_idle_run(builder: DecisionBuilder) -> None:
    """If everything in the run is idle, open the finished streams in order, then show the forms, or end the run."""
    while builder.run.status is RunStatus.RUNNING:
        top = builder.run.scopes[TOP]
        if top.is_empty:
            _finish_run(builder)
            return
        if not top.is_idle:
            return
        if not ready.release_blocked_round(builder) and not message_streams.open_next_stream(builder, at_rest=True):
            _show_forms(builder)
            return
        _activate_all(builder)


def _show_forms(builder: DecisionBuilder) -> None:
    """Emit one `user_inputs` for all open forms, and let the run wait. Of fields with one name the last is shown."""
    forms = sorted(builder.run.forms.values(), key=lambda form: form.order_key)
    if not forms:
        raise StateError("The run has no active work and no open form.", run_id=str(builder.run.run_id))
    inputs: dict[str, object] = {}
    for form in forms:
        inputs |= form.inputs
    tips = next((form.tips for form in reversed(forms) if form.tips), "")
    shown = {
        form_key(builder.canvas, form.node_id, form.scope): {"inputs": form.inputs, "tips": form.tips} for form in forms
    }
    builder.emit(Event(USER_INPUTS, {"inputs": inputs, "tips": tips, "forms": shown}))
    builder.decision.form_expiries = [form_expiry_of(builder.canvas, form.node_id) for form in forms]
    builder.run.status = RunStatus.WAITING


def _finish_run(builder: DecisionBuilder) -> None:
    last = builder.run.last_node
    builder.emit(Event(WORKFLOW_FINISHED, {}, last[1] if last else None, last[2] if last else None))
    builder.run.status = RunStatus.SUCCEEDED
    _clear(builder)


def _clear(builder: DecisionBuilder) -> None:
    """Remove all scopes, forms and counts of a run that is over."""
    for key in list(builder.run.scopes):
        builder.scopes.close(key)
    builder.run.forms.clear()
    builder.run.in_flight = builder.run.queued = 0
