"""The context of one call of an Agent's tool: the Agent's own, without its message stream and with separate keys."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from components.context import NodeContext, ToolCallPosition
from components.delegating_context import DelegatingContext
from components.nodes.agent.tool_set import Function
from providers.models.limits.idempotency_keys import within
from providers.models.types.chat import Usage


class ToolContext(DelegatingContext):
    """Shares values, references and history with the Agent's context.

    A tool streams nothing, and what it resolves is not an input of the node. The keys of its journal and of its
    requests begin with the place of the call, and its node id ends with it, so that two calls of one tool neither read
    nor repeat each other's work.
    """

    def __init__(self, ctx: NodeContext, function: Function, place: str) -> None:
        super().__init__(ctx)
        self._place = place
        self.node_id = f"{ctx.node_id}-->{function.label.replace(' ', '_')}:{place}"
        self.activation_id = f"{ctx.activation_id}/{place}"
        self.name = f"{ctx.name}-->{function.label}"
        self.component = function.component
        self.is_streaming, self.has_reader = False, True
        self.services = replace(ctx.services, http=within(ctx.services.http, place))
        self.usage = Usage()

    def add_usage(self, usage: Usage) -> None:
        self.usage += usage
        self._ctx.add_usage(usage)

    def note_input(self, name: str, value: Any) -> None:
        pass

    def previous_output(self, name: str) -> Any:
        return None

    async def write(self, text: str) -> None:
        pass

    async def save_file(self, name: str, data: bytes, mime_type: str, *, place: str = "") -> Mapping[str, Any]:
        return await self._ctx.save_file(name, data, mime_type, place=f"{self._place}/{place}")

    async def journal_get(self, key: str) -> Any:
        return await self._ctx.journal_get(f"{self._place}/{key}")

    async def journal_put(self, key: str, value: Any) -> bool:
        return await self._ctx.journal_put(f"{self._place}/{key}", value)

    async def trace(self, call: Mapping[str, Any], at: ToolCallPosition | None = None) -> None:
        if at is not None and at.round is not None:
            at = replace(at, round=f"{self._place}/{at.round}")
        await self._ctx.trace(call, at)
