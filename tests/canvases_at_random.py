"""Random canvases for property tests, and scripts that follow from a number: same number, same outcomes.

A canvas has routers, joins of unequal paths, nested containers, streaming models, forms, references across branches,
failures with a goto, and optionally cycles: a router that may lead back, for a few rounds only.
"""

import random
import zlib
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from canvas.document.document import Document, Entry
from canvas.graph.canvas import Canvas, Node, NodeKind, compile_canvas
from canvas.outcome import ContainerOpened, NextIteration, Outcome
from tests.builders import NodeAttempt, Params, component_of, default, default_outcome, failed, goto, routed_to

PLAIN_KINDS = ("step", "step", "step", "talk", "talk", "model", "say", "pick")  # talk: a model and its Message
INNER_KINDS = ("each", "loop")
MAX_NODES = 14
MAX_ROUNDS = 3  # visits of a router after which it no longer leads back


@dataclass(slots=True)
class CanvasDraft:
    """A canvas that is being generated."""

    rng: random.Random
    forms: bool
    parallel_items: bool
    cycles: bool
    entries: dict[str, Entry] = field(default_factory=dict)

    def number(self, maximum: int) -> int:
        return self.rng.randint(0, maximum)

    def chance(self, percent: int) -> bool:
        return self.number(99) >= 100 - percent

    def some(self, names: list[str], maximum: int) -> list[str]:
        return self.rng.sample(names, min(len(names), self.number(maximum)))


def random_canvas(
    rng: random.Random, *, forms: bool = True, parallel_items: bool = True, cycles: bool = False
) -> Canvas:
    """Generate a canvas of up to about fifteen nodes."""
    draft = CanvasDraft(rng, forms, parallel_items, cycles)
    _level(draft, "begin", None, size=2 + draft.number(6), depth=0, later=[])
    return compile_canvas(Document(entries=draft.entries, raw={}))


def _level(draft: CanvasDraft, first: str, parent: str | None, *, size: int, depth: int, later: list[str]) -> None:
    """Generate one body: every node follows earlier ones. `later` are outer nodes that a failure may go to."""
    kinds = (*PLAIN_KINDS, *(("form",) if draft.forms else ()), *(INNER_KINDS if depth < 2 else ()))
    names = [first]
    for _ in range(size):
        if len(draft.entries) + len(names) < MAX_NODES:
            kind = draft.rng.choice(kinds)
            for part in ("model", "say") if kind == "talk" else (kind,):
                names.append(f"{part}{len(draft.entries) + len(names)}{'abc'[depth]}")
    edges: dict[str, list[str]] = {name: [] for name in names}
    for position, name in enumerate(names[1:], start=1):
        last = names[position - 1]
        sources = draft.some(names[:position], 3) or [names[draft.number(position - 1)]]
        if name.startswith("say") and last.startswith("model"):
            sources = list(dict.fromkeys([last, *sources[: draft.number(1)]]))
        for before in sources:
            edges[before].insert(draft.number(len(edges[before])), name)
    for position, name in enumerate(names[1:], start=1):
        if draft.cycles and component_of(name) == "Switch" and draft.chance(60):
            edges[name].insert(draft.number(len(edges[name])), names[1 + draft.number(position - 1)])
    draft.entries |= {name: Entry(name, component_of(name), {}, parent=parent) for name in names}
    for position, name in enumerate(names):
        after = names[position + 1 :]
        params = _params(draft, name, names, edges, [*after, *later] if name != first else [])
        draft.entries[name] = Entry(name, component_of(name), params, tuple(edges[name]), parent=parent, name=name)
        if component_of(name) in ("Iteration", "Loop"):
            item = f"{'item' if name.startswith('each') else 'visit'}{name[4:]}"
            _level(draft, item, name, size=1 + draft.number(3), depth=depth + 1, later=[*after, *later])


def _params(draft: CanvasDraft, name: str, names: list[str], edges: dict[str, list[str]], exits: list[str]) -> Params:
    params: dict[str, Any] = {}
    kind = component_of(name)
    if kind == "Message":
        models = [before for before in names if name in edges[before] and component_of(before) == "LLM"]
        mentioned = draft.some(models, 2) if models and draft.chance(80) else []
        params["content"] = [" ".join(f"{{{model}@content}}" for model in mentioned) or "text"]
    elif draft.chance(20):
        params["script"] = " ".join(f"{{{other}@result}}" for other in draft.some(names, 2))
    if kind == "Switch":
        params["conditions"] = [{"items": [], "to": [target]} for target in edges[name]]
    if kind == "Iteration" and draft.parallel_items:
        params["max_concurrency"] = draft.rng.choice((1, 2, 3))
    if draft.chance(25):
        params |= goto(draft.rng.choice(exits)) if exits and draft.chance(50) else default("sorry")
    return params


@dataclass(frozen=True, slots=True)
class SeededScript:
    """A script that follows from a number. `fatal`: percent of attempts that fail without a handler."""

    salt: int
    fatal: int = 0

    def __call__(self, at: NodeAttempt) -> Outcome:
        node = at.canvas.node(at.node)
        caught = node.failure.streams_default or node.failure.has_goto
        if at.attempt == 1 and self._roll(at, "lost") < 8:
            return failed("lease lost", retryable=True)
        if self._roll(at, "fails") < (30 if caught else self.fatal) and node.kind is not NodeKind.BEGIN:
            return failed(f"{at.node} is broken")
        if node.kind is NodeKind.ITERATION:
            return ContainerOpened(self._roll(at, "items") % 4, node.params.get("max_concurrency") or 1)
        if node.kind is NodeKind.LOOP_ITEM and at.item < self._roll(at, "rounds", of=at.scope[:-1]) % 3:
            return NextIteration()
        if node.component == "Switch":
            back = {end for tail, end in at.canvas.reachability.back if tail == node.number and at.visit >= MAX_ROUNDS}
            targets = (at.canvas.nodes[number].id for number in node.downstream if number not in back)
            return routed_to(*(target for target in targets if self._roll(at, target) < 60))
        return default_outcome(at)

    def _roll(self, at: NodeAttempt, what: str, of: Any = None) -> int:
        return zlib.crc32(f"{self.salt} {at.node} {at.scope if of is None else of} {at.visit} {what}".encode()) % 100


class CanvasCase:
    """A canvas and the script of its nodes; its repr lists the nodes."""

    def __init__(self, canvas: Canvas, script: SeededScript) -> None:
        self.canvas = canvas
        self.script = script

    def __repr__(self) -> str:
        return "\n".join([f"{self.script}", *map(self._line, self.canvas.nodes)])

    def _line(self, node: Node) -> str:
        around = "" if node.parent is None else f"{self.canvas.nodes[node.parent].id}: "
        params = {name: value for name, value in node.params.items() if value and name != "conditions"}
        return f"  {around}{node.id} -> {', '.join(self.canvas.nodes[n].id for n in node.downstream)}  {params}"


def random_case(rng: random.Random, *, fatal: int = 0, **kinds: bool) -> CanvasCase:
    """Generate a random canvas with a script."""
    return CanvasCase(random_canvas(rng, **kinds), SeededScript(rng.randint(0, 9999), fatal))


def random_layered_case(rng: random.Random) -> CanvasCase:
    """Generate a canvas whose edges lead from each layer to the next, so that levels are layers."""
    layers = [["begin"]]
    for depth in range(1, rng.randint(3, 6)):
        kinds = rng.choices(("step", "model", "say", "pick"), k=rng.randint(1, 4))
        layers.append([f"{kind}{depth}{'abcd'[position]}" for position, kind in enumerate(kinds)])
    entries: dict[str, Entry] = {}
    for layer, following in zip(layers, [*layers[1:], []], strict=True):
        for name in layer:
            to = rng.sample(following, rng.randint(1, len(following))) if following else []
            params: dict[str, Any] = {"conditions": [{"items": [], "to": [target]} for target in to]}
            if following and rng.randint(0, 3) == 3:
                params |= goto(rng.choice(following))
            entries[name] = Entry(name, component_of(name), params, tuple(to), name=name)
    for name, entry in entries.items():
        if entry.component == "Message":
            models = [f"{{{e.id}@content}}" for e in entries.values() if name in e.downstream and e.component == "LLM"]
            entries[name] = Entry(name, "Message", {"content": [" ".join(models) or "text"]}, entry.downstream)
    return CanvasCase(compile_canvas(Document(entries=entries, raw={})), SeededScript(rng.randint(0, 9999), fatal=15))


def random_cases(**kinds: Any) -> st.SearchStrategy[CanvasCase]:
    """A hypothesis strategy of random canvases with their scripts."""
    return st.randoms(use_true_random=False).map(lambda rng: random_case(rng, **kinds))


def random_layered_cases() -> st.SearchStrategy[CanvasCase]:
    """A hypothesis strategy of random canvases in layers."""
    return st.randoms(use_true_random=False).map(random_layered_case)
