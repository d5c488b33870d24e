"""The state of a run between two decisions: statuses and their transitions, scopes, streams, forms, reports.

docs/state-machine.md draws the transition tables of this module, and a test keeps the two the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import uuid5

from canvas.ids import ActivationId, RunId
from canvas.outcome import Outcome
from canvas.state.order_key import OrderKey

RULES_VERSION = 2
"""Version of the routing rules. A coordinator ignores runs that were started under a newer version."""

REUSE_RULES_VERSION = RULES_VERSION + 1
"""Version of runs that reuse activations of another run: releases that do not know these would execute them again."""

MAX_ORDINAL = 1000
"""The largest number of activations of one node in one scope; a cycle that continues beyond it fails."""


class RunStatus(StrEnum):
    """Status of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"  # a start message of another service that was not accepted: no node ever runs

    @property
    def is_over(self) -> bool:
        """Whether the status is final."""
        return self in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.REFUSED)

    @property
    def accepts_reports(self) -> bool:
        """Whether an advance applies reports of the run."""
        return self in (RunStatus.RUNNING, RunStatus.WAITING, RunStatus.STOPPING)


class ActivationStatus(StrEnum):
    """Status of an activation. OPEN: a container whose body runs. AWAITING_STREAM: a Message before its stream."""

    QUEUED = "queued"
    READY = "ready"
    RUNNING = "running"
    REPORTED = "reported"
    WAITING = "waiting"
    AWAITING_STREAM = "saying"
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

ACTIVATION_MOVES: Mapping[ActivationStatus, frozenset[ActivationStatus]] = {
    ActivationStatus.QUEUED: frozenset({ActivationStatus.READY, ActivationStatus.RUNNING, ActivationStatus.CLOSED}),
    ActivationStatus.READY: frozenset({ActivationStatus.RUNNING, ActivationStatus.CLOSED}),
    ActivationStatus.RUNNING: frozenset({ActivationStatus.REPORTED}),
    ActivationStatus.REPORTED: frozenset(
        {
            ActivationStatus.DONE,
            ActivationStatus.READY,
            ActivationStatus.WAITING,
            ActivationStatus.AWAITING_STREAM,
            ActivationStatus.OPEN,
        }
    ),
    ActivationStatus.WAITING: frozenset({ActivationStatus.READY, ActivationStatus.REPORTED, ActivationStatus.CLOSED}),
    ActivationStatus.AWAITING_STREAM: frozenset({ActivationStatus.DONE, ActivationStatus.CLOSED}),
    ActivationStatus.OPEN: frozenset(
        {ActivationStatus.DONE, ActivationStatus.AWAITING_STREAM, ActivationStatus.CLOSED}
    ),
    ActivationStatus.DONE: frozenset(),
    ActivationStatus.CLOSED: frozenset(),
}

ScopeSegment = tuple[str, int, int]
ScopeKey = tuple[ScopeSegment, ...]
"""A position in nested containers, outermost first: (container id, its ordinal, item)."""


def scope_text(key: ScopeKey) -> str:
    """Return a scope key as stored in rows: "" outside, "Iteration:A#0.3" in the fourth item of its first entry."""
    return "/".join(f"{_quote(node)}#{ordinal}.{item}" for node, ordinal, item in key)


def scope_key(text: str) -> ScopeKey:
    """Parse a scope key; the inverse of `scope_text`."""
    steps: list[ScopeSegment] = []
    for part in text.split("/") if text else ():
        node, _, numbers = part.rpartition("#")
        ordinal, _, item = numbers.partition(".")
        steps.append((node.replace("%2F", "/").replace("%25", "%"), int(ordinal), int(item)))
    return tuple(steps)


def container_entry(key: ScopeKey) -> str:
    """Return the innermost container around a scope and its ordinal, without the item: "Iteration:A#0"; "" outside."""
    return scope_text(key).rpartition(".")[0]


def _quote(node_id: str) -> str:
    return node_id.replace("%", "%25").replace("/", "%2F")


def activation_id(run_id: RunId, node_id: str, scope: ScopeKey, ordinal: int) -> ActivationId:
    """Return the id of an activation, which follows from its arguments: deciding twice activates the same rows."""
    return ActivationId(uuid5(run_id, f"{node_id}\n{scope_text(scope)}\n{ordinal}"))


@dataclass(slots=True)
class DeferredEvent:
    """An event of a pipelined item, emitted once all items before it have ended: a node started, ended or failed."""

    node: int
    has_ended: bool = False
    error: str | None = None
    failure: tuple[OrderKey, str] | None = None  # its order key and code


@dataclass(slots=True)
class Container:
    """An Iteration or Loop whose body runs; stored in the scope that the container belongs to."""

    activation: ActivationId
    ordinal: int
    order_key: OrderKey
    count: int | None  # items; None: until an item visit exits
    concurrency: int
    next_item: int = 0  # item to open next
    open_items: int = 0  # item scopes that are open
    idle_items: int = 0  # how many of these are idle: they wait for something outside of the run
    levels_used: int = 0  # levels that finished items or passes have used
    failed_item: int = -1  # of parallel and pipelined items: the first that failed, in item order
    error: str = ""
    failed_at: tuple[int, str] = (0, "")  # level and order key (hex) of that failure
    revision: int = 0  # of parallel items: the revision at which all of them read the values outside of the container
    levels_per_pass: int = 0  # of pipelined items: levels of a pass; 0 if items are not pipelined
    warmup_items: int = 0  # of pipelined items: how many run one by one at first
    first_open_item: int = 0  # of pipelined items: the first that has not ended; its events are emitted at once
    ended_items: list[int] = field(default_factory=list)  # later items whose pass has ended
    deferred_events: dict[int, list[DeferredEvent]] = field(default_factory=dict)  # by item

    @property
    def is_parallel(self) -> bool:
        """Whether the items are parallel: they run at the same time, each on its own copy of the values."""
        return self.count is not None and self.concurrency > 1 and not self.is_pipelined

    @property
    def is_pipelined(self) -> bool:
        """Whether the items are pipelined: they run ahead of their order (canvas/graph/parallel_items.py)."""
        return self.levels_per_pass > 0

    def visit_key(self, item: int) -> OrderKey:
        """Return the order key of the visit that begins a pass of pipelined items, or collects after the last."""
        return OrderKey(
            self.order_key.level + 1 + item * self.levels_per_pass, self.order_key.branch_path, self.order_key.region
        )


@dataclass(slots=True)
class Scope:
    """An open scope: its active, idle and reached nodes, by node number of the version. Masks are sets of nodes."""

    key: ScopeKey
    region: bytes = b""
    limits: tuple[tuple[str, int], ...] = ()  # enclosing regions (hex) and the revision up to which they are read
    # of the container: a pass begins with its branch path
    container_key: OrderKey = field(default_factory=lambda: OrderKey(0))
    last_level: int = 0  # the largest level of any activation in the scope
    active: int = 0  # active nodes
    idle: int = 0  # idle nodes, which are active and wait for something outside of the run's own work
    reached: dict[int, OrderKey] = field(default_factory=dict)
    loop_heads: dict[int, int] = field(default_factory=dict)  # loop heads whose next round is to begin -> from where
    # of active nodes, if streams must be ordered
    order_keys: dict[int, OrderKey] = field(default_factory=dict[int, OrderKey])
    ordinals: dict[int, int] = field(default_factory=dict)  # next ordinal, above 0
    containers: dict[int, Container] = field(default_factory=dict)
    exit_key: OrderKey | None = None  # order key of the ExitLoop that has reported, of several the last
    exited_by: ActivationId | None = None  # its activation, which stored the container's outputs
    # an edge out of the body was followed: no further pass, and the container has no successors
    has_escaped: bool = False
    is_counted_idle: bool = False  # the container around it counts this scope as idle

    @property
    def is_empty(self) -> bool:
        """Whether nothing in the scope is active or reached: the pass has ended."""
        return not self.active and not self.reached

    @property
    def is_idle(self) -> bool:
        """Whether everything active in the scope waits for something outside of the run's own work."""
        return self.active != 0 and not self.active & ~self.idle


@dataclass(slots=True)
class DeferredNodeFinished:
    """A `node_finished` of a writer that is emitted after its Message's `message_end`."""

    activation: ActivationId
    node_id: str
    error: str | None
    key: str  # hex of the writer's order key, by which several are sorted


@dataclass(slots=True)
class MessageStreamState:
    """A message stream that has not been closed: of a Message, an Answer, or a failed node with a default value."""

    stream_id: ActivationId
    number: int
    scope: ScopeKey
    order_key: OrderKey | None = None  # known once the Message is activated
    has_started: bool = False  # `node_started` has been emitted
    is_open: bool = False
    is_complete: bool = False  # the text is complete
    error: str | None = None  # of a failed node whose default value is streamed
    end: dict[str, Any] = field(default_factory=dict)
    deferred_finished: list[DeferredNodeFinished] = field(default_factory=list)


@dataclass(slots=True)
class OpenForm:
    """A form that waits for a person."""

    node_id: str
    order_key: str  # hex
    scope: ScopeKey
    inputs: dict[str, Any]
    tips: str
    has_started: bool = False  # `node_started` has been emitted


@dataclass(slots=True)
class RunFailure:
    """The failure that ends the run: in canonical order the last of the earliest level with a failure."""

    level: int
    order_key: str  # hex
    node_id: str
    error: str
    code: str


@dataclass(slots=True)
class RunState:
    """The run's row as a decision reads it, with the scopes that the reports belong to and those around them."""

    run_id: RunId
    status: RunStatus
    revision: int = 0
    last_event: int = 0
    is_cancel_requested: bool = False
    open_stream_id: ActivationId | None = None
    max_running: int = 256
    max_activations: int = 0  # 0: unlimited, as for runs started by releases without this limit
    activation_count: int = 0  # activations decided so far
    in_flight: int = 0  # activations that are ready or running
    queued: int = 0
    streams: list[MessageStreamState] = field(default_factory=list)
    forms: dict[ActivationId, OpenForm] = field(default_factory=dict)
    failure: RunFailure | None = None
    # (order key in hex, activation, node id) of the last in canonical order
    last_node: tuple[str, ActivationId, str] | None = None
    scopes: dict[ScopeKey, Scope] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's report on an activation, without values."""

    activation: ActivationId
    node_id: str
    scope: ScopeKey
    ordinal: int
    order_key: OrderKey
    outcome: Outcome
    error: str | None = None  # `_ERROR` among the outputs
    crash_count: int = 0
    stream_id: ActivationId | None = None
    restarts_text: bool = False  # the Message's text does not continue the text of its stream, which is truncated
    has_written: bool = False  # the attempt has written text to its stream
    usage: Mapping[str, int] = field(default_factory=dict)
