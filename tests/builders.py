"""Canvases, states and whole runs in a few readable words.

    canvas_of("begin -> search, recall; search, recall -> answer")
    canvas_of("begin -> each -> say", "each: item -> ask -> model", ask=reads("item"))

An id says what the node is: `begin`, `say...` (Message), `model...`, `form...`, `pick...` (Switch), `each...` and
`item...` (Iteration), `loop...` and `visit...` (Loop), `exit...` (ExitLoop); anything else is a plain node. What a part
that begins with `each:` is the first to name lies in the body of `each`. A Message mentions the models before it, if
its text is not given.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias
from uuid import UUID

from canvas.document.document import Document, Entry
from canvas.graph.canvas import Canvas, NodeKind, compile_canvas
from canvas.outcome import (
    ContainerExited,
    ContainerOpened,
    Failed,
    Finished,
    NextIteration,
    Outcome,
    Routed,
    WaitingForInput,
)
from canvas.state.order_key import OrderKey
from canvas.state.run_state import Report, RunState, RunStatus, Scope, ScopeKey, activation_id

RUN_ID = UUID("01890000-0000-7000-8000-000000000001")
TOP: ScopeKey = ()

COMPONENTS = {
    "begin": "Begin",
    "say": "Message",
    "model": "LLM",
    "form": "UserFillUp",
    "pick": "Switch",
    "each": "Iteration",
    "item": "IterationItem",
    "loop": "Loop",
    "visit": "LoopItem",
    "exit": "ExitLoop",
}

Params: TypeAlias = Mapping[str, Any]


# -- canvases --------------------------------------------------------------------------------------------------------
def canvas_of(*parts: str, **params: Params) -> Canvas:
    """The compiled canvas that the parts draw; keywords add to the params of a node."""
    return compile_canvas(document_of(*parts, **params))


def document_of(*parts: str, **params: Params) -> Document:
    """The document that the parts draw. Without a `begin` one is added before the first node."""
    edges: dict[str, list[str]] = {}
    parents: dict[str, str | None] = {}
    for part in parts:
        inside, colon, drawn = part.rpartition(":")
        for chain in drawn.split(";"):
            groups = [[node.strip() for node in group.split(",")] for group in chain.split("->")]
            for node in (node for group in groups for node in group):
                edges.setdefault(node, [])
                parents.setdefault(node, inside.strip() if colon else None)
            for sources, targets in pairwise(groups):
                for source in sources:
                    edges[source] += targets
    if "begin" not in edges:
        first = next(iter(edges))
        edges, parents = {"begin": [first], **edges}, {"begin": None, **parents}
    entries = {node: _entry(node, edges, parents[node], params.get(node, {})) for node in edges}
    return Document(entries=entries, raw={})


def _entry(node: str, edges: Mapping[str, list[str]], parent: str | None, params: Params) -> Entry:
    component = component_of(node)
    given: dict[str, Any] = {}
    if component == "Switch":
        given["conditions"] = [{"items": [], "to": [target]} for target in edges[node]]
    if component == "Message":
        models = [before for before in edges if node in edges[before] and component_of(before) == "LLM"]
        given["content"] = [" ".join(f"{{{model}@content}}" for model in models) or "text"]
    return Entry(node, component, {**given, **params}, tuple(dict.fromkeys(edges[node])), parent=parent, name=node)


def component_of(node: str) -> str:
    """What a node of this id is."""
    prefix = re.match(r"[a-z]*", node)
    return next(
        (name for start, name in COMPONENTS.items() if prefix and prefix[0].startswith(start)), "StringTransform"
    )


def reads(*nodes: str) -> Params:
    """A node that refers to others."""
    return {"script": " ".join(f"{{{node}@result}}" for node in nodes)}


def says(text: str) -> Params:
    """A Message with this text."""
    return {"content": [text]}


def goto(*nodes: str) -> Params:
    """A node whose failure leads elsewhere."""
    return {"exception_method": "goto", "exception_goto": list(nodes)}


def default(text: str) -> Params:
    """A node whose failure is answered with a text that the user hears."""
    return {"exception_method": "comment", "exception_default_value": text}


# -- single decisions ------------------------------------------------------------------------------------------------
def running(canvas: Canvas, *, live: Sequence[str] = (), reached: Sequence[str] = (), **scope: Any) -> RunState:
    """A run in whose outermost scope these nodes are alive, and these reached, all in wave 1."""
    places = {canvas.numbers[node]: OrderKey(1) for node in (*live, *reached)}
    alive = {number: places[number] for number in (canvas.numbers[node] for node in live)}
    top = Scope(
        key=TOP,
        active=sum(1 << number for number in alive),
        last_level=1,
        order_keys=alive if canvas.needs_stream_order else {},
        reached={number: places[number] for number in (canvas.numbers[node] for node in reached)},
        **scope,
    )
    return RunState(RUN_ID, RunStatus.RUNNING, in_flight=len(live), scopes={TOP: top})


def report(node: str, outcome: Outcome, *, scope: ScopeKey = TOP, ordinal: int = 0, **more: Any) -> Report:
    """What a node of wave 1 reports."""
    told = {"order_key": OrderKey(1), **more}
    return Report(activation_id(RUN_ID, node, scope, ordinal), node, scope, ordinal, outcome=outcome, **told)


# -- scripts ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class At:
    """Which attempt a script is asked about."""

    canvas: Canvas
    node: str
    scope: ScopeKey
    visit: int  # how often the node has run in this scope before
    attempt: int  # 1 for the first
    answered: bool  # of a form: a person has answered
    count: int | None  # items of the container around an item node

    @property
    def item(self) -> int:
        """The pass of the innermost container."""
        return self.scope[-1][2] if self.scope else 0

    @property
    def kind(self) -> NodeKind:
        return self.canvas.node(self.node).kind


Script: TypeAlias = Callable[[At], Outcome]


def script_of(**outcomes: Outcome | Script | Sequence[Outcome]) -> Script:
    """Outcomes by node: one, a function, or one for each visit (the last for all later ones)."""

    def script(at: At) -> Outcome:
        given = outcomes.get(at.node)
        if given is None:
            return usual(at)
        if isinstance(given, Sequence):
            return given[min(at.visit, len(given) - 1)]
        return given(at) if callable(given) else given

    return script


def usual(at: At) -> Outcome:
    """What a node of its kind does if nothing is said: a router takes its first edge, a container runs two passes."""
    node = at.canvas.node(at.node)
    match at.kind:
        case NodeKind.ITERATION:
            return ContainerOpened(count=2)
        case NodeKind.LOOP:
            return ContainerOpened()
        case NodeKind.ITERATION_ITEM | NodeKind.LOOP_ITEM:
            return NextIteration() if at.item < (2 if at.count is None else at.count) else ContainerExited()
        case NodeKind.EXIT_LOOP:
            return ContainerExited()
        case NodeKind.FORM if not at.answered:
            return WaitingForInput(inputs={at.node: {"type": "line"}}, tips=at.node)
        case _ if node.component == "Switch":
            return chose(*(at.canvas.nodes[number].id for number in node.downstream[:1]))
        case _:
            return Finished()


def chose(*nodes: str) -> Routed:
    """A router takes the edges to these nodes."""
    return Routed(to=nodes)


def failed(error: str = "broken", *, retryable: bool = False) -> Failed:
    """An attempt that could not do its work."""
    return Failed(error, retryable=retryable)


def items(count: int, *, at_once: int = 1) -> ContainerOpened:
    """An Iteration over so many items."""
    return ContainerOpened(count=count, concurrency=at_once)


def rounds(count: int) -> Script:
    """The item node of a Loop that runs its body so often."""
    return lambda at: NextIteration() if at.item < count else ContainerExited()


def lost_once(at: At) -> Outcome:
    """The first worker dies; the second does what is usual."""
    return failed("lease lost", retryable=True) if at.attempt == 1 else usual(at)


def seeded(seed: int) -> random.Random:
    """A source of orders and groupings."""
    return random.Random(seed)
