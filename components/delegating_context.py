"""DelegatingContext: a NodeContext that passes everything on to another one; subclasses change a part of it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from canvas.graph.uncertain_outcomes import OnUnknown
from components.context import NodeContext, ToolCallPosition
from providers.models.types.chat import ChatModel, Usage


class DelegatingContext:
    """Passes everything on to `ctx`. What stays the same during an attempt is copied, so that a subclass may set it."""

    def __init__(self, ctx: NodeContext) -> None:
        self._ctx = ctx
        self.node_id = ctx.node_id
        self.name = ctx.name
        self.component = ctx.component
        self.params = ctx.params
        self.parent_id = ctx.parent_id
        self.run_id = ctx.run_id
        self.choice_seed = ctx.choice_seed
        self.canvas_id = ctx.canvas_id
        self.activation_id = ctx.activation_id
        self.visit = ctx.visit
        self.scope_item = ctx.scope_item
        self.is_streaming = ctx.is_streaming
        self.has_reader = ctx.has_reader
        self.services = ctx.services

    def as_node_context(self) -> NodeContext:
        """Return this context with the type that components take."""
        return self

    # -- values -------------------------------------------------------------------------------------------------
    def lookup(self, expression: str) -> Any:
        return self._ctx.lookup(expression)

    def is_reference(self, text: str) -> bool:
        return self._ctx.is_reference(text)

    def exists(self, expression: str) -> bool:
        return self._ctx.exists(expression)

    def has_run(self, node_id: str) -> bool:
        return self._ctx.has_run(node_id)

    def display_name(self, node_id: str) -> str:
        return self._ctx.display_name(node_id)

    def previous_output(self, name: str) -> Any:
        return self._ctx.previous_output(name)

    def previous_inputs(self) -> Mapping[str, Any]:
        return self._ctx.previous_inputs()

    @property
    def answers(self) -> Mapping[str, Any] | None:
        return self._ctx.answers

    @property
    def webhook_payload(self) -> Mapping[str, Any] | None:
        return self._ctx.webhook_payload

    def note_input(self, name: str, value: Any) -> None:
        self._ctx.note_input(name, value)

    def node_components(self) -> Mapping[str, str]:
        return self._ctx.node_components()

    def parent_params(self) -> Mapping[str, Any]:
        return self._ctx.parent_params()

    def collected_lists(self) -> Mapping[str, list[Any]]:
        return self._ctx.collected_lists()

    def container_outputs(self) -> Mapping[str, Any]:
        return self._ctx.container_outputs()

    # -- stream, models and evidence ----------------------------------------------------------------------------
    def streams_from(self, node_id: str) -> bool:
        return self._ctx.streams_from(node_id)

    async def write(self, text: str) -> None:
        await self._ctx.write(text)

    async def model(self, llm_id: str) -> ChatModel:
        return await self._ctx.model(llm_id)

    def add_usage(self, usage: Usage) -> None:
        self._ctx.add_usage(usage)

    async def history(self, window: int) -> Sequence[Mapping[str, Any]]:
        return await self._ctx.history(window)

    async def references(self) -> Mapping[str, Any]:
        return await self._ctx.references()

    async def cite(self, chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> list[int]:
        return await self._ctx.cite(chunks, documents)

    # -- files and services -------------------------------------------------------------------------------------
    async def file_text(self, descriptor: Mapping[str, Any], layout_recognize: str) -> str:
        return await self._ctx.file_text(descriptor, layout_recognize)

    def descriptors(self, expression: str) -> list[Mapping[str, Any]]:
        return self._ctx.descriptors(expression)

    async def read_file(self, descriptor: Mapping[str, Any]) -> bytes:
        return await self._ctx.read_file(descriptor)

    async def save_file(self, name: str, data: bytes, mime_type: str, *, place: str = "") -> Mapping[str, Any]:
        return await self._ctx.save_file(name, data, mime_type, place=place)

    def caller_headers(self) -> Mapping[str, str]:
        return self._ctx.caller_headers()

    def time_limit(self, component: str) -> float:
        return self._ctx.time_limit(component)

    async def remember(self, memory_ids: Sequence[str], user_id: str, answer: str) -> None:
        await self._ctx.remember(memory_ids, user_id, answer)

    # -- journal and log ----------------------------------------------------------------------------------------
    async def journal_get(self, key: str) -> Any:
        return await self._ctx.journal_get(key)

    async def journal_put(self, key: str, value: Any) -> bool:
        return await self._ctx.journal_put(key, value)

    @property
    def on_unknown(self) -> OnUnknown:
        return self._ctx.on_unknown

    def non_repeatable(self) -> AbstractAsyncContextManager[None]:
        return self._ctx.non_repeatable()

    async def trace(self, call: Mapping[str, Any], at: ToolCallPosition | None = None) -> None:
        await self._ctx.trace(call, at)

    def warn(self, code: str, message: str) -> None:
        self._ctx.warn(code, message)

    @property
    def log(self) -> Any:
        return self._ctx.log
