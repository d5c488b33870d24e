"""FakeContext: a NodeContext over plain dicts, for unit tests of components.

ctx = FakeContext(values={"begin": {"name": "Ann"}}, globals={"sys.query": "Hi"})
outcome = run(message, {"content": ["{begin@name}"]}, ctx)
assert ctx.streamed_text == "Ann"
"""

import asyncio
import hashlib
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from canvas.document import references
from canvas.errors import ModelError, NodeFailure, UnresolvedReference
from canvas.graph.uncertain_outcomes import OnUnknown
from canvas.outcome import Outcome
from components.base import Component
from components.context import ToolCallPosition
from providers.interfaces import HttpCall, HttpResponse, Services
from providers.models.types.chat import ChatModel, Usage


def run(component: Component[Any], params: Mapping[str, Any], ctx: "FakeContext") -> Outcome:
    """Run a component with these parameters in a context; return its outcome."""
    ctx.params = params
    ctx.component = component.name
    outcome = component.run(component.params.model_validate(params), ctx)
    return asyncio.run(_await(outcome)) if inspect.isawaitable(outcome) else outcome


def display_id(chunk_id: str) -> int:
    """Return the display number of a chunk, as RAGFlow computes it."""
    return int(hashlib.sha1(chunk_id.encode()).hexdigest(), 16) % 500


async def _await(outcome: Any) -> Outcome:
    return await outcome


@dataclass
class FakeHttp:
    """Answers every request with `answer`, and records the request. Tests of the real client use a server."""

    answer: Callable[[HttpCall], HttpResponse]
    calls: list[HttpCall] = field(default_factory=list)

    async def send(self, call: HttpCall) -> HttpResponse:
        self.calls.append(call)
        return self.answer(call)


def no_network(call: HttpCall) -> HttpResponse:
    raise AssertionError(f"unexpected request: {call.method} {call.url}")


@dataclass
class FakeContext:
    """A NodeContext over dicts. A node exists if `values` or `components` names it, and has run unless in `not_run`."""

    values: dict[str, dict[str, Any]] = field(default_factory=dict)  # node id -> outputs
    globals: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, Any] = field(default_factory=dict)  # item, index, result; inside an Iteration
    components: dict[str, str] = field(default_factory=dict)  # node id -> component name
    names: dict[str, str] = field(default_factory=dict)  # node id -> display name
    not_run: set[str] = field(default_factory=set)
    streaming_nodes: set[str] = field(default_factory=set)
    previous: dict[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)  # the caller's, for MCP servers
    webhook_payload: Mapping[str, Any] | None = None

    last_inputs: dict[str, Any] = field(default_factory=dict)  # of Begin, from the previous turn

    node_id: str = "Node:Under"
    name: str = ""
    component: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    parent_id: str | None = None
    run_id: str = "run-1"
    choice_seed: str = "run-1"
    activation_id: str = "activation-1"
    canvas_id: str = "canvas-1"
    visit: int = 0
    scope_item: int = 0

    parent: dict[str, Any] = field(default_factory=dict)  # the container's params
    parent_outputs: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, list[Any]] = field(default_factory=dict)  # collected so far

    models: dict[str, ChatModel] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)  # the conversation, oldest first
    reference_store: dict[str, Any] = field(default_factory=lambda: {"chunks": {}, "doc_aggs": {}})
    file_texts: dict[str, str] = field(default_factory=dict)  # file id -> text
    raw_files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # "begin@f" -> raw descriptors
    stored: dict[str, bytes] = field(default_factory=dict)  # file id -> bytes of readable files
    saved: dict[str, tuple[str, bytes, str]] = field(default_factory=dict)  # doc_id -> name, bytes, mime type
    services: Services = field(default_factory=lambda: Services(FakeHttp(no_network)))
    limits: dict[str, float] = field(default_factory=dict)  # seconds by component
    journal: dict[str, Any] = field(default_factory=dict)  # key -> recorded value
    non_repeatable_work: list[str] = field(default_factory=list)  # each "begun", then "done"
    traces: list[dict[str, Any]] = field(default_factory=list)
    memories: list[tuple[tuple[str, ...], str, str]] = field(default_factory=list)  # (memory ids, user, answer)
    on_unknown: OnUnknown = "fail"
    is_streaming: bool = False
    has_reader: bool = True

    warnings: list[tuple[str, str]] = field(default_factory=list)  # (code, message)
    inputs: dict[str, Any] = field(default_factory=dict)  # noted by the component
    text_deltas: list[str] = field(default_factory=list)  # as streamed
    usage: Usage = field(default_factory=Usage)
    log: Any = None

    @property
    def streamed_text(self) -> str:
        return "".join(self.text_deltas)

    def lookup(self, expression: str) -> Any:
        ref = references.parse_reference(expression)
        if ref.is_alias and ref.root in self.aliases:
            return self.aliases[ref.root]
        if ref.node is None and ref.root in self.globals:
            return self.globals[ref.root]
        if ref.node is not None and (ref.node in self.values or ref.node in self.components):
            return references.get_path(self.values.get(ref.node, {}).get(ref.root, ""), ref.path)
        raise UnresolvedReference(f"Can't find variable: '{ref.expression}'")

    def is_reference(self, text: str) -> bool:
        inner = text.strip("{}")
        return inner in self.globals if "@" not in inner else inner.count("@") == 1 and self.exists(inner)

    def exists(self, expression: str) -> bool:
        try:
            self.lookup(expression)
        except UnresolvedReference:
            return False
        return True

    def has_run(self, node_id: str) -> bool:
        return node_id in self.values and node_id not in self.not_run

    def display_name(self, node_id: str) -> str:
        return self.names.get(node_id, "")

    def previous_output(self, name: str) -> Any:
        return self.previous.get(name)

    def previous_inputs(self) -> Mapping[str, Any]:
        return self.last_inputs

    def note_input(self, name: str, value: Any) -> None:
        self.inputs[name] = value

    def node_components(self) -> Mapping[str, str]:
        return self.components

    def parent_params(self) -> Mapping[str, Any]:
        return self.parent

    def collected_lists(self) -> Mapping[str, list[Any]]:
        return self.lists

    def container_outputs(self) -> Mapping[str, Any]:
        return self.parent_outputs

    def streams_from(self, node_id: str) -> bool:
        return node_id in self.streaming_nodes

    async def write(self, text: str) -> None:
        self.text_deltas.append(text)

    async def model(self, llm_id: str) -> ChatModel:
        if llm_id not in self.models:
            raise ModelError(f'Model "{llm_id}" is not enabled for this tenant.')
        return self.models[llm_id]

    def warn(self, code: str, message: str) -> None:
        self.warnings.append((code, message))

    def add_usage(self, usage: Usage) -> None:
        self.usage += usage

    async def history(self, window: int) -> Sequence[Mapping[str, Any]]:
        return self.entries[-2 * window :] if window > 0 else []

    async def references(self) -> Mapping[str, Any]:
        return self.reference_store

    async def file_text(self, descriptor: Mapping[str, Any], layout_recognize: str) -> str:
        return self.file_texts[descriptor["id"]]

    def descriptors(self, expression: str) -> list[Mapping[str, Any]]:
        return list(self.raw_files.get(expression.strip("{} "), ()))

    async def cite(self, chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> list[int]:
        known: dict[str, Any] = self.reference_store["chunks"]
        numbers = [display_id(str(chunk["chunk_id"])) for chunk in chunks]
        for number, chunk in zip(numbers, chunks, strict=True):
            known.setdefault(str(number), dict(chunk))
        for document in documents:
            self.reference_store["doc_aggs"].setdefault(document["doc_name"], dict(document))
        return numbers

    async def read_file(self, descriptor: Mapping[str, Any]) -> bytes:
        file_id = str(descriptor.get("id") or descriptor.get("file_id") or descriptor.get("doc_id"))
        if file_id not in self.stored:
            raise NodeFailure(f'The file "{file_id}" is not there. Upload it again.')
        return self.stored[file_id]

    async def save_file(self, name: str, data: bytes, mime_type: str, *, place: str = "") -> Mapping[str, Any]:
        doc_id = sha256(f"{self.run_id} {self.node_id} {self.visit} {place} {name}".encode()).hexdigest()[:32]
        self.saved[doc_id] = (name, data, mime_type)
        return {"doc_id": doc_id, "filename": name, "mime_type": mime_type, "size": len(data)}

    def time_limit(self, component: str) -> float:
        return self.limits.get(component, 600.0)

    def caller_headers(self) -> Mapping[str, str]:
        return self.headers

    async def journal_get(self, key: str) -> Any:
        return self.journal.get(key)

    async def journal_put(self, key: str, value: Any) -> bool:
        is_new = key not in self.journal
        self.journal.setdefault(key, value)
        return is_new

    @asynccontextmanager
    async def non_repeatable(self) -> AsyncGenerator[None]:
        self.non_repeatable_work.append("begun")
        yield
        self.non_repeatable_work[-1] = "done"

    async def trace(self, call: Mapping[str, Any], at: ToolCallPosition | None = None) -> None:
        if at is None or not at.is_replayed:
            self.traces.append(dict(call))

    async def remember(self, memory_ids: Sequence[str], user_id: str, answer: str) -> None:
        self.memories.append((tuple(memory_ids), user_id, answer))
