"""What a failure leads to: another attempt, a goto, the author's default, or the end of the run (engine 4.5)."""

from dataclasses import replace
from typing import Any

from canvas import budget
from canvas.graph import uncertain_outcomes
from canvas.graph.canvas import FailurePolicy, Node, NodeKind
from canvas.outcome import POSTPONED, Failed
from canvas.routing import container_routing, message_streams
from canvas.routing.decision import DecisionBuilder, to_text
from canvas.state.order_key import OrderKey
from canvas.state.run_state import OpenForm, Report, Scope, ScopeKey, Status

NO_POLICY = FailurePolicy("", None, ())
MAX_STRIKES = 3
"""Workers that may die under one activation before it counts as the killer."""


def recover(plan: DecisionBuilder, report: Report, failed: Failed, *, has_begun: bool = False) -> None:
    """Decide what follows a failed attempt. The order is the engine's: retry, goto, default, end.

    A container that fails before its body has begun shows no `node_finished` (engine 4.4).
    """
    node = plan.canvas.node(report.node_id)
    scope = plan.scope(report.scope)
    if may_be_retried(node, report, failed):
        plan.decision.moved[report.activation] = Status.READY
        plan.run.live += 1
        if failed.again_in > 0:
            plan.decision.postponed[report.activation] = failed.again_in
        else:
            plan.decision.retried.append(report.activation)
        if report.spoke or failed.code != POSTPONED:  # who was postponed tells whether there is anything to take back
            message_streams.truncate_stream(plan, report)
        return
    if pause_for_user(plan, report, failed):
        called = uncertain_outcomes.label(node.id, scope.key) + uncertain_outcomes.OUTCOME
        _hold(plan, node, scope, report, budget.budget_form(called, failed.error, failed.details))
        return
    if failed.is_unknown:
        if node.on_unknown == "ask" and not plan.is_lost(scope.key, report.place):
            _ask(plan, node, scope, report)
            return
        failed = replace(failed, error=uncertain_outcomes.error_of(node.id, node.name))
    if failed.leaves_nothing:
        plan.decision.errors[report.activation] = (node.id, failed.error)
    plan.note_last(report)
    plan.start_form(report)
    plan.run.forms.pop(report.activation, None)
    policy = NO_POLICY if failed.is_over_budget else node.failure  # no default stands for what nobody paid
    if policy.is_heard and not plan.is_lost(scope.key, report.place):
        message_streams.stream_default(plan, report, failed.error, to_text(policy.default))
        return
    if node.kind is NodeKind.MESSAGE:
        message_streams.message_failed(plan, report, failed.error)
    else:
        plan.end(report, scope)
        if has_begun or not node.kind.is_container:
            plan.emit_finished(report.activation, report.node_id, failed.error)
        if policy.leads_elsewhere:
            plan.reach(node, policy.goto, scope, report.place)
    if not policy.leads_elsewhere:
        fail(plan, scope, node, report.place, failed.error, failed.code)


def may_be_retried(node: Node, report: Report, failed: Failed) -> bool:
    """Whether the activation gets another attempt. What may have acted gets one if its author takes that risk."""
    is_harmless = failed.retryable or (failed.is_unknown and node.on_unknown == "retry")
    return is_harmless and report.strikes < MAX_STRIKES


def pause_for_user(plan: DecisionBuilder, report: Report, failed: Failed) -> bool:
    """Whether a node waits for a higher budget; in a run that ends anyway it does not."""
    return failed.is_over_budget and not plan.is_lost(report.scope, report.place)


def _ask(plan: DecisionBuilder, node: Node, scope: Scope, report: Report) -> None:
    """A person is to say whether the node has acted."""
    _hold(plan, node, scope, report, uncertain_outcomes.question(node.id, node.name, scope.key))


def _hold(
    plan: DecisionBuilder, node: Node, scope: Scope, report: Report, question: tuple[dict[str, Any], str]
) -> None:
    """The node waits for a person's answer; what the attempt said in its turn is taken back."""
    message_streams.close_until_resumed(plan, report)
    inputs, tips = question
    form = OpenForm(node.id, report.place.key.hex(), scope.key, inputs, tips, started=True)
    plan.run.forms[report.activation] = form
    plan.decision.moved[report.activation] = Status.WAITING
    plan.hold(node, scope)


def recover_container(plan: DecisionBuilder, scope_key: ScopeKey, number: int) -> None:
    """A side-by-side container whose items failed: its own policy decides (components 3.8).

    What follows comes after the wave that would collect, so it does not depend on how many items had ended.
    """
    scope = plan.scope(scope_key)
    node = plan.canvas.nodes[number]
    container = scope.containers.pop(number)
    has_collected = container.failed_item >= (container.count or 0)
    wave = container.failed_at[0] if has_collected else container.place.wave + 1
    scope.last_wave = max(scope.last_wave, wave)
    report = Report(
        activation=container.activation,
        node_id=node.id,
        scope=scope_key,
        ordinal=container.ordinal,
        place=OrderKey(wave, container.place.trail, container.place.region),
        outcome=Failed(container.error),
        error=container.error,
    )
    plan.decision.errors[container.activation] = (node.id, container.error)
    recover(plan, report, Failed(container.error), has_begun=True)


def fail(plan: DecisionBuilder, scope: Scope, node: Node, place: OrderKey, error: str, code: str) -> None:
    """Nothing catches a failure: it ends the side-by-side items it happened in, else the run."""
    if not container_routing.item_failed(plan, scope.key, place, error):
        plan.fail(node.id, place, error, code)
