"""Readiness: when a reached node is activated. An AND-join over active upstreams with dead-path elimination.

A reached node is ready when neither it nor an ancestor over forward edges is active, and no such ancestor is reached.
Forward edges have no cycle, so among reached nodes one is always first: no two wait for each other.

When a cycle has returned to its loop head, the next round begins when nothing of the last round is left that the next
round could race with (docs/decisions/0014-rounds-of-cycles-do-not-race.md). Until then the back edge counts as not
yet followed, so a join below the cycle waits for the last round. An ExitLoop comes last in its pass, since it ends the
Loop with the values that the pass has left.
"""

from canvas.graph.canvas import NodeKind, bits, mask_of
from canvas.routing import container_routing, failure_routing, message_streams
from canvas.routing.decision_builder import DecisionBuilder
from canvas.state.run_state import MAX_ORDINAL, Scope


def activate_ready(builder: DecisionBuilder, scope: Scope) -> bool:
    """Activate every ready node of a scope, in canonical order; return whether anything changed."""
    any_ready = False
    reached = mask_of(scope.reached)
    for number, order_key in sorted(scope.reached.items(), key=lambda item: item[1].key):
        if number not in scope.reached:
            continue  # dropped with a node that it waited for
        if builder.is_after_failure(scope.key, order_key):
            builder.drop_unreachable(scope, number)
            reached = mask_of(scope.reached)
            any_ready = True
            continue
        if not is_ready(builder, scope, number, reached):
            continue
        any_ready = True
        node = builder.canvas.nodes[number]
        del scope.reached[number]
        scope.loop_heads.pop(number, None)
        reached &= ~node.bit
        if builder.activations.exceeds_cycle_limit(node, scope):
            text = f'Node "{node.name}" ({node.id}) has run {MAX_ORDINAL} times in one scope. End the cycle it is in.'
            failure_routing.fail_scope_or_run(builder, scope, node, order_key, text, "cycle_limit")
            continue
        if not builder.activations.check_limit(node):
            continue
        if node.kind is NodeKind.MESSAGE:
            message_streams.record_message_key(builder, scope, node, order_key)
        builder.activations.activate(node, scope, order_key, message_streams.stream_for(builder, scope, node))
    return any_ready


def is_ready(builder: DecisionBuilder, scope: Scope, number: int, reached: int) -> bool:
    """Whether no active or reached node (`reached` is a mask) of the scope can still reach the node."""
    if number in scope.loop_heads:
        return _may_begin_again(builder, scope, number)
    above = builder.canvas.reachability.above_forward[number]
    ahead = reached & ~mask_of(scope.loop_heads)
    if scope.active & (above | 1 << number) or above & ahead or _has_pending_back_edge(scope, above):
        return False
    return not container_routing.exits_a_loop(builder, builder.canvas.nodes[number]) or _is_last_in_pass(
        builder, scope, reached
    )


def _may_begin_again(builder: DecisionBuilder, scope: Scope, head: int) -> bool:
    """Whether the last round of a cycle has left nothing that its next round would race with.

    A node that itself waits for a cycle does not count, nor does an ExitLoop, which comes last. Of several cycles that
    share a descendant one continues at a time, the innermost first.
    """
    canvas = builder.canvas
    above, entangled = canvas.reachability.above_forward, canvas.reachability.descendant_sharers[head]
    if scope.active & entangled or _has_pending_back_edge(scope, above[head], but=head):
        return False
    for number in scope.reached:
        if number == head or not entangled >> number & 1 or _has_pending_back_edge(scope, above[number], but=number):
            continue
        is_inner = (above[number].bit_count(), number) > (above[head].bit_count(), head)
        if is_inner if number in scope.loop_heads else canvas.nodes[number].kind is not NodeKind.EXIT_LOOP:
            return False
    return True


def release_blocked_round(builder: DecisionBuilder) -> bool:
    """Begin the next round of a Message whose stream is open, although the round waits for another stream.

    Called when everything in the run is idle. Returns whether there was such a round.
    """
    for stream in builder.run.streams:
        scope = builder.run.scopes.get(stream.scope)
        if (
            stream.is_open
            and not stream.is_complete
            and scope is not None
            and scope.loop_heads.pop(stream.number, None)
        ):
            builder.scopes.get(stream.scope)
            return True
    return False


def _has_pending_back_edge(scope: Scope, above: int, *, but: int | None = None) -> bool:
    """Whether a cycle has returned from one of these nodes to a loop head other than `but` and not begun again."""
    return any(above & tails for number, tails in scope.loop_heads.items() if number != but)


def _is_last_in_pass(builder: DecisionBuilder, scope: Scope, reached: int) -> bool:
    """Whether everything else in an ExitLoop's pass is done: it stores the Loop's outputs, so it must run last."""
    nodes, above = builder.canvas.nodes, builder.canvas.reachability.above_forward
    exits = mask_of(number for number in scope.reached if nodes[number].kind is NodeKind.EXIT_LOOP)
    waits_for_exits = all(above[number] & exits for number in bits(reached & ~exits))
    return not scope.active and waits_for_exits
