"""A decision: what an advance writes. It holds no rules; `canvas/routing/decision_builder.py` fills it in."""

from dataclasses import dataclass, field
from datetime import timedelta

from canvas.events.run_events import Event
from canvas.ids import ActivationId
from canvas.state.order_key import OrderKey
from canvas.state.run_state import ActivationStatus, RunState, ScopeKey


@dataclass(frozen=True, slots=True)
class Activation:
    """A decision that a node must run, to be stored as a row."""

    id: ActivationId
    node_id: str
    component: str
    scope: ScopeKey
    ordinal: int
    order_key: OrderKey
    limits: tuple[tuple[str, int], ...]
    stream_id: ActivationId | None
    status: ActivationStatus


@dataclass(slots=True)
class Decision:
    """Everything that one advance writes. `run` is the run's new state."""

    run: RunState
    activated: list[Activation] = field(default_factory=list)
    new_statuses: dict[ActivationId, ActivationStatus] = field(default_factory=dict)  # activation -> its new status
    retry_now: list[ActivationId] = field(default_factory=list)  # activations that get another attempt at once
    retry_after: dict[ActivationId, float] = field(default_factory=dict)  # another attempt after this many seconds
    promote_count: int = 0  # how many queued activations become ready, in canonical order
    events: list[Event] = field(default_factory=list)
    changed_scopes: set[ScopeKey] = field(default_factory=set)  # changed or opened
    closed_scopes: set[ScopeKey] = field(default_factory=set)  # closed scopes
    opened_streams: dict[ActivationId, int] = field(default_factory=dict)  # stream -> number of events before its text
    closed_streams: dict[ActivationId, int] = field(default_factory=dict)  # stream -> number of events up to its end
    truncated_streams: dict[ActivationId, int] = field(default_factory=dict)  # stream -> events up to its message_reset
    default_texts: dict[ActivationId, tuple[str, str]] = field(default_factory=dict)  # stream -> (node, default)
    form_expiries: list[timedelta | None] = field(default_factory=list)  # of the forms that are shown
    # failed activations, which show the outputs of an earlier pass
    copy_outputs_for: list[ActivationId] = field(default_factory=list)
    cancel_items_after: dict[str, int] = field(default_factory=dict)  # container entry -> cancel items after this one
    errors: dict[ActivationId, tuple[str, str]] = field(default_factory=dict)  # -> (node id, `_ERROR`)
    error: str = ""  # of the run

    @property
    def activated_nodes(self) -> list[str]:
        """Ids of the newly activated nodes, in canonical order."""
        return [activation.node_id for activation in self.activated]

    @property
    def is_over(self) -> bool:
        """Whether the run ends with this decision."""
        return self.run.status.is_over
