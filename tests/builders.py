"""Build canvases, states, reports and scripts from short texts.

    canvas_of("begin -> search, recall; search, recall -> answer")
    canvas_of("begin -> each -> say", "each: item -> ask -> model", ask=reads("item"))

The id of a node sets its component: `begin`, `say...` (Message), `model...`, `form...`, `pick...` (Switch), `each...`,
`item...` (Iteration), `loop...`, `visit...` (Loop), `exit...` (ExitLoop); anything else is a plain node. The nodes
that a part beginning with `each:` is the first to name are in the body of `each`. A Message without a text mentions the
models before it.
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
    """Return the compiled canvas that the parts describe; keywords add to the params of a node."""
    return compile_canvas(document_of(*parts, **params))


def document_of(*parts: str, **params: Params) -> Document:
    """Return the document that the parts describe. Without a `begin` one is added before the first node."""
    edges: dict[str, list[str]] = {}
    parents: dict[str, str | None] = {}
    for part in parts:
        container, colon, edges_text = part.rpartition(":")
        for chain in edges_text.split(";"):
            groups = [[node.strip() for node in group.split(",")] for group in chain.split("->")]
            for node in (node for group in groups for node in group):
                edges.setdefault(node, [])
                parents.setdefault(node, container.strip() if colon else None)
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
    defaults: dict[str, Any] = {}
    if component == "Switch":
        defaults["conditions"] = [{"items": [], "to": [target]} for target in edges[node]]
    if component == "Message":
        models = [before for before in edges if node in edges[before] and component_of(before) == "LLM"]
        defaults["content"] = [" ".join(f"{{{model}@content}}" for model in models) or "text"]
    return Entry(node, component, {**defaults, **params}, tuple(dict.fromkeys(edges[node])), parent=parent, name=node)


def component_of(node: str) -> str:
    """Return the component of a node with this id."""
    prefix = re.match(r"[a-z]*", node)
    return next(
        (name for start, name in COMPONENTS.items() if prefix and prefix[0].startswith(start)), "StringTransform"
    )


def reads(*nodes: str) -> Params:
    """Return the params of a node that refers to others."""
    return {"script": " ".join(f"{{{node}@result}}" for node in nodes)}


def content(text: str) -> Params:
    """Return the params of a Message with this text."""
    return {"content": [text]}


def goto(*nodes: str) -> Params:
    """Return the params of a node whose failure leads to other nodes."""
    return {"exception_method": "goto", "exception_goto": list(nodes)}


def default(text: str) -> Params:
    """Return the params of a node whose failure streams a default text."""
    return {"exception_method": "comment", "exception_default_value": text}


# -- single decisions ------------------------------------------------------------------------------------------------
def running(canvas: Canvas, *, active: Sequence[str] = (), reached: Sequence[str] = (), **scope: Any) -> RunState:
    """Return a running run whose outermost scope has these active and these reached nodes, all in level 1."""
    order_keys = {canvas.numbers[node]: OrderKey(1) for node in (*active, *reached)}
    active_keys = {number: order_keys[number] for number in (canvas.numbers[node] for node in active)}
    top = Scope(
        key=TOP,
        active=sum(1 << number for number in active_keys),
        last_level=1,
        order_keys=active_keys if canvas.needs_stream_order else {},
        reached={number: order_keys[number] for number in (canvas.numbers[node] for node in reached)},
        **scope,
    )
    return RunState(RUN_ID, RunStatus.RUNNING, in_flight=len(active), scopes={TOP: top})


def report(node: str, outcome: Outcome, *, scope: ScopeKey = TOP, ordinal: int = 0, **more: Any) -> Report:
    """Return the report of a node in level 1."""
    fields = {"order_key": OrderKey(1), **more}
    return Report(activation_id(RUN_ID, node, scope, ordinal), node, scope, ordinal, outcome=outcome, **fields)


# -- scripts ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class NodeAttempt:
    """The attempt for which a script returns an outcome."""

    canvas: Canvas
    node: str
    scope: ScopeKey
    visit: int  # how often the node has run in this scope before
    attempt: int  # 1 for the first
    answered: bool  # of a form: it was answered
    count: int | None  # items of the container around an item node

    @property
    def item(self) -> int:
        """The pass of the innermost container."""
        return self.scope[-1][2] if self.scope else 0

    @property
    def kind(self) -> NodeKind:
        return self.canvas.node(self.node).kind


Script: TypeAlias = Callable[[NodeAttempt], Outcome]


def script_of(**outcomes: Outcome | Script | Sequence[Outcome]) -> Script:
    """Return a script from outcomes by node: one, a function, or one for each visit (the last for all later ones)."""

    def script(at: NodeAttempt) -> Outcome:
        outcome = outcomes.get(at.node)
        if outcome is None:
            return default_outcome(at)
        if isinstance(outcome, Sequence):
            return outcome[min(at.visit, len(outcome) - 1)]
        return outcome(at) if callable(outcome) else outcome

    return script


def default_outcome(at: NodeAttempt) -> Outcome:
    """Return the usual outcome of a kind of node: a router takes its first edge, a container runs two passes."""
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
            return routed_to(*(at.canvas.nodes[number].id for number in node.downstream[:1]))
        case _:
            return Finished()


def routed_to(*nodes: str) -> Routed:
    """Return the outcome of a router that takes the edges to these nodes."""
    return Routed(to=nodes)


def failed(error: str = "broken", *, retryable: bool = False) -> Failed:
    """Return the outcome of an attempt that failed."""
    return Failed(error, retryable=retryable)


def items(count: int, *, at_once: int = 1) -> ContainerOpened:
    """Return the outcome of an Iteration over this many items."""
    return ContainerOpened(count=count, concurrency=at_once)


def rounds(count: int) -> Script:
    """Return the script of a Loop's item node that runs the body this many times."""
    return lambda at: NextIteration() if at.item < count else ContainerExited()


def lost_once(at: NodeAttempt) -> Outcome:
    """Lose the worker of the first attempt; return the default outcome afterwards."""
    return failed("lease lost", retryable=True) if at.attempt == 1 else default_outcome(at)


def seeded_random(seed: int) -> random.Random:
    """Return a random source for orders and groupings."""
    return random.Random(seed)
