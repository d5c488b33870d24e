"""A decision: what an advance writes. It holds no rules; `canvas/routing/decision_builder.py` fills it in."""

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from canvas.events.run_events import Event
from canvas.state.order_key import OrderKey
from canvas.state.run_state import RunState, ScopeKey, ActivationStatus


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
    status: ActivationStatus


@dataclass(slots=True)
class Decision:
    """Everything that one advance writes. `run` is the run's new state."""

    run: RunState
    activated: list[Activation] = field(default_factory=list)
    moved: dict[UUID, ActivationStatus] = field(default_factory=dict)  # activation -> its new status
    retried: list[UUID] = field(default_factory=list)  # activations that get another attempt at once
    postponed: dict[UUID, float] = field(default_factory=dict)  # another attempt after this many seconds
    promote: int = 0  # how many queued activations become ready, in canonical order
    events: list[Event] = field(default_factory=list)
    scopes: set[ScopeKey] = field(default_factory=set)  # changed or opened
    removed: set[ScopeKey] = field(default_factory=set)  # closed scopes
    opened: dict[UUID, int] = field(default_factory=dict)  # stream -> number of events before its text
    closed: dict[UUID, int] = field(default_factory=dict)  # stream -> number of events up to its end
    taken_back: dict[UUID, int] = field(default_factory=dict)  # stream -> events up to its message_reset
    texts: dict[UUID, tuple[str, str]] = field(default_factory=dict)  # stream -> (node, default)
    expiries: list[timedelta | None] = field(default_factory=list)  # of the forms that are shown
    inheriting: list[UUID] = field(default_factory=list)  # failed; they show the outputs of an earlier pass
    called_off: dict[str, int] = field(default_factory=dict)  # container entry -> cancel items after this one
    errors: dict[UUID, tuple[str, str]] = field(default_factory=dict)  # -> (node id, `_ERROR`)
    error: str = ""  # of the run

    @property
    def activated_nodes(self) -> list[str]:
        """Ids of the newly activated nodes, in canonical order."""
        return [activation.node_id for activation in self.activated]

    @property
    def is_over(self) -> bool:
        """Whether the run ends with this decision."""
        return self.run.status.is_over
