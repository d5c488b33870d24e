"""The routing function: facts in, decision out. No database, broker, clock or randomness.

    decide(canvas, state, reports) -> Decision

The same facts give the same decision, ids included, so repeating an advance is safe; reports are taken in canonical
order, so how they were grouped leaves no trace.
"""

from collections.abc import Collection, Sequence
from typing import assert_never
from uuid import UUID

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
from canvas.outcome import ContainerExited, ContainerOpened, Failed, Finished, NextIteration, Routed, WaitingForInput
from canvas.routing import container_routing, failure_routing, message_streams, ready
from canvas.routing.decision import Decision
from canvas.routing.decision_builder import DecisionBuilder
from canvas.routing.form_expiry import own_expiry
from canvas.state.order_key import OrderKey
from canvas.state.run_state import OpenForm, Report, RunState, RunStatus, Scope, Status

TOP = ()


def decide(canvas: Canvas, state: RunState, reports: Sequence[Report]) -> Decision:
    """What happens next, given what has just been reported. Changes `state` and hands it back in the decision."""
    builder = DecisionBuilder(canvas, state)
    for report in sorted(reports, key=lambda report: report.place.key):
        builder.run.live -= 1
        _fold(builder, report)
    _settle(builder)
    if builder.run.status is RunStatus.RUNNING:
        _rest(builder)
    if builder.run.asked != "cancel" and not builder.run.status.is_over:
        builder.activations.assign_run_slots()
    return builder.decision


def begin(canvas: Canvas, state: RunState, inputs: Json) -> Decision:
    """The first decision of a run: its top scope, Begin, and the two events a listener sees at once."""
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
    again: Collection[UUID] = (),
    happened: Collection[UUID] = (),
) -> Decision:
    """A person has answered: open forms go on, in canonical order. The shell stores the answers.

    `answered`: the canvas's own forms. Of the nodes that nobody knows to have acted, some are to be done `again`, and
    of others the person tells that they have `happened`, which is their report and is folded next; the rest wait on.
    """
    builder = DecisionBuilder(canvas, state)
    for activation, form in sorted(state.forms.items(), key=lambda item: item[1].place):
        node = canvas.node(form.node_id)
        is_told = activation in again or activation in happened
        if not is_told and not (answered and node.kind.asks):
            continue
        scope = builder.scopes.get(form.scope)
        scope.still &= ~node.bit
        builder.decision.moved[activation] = Status.REPORTED if activation in happened else Status.READY
        builder.run.live += 1
        if activation in again:
            builder.decision.retried.append(activation)
        if is_told:
            del state.forms[activation]
        if not form.started:
            form.started = True
            builder.emit(Event(NODE_STARTED, activation=activation, node_id=form.node_id))
    state.status = RunStatus.RUNNING
    if again:
        _settle(builder)  # what speaks once more may be heard while it does
    builder.containers.update_idle_state()
    return builder.decision


def ask_again(canvas: Canvas, state: RunState) -> Decision:
    """Nobody has answered: the run shows its open forms once more and goes on waiting."""
    builder = DecisionBuilder(canvas, state)
    _ask(builder)
    return builder.decision


def finish_stopping(canvas: Canvas, state: RunState, busy: int) -> Decision:
    """The end of a run that is being stopped, once nothing is left that works for it.

    `busy` counts its activations that are queued, ready, running or not yet folded, after what need not run was closed.
    """
    builder = DecisionBuilder(canvas, state)
    if busy or state.status is not RunStatus.STOPPING:
        if state.asked != "cancel" and not state.status.is_over:
            builder.activations.assign_run_slots()
        return builder.decision
    message_streams.flush_finished_streams(builder)
    failing = state.failing
    if state.asked == "cancel" or failing is None:
        builder.emit(Event(WORKFLOW_FINISHED, {"outputs": CANCELLED_TEXT}))
        state.status = RunStatus.CANCELLED
        builder.decision.error = CANCELLED_TEXT
    else:
        builder.emit(Event(RUN_FAILED, {"error": failing.error, "code": failing.code}, node_id=failing.node_id))
        state.status = RunStatus.FAILED
        builder.decision.error = canvas.error_of(failing.node_id, failing.error, failing.code)
    _clear(builder)
    return builder.decision


def _fold(builder: DecisionBuilder, report: Report) -> None:
    node = builder.canvas.node(report.node_id)
    scope = builder.scopes.get(report.scope)
    outcome = container_routing.validated_outcome(builder, report)
    if builder.run.asked == "cancel":
        _fold_cancelled(builder, report)
        return
    match outcome:
        case Finished() if node.kind is NodeKind.MESSAGE:
            builder.record_last_node(report)
            message_streams.on_message_text(builder, report, outcome)
        case Finished():
            _finish(builder, report)
            builder.follow_edges(node, node.downstream, scope, report.place)
        case Routed(to=targets):
            _finish(builder, report)
            builder.follow_edges(node, builder.canvas.targets_of(targets), scope, report.place)
        case ContainerOpened():
            builder.record_last_node(report)
            container_routing.open_container(builder, report, outcome)
        case NextIteration():
            _finish(builder, report)
            builder.follow_edges(node, node.downstream, scope, report.place)
        case ContainerExited() if node.kind.is_item or container_routing.leaves_a_loop(builder, node):
            builder.record_last_node(report)
            container_routing.on_container_exit(builder, report)
        case ContainerExited():
            _finish(builder, report)
            builder.follow_edges(node, node.downstream, scope, report.place)
        case WaitingForInput():
            asked = builder.run.forms.get(report.activation)
            form = OpenForm(node.id, report.place.key.hex(), report.scope, dict(outcome.inputs), outcome.tips)
            form.started = asked is not None and asked.started
            builder.run.forms[report.activation] = form
            builder.decision.moved[report.activation] = Status.WAITING
            builder.activations.mark_idle(node, scope)
            if report.spoke:
                message_streams.answer_said(builder, report)
        case Failed() if _fails_an_overlapping_item(builder, node, report, outcome):
            container_routing.fail_pipelined_item(builder, report, outcome)
        case Failed():
            failure_routing.recover(builder, report, outcome)
        case _:
            assert_never(outcome)


def _fold_cancelled(builder: DecisionBuilder, report: Report) -> None:
    """After a cancel reports are taken in, and nothing is routed."""
    builder.activations.finish(report, builder.scopes.get(report.scope))
    kind = builder.canvas.node(report.node_id).kind
    if kind.asks and report.activation not in builder.run.forms:
        return  # nobody has heard of it yet
    if kind is NodeKind.MESSAGE and not message_streams.stop(builder, report):
        return
    error = report.error
    if isinstance(report.outcome, Failed):
        error = report.outcome.error
        if builder.containers.pipelined_around(report.scope) is not None:
            builder.decision.inheriting.append(report.activation)
    builder.activations.emit_finished(report.activation, report.node_id, error, report.scope)


def _finish(builder: DecisionBuilder, report: Report) -> None:
    """A node is done. A speaker's `node_finished` waits for its Message."""
    builder.record_last_node(report)
    builder.activations.finish(report, builder.scopes.get(report.scope))
    builder.activations.emit_form_started(report)
    builder.run.forms.pop(report.activation, None)
    if not message_streams.defer_node_finished(builder, report):
        builder.activations.emit_finished(report.activation, report.node_id, report.error, report.scope)


def _fails_an_overlapping_item(builder: DecisionBuilder, node: Node, report: Report, failed: Failed) -> bool:
    goes_on = failure_routing.may_be_retried(node, report, failed) or failure_routing.pause_for_user(
        builder, report, failed
    )
    return builder.containers.pipelined_around(report.scope) is not None and not goes_on


def _settle(builder: DecisionBuilder) -> None:
    """Activate, end passes and open turns until nothing more follows from what is known."""
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
        if builder.run.asked != "cancel":
            changed = message_streams.open_turns(builder, at_rest=False) or changed


def _rest(builder: DecisionBuilder) -> None:
    """Nothing may be moving any more: finished turns open in order, then forms are asked, or the run ends."""
    while builder.run.status is RunStatus.RUNNING:
        top = builder.run.scopes[TOP]
        if top.is_empty:
            _succeed(builder)
            return
        if not top.is_still:
            return
        if not ready.release_blocked_round(builder) and not message_streams.open_turns(builder, at_rest=True):
            _ask(builder)
            return
        _settle(builder)


def _ask(builder: DecisionBuilder) -> None:
    """One `user_inputs` for all open forms; of equal fields the later form's is shown (engine 4.9)."""
    forms = sorted(builder.run.forms.values(), key=lambda form: form.place)
    if not forms:
        raise StateError("Nothing moves in a run, and nobody can be asked.", run_id=str(builder.run.run_id))
    inputs: dict[str, object] = {}
    for form in forms:
        inputs |= form.inputs
    tips = next((form.tips for form in reversed(forms) if form.tips), "")
    shown = {
        form_key(builder.canvas, form.node_id, form.scope): {"inputs": form.inputs, "tips": form.tips} for form in forms
    }
    builder.emit(Event(USER_INPUTS, {"inputs": inputs, "tips": tips, "forms": shown}))
    builder.decision.expiries = [own_expiry(builder.canvas, form.node_id) for form in forms]
    builder.run.status = RunStatus.WAITING


def _succeed(builder: DecisionBuilder) -> None:
    last = builder.run.last
    builder.emit(Event(WORKFLOW_FINISHED, {}, last[1] if last else None, last[2] if last else None))
    builder.run.status = RunStatus.SUCCEEDED
    _clear(builder)


def _clear(builder: DecisionBuilder) -> None:
    """At the end no scope is left; every activation is done or closed."""
    for key in list(builder.run.scopes):
        builder.scopes.close(key)
    builder.run.forms.clear()
    builder.run.live = builder.run.queued = 0
