"""When a reached node is ready: an AND-join over active upstreams with dead-path elimination (engine 4.6).

A reached node is ready when neither it nor anything above it is alive, and nothing above it by forward edges is
reached. Forward edges have no circle, so among reached nodes one is always first: no two wait for each other.
"""

from canvas import recovery, speech
from canvas.graph import Kind
from canvas.plan import Plan
from canvas.state import MAX_ORDINAL, Scope


def activate_ready(plan: Plan, scope: Scope) -> bool:
    """Activate every ready node of a scope, in canonical order; whether there was one."""
    any_ready = False
    reached = 0
    for number in scope.reached:
        reached |= 1 << number
    for number, place in sorted(scope.reached.items(), key=lambda item: item[1].key):
        if plan.is_lost(scope.key, place):
            del scope.reached[number]
            reached &= ~(1 << number)
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
    if scope.alive & (reach.above[number] | 1 << number):
        return False
    return not reach.above_forward[number] & reached
