"""Canvas and Node: a document compiled for routing.

`compile_canvas` numbers the nodes and computes, once per version, what every advance needs: where the edges of a node
lead, which container it is in, and what can still reach it. Sets of nodes are bit masks over node numbers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from canvas.document import references
from canvas.document.document import Document, Entry
from canvas.document.password_fields import given_passwords, password_names
from canvas.errors import InvalidCanvas
from canvas.graph.reachability import Reachability, bits, compute_reachability
from canvas.graph.uncertain_outcomes import OnUnknown, label, policy
from canvas.outcome import UNKNOWN_OUTCOME
from canvas.state.run_state import ScopeKey


class NodeKind(StrEnum):
    """The kind of a node, as far as routing distinguishes components; all others are PLAIN."""

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
    def waits_for_user(self) -> bool:
        """Whether the node may wait for a person."""
        return self in (NodeKind.FORM, NodeKind.ANSWER)

    @property
    def has_stream(self) -> bool:
        """Whether the node has a message stream of its own."""
        return self in (NodeKind.MESSAGE, NodeKind.ANSWER)


ROUTERS = frozenset({"categorize", "switch"})
"""Components that choose among their successors."""

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
    """What follows when the node fails, as its author has set."""

    method: str  # "" | "comment" | "goto"
    default: Any
    goto: tuple[int, ...]

    @property
    def has_goto(self) -> bool:
        """Whether a failure leads to the `goto` nodes and not to the downstream nodes."""
        return bool(self.method and self.goto)

    @property
    def streams_default(self) -> bool:
        """Whether a default value is streamed to the user in place of a failure."""
        return bool(self.default) and not self.has_goto


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a canvas. It refers to other nodes by number; edges to unknown ids are left out."""

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
    on_unknown: OnUnknown = "fail"  # what follows when it is not known whether the node has acted

    @property
    def bit(self) -> int:
        """The node's bit in a mask."""
        return 1 << self.number

    @property
    def title(self) -> str:
        """The node's name in errors: `Node "Search" (TavilySearch:0)`, with the component if the id lacks it."""
        has_name = bool(self.name) and self.name != self.id
        has_component = self.id.lower().startswith(self.component.lower())
        if has_name:
            return f'Node "{self.name}" ({self.id if has_component else f"{self.id}, {self.component}"})'
        return f"Node {self.id}" if has_component else f"Node {self.id} ({self.component})"

    @property
    def is_router(self) -> bool:
        """Whether the node chooses among its successors, so that a failed one leads to none."""
        return self.component.lower() in ROUTERS


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """The Message whose stream a model node writes to, and the mask of nodes its text refers to before that node."""

    message: int
    mentioned_before: int


@dataclass(frozen=True)
class Canvas:
    """A compiled canvas. Immutable; processes cache one per version."""

    nodes: tuple[Node, ...]
    numbers: Mapping[str, int]
    begin: int
    items: Mapping[int, int]  # container -> its item node
    reachability: Reachability
    stream_targets: Mapping[int, StreamTarget]  # model node -> the stream it writes to
    uncalled_models: int  # model nodes whose text no node refers to: their model is never called
    streaming_models: int  # model nodes that stream because a Message follows them
    stream_owners: int  # nodes with a stream of their own

    def node(self, node_id: str) -> Node:
        """Return the node with this id."""
        return self.nodes[self.numbers[node_id]]

    def error_of(self, node_id: str, error: str, code: str = "") -> str:
        """Return the error of a run for people: the failed node, then the reason.

        The node is left out if the error concerns the run as a whole, or already names the node.
        """
        number = self.numbers.get(node_id)
        if number is None or code == UNKNOWN_OUTCOME:
            return error
        node = self.nodes[number]
        is_named = error.startswith((f'Node "{node.name}" ({node.id}', f"Node {node.id} "))
        return error if is_named else f"{node.title}: {error}"

    @cached_property
    def password_fields(self) -> Mapping[str, frozenset[str]]:
        """The fields of forms whose answers are passwords, by node; nodes without such a field are absent."""
        forms = (node for node in self.nodes if node.kind in (NodeKind.BEGIN, NodeKind.FORM))
        named = {node.id: frozenset(password_names(node.params)) for node in forms}
        given = given_passwords(self.nodes[self.begin].params) if self.nodes else {}
        return {**given, **{node_id: fields for node_id, fields in named.items() if fields}}

    @cached_property
    def needs_stream_order(self) -> bool:
        """Whether one run can have two message streams, so that their order keys must be compared."""
        streaming = [node for node in self.nodes if _has_own_stream(node)]
        return len(streaming) > 1 or any(node.parent is not None for node in streaming)

    @cached_property
    def streaming_nodes(self) -> Mapping[int | None, int]:
        """Masks of nodes that may stream, by the container around them (None outside).

        These are Messages, nodes whose default value is streamed, and containers with such nodes in their bodies.
        """
        masks: dict[int | None, int] = {}
        for node in self.nodes:
            if _has_own_stream(node):
                for number in (node.number, *self.containers_of(node.number)):
                    parent = self.nodes[number].parent
                    masks[parent] = masks.get(parent, 0) | 1 << number
        return masks

    @cached_property
    def containers_with_escaping_edges(self) -> int:
        """The mask of containers from whose bodies an edge leads out."""
        mask = 0
        for node in self.nodes:
            for target in node.targets:
                around = set(self.containers_of(target))
                mask |= _mask(self.nodes[c] for c in self.containers_of(node.number) if c not in around)
        return mask

    def may_repeat(self, number: int) -> bool:
        """Whether a cycle leads to the node, so that it may run more than once in one scope."""
        return self.reachability.above[number] != self.reachability.above_forward[number]

    def targets_of(self, ids: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers of the nodes that an outcome names, in order, once each; unknown ids are left out."""
        found = (self.numbers.get(node_id) for node_id in ids)
        return tuple(dict.fromkeys(number for number in found if number is not None))

    def containers_of(self, number: int) -> Iterator[int]:
        """Yield the containers around a node, innermost first."""
        parent = self.nodes[number].parent
        while parent is not None:
            yield parent
            parent = self.nodes[parent].parent

    def children(self, container: int) -> tuple[Node, ...]:
        """Return the nodes of a container's body, its item node included, in component order."""
        return tuple(node for node in self.nodes if node.parent == container)


EMPTY_CANVAS = Canvas(
    nodes=(),
    numbers={},
    begin=0,
    items={},
    reachability=compute_reachability(parents=[], targets=[], roots=[], items=frozenset(), mentions=[]),
    stream_targets={},
    uncalled_models=0,
    streaming_models=0,
    stream_owners=0,
)
"""A canvas without nodes, to show runs whose canvas was deleted: their nodes have ids and no names."""


def form_key(canvas: Canvas, node_id: str, scope: ScopeKey) -> str:
    """Return the key of an open form in `user_inputs`: the node, and its item if several items may show a form."""
    number = canvas.numbers.get(node_id)
    return node_id if number is None or canvas.nodes[number].kind.waits_for_user else label(node_id, scope)


def mask_of(numbers: Iterable[int]) -> int:
    """Return the mask of node numbers; the inverse of `bits`."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def compile_canvas(document: Document) -> Canvas:
    """Compile a document: number its nodes and compute what routing needs.

    Raises InvalidCanvas if there is no `begin`, a container without an item node, or an item node outside of its
    container. Edges to unknown ids are left out: validation reports them, and a run does not follow them.
    """
    if "begin" not in document.entries:
        raise InvalidCanvas('The canvas has no node with the id "begin". Add a Begin node with that id.')
    numbers = {node_id: number for number, node_id in enumerate(document.entries)}
    _refuse_parent_cycles(document)
    nodes = tuple(_node(numbers, document, entry) for entry in document.entries.values())
    items = _items(nodes)
    speaking = _mask(node for node in nodes if _streams_text(nodes, node))
    return Canvas(
        nodes=nodes,
        numbers=numbers,
        begin=numbers["begin"],
        items=items,
        reachability=compute_reachability(
            parents=[node.parent for node in nodes],
            targets=[node.targets for node in nodes],
            roots=[numbers["begin"], *items.values()],
            items=frozenset(items.values()),
            mentions=[_referenced_nodes(numbers, node.params) for node in nodes],
        ),
        stream_targets=_stream_targets(nodes, numbers, speaking),
        uncalled_models=_unread_streams(nodes, numbers, speaking),
        streaming_models=speaking,
        stream_owners=_mask(node for node in nodes if node.kind.has_stream),
    )


def _refuse_parent_cycles(document: Document) -> None:
    for entry in document.entries.values():
        around: Entry | None = entry
        seen: set[str] = set()
        while around is not None:
            if around.id in seen:
                message = f'Node "{entry.name}" ({entry.id}) is inside of itself. Give it another parent, or none.'
                raise InvalidCanvas(message, node=entry.id, field="parent_id")
            seen.add(around.id)
            around = document.entries.get(around.parent) if around.parent is not None else None


def _node(numbers: Mapping[str, int], document: Document, entry: Entry) -> Node:
    params = entry.params
    downstream = _known_numbers(numbers, entry.downstream)
    goto = _known_numbers(numbers, _texts(params.get("exception_goto")))
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
        targets=tuple(dict.fromkeys((*downstream, *_known_numbers(numbers, chosen), *goto))),
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


def _known_numbers(numbers: Mapping[str, int], ids: Sequence[str]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(numbers[node_id] for node_id in ids if node_id in numbers))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else []


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def _items(nodes: Sequence[Node]) -> dict[int, int]:
    """Return the item node of each container: the first child of the right component."""
    items: dict[int, int] = {}
    for node in nodes:
        if not node.kind.is_item:
            continue
        parent = nodes[node.parent] if node.parent is not None else None
        required = NodeKind.ITERATION if node.kind is NodeKind.ITERATION_ITEM else NodeKind.LOOP
        if parent is None or parent.kind is not required:
            message = f'Node "{node.name}" ({node.id}) is outside of a {required.value}. Put it into one or remove it.'
            raise InvalidCanvas(message, node=node.id, field="parent_id")
        items.setdefault(parent.number, node.number)
    for node in nodes:
        if node.kind.is_container and node.number not in items:
            message = f'Node "{node.name}" ({node.id}) has no item node in its body. Add one.'
            raise InvalidCanvas(message, node=node.id, field="parent_id")
    return items


def _mask(nodes: Iterable[Node]) -> int:
    return mask_of(node.number for node in nodes)


def _has_own_stream(node: Node) -> bool:
    return node.kind.has_stream or node.failure.streams_default


def _referenced_nodes(numbers: Mapping[str, int], params: Mapping[str, Any]) -> tuple[int, ...]:
    found = {numbers[node_id] for node_id, _ in references.names_in(params).nodes if node_id in numbers}
    return tuple(sorted(found))


def _streams_text(nodes: Sequence[Node], node: Node) -> bool:
    """Whether a node streams its text: a model node directly before a Message, without goto and structured output."""
    if node.kind is not NodeKind.MODEL or node.failure.has_goto or structured_schema(node.params):
        return False
    return any(nodes[target].kind is NodeKind.MESSAGE for target in node.downstream)


def structured_schema(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the JSON schema of a model node's structured output; None if it has none."""
    outputs = params.get("outputs")
    schema = outputs.get("structured") if isinstance(outputs, Mapping) else None
    for inner in ("schema", "structured"):
        if isinstance(schema, Mapping) and not schema.get("properties") and isinstance(schema.get(inner), Mapping):
            schema = schema[inner]
    return schema if isinstance(schema, Mapping) and schema.get("properties") else None


def _stream_targets(nodes: Sequence[Node], numbers: Mapping[str, int], speaking: int) -> dict[int, StreamTarget]:
    """Return, per streaming model node, the first Message downstream whose text refers to its content."""
    mentions: dict[int, Mapping[int, int]] = {}  # a Message's text is read once, however many nodes write to its stream
    stream_targets: dict[int, StreamTarget] = {}
    for number in bits(speaking):
        node = nodes[number]
        for target in node.downstream:
            message = nodes[target]
            if message.kind is not NodeKind.MESSAGE or message.parent != node.parent:
                continue
            if target not in mentions:
                mentions[target] = _content_references(message, numbers)
            mentioned_before = mentions[target].get(number)
            if mentioned_before is not None:
                stream_targets[number] = StreamTarget(target, mentioned_before)
                break
    return stream_targets


def _content_references(message: Node, numbers: Mapping[str, int]) -> dict[int, int]:
    """Return the nodes to whose content a Message's text refers, each with the mask of nodes referred to before it."""
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


def _unread_streams(nodes: Sequence[Node], numbers: Mapping[str, int], speaking: int) -> int:
    read = 0
    for node in nodes:
        for node_id, root in references.names_in(node.params).nodes:
            if root == "content" and node_id in numbers:
                read |= 1 << numbers[node_id]
    return speaking & ~read
