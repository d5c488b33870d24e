"""When a reached node is ready: an AND-join over active upstreams with dead-path elimination (engine 4.6).

A reached node is ready when neither it nor anything above it by forward edges is alive or reached. Forward edges have
no circle, so among reached nodes one is always first: no two wait for each other. Where a circle has come back to a
node, its next round begins when nothing of the last one is left that could get in its way, so that rounds do not race;
until then the circle's way back counts as still on its way (decision 14). An ExitLoop comes last in its pass, for it
ends the Loop with what the pass has left.
"""

from canvas.graph.canvas import NodeKind, bits, mask_of
from canvas.routing import container_routing, failure_routing, message_streams
from canvas.routing.decision_builder import DecisionBuilder
from canvas.state.run_state import MAX_ORDINAL, Scope


def activate_ready(builder: DecisionBuilder, scope: Scope) -> bool:
    """Activate every ready node of a scope, in canonical order; whether there was one."""
    any_ready = False
    reached = mask_of(scope.reached)
    for number, place in sorted(scope.reached.items(), key=lambda item: item[1].key):
        if number not in scope.reached:
            continue  # lost with a node that it waited for
        if builder.is_after_failure(scope.key, place):
            builder.drop_unreachable(scope, number)
            reached = mask_of(scope.reached)
            any_ready = True
            continue
        if not is_ready(builder, scope, number, reached):
            continue
        any_ready = True
        node = builder.canvas.nodes[number]
        del scope.reached[number]
        scope.returning.pop(number, None)
        reached &= ~node.bit
        if builder.activations.exceeds_cycle_limit(node, scope):
            text = f'Node "{node.name}" ({node.id}) has run {MAX_ORDINAL} times in one scope. End the circle it is in.'
            failure_routing.fail(builder, scope, node, place, text, "cycle_limit")
            continue
        if not builder.activations.check_limit(node):
            continue
        if node.kind is NodeKind.MESSAGE:
            message_streams.message_activated(builder, scope, node, place)
        builder.activations.activate(node, scope, place, message_streams.stream_for(builder, scope, node))
    return any_ready


def is_ready(builder: DecisionBuilder, scope: Scope, number: int, reached: int) -> bool:
    """Whether nothing alive or reached (a mask) in the scope can still reach the node."""
    if number in scope.returning:
        return _may_begin_again(builder, scope, number)
    above = builder.canvas.reach.above_forward[number]
    ahead = reached & ~mask_of(scope.returning)
    if scope.alive & (above | 1 << number) or above & ahead or _is_on_its_way(scope, above):
        return False
    return not container_routing.leaves_a_loop(builder, builder.canvas.nodes[number]) or _is_last(
        builder, scope, reached
    )


def _may_begin_again(builder: DecisionBuilder, scope: Scope, head: int) -> bool:
    """Whether the last round of a circle has left nothing that its next one would race with.

    What waits for a circle itself is no hindrance, nor is an ExitLoop, which comes last. Of circles that have something
    below in common one goes on at a time, the innermost first.
    """
    canvas = builder.canvas
    above, entangled = canvas.reach.above_forward, canvas.reach.entangled[head]
    if scope.alive & entangled or _is_on_its_way(scope, above[head], but=head):
        return False
    for number in scope.reached:
        if number == head or not entangled >> number & 1 or _is_on_its_way(scope, above[number], but=number):
            continue
        is_inner = (above[number].bit_count(), number) > (above[head].bit_count(), head)
        if is_inner if number in scope.returning else canvas.nodes[number].kind is not NodeKind.EXIT_LOOP:
            return False
    return True


def release_blocked_round(builder: DecisionBuilder) -> bool:
    """Nothing moves, and a turn stands open for a Message whose round waits for another text to be heard: begin it."""
    for entry in builder.run.speeches:
        scope = builder.run.scopes.get(entry.scope)
        if entry.opened and not entry.said and scope is not None and scope.returning.pop(entry.number, None):
            builder.scopes.get(entry.scope)
            return True
    return False


def _is_on_its_way(scope: Scope, above: int, *, but: int | None = None) -> bool:
    """Whether a circle, but not the one to `but`, has gone back from one of these nodes and has not begun again."""
    return any(above & tails for number, tails in scope.returning.items() if number != but)


def _is_last(builder: DecisionBuilder, scope: Scope, reached: int) -> bool:
    """Whether an ExitLoop's pass has nothing more to do: it stores the Loop's outputs, so it must see all of them."""
    nodes, above = builder.canvas.nodes, builder.canvas.reach.above_forward
    exits = mask_of(number for number in scope.reached if nodes[number].kind is NodeKind.EXIT_LOOP)
    waits_for_exits = all(above[number] & exits for number in bits(reached & ~exits))
    return not scope.alive and waits_for_exits
