"""Routing of failures: another attempt, a goto, the author's default value, or the end of the run."""

from dataclasses import replace
from typing import Any

from canvas import budget
from canvas.document.document import Json
from canvas.graph import uncertain_outcomes
from canvas.graph.canvas import FailurePolicy, Node, NodeKind
from canvas.outcome import POSTPONED, Failed
from canvas.routing import container_routing, message_streams
from canvas.routing.decision_builder import DecisionBuilder
from canvas.state.order_key import OrderKey
from canvas.state.run_state import ActivationStatus, OpenForm, Report, Scope, ScopeKey

NO_POLICY = FailurePolicy("", None, ())
MAX_CRASHES = 3
"""After this many lost workers an activation fails: it counts as the cause of the losses (a poison task)."""


def recover(builder: DecisionBuilder, report: Report, failed: Failed, *, has_begun: bool = False) -> None:
    """Decide what follows a failed attempt. The order is that of RAGFlow: retry, goto, default, end.

    A container that fails before its body has begun emits no `node_finished`.
    """
    node = builder.canvas.node(report.node_id)
    scope = builder.scopes.get(report.scope)
    if may_be_retried(node, report, failed):
        builder.decision.new_statuses[report.activation] = ActivationStatus.READY
        builder.run.in_flight += 1
        if failed.retry_in > 0:
            builder.decision.retry_after[report.activation] = failed.retry_in
        else:
            builder.decision.retry_now.append(report.activation)
        if report.has_written or failed.code != POSTPONED:  # a postponed attempt reports whether it has written text
            message_streams.truncate_stream(builder, report)
        return
    if pause_for_user(builder, report, failed):
        called = uncertain_outcomes.label(node.id, scope.key) + uncertain_outcomes.OUTCOME
        _wait_for_answer(builder, node, scope, report, budget.budget_form(called, failed.error, failed.details))
        return
    if failed.is_unknown:
        if node.on_unknown == "ask" and not builder.is_after_failure(scope.key, report.order_key):
            question = uncertain_outcomes.question(node.id, node.name, scope.key)
            _wait_for_answer(builder, node, scope, report, question)
            return
        failed = replace(failed, error=uncertain_outcomes.error_of(node.id, node.name))
    if failed.stores_no_values:
        builder.decision.errors[report.activation] = (node.id, failed.error)
    builder.record_last_node(report)
    builder.activations.emit_form_started(report)
    builder.run.forms.pop(report.activation, None)
    policy = NO_POLICY if failed.is_over_budget else node.failure  # a default does not replace an unpaid call
    if policy.streams_default and not builder.is_after_failure(scope.key, report.order_key):
        message_streams.stream_default(builder, report, failed.error, _default_text(policy.default))
        return
    if node.kind is NodeKind.MESSAGE:
        message_streams.on_message_failed(builder, report, failed.error)
    else:
        builder.activations.finish(report, scope)
        if has_begun or not node.kind.is_container:
            builder.activations.emit_finished(report.activation, report.node_id, failed.error)
        if policy.has_goto:
            builder.follow_edges(node, policy.goto, scope, report.order_key)
    if not policy.has_goto:
        fail_scope_or_run(builder, scope, node, report.order_key, failed.error, failed.code)


def may_be_retried(node: Node, report: Report, failed: Failed) -> bool:
    """Whether the activation gets another attempt: after an unknown outcome only with `on_unknown: retry`."""
    is_harmless = failed.retryable or (failed.is_unknown and node.on_unknown == "retry")
    return is_harmless and report.crash_count < MAX_CRASHES


def pause_for_user(builder: DecisionBuilder, report: Report, failed: Failed) -> bool:
    """Whether a node waits for a higher budget. It does not if the run, or the item around it, has already failed."""
    return failed.is_over_budget and not builder.is_after_failure(report.scope, report.order_key)


def _wait_for_answer(
    builder: DecisionBuilder, node: Node, scope: Scope, report: Report, question: tuple[dict[str, Any], str]
) -> None:
    """Let a node wait for a person's answer, and truncate the text that its attempt has streamed."""
    message_streams.close_until_resumed(builder, report)
    inputs, tips = question
    form = OpenForm(node.id, report.order_key.key.hex(), scope.key, inputs, tips, has_started=True)
    builder.run.forms[report.activation] = form
    builder.decision.new_statuses[report.activation] = ActivationStatus.WAITING
    builder.activations.mark_idle(node, scope)


def recover_container(builder: DecisionBuilder, scope_key: ScopeKey, number: int) -> None:
    """Apply the failure policy of a container of parallel items of which one has failed.

    The failure's order key follows the level of the visit that would collect, so it does not depend on how many items
    had ended.
    """
    scope = builder.scopes.get(scope_key)
    node = builder.canvas.nodes[number]
    container = scope.containers.pop(number)
    has_collected = container.failed_item >= (container.count or 0)
    level = container.failed_at[0] if has_collected else container.order_key.level + 1
    scope.last_level = max(scope.last_level, level)
    report = Report(
        activation=container.activation,
        node_id=node.id,
        scope=scope_key,
        ordinal=container.ordinal,
        order_key=OrderKey(level, container.order_key.branch_path, container.order_key.region),
        outcome=Failed(container.error),
        error=container.error,
    )
    builder.decision.errors[container.activation] = (node.id, container.error)
    recover(builder, report, Failed(container.error), has_begun=True)


def fail_scope_or_run(
    builder: DecisionBuilder, scope: Scope, node: Node, order_key: OrderKey, error: str, code: str
) -> None:
    """Fail the innermost container of parallel items around a scope, else the run."""
    if not container_routing.fail_parallel_item(builder, scope.key, order_key, error):
        builder.fail_run(node.id, order_key, error, code)


def _default_text(value: Json) -> str:
    """Return a default value as the text that is streamed."""
    return value if isinstance(value, str) else str(value)
