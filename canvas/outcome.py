"""What an attempt can report. A closed set: the type checker points at every place that must think about a new one.

`outputs` and `assign` are stored by the worker beside the report and never travel through the coordinator; routing
looks at the rest only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Outputs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MessageEnd:
    """What a Message's `message_end` carries; empty members are left out on the wire."""

    status: Any = None
    attachment: Mapping[str, Any] | None = None
    downloads: tuple[Mapping[str, Any], ...] = ()
    reference: Mapping[str, Any] | None = None  # {"chunks": {id: chunk}, "doc_aggs": {name: agg}}


@dataclass(frozen=True, slots=True)
class Finished:
    """The node did its work; every edge to its downstream is taken.

    An output `_ERROR` marks an error that routing ignores (a speaking model node, components E10).
    """

    outputs: Outputs = field(default_factory=dict)
    assign: Mapping[str, Any] = field(default_factory=dict)  # reference -> new whole value of its root
    end: MessageEnd | None = None  # Message only


@dataclass(frozen=True, slots=True)
class Routed:
    """A router's choice: only the edges to these nodes are taken."""

    to: tuple[str, ...]
    outputs: Outputs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerOpened:
    """A container opens its body. `count` is the number of items, None for a Loop; `concurrency` items side by side."""

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
"""Codes of failures that are reported in a lost worker's name: nothing is stored beside them."""
OVER_BUDGET = "budget_exceeded"
"""The code of an attempt that has ended before a call of a model that no budget allows: it may go on later."""
POSTPONED = "postponed"
"""Code of an attempt that was given back: what it needs is to be had later, and nobody has failed."""
UNKNOWN_TEXT = "Whether it has happened is not known: its worker was lost while it worked."


@dataclass(frozen=True, slots=True)
class Failed:
    """The node could not do its work. `retryable`: another attempt may help (a lost or released worker only).

    `again_in` seconds it may be worth one, where that is not at once; `error` then says what it waits for.
    """

    error: str
    code: str = "node_failure"
    retryable: bool = False
    outputs: Outputs = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)  # of a budget that is used up

    @property
    def is_over_budget(self) -> bool:
        """Whether the attempt has ended before a call that no budget allows (canvas/budget.py)."""
        return self.code == OVER_BUDGET

    again_in: float = 0.0

    @property
    def is_unknown(self) -> bool:
        """Whether the attempt may have acted, and nobody knows (canvas/graph/uncertain_outcomes.py)."""
        return self.code == UNKNOWN_OUTCOME

    @property
    def leaves_nothing(self) -> bool:
        """Whether no values lie beside the report."""
        return self.retryable or self.code in (LOST, UNKNOWN_OUTCOME, OVER_BUDGET)


Outcome: TypeAlias = Finished | Routed | ContainerOpened | NextIteration | ContainerExited | WaitingForInput | Failed
