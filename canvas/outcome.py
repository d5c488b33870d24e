"""Outcomes: what an attempt can report. The set is closed, so the type checker finds every place that a new one needs.

The worker stores `outputs` and `assign` beside the report. They never pass through the coordinator; routing reads only
the other fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Outputs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MessageEnd:
    """The fields of a Message's `message_end` event; empty ones are left out of the event."""

    status: Any = None
    attachment: Mapping[str, Any] | None = None
    downloads: tuple[Mapping[str, Any], ...] = ()
    reference: Mapping[str, Any] | None = None  # {"chunks": {id: chunk}, "doc_aggs": {name: agg}}


@dataclass(frozen=True, slots=True)
class Finished:
    """The node has done its work; every edge to its downstream nodes is followed.

    An output `_ERROR` marks an error that routing ignores: of a model node that streams its text.
    """

    outputs: Outputs = field(default_factory=dict)
    assign: Mapping[str, Any] = field(default_factory=dict)  # reference -> new whole value of its root
    end: MessageEnd | None = None  # Message only


@dataclass(frozen=True, slots=True)
class Routed:
    """A router's choice: only the edges to these nodes are followed."""

    to: tuple[str, ...]
    outputs: Outputs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerOpened:
    """A container opens its body. `count`: the number of items, None for a Loop; `concurrency` of them run at once."""

    count: int | None = None
    concurrency: int = 1
    outputs: Outputs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NextIteration:
    """An item visit starts another pass of the body."""

    outputs: Outputs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerExited:
    """An item visit (or an ExitLoop) ends its container. `container` is stored as the container's outputs."""

    outputs: Outputs = field(default_factory=dict)
    container: Outputs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WaitingForInput:
    """The node asks a person. `inputs` are the open fields (name -> schema with value null), `tips` the prompt."""

    inputs: Mapping[str, Any]
    tips: str = ""
    outputs: Outputs = field(default_factory=dict)


LOST = "worker_lost"
UNKNOWN_OUTCOME = "unknown_outcome"
"""Codes of failures that are reported on behalf of a lost worker: no values are stored beside them."""
OVER_BUDGET = "budget_exceeded"
"""Code of an attempt that ended before a model call that no budget allows: it may continue later."""
POSTPONED = "postponed"
"""Code of an attempt that was released: what it needs is available later, and nothing has failed."""
UNKNOWN_TEXT = "The worker was lost during this step, so it is not known whether the action took place."


@dataclass(frozen=True, slots=True)
class Failed:
    """The node could not do its work. `retryable`: another attempt may help (only of a lost or released worker).

    `retry_in`: seconds until that attempt, 0 for at once; if it is above 0, `error` says what the attempt waits for.
    """

    error: str
    code: str = "node_failure"
    retryable: bool = False
    outputs: Outputs = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)  # of a budget that is used up

    @property
    def is_over_budget(self) -> bool:
        """Whether the attempt ended before a model call that no budget allows (canvas/budget.py)."""
        return self.code == OVER_BUDGET

    retry_in: float = 0.0

    @property
    def is_unknown(self) -> bool:
        """Whether the attempt may have acted, and it is not known (canvas/graph/uncertain_outcomes.py)."""
        return self.code == UNKNOWN_OUTCOME

    @property
    def stores_no_values(self) -> bool:
        """Whether no values are stored beside the report."""
        return self.retryable or self.code in (LOST, UNKNOWN_OUTCOME, OVER_BUDGET)


Outcome: TypeAlias = Finished | Routed | ContainerOpened | NextIteration | ContainerExited | WaitingForInput | Failed
