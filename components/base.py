"""What a component is: its parameters, its function, and the names it goes by.

    @component("Slugify", SlugifyParams, effect="pure")
    def slugify(params: SlugifyParams, ctx: NodeContext) -> Outcome: ...

A component that waits is `async def`; one that only computes is `def`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from canvas.outcome import Outcome
from components.context import NodeContext

Effect: TypeAlias = Literal["pure", "idempotent", "keyed", "unsafe"]
"""What repeating an attempt means whose worker was lost (docs/dsl.md, "What is repeated after a crash").

`pure`: nothing outside is reached. `idempotent`: outside is only read, or what is done twice is done once. `keyed`: who
is reached can tell a repetition, by a key or because results are recorded. `unsafe`: it may be done twice.
"""


class Params(BaseModel):
    """The fields every node's params carry (components 1.2). Unknown keys are kept and readable, never rejected."""

    model_config = ConfigDict(frozen=True, extra="allow", arbitrary_types_allowed=False)

    default_outputs: ClassVar[tuple[str, ...]] = ()
    """Output names a node has when its DSL declares no `outputs`; they read as null until it runs."""
    secrets: ClassVar[tuple[str, ...]] = ()
    """Parameters whose values may never show, by dotted name: they are sealed where a canvas is stored."""
    secret_headers: ClassVar[tuple[str, ...]] = ()
    """Parameters that hold HTTP headers, among which some may be secrets."""
    later_outputs: ClassVar[tuple[str, ...] | None] = None
    """Further names that it may set by itself, but for those that begin with `_`; None: it may set any."""

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

    `effect` says what repeating it means, `effect_here` what it means for these parameters, where that differs.
    `owns_errors`: it reports its own errors, so that under `comment` the engine speaks the default (components 1.6).
    `assigns`: it writes variables, so others must look for them.
    `asks_for`: the seconds that an attempt with these parameters needs, in place of the class's usual limit.
    """

    name: str
    params: type[P]
    run: Run[P]
    effect: Effect = "pure"
    owns_errors: bool = False
    asks_for: Callable[[P], float] | None = None
    effect_here: Callable[[P], Effect] | None = None
    assigns: bool = False

    def effect_of(self, params: P) -> Effect:
        """What repeating a node with these parameters means."""
        return self.effect if self.effect_here is None else self.effect_here(params)


def component(
    name: str,
    params: type[P],
    *,
    effect: Effect,
    owns_errors: bool = False,
    asks_for: Callable[[P], float] | None = None,
    effect_here: Callable[[P], Effect] | None = None,
    assigns: bool = False,
) -> Callable[[Run[P]], Component[P]]:
    """Declare a component; the registry lists what this returns."""

    def declare(run: Run[P]) -> Component[P]:
        return Component(name, params, run, effect, owns_errors, asks_for, effect_here, assigns)

    return declare
