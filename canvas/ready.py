"""When a reached node is ready: an AND-join over active upstreams with dead-path elimination (engine 4.6).

A reached node is ready when neither it nor anything above it is alive, and nothing above it by forward edges is
reached. Forward edges have no circle, so among reached nodes one is always first: no two wait for each other. An
ExitLoop comes last in its pass, for it ends the Loop with what the pass has left.
"""

from canvas import loops, order, recovery, speech
from canvas.graph import Kind, bits
from canvas.plan import Plan
from canvas.state import MAX_ORDINAL, Scope


def activate_ready(plan: Plan, scope: Scope) -> bool:
    """Activate every ready node of a scope, in canonical order; whether there was one."""
    any_ready = False
    reached = order.reached(scope)
    for number, place in sorted(scope.reached.items(), key=lambda item: item[1].key):
        if number not in scope.reached:
            continue  # lost with a node that it waited for
        if plan.is_lost(scope.key, place):
            plan.lose(scope, number)
            reached = order.reached(scope)
            any_ready = True
            continue
        if not is_ready(plan, scope, number, reached):
            continue
        any_ready = True
        node = plan.canvas.nodes[number]
        del scope.reached[number]
        reached &= ~node.bit
        if plan.is_worn_out(node, scope):
            text = f'Node "{node.name}" ({node.id}) has run {MAX_ORDINAL} times in one scope. End the circle it is in.'
            recovery.fail(plan, scope, node, place, text, "cycle_limit")
            continue
        if node.kind is Kind.MESSAGE:
            speech.message_activated(plan, scope, node, place)
        plan.activate(node, scope, place, speech.turn_for(plan, scope, node))
    return any_ready


def is_ready(plan: Plan, scope: Scope, number: int, reached: int) -> bool:
    """Whether nothing alive or reached (a mask) in the scope can still reach the node."""
    reach = plan.canvas.reach
    if scope.alive & (reach.above[number] | 1 << number) or reach.above_forward[number] & reached:
        return False
    return not loops.leaves_a_loop(plan, plan.canvas.nodes[number]) or _is_last(plan, scope, reached)


def _is_last(plan: Plan, scope: Scope, reached: int) -> bool:
    """Whether an ExitLoop's pass has nothing more to do: it stores the Loop's outputs, so it must see all of them."""
    nodes, above = plan.canvas.nodes, plan.canvas.reach.above_forward
    exits = 0
    for number in scope.reached:
        exits |= nodes[number].bit if nodes[number].kind is Kind.EXIT_LOOP else 0
    waits_for_exits = all(above[number] & exits for number in bits(reached & ~exits))
    return not scope.alive and waits_for_exits
