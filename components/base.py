"""The definition of a component: its parameters, its function, its name and its effect class.

    @component("Switch", SwitchParams, effect="pure")
    def switch(params: SwitchParams, ctx: NodeContext) -> Outcome: ...

A component that waits is `async def`; one that only computes is `def`.
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from canvas.outcome import Outcome
from components.context import NodeContext

Effect: TypeAlias = Literal["pure", "idempotent", "keyed", "unsafe"]
"""The effect class: what repeating an attempt means after its worker was lost (docs/dsl.md, "What is repeated after a
crash").

`pure`: the attempt reaches nothing outside. `idempotent`: it only reads, or a second call has no further effect.
`keyed`: the receiver recognises a repetition, by a key or because results are recorded. `unsafe`: the action may happen
twice.
"""


class Params(BaseModel):
    """The parameters that every node has. Unknown keys are kept and readable, never rejected."""

    model_config = ConfigDict(frozen=True, extra="allow", arbitrary_types_allowed=False)

    default_outputs: ClassVar[tuple[str, ...]] = ()
    """Output names of a node whose DSL declares no `outputs`; they read as null until the node runs."""
    secrets: ClassVar[tuple[str, ...]] = ()
    """Dotted names of parameters whose values are secret: they are encrypted in stored canvases and never shown."""
    secret_headers: ClassVar[tuple[str, ...]] = ()
    """Parameters that hold HTTP headers, some of which may be secrets."""
    later_outputs: ClassVar[tuple[str, ...] | None] = None
    """Further output names that the component may set, apart from names that begin with `_`; None: any name."""

    inputs: Any = Field(default_factory=dict)
    outputs: Any = Field(default_factory=dict)
    description: Any = ""
    max_retries: Any = 0
    delay_after_error: Any = 2.0
    exception_method: Any = None
    exception_default_value: Any = None
    exception_goto: Any = None
    message_history_window_size: Any = 13


P = TypeVar("P", bound=Params)
Run = Callable[[P, NodeContext], Outcome | Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Component(Generic[P]):
    """A component as the registry lists it.

    `effect` is the effect class; `effect_for` returns the one for given parameters, where it depends on them.
    `owns_errors`: the component reports its own errors, so with the exception method `comment` the engine writes the
    default value.
    `assigns`: the component writes variables, so later nodes must read them again.
    `needed_seconds`: returns the time limit of an attempt with given parameters, instead of the component's usual one.
    """

    name: str
    params: type[P]
    run: Run[P]
    effect: Effect = "pure"
    owns_errors: bool = False
    needed_seconds: Callable[[P], float] | None = None
    effect_for: Callable[[P], Effect] | None = None
    assigns: bool = False

    @property
    def only_computes(self) -> bool:
        """Whether a node computes and reaches nothing outside: neither a model or a tool, nor the text of a Message."""
        return self.effect == "pure" and self.effect_for is None and not inspect.iscoroutinefunction(self.run)

    def effect_of(self, params: P) -> Effect:
        """Return the effect class of a node with these parameters."""
        return self.effect if self.effect_for is None else self.effect_for(params)


def component(
    name: str,
    params: type[P],
    *,
    effect: Effect,
    owns_errors: bool = False,
    needed_seconds: Callable[[P], float] | None = None,
    effect_for: Callable[[P], Effect] | None = None,
    assigns: bool = False,
) -> Callable[[Run[P]], Component[P]]:
    """Declare a component: a decorator whose result the registry lists."""

    def declare(run: Run[P]) -> Component[P]:
        return Component(name, params, run, effect, owns_errors, needed_seconds, effect_for, assigns)

    return declare
