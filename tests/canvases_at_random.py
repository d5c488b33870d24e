"""Random canvases for property tests, and scripts that follow from a number: same number, same outcomes.

A canvas holds routers, joins of unequal length, containers in containers, models that speak, forms, references across
branches, failures that lead elsewhere, and, where they are asked for, circles: a router that may lead back, and does so
no more than a few times.
"""

import random
import zlib
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from canvas.document.document import Document, Entry
from canvas.graph.canvas import Canvas, Node, NodeKind, compile_canvas
from canvas.outcome import ContainerOpened, NextIteration, Outcome
from tests.builders import At, Params, chose, component_of, default, failed, goto, usual

PLAIN_KINDS = ("step", "step", "step", "talk", "talk", "model", "say", "pick")  # talk: a model and its Message
INNER_KINDS = ("each", "loop")
MOST_NODES = 14
MOST_ROUNDS = 3  # visits of a router after which it no longer leads back


@dataclass(slots=True)
class Drawn:
    """What is being drawn."""

    rng: random.Random
    forms: bool
    side_by_side: bool
    circles: bool
    entries: dict[str, Entry] = field(default_factory=dict)

    def number(self, most: int) -> int:
        return self.rng.randint(0, most)

    def chance(self, percent: int) -> bool:
        return self.number(99) >= 100 - percent

    def some(self, names: list[str], most: int) -> list[str]:
        return self.rng.sample(names, min(len(names), self.number(most)))


def canvas_at_random(
    rng: random.Random, *, forms: bool = True, side_by_side: bool = True, circles: bool = False
) -> Canvas:
    """A canvas of up to fifteen or so nodes."""
    drawn = Drawn(rng, forms, side_by_side, circles)
    _level(drawn, "begin", None, size=2 + drawn.number(6), depth=0, later=[])
    return compile_canvas(Document(entries=drawn.entries, raw={}))


def _level(drawn: Drawn, first: str, parent: str | None, *, size: int, depth: int, later: list[str]) -> None:
    """One body: every node follows from earlier ones. `later` are nodes outside that a failure may lead to."""
    kinds = (*PLAIN_KINDS, *(("form",) if drawn.forms else ()), *(INNER_KINDS if depth < 2 else ()))
    names = [first]
    for _ in range(size):
        if len(drawn.entries) + len(names) < MOST_NODES:
            kind = drawn.rng.choice(kinds)
            for part in ("model", "say") if kind == "talk" else (kind,):
                names.append(f"{part}{len(drawn.entries) + len(names)}{'abc'[depth]}")
    edges: dict[str, list[str]] = {name: [] for name in names}
    for position, name in enumerate(names[1:], start=1):
        last = names[position - 1]
        sources = drawn.some(names[:position], 3) or [names[drawn.number(position - 1)]]
        if name.startswith("say") and last.startswith("model"):
            sources = list(dict.fromkeys([last, *sources[: drawn.number(1)]]))
        for before in sources:
            edges[before].insert(drawn.number(len(edges[before])), name)
    for position, name in enumerate(names[1:], start=1):
        if drawn.circles and component_of(name) == "Switch" and drawn.chance(60):
            edges[name].insert(drawn.number(len(edges[name])), names[1 + drawn.number(position - 1)])
    drawn.entries |= {name: Entry(name, component_of(name), {}, parent=parent) for name in names}
    for position, name in enumerate(names):
        after = names[position + 1 :]
        params = _params(drawn, name, names, edges, [*after, *later] if name != first else [])
        drawn.entries[name] = Entry(name, component_of(name), params, tuple(edges[name]), parent=parent, name=name)
        if component_of(name) in ("Iteration", "Loop"):
            item = f"{'item' if name.startswith('each') else 'visit'}{name[4:]}"
            _level(drawn, item, name, size=1 + drawn.number(3), depth=depth + 1, later=[*after, *later])


def _params(drawn: Drawn, name: str, names: list[str], edges: dict[str, list[str]], exits: list[str]) -> Params:
    params: dict[str, Any] = {}
    kind = component_of(name)
    if kind == "Message":
        models = [before for before in names if name in edges[before] and component_of(before) == "LLM"]
        mentioned = drawn.some(models, 2) if models and drawn.chance(80) else []
        params["content"] = [" ".join(f"{{{model}@content}}" for model in mentioned) or "text"]
    elif drawn.chance(20):
        params["script"] = " ".join(f"{{{other}@result}}" for other in drawn.some(names, 2))
    if kind == "Switch":
        params["conditions"] = [{"items": [], "to": [target]} for target in edges[name]]
    if kind == "Iteration" and drawn.side_by_side:
        params["max_concurrency"] = drawn.rng.choice((1, 2, 3))
    if drawn.chance(25):
        params |= goto(drawn.rng.choice(exits)) if exits and drawn.chance(50) else default("sorry")
    return params


@dataclass(frozen=True, slots=True)
class Dice:
    """A script that follows from a number. `fatal`: percent of attempts that fail with nobody to catch it."""

    salt: int
    fatal: int = 0

    def __call__(self, at: At) -> Outcome:
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
            back = {end for tail, end in at.canvas.reachability.back if tail == node.number and at.visit >= MOST_ROUNDS}
            taken = (at.canvas.nodes[number].id for number in node.downstream if number not in back)
            return chose(*(target for target in taken if self._roll(at, target) < 60))
        return usual(at)

    def _roll(self, at: At, what: str, of: Any = None) -> int:
        return zlib.crc32(f"{self.salt} {at.node} {at.scope if of is None else of} {at.visit} {what}".encode()) % 100


class Story:
    """A canvas and what its nodes do; printed as a drawing."""

    def __init__(self, canvas: Canvas, script: Dice) -> None:
        self.canvas = canvas
        self.script = script

    def __repr__(self) -> str:
        return "\n".join([f"{self.script}", *map(self._line, self.canvas.nodes)])

    def _line(self, node: Node) -> str:
        around = "" if node.parent is None else f"{self.canvas.nodes[node.parent].id}: "
        params = {name: value for name, value in node.params.items() if value and name != "conditions"}
        return f"  {around}{node.id} -> {', '.join(self.canvas.nodes[n].id for n in node.downstream)}  {params}"


def story_at_random(rng: random.Random, *, fatal: int = 0, **kinds: bool) -> Story:
    """A random canvas with a script."""
    return Story(canvas_at_random(rng, **kinds), Dice(rng.randint(0, 9999), fatal))


def layered_at_random(rng: random.Random) -> Story:
    """A canvas whose edges lead from each layer to the next, so that waves are layers whatever happens."""
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
    return Story(compile_canvas(Document(entries=entries, raw={})), Dice(rng.randint(0, 9999), fatal=15))


def stories(**kinds: Any) -> st.SearchStrategy[Story]:
    """Random canvases with their scripts, as hypothesis draws them."""
    return st.randoms(use_true_random=False).map(lambda rng: story_at_random(rng, **kinds))


def layered() -> st.SearchStrategy[Story]:
    """Random canvases in layers, as hypothesis draws them."""
    return st.randoms(use_true_random=False).map(layered_at_random)
