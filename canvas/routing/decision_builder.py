"""A decision in the making, and the operations that change it.

The routing functions (`decide` and its neighbours) get a DecisionBuilder. It has four parts, each of which changes one
kind of fact, in the run's state and in the decision alike:

    builder.scopes        open scopes, and which of them the decision changes
    builder.containers    items of open containers: pipelined ones, failed ones, idle ones
    builder.activations   activations: begin, finish, wait, and the limits on their number
    builder.streams       message streams: open, pause, truncate, close

The builder itself follows edges, and answers whether an order key lies after a failure. The run's state is changed in
place: `builder.run` is the state that the caller passed in. No part reads the values of nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from canvas.errors import StateError
from canvas.events.run_events import MESSAGE_RESET, NODE_FINISHED, NODE_STARTED, Event
from canvas.graph.canvas import Canvas, Node, NodeKind
from canvas.ids import ActivationId
from canvas.routing.decision import Activation, Decision
from canvas.state.order_key import OrderKey, merge
from canvas.state.run_state import (
    MAX_ORDINAL,
    ActivationStatus,
    Container,
    DeferredEvent,
    MessageStreamState,
    Report,
    RunFailure,
    RunState,
    RunStatus,
    Scope,
    ScopeKey,
    activation_id,
    container_entry,
)

TOO_MANY = "too_many_activations"


class DecisionBuilder:
    """The facts that a decision starts from, and the decision so far."""

    __slots__ = ("activations", "canvas", "containers", "decision", "run", "scopes", "streams")

    def __init__(self, canvas: Canvas, run: RunState) -> None:
        self.canvas = canvas
        self.run = run
        self.decision = Decision(run)
        self.scopes = OpenScopes(run, self.decision)
        self.containers = OpenContainers(canvas, run, self.decision, self.scopes)
        self.activations = Activations(canvas, run, self.decision, self.scopes, self.containers)
        self.streams = MessageStreams(canvas, run, self.decision, self.activations)

    def emit(self, event: Event) -> None:
        """Append an event."""
        self.decision.events.append(event)

    # -- edges -----------------------------------------------------------------------------------------------------
    def follow_edges(self, source: Node, targets: Sequence[int], scope: Scope, order_key: OrderKey) -> None:
        """Mark targets of a node as reached, for an activation with an order key.

        A target that would come after a failure or cancel is dropped, with the reached nodes that wait for it.
        """
        for position, number in enumerate(targets):
            target = self.canvas.nodes[number]
            arriving = order_key.child(position)
            if target.kind.is_item:
                continue  # an edge back to the item node ends a path of the pass
            if self.is_after_failure(scope.key, arriving):
                if target.parent == source.parent:
                    self.drop_unreachable(scope, number)
                continue
            target_scope = self._scope_of_target(scope, source, target)
            if target_scope is None:
                continue
            arriving = self._escape(scope, target_scope, target, arriving)
            if self.is_after_failure(target_scope.key, arriving):
                self.drop_unreachable(target_scope, number)
                continue
            target_scope.reached[number] = merge(target_scope.reached.get(number), arriving)
            tail = self._ancestor_in_scope(source, target_scope)
            if (tail, number) in self.canvas.reachability.back:
                target_scope.loop_heads[number] = target_scope.loop_heads.get(number, 0) | 1 << tail

    def drop_unreachable(self, scope: Scope, number: int) -> None:
        """Drop a reached node and all reached nodes below it: with its edge they would come after the failure."""
        above = self.canvas.reachability.above_forward
        for waiting in [other for other in scope.reached if other == number or above[other] >> number & 1]:
            del scope.reached[waiting]
            scope.loop_heads.pop(waiting, None)

    def _ancestor_in_scope(self, node: Node, scope: Scope) -> int:
        """Return the node if it belongs to a scope, else the container around it that does."""
        containers = list(self.canvas.containers_of(node.number))
        depth = len(containers) - len(scope.key)
        return containers[depth - 1] if depth else node.number

    def _scope_of_target(self, scope: Scope, source: Node, target: Node) -> Scope | None:
        """Return the open scope of an edge's target; None if the target is in a container that the source is not in."""
        if target.parent == source.parent:
            return self.scopes.get(scope.key)
        for depth, container in enumerate(self.canvas.containers_of(source.number), start=1):
            if self.canvas.nodes[container].parent == target.parent:
                return self.scopes.get(scope.key[: len(scope.key) - depth])
        return None

    def _escape(self, scope: Scope, target_scope: Scope, target: Node, arriving: OrderKey) -> OrderKey:
        """Mark the passes that an edge leaves as escaped, so that their containers end with this pass.

        Returns the order key of the target. From parallel items it follows their container, since the levels inside
        an item are its own.
        """
        for depth in range(len(scope.key), len(target_scope.key), -1):
            self.scopes.get(scope.key[:depth]).has_escaped = True
            outer = self.scopes.get(scope.key[: depth - 1])
            container = outer.containers[self.canvas.numbers[scope.key[depth - 1][0]]]
            if container.is_parallel:
                arriving = container.order_key.child(target.number + 1)
        return arriving

    # -- failures --------------------------------------------------------------------------------------------------
    def is_after_failure(self, key: ScopeKey, order_key: OrderKey) -> bool:
        """Whether an activation in a scope must not begin: a cancel, or a failure of the run or of an item around it.

        `run_ended_before` looks at the run alone, `scope_failed_before` at the containers around the scope alone.
        """
        return self.run_ended_before(order_key) or self.scope_failed_before(key, order_key)

    def run_ended_before(self, order_key: OrderKey) -> bool:
        """Whether the run is being cancelled, or has failed at an earlier level than that of an order key."""
        if self.run.is_cancel_requested:
            return True
        failing = self.run.failure
        return failing is not None and (bool(order_key.region) or order_key.level > failing.level)

    def scope_failed_before(self, key: ScopeKey, order_key: OrderKey) -> bool:
        """Whether an item of a container around a scope has failed before an order key, in canonical order.

        Only containers whose items run at the same time count. Items before the first failed item run to their end,
        and the failed item runs to the level of its failure. So which item fails first does not depend on timing.
        """
        for depth, (container_id, _, item) in enumerate(key):
            scope = self.run.scopes.get(key[:depth])
            container = scope.containers.get(self.canvas.numbers[container_id]) if scope else None
            if container is None or not container.error or item < container.failed_item:
                continue
            region = container.order_key.region if container.is_pipelined else container.order_key.item_region(item)
            is_other_region = order_key.region != region
            if item > container.failed_item or is_other_region or order_key.level > container.failed_at[0]:
                return True
        return False

    def fail_run(self, node_id: str, order_key: OrderKey, error: str, code: str) -> None:
        """Begin to stop the run. Of several failures the last of the earliest level counts."""
        failing = self.run.failure
        key = order_key.key.hex()
        if (
            failing is None
            or order_key.level < failing.level
            or (order_key.level == failing.level and key > failing.order_key)
        ):
            self.run.failure = RunFailure(order_key.level, key, node_id, error, code)
        self.run.status = RunStatus.STOPPING

    def record_last_node(self, report: Report) -> None:
        """Record the last reported node in canonical order: its outputs are the run's outputs."""
        key = report.order_key.key.hex()
        if self.run.last_node is None or key > self.run.last_node[0]:
            self.run.last_node = (key, report.activation, report.node_id)


@dataclass(slots=True)
class OpenScopes:
    """The open scopes of a run, and the keys of those that the decision changes."""

    run: RunState
    decision: Decision
    touched: set[ScopeKey] = field(default_factory=set)

    def get(self, key: ScopeKey) -> Scope:
        """Return an open scope and mark it as changed. Raises StateError if it is not open."""
        try:
            scope = self.run.scopes[key]
        except KeyError:
            raise StateError("A report names a scope that is not open.", scope=repr(key)) from None
        self.touched.add(key)
        self.decision.changed_scopes.add(key)
        return scope

    def open(self, scope: Scope) -> None:
        """Open the scope of a pass of a container's body."""
        self.run.scopes[scope.key] = scope
        self.decision.closed_scopes.discard(scope.key)
        self.get(scope.key)

    def close(self, key: ScopeKey) -> None:
        """Close the scope of a pass that has ended."""
        del self.run.scopes[key]
        self.touched.discard(key)
        self.decision.changed_scopes.discard(key)
        self.decision.closed_scopes.add(key)


@dataclass(slots=True)
class OpenContainers:
    """The items of open containers. `failed` lists (scope, node number) of containers whose own policy decides next."""

    canvas: Canvas
    run: RunState
    decision: Decision
    scopes: OpenScopes
    failed: list[tuple[ScopeKey, int]] = field(default_factory=list)

    def pipelined_around(self, key: ScopeKey) -> Container | None:
        """Return the container whose item a scope is, if its items are pipelined."""
        outer = self.run.scopes.get(key[:-1]) if key else None
        container = outer.containers.get(self.canvas.numbers[key[-1][0]]) if outer else None
        return container if container is not None and container.is_pipelined else None

    def deferred_events(self, key: ScopeKey) -> list[DeferredEvent] | None:
        """Return the list to which events of a scope's item are deferred; None if its events are emitted at once."""
        container = self.pipelined_around(key)
        if container is None or key[-1][2] <= container.first_open_item:
            return None
        self.scopes.get(key[:-1])
        return container.deferred_events.setdefault(key[-1][2], [])

    def cancel_later_items(self, key: ScopeKey) -> None:
        """Request the cancellation of all items after the item whose scope is `key`."""
        entry, item = container_entry(key), key[-1][2]
        self.decision.cancel_items_after[entry] = min(item, self.decision.cancel_items_after.get(entry, item))

    def update_idle_state(self) -> None:
        """Recompute which containers are idle, innermost first: a container is idle if all its open passes are."""
        pending = set(self.scopes.touched)
        while pending:
            key = max(pending, key=len)
            pending.discard(key)
            scope = self.run.scopes.get(key)
            if scope is None:
                continue
            for number, container in scope.containers.items():
                is_idle = container.open_items > 0 and container.idle_items == container.open_items
                scope.idle = scope.idle | 1 << number if is_idle else scope.idle & ~(1 << number)
            if key and scope.is_idle != scope.is_counted_idle:
                scope.is_counted_idle = scope.is_idle
                outer = self.scopes.get(key[:-1])
                container = outer.containers[self.canvas.numbers[key[-1][0]]]
                container.idle_items += 1 if scope.is_counted_idle else -1
                pending.add(outer.key)


@dataclass(slots=True)
class Activations:
    """The activations of a run: which begin, which have finished, and which wait."""

    canvas: Canvas
    run: RunState
    decision: Decision
    scopes: OpenScopes
    containers: OpenContainers

    def next_id(self, node: Node, scope: Scope) -> ActivationId:
        """Return the id that the node's next activation in a scope will have."""
        return activation_id(self.run.run_id, node.id, scope.key, scope.ordinals.get(node.number, 0))

    def activate(self, node: Node, scope: Scope, order_key: OrderKey, stream_id: ActivationId | None) -> None:
        """Decide that a node must run; `assign_run_slots` decides whether it is ready or queued.

        `stream_id` is the message stream that the activation writes to.
        """
        ordinal = scope.ordinals.get(node.number, 0)
        chosen = activation_id(self.run.run_id, node.id, scope.key, ordinal)
        self.decision.activated.append(
            Activation(
                chosen,
                node.id,
                node.component,
                scope.key,
                ordinal,
                order_key,
                scope.limits,
                stream_id,
                ActivationStatus.QUEUED,
            )
        )
        self.decision.changed_scopes.add(scope.key)
        self.run.activation_count += 1
        if self.canvas.may_repeat(node.number):
            scope.ordinals[node.number] = ordinal + 1
        scope.active |= node.bit
        scope.last_level = max(scope.last_level, order_key.level)
        if self.canvas.needs_stream_order:
            scope.order_keys[node.number] = order_key
        if (deferred := self.containers.deferred_events(scope.key)) is not None:
            deferred.append(DeferredEvent(node.number))
        elif node.kind is not NodeKind.MESSAGE and not node.kind.waits_for_user:
            self.decision.events.append(Event(NODE_STARTED, activation=chosen, node_id=node.id))

    def assign_run_slots(self) -> None:
        """Assign the run's free slots (`max_running`) in canonical order; activations queued earlier come first."""
        new = self.decision.activated
        new.sort(key=lambda activation: activation.order_key.key)
        free = max(0, self.run.max_running - self.run.in_flight)
        if self.run.queued:
            self.run.queued += len(new)
            self.decision.promote_count = promoted = min(free, self.run.queued)
            self.run.queued -= promoted
            self.run.in_flight += promoted
            return
        for position, activation in enumerate(new[:free]):
            new[position] = replace(activation, status=ActivationStatus.READY)
        self.run.in_flight += min(free, len(new))
        self.run.queued = len(new) - min(free, len(new))

    def exceeds_cycle_limit(self, node: Node, scope: Scope) -> bool:
        """Whether a node of a cycle has already run MAX_ORDINAL times in a scope."""
        return scope.ordinals.get(node.number, 0) >= MAX_ORDINAL

    def check_limit(self, node: Node, more: int = 1) -> bool:
        """Return whether the run may have `more` activations, of which the first is of a node; if not, fail the run.

        No failure policy catches this failure, and everything that waits is closed: a run without an end is not worth
        waiting for.
        """
        most, total = self.run.max_activations, self.run.activation_count + more
        if not most or total <= most:
            return True
        called = f'Node "{node.name}" ({node.id})' if node.name else f"Node {node.id}"
        error = (
            f"{called} would be activation {total} of this run, and {most} are allowed. "
            "End the cycle or shorten the list that leads here, or raise EASEL_MAX_ACTIVATIONS."
        )
        if self.run.failure is None or self.run.failure.code != TOO_MANY:
            self.run.failure = RunFailure(-1, "", node.id, error, TOO_MANY)
        self.run.status = RunStatus.STOPPING
        return False

    def finish(self, report: Report, scope: Scope) -> None:
        """Mark an activation as done, and its node as no longer active."""
        self.decision.new_statuses[report.activation] = ActivationStatus.DONE
        self.deactivate(self.canvas.node(report.node_id), scope)

    def deactivate(self, node: Node, scope: Scope) -> None:
        """Remove a node from the active nodes of a scope."""
        scope.active &= ~node.bit
        scope.idle &= ~node.bit
        scope.order_keys.pop(node.number, None)
        self.scopes.get(scope.key)

    def mark_idle(self, node: Node, scope: Scope) -> None:
        """Mark an active node as idle: it waits for something outside of the run's own work."""
        scope.idle |= node.bit

    def emit_form_started(self, report: Report) -> None:
        """Append `node_started` for a form node that has finished without showing a form.

        Usually that event is appended when a form is answered.
        """
        if self.canvas.node(report.node_id).kind.waits_for_user and report.activation not in self.run.forms:
            self.decision.events.append(Event(NODE_STARTED, activation=report.activation, node_id=report.node_id))

    def emit_finished(self, activation: ActivationId, node_id: str, error: str | None, scope: ScopeKey = ()) -> None:
        """Append `node_finished`, or defer it in a pipelined item. The activation names the values that it shows."""
        if (deferred := self.containers.deferred_events(scope)) is not None:
            deferred.append(DeferredEvent(self.canvas.numbers[node_id], has_ended=True, error=error))
        else:
            self.decision.events.append(Event(NODE_FINISHED, {"error": error}, activation, node_id))


@dataclass(slots=True)
class MessageStreams:
    """The message streams of a run that have not been closed. At most one of them is open at a time."""

    canvas: Canvas
    run: RunState
    decision: Decision
    activations: Activations

    def find(self, stream_id: ActivationId | None) -> MessageStreamState | None:
        """Return the stream with an id; None if there is none."""
        return next((stream for stream in self.run.streams if stream.stream_id == stream_id), None)

    def get_or_add(self, stream_id: ActivationId, node: Node, scope: Scope) -> MessageStreamState:
        """Return the stream with an id; add it, not yet open, if there is none."""
        stream = self.find(stream_id)
        if stream is None:
            # A node that only streams its default value has had its `node_started` long before.
            stream = MessageStreamState(
                stream_id, node.number, scope.key, has_started=node.kind is not NodeKind.MESSAGE
            )
            self.run.streams.append(stream)
        return stream

    def of_next_activation(self, message: Node, scope: Scope) -> MessageStreamState:
        """Return the stream of a Message's next activation in a scope; add it if there is none."""
        return self.get_or_add(self.activations.next_id(message, scope), message, scope)

    def open(self, stream: MessageStreamState) -> None:
        """Open a stream, so that its text is shown; append the Message's `node_started` if it is missing."""
        if not stream.has_started:
            node_id = self.canvas.nodes[stream.number].id
            self.decision.events.append(Event(NODE_STARTED, activation=stream.stream_id, node_id=node_id))
            stream.has_started = True
            if stream.stream_id in self.run.forms:
                self.run.forms[stream.stream_id].has_started = True
        if not stream.is_open:
            stream.is_open = True
            self.run.open_stream_id = stream.stream_id
            self.decision.closed_streams.pop(stream.stream_id, None)
            self.decision.opened_streams[stream.stream_id] = len(self.decision.events)

    def pause(self, stream: MessageStreamState) -> None:
        """Close an open stream until it is opened again; it waits for its text."""
        if stream.is_open:
            stream.is_open = False
            self.run.open_stream_id = None
            self.decision.closed_streams[stream.stream_id] = len(self.decision.events) + 1

    def close(self, stream: MessageStreamState, *, has_ended: bool = False) -> None:
        """Close a stream for good, and append the `node_finished` events that were deferred until then.

        Its text ends before its `message_end` if it `has_ended`, else before the next event.
        """
        if stream.is_open:
            self.run.open_stream_id = None
            event_count = len(self.decision.events)
            self.decision.closed_streams[stream.stream_id] = event_count if has_ended else event_count + 1
        for finished in sorted(stream.deferred_finished, key=lambda finished: finished.key):
            self.activations.emit_finished(finished.activation, finished.node_id, finished.error)
        self.run.streams.remove(stream)

    def truncate(self, stream: MessageStreamState) -> None:
        """Discard the text written so far; a `message_reset` tells readers of an open stream."""
        if stream.is_open:
            self.decision.events.append(Event(MESSAGE_RESET, {"turn": str(stream.stream_id)}, stream.stream_id))
        self.decision.truncated_streams[stream.stream_id] = len(self.decision.events)
