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
from canvas.routing.decision import Decision, DecisionBuilder, in_order
from canvas.routing.form_expiry import own_expiry
from canvas.state.order_key import OrderKey
from canvas.state.run_state import OpenForm, Report, RunState, RunStatus, Scope, Status

TOP = ()


def decide(canvas: Canvas, state: RunState, reports: Sequence[Report]) -> Decision:
    """What happens next, given what has just been reported. Changes `state` and hands it back in the decision."""
    plan = DecisionBuilder(canvas, state, Decision(state))
    for report in in_order(reports):
        plan.run.live -= 1
        _fold(plan, report)
    _settle(plan)
    if plan.run.status is RunStatus.RUNNING:
        _rest(plan)
    if plan.run.asked != "cancel" and not plan.run.status.is_over:
        plan.admit()
    return plan.decision


def begin(canvas: Canvas, state: RunState, inputs: Json) -> Decision:
    """The first decision of a run: its top scope, Begin, and the two events a listener sees at once."""
    plan = DecisionBuilder(canvas, state, Decision(state))
    plan.emit(Event(WORKFLOW_STARTED, {"inputs": inputs}))
    plan.open_scope(Scope(key=TOP))
    plan.activate(canvas.nodes[canvas.begin], plan.scope(TOP), OrderKey(0), None)
    plan.admit()
    return plan.decision


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
    plan = DecisionBuilder(canvas, state, Decision(state))
    for activation, form in sorted(state.forms.items(), key=lambda item: item[1].place):
        node = canvas.node(form.node_id)
        is_told = activation in again or activation in happened
        if not is_told and not (answered and node.kind.asks):
            continue
        scope = plan.scope(form.scope)
        scope.still &= ~node.bit
        plan.decision.moved[activation] = Status.REPORTED if activation in happened else Status.READY
        plan.run.live += 1
        if activation in again:
            plan.decision.retried.append(activation)
        if is_told:
            del state.forms[activation]
        if not form.started:
            form.started = True
            plan.emit(Event(NODE_STARTED, activation=activation, node_id=form.node_id))
    state.status = RunStatus.RUNNING
    if again:
        _settle(plan)  # what speaks once more may be heard while it does
    plan.settle_stillness()
    return plan.decision


def ask_again(canvas: Canvas, state: RunState) -> Decision:
    """Nobody has answered: the run shows its open forms once more and goes on waiting."""
    plan = DecisionBuilder(canvas, state, Decision(state))
    _ask(plan)
    return plan.decision


def finish_stopping(canvas: Canvas, state: RunState, busy: int) -> Decision:
    """The end of a run that is being stopped, once nothing is left that works for it.

    `busy` counts its activations that are queued, ready, running or not yet folded, after what need not run was closed.
    """
    plan = DecisionBuilder(canvas, state, Decision(state))
    if busy or state.status is not RunStatus.STOPPING:
        if state.asked != "cancel" and not state.status.is_over:
            plan.admit()
        return plan.decision
    message_streams.flush_finished_streams(plan)
    failing = state.failing
    if state.asked == "cancel" or failing is None:
        plan.emit(Event(WORKFLOW_FINISHED, {"outputs": CANCELLED_TEXT}))
        state.status = RunStatus.CANCELLED
        plan.decision.error = CANCELLED_TEXT
    else:
        plan.emit(Event(RUN_FAILED, {"error": failing.error, "code": failing.code}, node_id=failing.node_id))
        state.status = RunStatus.FAILED
        plan.decision.error = canvas.error_of(failing.node_id, failing.error, failing.code)
    _clear(plan)
    return plan.decision


def _fold(plan: DecisionBuilder, report: Report) -> None:
    node = plan.canvas.node(report.node_id)
    scope = plan.scope(report.scope)
    outcome = container_routing.validated_outcome(plan, report)
    if plan.run.asked == "cancel":
        _fold_cancelled(plan, report)
        return
    match outcome:
        case Finished() if node.kind is NodeKind.MESSAGE:
            plan.note_last(report)
            message_streams.on_message_text(plan, report, outcome)
        case Finished():
            _finish(plan, report)
            plan.reach(node, node.downstream, scope, report.place)
        case Routed(to=targets):
            _finish(plan, report)
            plan.reach(node, plan.canvas.targets_of(targets), scope, report.place)
        case ContainerOpened():
            plan.note_last(report)
            container_routing.open_container(plan, report, outcome)
        case NextIteration():
            _finish(plan, report)
            plan.reach(node, node.downstream, scope, report.place)
        case ContainerExited() if node.kind.is_item or container_routing.leaves_a_loop(plan, node):
            plan.note_last(report)
            container_routing.on_container_exit(plan, report)
        case ContainerExited():
            _finish(plan, report)
            plan.reach(node, node.downstream, scope, report.place)
        case WaitingForInput():
            asked = plan.run.forms.get(report.activation)
            form = OpenForm(node.id, report.place.key.hex(), report.scope, dict(outcome.inputs), outcome.tips)
            form.started = asked is not None and asked.started
            plan.run.forms[report.activation] = form
            plan.decision.moved[report.activation] = Status.WAITING
            plan.hold(node, scope)
            if report.spoke:
                message_streams.answer_said(plan, report)
        case Failed() if _fails_an_overlapping_item(plan, node, report, outcome):
            container_routing.fail_pipelined_item(plan, report, outcome)
        case Failed():
            failure_routing.recover(plan, report, outcome)
        case _:
            assert_never(outcome)


def _fold_cancelled(plan: DecisionBuilder, report: Report) -> None:
    """After a cancel reports are taken in, and nothing is routed."""
    plan.end(report, plan.scope(report.scope))
    kind = plan.canvas.node(report.node_id).kind
    if kind.asks and report.activation not in plan.run.forms:
        return  # nobody has heard of it yet
    if kind is NodeKind.MESSAGE and not message_streams.stop(plan, report):
        return
    error = report.error
    if isinstance(report.outcome, Failed):
        error = report.outcome.error
        if plan.overlapping(report.scope) is not None:
            plan.decision.inheriting.append(report.activation)
    plan.emit_finished(report.activation, report.node_id, error, report.scope)


def _finish(plan: DecisionBuilder, report: Report) -> None:
    """A node is done. A speaker's `node_finished` waits for its Message."""
    plan.note_last(report)
    plan.end(report, plan.scope(report.scope))
    plan.start_form(report)
    plan.run.forms.pop(report.activation, None)
    if not message_streams.defer_node_finished(plan, report):
        plan.emit_finished(report.activation, report.node_id, report.error, report.scope)


def _fails_an_overlapping_item(plan: DecisionBuilder, node: Node, report: Report, failed: Failed) -> bool:
    goes_on = failure_routing.may_be_retried(node, report, failed) or failure_routing.pause_for_user(
        plan, report, failed
    )
    return plan.overlapping(report.scope) is not None and not goes_on


def _settle(plan: DecisionBuilder) -> None:
    """Activate, end passes and open turns until nothing more follows from what is known."""
    changed = True
    while changed:
        changed = False
        for key in sorted(plan.touched, key=lambda key: (-len(key), key)):
            scope = plan.run.scopes.get(key)
            if scope is None:
                continue
            changed |= ready.activate_ready(plan, scope)
            if key and scope.is_empty:
                container_routing.on_iteration_end(plan, scope)
                changed = True
        while plan.failed_containers:
            failure_routing.recover_container(plan, *plan.failed_containers.pop())
            changed = True
        plan.settle_stillness()
        if plan.run.asked != "cancel":
            changed = message_streams.open_turns(plan, at_rest=False) or changed


def _rest(plan: DecisionBuilder) -> None:
    """Nothing may be moving any more: finished turns open in order, then forms are asked, or the run ends."""
    while plan.run.status is RunStatus.RUNNING:
        top = plan.run.scopes[TOP]
        if top.is_empty:
            _succeed(plan)
            return
        if not top.is_still:
            return
        if not ready.release_blocked_round(plan) and not message_streams.open_turns(plan, at_rest=True):
            _ask(plan)
            return
        _settle(plan)


def _ask(plan: DecisionBuilder) -> None:
    """One `user_inputs` for all open forms; of equal fields the later form's is shown (engine 4.9)."""
    forms = sorted(plan.run.forms.values(), key=lambda form: form.place)
    if not forms:
        raise StateError("Nothing moves in a run, and nobody can be asked.", run_id=str(plan.run.run_id))
    inputs: dict[str, object] = {}
    for form in forms:
        inputs |= form.inputs
    tips = next((form.tips for form in reversed(forms) if form.tips), "")
    shown = {
        form_key(plan.canvas, form.node_id, form.scope): {"inputs": form.inputs, "tips": form.tips} for form in forms
    }
    plan.emit(Event(USER_INPUTS, {"inputs": inputs, "tips": tips, "forms": shown}))
    plan.decision.expiries = [own_expiry(plan.canvas, form.node_id) for form in forms]
    plan.run.status = RunStatus.WAITING


def _succeed(plan: DecisionBuilder) -> None:
    last = plan.run.last
    plan.emit(Event(WORKFLOW_FINISHED, {}, last[1] if last else None, last[2] if last else None))
    plan.run.status = RunStatus.SUCCEEDED
    _clear(plan)


def _clear(plan: DecisionBuilder) -> None:
    """At the end no scope is left; every activation is done or closed."""
    for key in list(plan.run.scopes):
        plan.close_scope(key)
    plan.run.forms.clear()
    plan.run.live = plan.run.queued = 0
