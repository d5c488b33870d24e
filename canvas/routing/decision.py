"""The plan of one decision: the run's state while it is being worked on, and everything that will be written.

`decide` and its neighbours change a plan; the coordinator stores it. Nothing here looks at values.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

from canvas.document.document import Json
from canvas.errors import StateError
from canvas.events.run_events import NODE_FINISHED, NODE_STARTED, Event
from canvas.graph.canvas import Canvas, Node, NodeKind
from canvas.state.order_key import OrderKey, merged
from canvas.state.run_state import (
    MAX_ORDINAL,
    Container,
    DeferredEvent,
    Report,
    RunFailure,
    RunState,
    RunStatus,
    Scope,
    ScopeKey,
    Status,
    activation_id,
    container_entry,
)

TOO_MANY = "too_many_activations"


@dataclass(frozen=True, slots=True)
class Activation:
    """A decision that a node must run, to be stored as a row."""

    id: UUID
    node_id: str
    component: str
    scope: ScopeKey
    ordinal: int
    place: OrderKey
    limits: tuple[tuple[str, int], ...]
    turn: UUID | None
    status: Status


@dataclass(slots=True)
class Decision:
    """What is to be written after one look at the reports; `run` holds the new state."""

    run: RunState
    activated: list[Activation] = field(default_factory=list[Activation])
    moved: dict[UUID, Status] = field(default_factory=dict[UUID, Status])
    retried: list[UUID] = field(default_factory=list[UUID])
    postponed: dict[UUID, float] = field(default_factory=dict[UUID, float])  # retried, but not for so many seconds
    promote: int = 0
    events: list[Event] = field(default_factory=list[Event])
    scopes: set[ScopeKey] = field(default_factory=set[ScopeKey])  # changed
    removed: set[ScopeKey] = field(default_factory=set[ScopeKey])
    opened: dict[UUID, int] = field(default_factory=dict[UUID, int])  # turn -> events before its text
    closed: dict[UUID, int] = field(default_factory=dict[UUID, int])  # turn -> events up to its end
    taken_back: dict[UUID, int] = field(default_factory=dict[UUID, int])  # turn -> events up to message_reset
    texts: dict[UUID, tuple[str, str]] = field(default_factory=dict[UUID, tuple[str, str]])  # turn -> (node, text)
    expiries: list[timedelta | None] = field(default_factory=list[timedelta | None])  # of the forms that are asked
    inheriting: list[UUID] = field(default_factory=list[UUID])  # failed; show what an earlier pass had left
    called_off: dict[str, int] = field(default_factory=dict[str, int])  # container's entry -> items after this one
    errors: dict[UUID, tuple[str, str]] = field(default_factory=dict[UUID, tuple[str, str]])  # -> (container, `_ERROR`)
    dead_edges: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    error: str = ""

    @property
    def activated_nodes(self) -> list[str]:
        """Ids of the newly activated nodes, in canonical order."""
        return [activation.node_id for activation in self.activated]

    @property
    def is_over(self) -> bool:
        """Whether the run ends with this decision."""
        return self.run.status.is_over


@dataclass(slots=True)
class DecisionBuilder:
    """A decision in the making."""

    canvas: Canvas
    run: RunState
    decision: Decision
    touched: set[ScopeKey] = field(default_factory=set[ScopeKey])
    failed_containers: list[tuple[ScopeKey, int]] = field(default_factory=list[tuple[ScopeKey, int]])

    def scope(self, key: ScopeKey) -> Scope:
        """An open scope, to be changed."""
        try:
            scope = self.run.scopes[key]
        except KeyError:
            raise StateError("A report names a scope that is not open.", scope=repr(key)) from None
        self.touched.add(key)
        self.decision.scopes.add(key)
        return scope

    def emit(self, event: Event) -> None:
        """Append an event."""
        self.decision.events.append(event)

    @property
    def event_count(self) -> int:
        """Events appended so far."""
        return len(self.decision.events)

    # -- edges ---------------------------------------------------------------------------------------------------
    def reach(self, source: Node, targets: Sequence[int], scope: Scope, place: OrderKey) -> None:
        """Take edges from a node that stands at `place`. What would come after a failure is left out."""
        for position, number in enumerate(targets):
            target = self.canvas.nodes[number]
            arriving = place.step(position)
            if target.kind.is_item:
                continue  # back to the item node: a leaf of the pass
            if self.is_lost(scope.key, arriving):
                if target.parent == source.parent:
                    self.lose(scope, number)
                continue
            level = self._level_of(scope, source, target)
            if level is None:
                self.decision.dead_edges.append((source.id, target.id))
                continue
            arriving = self._escape(scope, level, target, arriving)
            if self.is_lost(level.key, arriving):
                self.lose(level, number)
                continue
            level.reached[number] = merged(level.reached.get(number), arriving)
            tail = self._on_level(source, level)
            if (tail, number) in self.canvas.reach.back:
                level.returning[number] = level.returning.get(number, 0) | 1 << tail

    def _on_level(self, node: Node, level: Scope) -> int:
        """The node, or the container around it, that stands in an outer scope."""
        containers = list(self.canvas.containers_of(node.number))
        depth = len(containers) - len(level.key)
        return containers[depth - 1] if depth else node.number

    def lose(self, scope: Scope, number: int) -> None:
        """A node is not to begin any more, nor what waits for it: with its edge they would stand after the failure."""
        above = self.canvas.reach.above_forward
        for waiting in [other for other in scope.reached if other == number or above[other] >> number & 1]:
            del scope.reached[waiting]
            scope.returning.pop(waiting, None)

    def _level_of(self, scope: Scope, source: Node, target: Node) -> Scope | None:
        """The open scope in which an edge's target lives; None if it lies in a container that the source is not in."""
        if target.parent == source.parent:
            return self.scope(scope.key)
        for depth, container in enumerate(self.canvas.containers_of(source.number), start=1):
            if self.canvas.nodes[container].parent == target.parent:
                return self.scope(scope.key[: len(scope.key) - depth])
        return None

    def _escape(self, scope: Scope, level: Scope, target: Node, arriving: OrderKey) -> OrderKey:
        """An edge leads out of the bodies between a scope and an outer level: their containers are left with this pass.

        Where it stands if it comes from side-by-side items: after their container, for the item's waves are its own.
        """
        for depth in range(len(scope.key), len(level.key), -1):
            self.scope(scope.key[:depth]).escaped = True
            container = self.scope(scope.key[: depth - 1]).containers[self.canvas.numbers[scope.key[depth - 1][0]]]
            if container.side_by_side:
                arriving = container.place.step(target.number + 1)
        return arriving

    def is_lost(self, key: ScopeKey, place: OrderKey) -> bool:
        """Whether what would stand at a place of a scope is not to begin any more."""
        return self.is_too_late(place) or self.is_doomed(key, place)

    def is_too_late(self, place: OrderKey) -> bool:
        """Whether a cancel or a failure has ended the run before this place (decisions.md 21)."""
        if self.run.asked == "cancel":
            return True
        failing = self.run.failing
        return failing is not None and (bool(place.region) or place.wave > failing.wave)

    # -- activations ---------------------------------------------------------------------------------------------
    def next_id(self, node: Node, scope: Scope) -> UUID:
        """The id of the node's next activation in a scope."""
        return activation_id(self.run.run_id, node.id, scope.key, scope.ordinals.get(node.number, 0))

    def activate(self, node: Node, scope: Scope, place: OrderKey, turn: UUID | None) -> UUID:
        """Decide that a node must run; `admit` says whether the run has a place for it."""
        ordinal = scope.ordinals.get(node.number, 0)
        chosen = activation_id(self.run.run_id, node.id, scope.key, ordinal)
        self.decision.activated.append(
            Activation(chosen, node.id, node.component, scope.key, ordinal, place, scope.limits, turn, Status.QUEUED)
        )
        self.decision.scopes.add(scope.key)
        self.run.activated += 1
        if self.canvas.may_repeat(node.number):
            scope.ordinals[node.number] = ordinal + 1
        scope.alive |= node.bit
        scope.last_wave = max(scope.last_wave, place.wave)
        if self.canvas.orders_speech:
            scope.places[node.number] = place
        if (ahead := self.ahead(scope.key)) is not None:
            ahead.append(DeferredEvent(node.number))
        elif node.kind is not NodeKind.MESSAGE and not node.kind.asks:
            self.emit(Event(NODE_STARTED, activation=chosen, node_id=node.id))
        return chosen

    def admit(self) -> None:
        """Give the run's free places to what waits for one, in canonical order; what was queued before comes first."""
        new = self.decision.activated
        new.sort(key=lambda activation: activation.place.key)
        room = max(0, self.run.max_running - self.run.live)
        if self.run.queued:
            self.run.queued += len(new)
            self.decision.promote = promoted = min(room, self.run.queued)
            self.run.queued -= promoted
            self.run.live += promoted
            return
        for position, activation in enumerate(new[:room]):
            new[position] = replace(activation, status=Status.READY)
        self.run.live += min(room, len(new))
        self.run.queued = len(new) - min(room, len(new))

    def is_worn_out(self, node: Node, scope: Scope) -> bool:
        """Whether the node has run as often as it may in this scope."""
        return scope.ordinals.get(node.number, 0) >= MAX_ORDINAL

    def has_room_for(self, node: Node, more: int = 1) -> bool:
        """Whether the run may activate a node so often; if not, it fails here, whatever would catch a failure.

        All that waits is closed: of a run that has no end nothing is worth waiting for.
        """
        most, wanted = self.run.max_activations, self.run.activated + more
        if not most or wanted <= most:
            return True
        called = f'Node "{node.name}" ({node.id})' if node.name else f"Node {node.id}"
        error = (
            f"{called} would be activation {wanted} of this run, and {most} are allowed. "
            "End the circle or shorten the list that leads here, or raise EASEL_MAX_ACTIVATIONS."
        )
        if self.run.failing is None or self.run.failing.code != TOO_MANY:
            self.run.failing = RunFailure(-1, "", node.id, error, TOO_MANY)
        self.run.status = RunStatus.STOPPING
        return False

    def end(self, report: Report, scope: Scope) -> None:
        """An activation is done: it no longer holds anything up."""
        self.decision.moved[report.activation] = Status.DONE
        self.unalive(self.canvas.node(report.node_id), scope)

    def unalive(self, node: Node, scope: Scope) -> None:
        """Take a node out of what is alive in a scope."""
        scope.alive &= ~node.bit
        scope.still &= ~node.bit
        scope.places.pop(node.number, None)
        self.scope(scope.key)

    def hold(self, node: Node, scope: Scope) -> None:
        """An alive node now waits for something outside of the run's own work."""
        scope.still |= node.bit

    def start_form(self, report: Report) -> None:
        """A form's `node_started` comes with the answer; this one goes on without having asked."""
        if self.canvas.node(report.node_id).kind.asks and report.activation not in self.run.forms:
            self.emit(Event(NODE_STARTED, activation=report.activation, node_id=report.node_id))

    def emit_finished(self, activation: UUID, node_id: str, error: str | None, scope: ScopeKey = ()) -> None:
        """Append `node_finished`; the activation names the values it shows. In an item that is ahead it is held."""
        if (ahead := self.ahead(scope)) is not None:
            ahead.append(DeferredEvent(self.canvas.numbers[node_id], has_ended=True, error=error))
        else:
            self.emit(Event(NODE_FINISHED, {"error": error}, activation, node_id))

    def ahead(self, key: ScopeKey) -> list[DeferredEvent] | None:
        """What is untold of a scope's item, to be added to; None if it is not ahead of its turn."""
        container = self.overlapping(key)
        if container is None or key[-1][2] <= container.shown:
            return None
        self.scope(key[:-1])
        return container.untold.setdefault(key[-1][2], [])

    def overlapping(self, key: ScopeKey) -> Container | None:
        """The container whose item a scope is, if its items overlap."""
        outer = self.run.scopes.get(key[:-1]) if key else None
        container = outer.containers.get(self.canvas.numbers[key[-1][0]]) if outer else None
        return container if container is not None and container.overlaps else None

    def note_last(self, report: Report) -> None:
        """Remember the last node in canonical order: its outputs are the run's."""
        key = report.place.key.hex()
        if self.run.last is None or key > self.run.last[0]:
            self.run.last = (key, report.activation, report.node_id)

    def fail(self, node_id: str, place: OrderKey, error: str, code: str) -> None:
        """The run will fail. Of several failures the earliest wave counts, and in it the last (engine 4.5)."""
        failing = self.run.failing
        key = place.key.hex()
        if failing is None or place.wave < failing.wave or (place.wave == failing.wave and key > failing.place):
            self.run.failing = RunFailure(place.wave, key, node_id, error, code)
        self.run.status = RunStatus.STOPPING

    # -- scopes --------------------------------------------------------------------------------------------------
    def open_scope(self, scope: Scope) -> None:
        """A pass of a container's body begins."""
        self.run.scopes[scope.key] = scope
        self.decision.removed.discard(scope.key)
        self.scope(scope.key)

    def close_scope(self, key: ScopeKey) -> None:
        """A pass of a container's body is over."""
        del self.run.scopes[key]
        self.touched.discard(key)
        self.decision.scopes.discard(key)
        self.decision.removed.add(key)

    def call_off(self, key: ScopeKey) -> None:
        """Nobody will want what the items after a scope's are doing: they are told to stop."""
        entry, item = container_entry(key), key[-1][2]
        self.decision.called_off[entry] = min(item, self.decision.called_off.get(entry, item))

    def is_doomed(self, key: ScopeKey, place: OrderKey) -> bool:
        """Whether items around a scope that run at the same time have failed before this place.

        Items before the first failed one go on to their end, and that one to the wave of its failure; so which item
        fails first does not depend on which is faster.
        """
        for depth, (container_id, _, item) in enumerate(key):
            scope = self.run.scopes.get(key[:depth])
            container = scope.containers.get(self.canvas.numbers[container_id]) if scope else None
            if container is None or not container.error or item < container.failed_item:
                continue
            region = container.place.region if container.overlaps else container.place.inside(item)
            is_other_region = place.region != region
            if item > container.failed_item or is_other_region or place.wave > container.failed_at[0]:
                return True
        return False

    def settle_stillness(self) -> None:
        """Tell each container which of its passes only wait, innermost first."""
        pending = set(self.touched)
        while pending:
            key = max(pending, key=len)
            pending.discard(key)
            scope = self.run.scopes.get(key)
            if scope is None:
                continue
            for number, container in scope.containers.items():
                waits = container.open > 0 and container.still == container.open
                scope.still = scope.still | 1 << number if waits else scope.still & ~(1 << number)
            if key and scope.is_still != scope.counted_still:
                scope.counted_still = scope.is_still
                outer = self.scope(key[:-1])
                container = outer.containers[self.canvas.numbers[key[-1][0]]]
                container.still += 1 if scope.counted_still else -1
                pending.add(outer.key)


def to_text(value: Json) -> str:
    """A default value as it is heard."""
    return value if isinstance(value, str) else str(value)


def in_order(reports: Iterable[Report]) -> list[Report]:
    """Reports in canonical order, so that their grouping leaves no trace."""
    return sorted(reports, key=lambda report: report.place.key)
