"""What a run is between two decisions: statuses, their legal moves, and the rows a decision reads and writes.

The tables here are drawn in docs/state-machine.md, and a test keeps the two the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from canvas.outcome import Outcome
from canvas.state.order_key import OrderKey

RULES_VERSION = 2
"""Number of the deciding rules. A coordinator leaves a run alone whose number is higher than its own."""

MAX_ORDINAL = 1000
"""Activations of one node in one scope; a cycle that goes on fails there."""


class RunStatus(StrEnum):
    """Where a run is."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"  # a start that another service has sent, and that was not accepted: no node ever runs

    @property
    def is_over(self) -> bool:
        """Whether nothing will ever happen to the run again."""
        return self in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.REFUSED)

    @property
    def takes_reports(self) -> bool:
        """Whether a fold takes in what has been reported."""
        return self in (RunStatus.RUNNING, RunStatus.WAITING, RunStatus.STOPPING)


class Status(StrEnum):
    """Where an activation is. `open` is a container whose body runs, `saying` a Message whose turn is to come."""

    QUEUED = "queued"
    READY = "ready"
    RUNNING = "running"
    REPORTED = "reported"
    WAITING = "waiting"
    SAYING = "saying"
    OPEN = "open"
    DONE = "done"
    CLOSED = "closed"


RUN_MOVES: Mapping[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: frozenset({RunStatus.RUNNING, RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.RUNNING: frozenset(
        {RunStatus.WAITING, RunStatus.STOPPING, RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED}
    ),
    RunStatus.WAITING: frozenset({RunStatus.RUNNING, RunStatus.STOPPING, RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.STOPPING: frozenset({RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.SUCCEEDED: frozenset(),
    RunStatus.FAILED: frozenset(),
    RunStatus.CANCELLED: frozenset(),
    RunStatus.REFUSED: frozenset(),
}

ACTIVATION_MOVES: Mapping[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.READY, Status.RUNNING, Status.CLOSED}),
    Status.READY: frozenset({Status.RUNNING, Status.CLOSED}),
    Status.RUNNING: frozenset({Status.REPORTED}),
    Status.REPORTED: frozenset({Status.DONE, Status.READY, Status.WAITING, Status.SAYING, Status.OPEN}),
    Status.WAITING: frozenset({Status.READY, Status.REPORTED, Status.CLOSED}),
    Status.SAYING: frozenset({Status.DONE, Status.CLOSED}),
    Status.OPEN: frozenset({Status.DONE, Status.SAYING, Status.CLOSED}),
    Status.DONE: frozenset(),
    Status.CLOSED: frozenset(),
}

ScopeSegment = tuple[str, int, int]
ScopeKey = tuple[ScopeSegment, ...]
"""Where in nested containers we are, outermost first: (container id, its ordinal, item)."""


def scope_text(key: ScopeKey) -> str:
    """A scope as the rows spell it: "" outside, "Iteration:A#0.3" in the fourth item of its first entry."""
    return "/".join(f"{_quoted(node)}#{ordinal}.{item}" for node, ordinal, item in key)


def scope_key(text: str) -> ScopeKey:
    """The inverse of `scope_text`."""
    steps: list[ScopeSegment] = []
    for part in text.split("/") if text else ():
        node, _, numbers = part.rpartition("#")
        ordinal, _, item = numbers.partition(".")
        steps.append((node.replace("%2F", "/").replace("%25", "%"), int(ordinal), int(item)))
    return tuple(steps)


def container_entry(key: ScopeKey) -> str:
    """The entry of the innermost container around a scope, whichever its item: "Iteration:A#0"; "" outside."""
    return scope_text(key).rpartition(".")[0]


def _quoted(node_id: str) -> str:
    return node_id.replace("%", "%25").replace("/", "%2F")


def activation_id(run_id: UUID, node_id: str, scope: ScopeKey, ordinal: int) -> UUID:
    """Ids follow from what they name, so deciding twice activates the same rows."""
    return uuid5(run_id, f"{node_id}\n{scope_text(scope)}\n{ordinal}")


@dataclass(slots=True)
class DeferredEvent:
    """Something that happened in an item ahead of its turn: a node started, ended or failed, and nobody has heard."""

    node: int
    has_ended: bool = False
    error: str | None = None
    failure: tuple[OrderKey, str] | None = None  # where it stands, and its code


@dataclass(slots=True)
class Container:
    """An Iteration or Loop whose body runs; kept in the scope where the container stands."""

    activation: UUID
    ordinal: int
    place: OrderKey
    count: int | None  # items; None: until an item visit leaves
    concurrency: int
    next: int = 0  # item to open next
    open: int = 0  # item scopes that are open
    still: int = 0  # of these, how many wait for something outside of the run
    waves: int = 0  # waves that finished items or passes have used
    failed_item: int = -1  # of side-by-side items: the first that failed, in item order
    error: str = ""
    failed_at: tuple[int, str] = (0, "")  # wave and place (hex) of that failure
    revision: int = 0  # of side-by-side items: all read the values around them as they were when the first began
    span: int = 0  # of overlapping items: waves of a pass
    alone: int = 0  # of overlapping items: how many go one by one at first
    shown: int = 0  # of overlapping items: the one whose turn it is to be told of
    ended: list[int] = field(default_factory=list)  # later ones whose pass has ended
    untold: dict[int, list[DeferredEvent]] = field(default_factory=dict)  # by item

    @property
    def side_by_side(self) -> bool:
        """Whether items run at the same time, each on its own copy of the values."""
        return self.count is not None and self.concurrency > 1 and not self.overlaps

    @property
    def overlaps(self) -> bool:
        """Whether items run ahead of their turn, and nobody can tell (canvas/graph/parallel_items.py)."""
        return self.span > 0

    def visit(self, item: int) -> OrderKey:
        """Where the visit stands that begins a pass of overlapping items, or collects after the last."""
        return OrderKey(self.place.wave + 1 + item * self.span, self.place.trail, self.place.region)


@dataclass(slots=True)
class Scope:
    """One open scope: what is alive and reached in it. Numbers are node numbers of the version."""

    key: ScopeKey
    region: bytes = b""
    limits: tuple[tuple[str, int], ...] = ()  # enclosing regions (hex) and the revision up to which they are read
    trail: OrderKey = field(default_factory=lambda: OrderKey(0))  # of the container: every pass begins with its trail
    last_wave: int = 0
    alive: int = 0
    still: int = 0
    reached: dict[int, OrderKey] = field(default_factory=dict)
    returning: dict[int, int] = field(default_factory=dict)  # circles came back to: from where
    places: dict[int, OrderKey] = field(
        default_factory=dict[int, OrderKey]
    )  # of what is alive, where speech is ordered
    ordinals: dict[int, int] = field(default_factory=dict)  # next ordinal, above 0
    containers: dict[int, Container] = field(default_factory=dict)
    leaving: OrderKey | None = None  # where an ExitLoop has reported, of several the last in canonical order
    left_by: UUID | None = None  # its activation, which stored the container's outputs
    escaped: bool = False  # an edge out of the body was taken: no further pass, and nothing of the container's follows
    counted_still: bool = False  # the container around it counts this scope as still

    @property
    def is_empty(self) -> bool:
        """Whether the pass is over."""
        return not self.alive and not self.reached

    @property
    def is_still(self) -> bool:
        """Whether everything alive here waits for something outside of the run."""
        return self.alive != 0 and not self.alive & ~self.still


@dataclass(slots=True)
class DeferredNodeFinished:
    """A `node_finished` that comes after its Message's `message_end`."""

    activation: UUID
    node_id: str
    error: str | None
    key: str  # hex of the speaker's place: several come in the order in which they started


@dataclass(slots=True)
class MessageStreamState:
    """A turn that has not been closed: a Message's, or the default value that a failed node leaves to be heard."""

    turn: UUID
    number: int
    scope: ScopeKey
    place: OrderKey | None = None  # known once the Message is activated
    started: bool = False  # `node_started` is out
    opened: bool = False
    said: bool = False  # the whole text is there
    error: str | None = None  # of a failed node whose default is heard
    end: dict[str, Any] = field(default_factory=dict)
    held: list[DeferredNodeFinished] = field(default_factory=list)


@dataclass(slots=True)
class OpenForm:
    """A form that waits for a person."""

    node_id: str
    place: str  # hex
    scope: ScopeKey
    inputs: dict[str, Any]
    tips: str
    started: bool = False  # `node_started` is out


@dataclass(slots=True)
class RunFailure:
    """The failure that ends the run, in canonical order the last of the earliest failing wave (decisions.md 21)."""

    wave: int
    place: str  # hex
    node_id: str
    error: str
    code: str


@dataclass(slots=True)
class RunState:
    """The run's row as a decision sees it, and the scopes that the reports name with those around them."""

    run_id: UUID
    status: RunStatus
    revision: int = 0
    last_event: int = 0
    asked: str | None = None
    turn: UUID | None = None
    max_running: int = 256
    max_activations: int = 0  # 0: without end, as for runs that were begun before there was a limit
    activated: int = 0  # activations that were ever decided
    live: int = 0  # activations that are ready or running
    queued: int = 0
    speeches: list[MessageStreamState] = field(default_factory=list)
    forms: dict[UUID, OpenForm] = field(default_factory=dict)
    failing: RunFailure | None = None
    last: tuple[str, UUID, str] | None = None  # (place in hex, activation, node id) of the last in canonical order
    scopes: dict[ScopeKey, Scope] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker stored about an activation, without values."""

    activation: UUID
    node_id: str
    scope: ScopeKey
    ordinal: int
    place: OrderKey
    outcome: Outcome
    error: str | None = None  # `_ERROR` among the outputs
    strikes: int = 0
    turn: UUID | None = None
    retake: bool = False  # the Message's text does not go on from what was said in its turn
    spoke: bool = False  # the attempt left text in the turn
    usage: Mapping[str, int] = field(default_factory=dict)
