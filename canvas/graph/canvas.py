"""Canvas and Node: a document compiled for routing.

`compile_canvas` numbers the nodes and answers, once per version, what the coordinator asks at every step: where a
node's edges lead, which container it lives in, and what can still reach it. Sets of nodes are bit masks over numbers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from canvas.document import references
from canvas.document.document import Document, Entry
from canvas.errors import InvalidCanvas
from canvas.graph.reachability import Reachability, bits, reach_of
from canvas.graph.uncertain_outcomes import OnUnknown, label, policy
from canvas.outcome import UNKNOWN_OUTCOME
from canvas.state.run_state import ScopeKey


class NodeKind(StrEnum):
    """What the engine must know about a component; everything else is PLAIN to it."""

    BEGIN = "begin"
    MESSAGE = "message"
    MODEL = "model"
    ITERATION = "iteration"
    ITERATION_ITEM = "iteration_item"
    LOOP = "loop"
    LOOP_ITEM = "loop_item"
    EXIT_LOOP = "exit_loop"
    FORM = "form"
    ANSWER = "answer"
    PLAIN = "plain"

    @property
    def is_container(self) -> bool:
        """Whether the node opens scopes of its own."""
        return self in (NodeKind.ITERATION, NodeKind.LOOP)

    @property
    def is_item(self) -> bool:
        """Whether the node is the visit that starts each pass of a body."""
        return self in (NodeKind.ITERATION_ITEM, NodeKind.LOOP_ITEM)

    @property
    def asks(self) -> bool:
        """Whether the node may wait for a person."""
        return self in (NodeKind.FORM, NodeKind.ANSWER)

    @property
    def has_turn(self) -> bool:
        """Whether the node says what it has to say in a turn of its own."""
        return self in (NodeKind.MESSAGE, NodeKind.ANSWER)


ROUTERS = frozenset({"categorize", "switch"})
"""Components that choose their successors."""

KINDS: Mapping[str, NodeKind] = {
    "begin": NodeKind.BEGIN,
    "message": NodeKind.MESSAGE,
    "llm": NodeKind.MODEL,
    "generate": NodeKind.MODEL,
    "agent": NodeKind.MODEL,
    "deepresearch": NodeKind.MODEL,
    "iteration": NodeKind.ITERATION,
    "iterationitem": NodeKind.ITERATION_ITEM,
    "loop": NodeKind.LOOP,
    "loopitem": NodeKind.LOOP_ITEM,
    "exitloop": NodeKind.EXIT_LOOP,
    "userfillup": NodeKind.FORM,
    "fillup": NodeKind.FORM,
    "answer": NodeKind.ANSWER,
}


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What the author wants when the node fails."""

    method: str  # "" | "comment" | "goto"
    default: Any
    goto: tuple[int, ...]

    @property
    def leads_elsewhere(self) -> bool:
        """Whether a failure takes the author's way out instead of the edges."""
        return bool(self.method and self.goto)

    @property
    def is_heard(self) -> bool:
        """Whether a failure is answered with a default value that the user hears."""
        return bool(self.default) and not self.leads_elsewhere


@dataclass(frozen=True, slots=True)
class Node:
    """One place on a canvas. Numbers, not ids, point at other nodes; edges to unknown ids are left out."""

    number: int
    id: str
    name: str
    component: str
    kind: NodeKind
    params: Mapping[str, Any]
    downstream: tuple[int, ...]
    targets: tuple[int, ...]  # every node that any outcome of this one may lead to, in order
    parent: int | None
    failure: FailurePolicy
    on_unknown: OnUnknown = "fail"  # what follows when nobody knows whether it has acted

    @property
    def bit(self) -> int:
        """The node's bit in a mask."""
        return 1 << self.number

    @property
    def title(self) -> str:
        """The node as errors name it: `Node "Search" (TavilySearch:0)`, with the component where the id lacks it."""
        has_name = bool(self.name) and self.name != self.id
        has_component = self.id.lower().startswith(self.component.lower())
        if has_name:
            return f'Node "{self.name}" ({self.id if has_component else f"{self.id}, {self.component}"})'
        return f"Node {self.id}" if has_component else f"Node {self.id} ({self.component})"

    @property
    def chooses(self) -> bool:
        """Whether the way on is the node's own choice, so that a failed one leads nowhere."""
        return self.component.lower() in ROUTERS


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """The Message in whose turn a model node speaks, and the nodes that its text mentions first (as a mask)."""

    message: int
    mentioned_before: int


@dataclass(frozen=True)
class Canvas:
    """A compiled canvas. Immutable; processes cache one per version."""

    nodes: tuple[Node, ...]
    numbers: Mapping[str, int]
    begin: int
    items: Mapping[int, int]  # container -> its item node
    reach: Reachability
    turns: Mapping[int, StreamTarget]  # model node -> where it speaks
    unheard: int  # model nodes whose text nobody reads: not called at all
    speaking: int  # model nodes that stream because a Message follows them
    messages: int  # nodes with a turn of their own

    def node(self, node_id: str) -> Node:
        """The node with this id."""
        return self.nodes[self.numbers[node_id]]

    def error_of(self, node_id: str, error: str, code: str = "") -> str:
        """Return the error of a run as people read it: what failed, then why.

        What failed is left out of an error of the run as a whole, and where the error names the node already.
        """
        number = self.numbers.get(node_id)
        if number is None or code == UNKNOWN_OUTCOME:
            return error
        node = self.nodes[number]
        is_named = error.startswith((f'Node "{node.name}" ({node.id}', f"Node {node.id} "))
        return error if is_named else f"{node.title}: {error}"

    @cached_property
    def orders_speech(self) -> bool:
        """Whether two texts of one run can compete for the user's ear, so that places must be compared."""
        heard = [node for node in self.nodes if _is_voice(node)]
        return len(heard) > 1 or any(node.parent is not None for node in heard)

    @cached_property
    def voices(self) -> Mapping[int | None, int]:
        """Who may be heard, by the container they stand in (None outside): Messages, nodes with a default value that
        is heard, and containers with such nodes in their bodies."""
        masks: dict[int | None, int] = {}
        for node in self.nodes:
            if _is_voice(node):
                for number in (node.number, *self.containers_of(node.number)):
                    parent = self.nodes[number].parent
                    masks[parent] = masks.get(parent, 0) | 1 << number
        return masks

    @cached_property
    def leaky(self) -> int:
        """Containers from whose bodies an edge leads out, as a mask."""
        mask = 0
        for node in self.nodes:
            for target in node.targets:
                around = set(self.containers_of(target))
                mask |= _mask(self.nodes[c] for c in self.containers_of(node.number) if c not in around)
        return mask

    def may_repeat(self, number: int) -> bool:
        """Whether a circle leads to the node, so that it may run more than once in one scope."""
        return self.reach.above[number] != self.reach.above_forward[number]

    def targets_of(self, ids: Sequence[str]) -> tuple[int, ...]:
        """Numbers of the nodes an outcome names, in order and once each; unknown ids are dead edges."""
        found = (self.numbers.get(node_id) for node_id in ids)
        return tuple(dict.fromkeys(number for number in found if number is not None))

    def containers_of(self, number: int) -> Iterator[int]:
        """The containers around a node, innermost first."""
        parent = self.nodes[number].parent
        while parent is not None:
            yield parent
            parent = self.nodes[parent].parent

    def children(self, container: int) -> tuple[Node, ...]:
        """The nodes of a container's body, its item node included, in component order."""
        return tuple(node for node in self.nodes if node.parent == container)


NO_NODES = Canvas(
    nodes=(),
    numbers={},
    begin=0,
    items={},
    reach=reach_of(parents=[], targets=[], roots=[], items=frozenset(), mentions=[]),
    turns={},
    unheard=0,
    speaking=0,
    messages=0,
)
"""What runs are shown with whose canvas is not there any more: nodes have ids, and no names."""


def form_key(canvas: Canvas, node_id: str, scope: ScopeKey) -> str:
    """What an open form is shown under: the node that asks, and its item where several items may ask at once."""
    number = canvas.numbers.get(node_id)
    return node_id if number is None or canvas.nodes[number].kind.asks else label(node_id, scope)


def mask_of(numbers: Iterable[int]) -> int:
    """The inverse of `bits`."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def compile_canvas(document: Document) -> Canvas:
    """Number the nodes of a document and work out what routing needs.

    Raises InvalidCanvas if there is no `begin`, or a container or item node stands alone. Edges to unknown ids are
    left out: validation reports them, and at run time they are dead.
    """
    if "begin" not in document.entries:
        raise InvalidCanvas('The canvas has no node with the id "begin". Add a Begin node with that id.')
    numbers = {node_id: number for number, node_id in enumerate(document.entries)}
    _refuse_circles_of_parents(document)
    nodes = tuple(_node(numbers, document, entry) for entry in document.entries.values())
    items = _items(nodes)
    speaking = _mask(node for node in nodes if _defers(nodes, node))
    turns = _turns(nodes, numbers, speaking)
    return Canvas(
        nodes=nodes,
        numbers=numbers,
        begin=numbers["begin"],
        items=items,
        reach=reach_of(
            parents=[node.parent for node in nodes],
            targets=[node.targets for node in nodes],
            roots=[numbers["begin"], *items.values()],
            items=frozenset(items.values()),
            mentions=[_mentioned(numbers, node.params) for node in nodes],
        ),
        turns=turns,
        unheard=_unheard(nodes, numbers, speaking),
        speaking=speaking,
        messages=_mask(node for node in nodes if node.kind.has_turn),
    )


def _refuse_circles_of_parents(document: Document) -> None:
    for entry in document.entries.values():
        around: Entry | None = entry
        seen: set[str] = set()
        while around is not None:
            if around.id in seen:
                message = f'Node "{entry.name}" ({entry.id}) lies inside of itself. Give it another parent, or none.'
                raise InvalidCanvas(message, node=entry.id, field="parent_id")
            seen.add(around.id)
            around = document.entries.get(around.parent) if around.parent is not None else None


def _node(numbers: Mapping[str, int], document: Document, entry: Entry) -> Node:
    params = entry.params
    downstream = _known(numbers, entry.downstream)
    goto = _known(numbers, _texts(params.get("exception_goto")))
    chosen: list[str] = []
    for group in _objects(params.get("conditions")):
        chosen += _texts(group.get("to"))
    chosen += _texts(params.get("end_cpn_ids"))
    categories = params.get("category_description")
    for category in _objects(list(categories.values()) if isinstance(categories, Mapping) else ()):
        chosen += _texts(category.get("to"))
    around = document.entries.get(entry.parent) if entry.parent is not None else None
    return Node(
        number=numbers[entry.id],
        id=entry.id,
        name=entry.name,
        component=entry.component,
        kind=_kind(entry),
        params=params,
        downstream=downstream,
        targets=tuple(dict.fromkeys((*downstream, *_known(numbers, chosen), *goto))),
        parent=numbers[around.id] if around is not None and _kind(around).is_container else None,
        failure=FailurePolicy(
            method=str(params.get("exception_method") or ""),
            default=params.get("exception_default_value"),
            goto=goto,
        ),
        on_unknown=policy(params, document.raw),
    )


def _kind(entry: Entry) -> NodeKind:
    return KINDS.get(entry.component.lower(), NodeKind.PLAIN)


def _known(numbers: Mapping[str, int], ids: Sequence[str]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(numbers[node_id] for node_id in ids if node_id in numbers))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else []


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def _items(nodes: Sequence[Node]) -> dict[int, int]:
    """The item node of each container: the first child of the right class."""
    items: dict[int, int] = {}
    for node in nodes:
        if not node.kind.is_item:
            continue
        parent = nodes[node.parent] if node.parent is not None else None
        wanted = NodeKind.ITERATION if node.kind is NodeKind.ITERATION_ITEM else NodeKind.LOOP
        if parent is None or parent.kind is not wanted:
            message = (
                f'Node "{node.name}" ({node.id}) stands outside of a {wanted.value}. Put it into one or remove it.'
            )
            raise InvalidCanvas(message, node=node.id, field="parent_id")
        items.setdefault(parent.number, node.number)
    for node in nodes:
        if node.kind.is_container and node.number not in items:
            message = f'Node "{node.name}" ({node.id}) has no item node in its body. Add one.'
            raise InvalidCanvas(message, node=node.id, field="parent_id")
    return items


def _mask(nodes: Iterable[Node]) -> int:
    return mask_of(node.number for node in nodes)


def _is_voice(node: Node) -> bool:
    return node.kind.has_turn or node.failure.is_heard


def _mentioned(numbers: Mapping[str, int], params: Mapping[str, Any]) -> tuple[int, ...]:
    found = {numbers[node_id] for node_id, _ in references.names_in(params).nodes if node_id in numbers}
    return tuple(sorted(found))


def _defers(nodes: Sequence[Node], node: Node) -> bool:
    """Components 1.8: a Message directly downstream, no goto in force, no structured output."""
    if node.kind is not NodeKind.MODEL or node.failure.leads_elsewhere or structured_schema(node.params):
        return False
    return any(nodes[target].kind is NodeKind.MESSAGE for target in node.downstream)


def structured_schema(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The JSON schema of a model node's structured output, if it asks for one."""
    outputs = params.get("outputs")
    schema = outputs.get("structured") if isinstance(outputs, Mapping) else None
    for inner in ("schema", "structured"):
        if isinstance(schema, Mapping) and not schema.get("properties") and isinstance(schema.get(inner), Mapping):
            schema = schema[inner]
    return schema if isinstance(schema, Mapping) and schema.get("properties") else None


def _turns(nodes: Sequence[Node], numbers: Mapping[str, int], speaking: int) -> dict[int, StreamTarget]:
    """Of each speaking node the first Message downstream whose text mentions its content."""
    mentions: dict[int, Mapping[int, int]] = {}  # a Message's text is read once, however many speak in it
    turns: dict[int, StreamTarget] = {}
    for number in bits(speaking):
        node = nodes[number]
        for target in node.downstream:
            message = nodes[target]
            if message.kind is not NodeKind.MESSAGE or message.parent != node.parent:
                continue
            if target not in mentions:
                mentions[target] = _mentions(message, numbers)
            mentioned_before = mentions[target].get(number)
            if mentioned_before is not None:
                turns[number] = StreamTarget(target, mentioned_before)
                break
    return turns


def _mentions(message: Node, numbers: Mapping[str, int]) -> dict[int, int]:
    """Nodes whose content a Message's text mentions, each with the mask of those that are mentioned before."""
    found_first: dict[int, int] = {}
    mentioned = 0
    for text in _texts(message.params.get("content")):
        for found in references.find(text):
            number = numbers.get(found.ref.node) if found.ref.node is not None else None
            if number is None:
                continue
            if found.ref.root == "content":
                found_first.setdefault(number, mentioned)
            mentioned |= 1 << number
    return found_first


def _unheard(nodes: Sequence[Node], numbers: Mapping[str, int], speaking: int) -> int:
    heard = 0
    for node in nodes:
        for node_id, root in references.names_in(node.params).nodes:
            if root == "content" and node_id in numbers:
                heard |= 1 << numbers[node_id]
    return speaking & ~heard
