"""The world as one call of an Agent's tool sees it: the Agent's own, but unheard, and with a journal apart."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from components.context import NodeContext
from components.nodes.agent.tool_set import Function
from providers.models.limits.idempotency_keys import within
from providers.models.types.chat import Usage


class ToolContext:
    """Passes on to the Agent's context whatever it does not say itself.

    Nobody hears a tool, and what it resolves is no input of the node. Values, references and history are shared; the
    keys of the journal begin with the call's place, those of requests follow from it, and the node's id ends with it,
    so that two calls of one tool neither read nor repeat each other's work.
    """

    speaks = False
    heard = True

    def __init__(self, ctx: NodeContext, function: Function, place: str) -> None:
        self._ctx = ctx
        self._place = place
        self.node_id = f"{ctx.node_id}-->{function.label.replace(' ', '_')}:{place}"
        self.activation_id = f"{ctx.activation_id}/{place}"
        self.name = f"{ctx.name}-->{function.label}"
        self.component = function.component
        self.services = replace(ctx.services, http=within(ctx.services.http, place))
        self.usage = Usage()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def as_node_context(self) -> NodeContext:
        """This, with the type of what it stands in for: the rest of the promise is kept by delegation."""
        return cast(NodeContext, self)

    def spent(self, usage: Usage) -> None:
        self.usage += usage
        self._ctx.spent(usage)

    def note_input(self, name: str, value: Any) -> None:
        pass

    def previous_output(self, name: str) -> Any:
        return None

    async def say(self, text: str) -> None:
        pass

    async def save_file(self, name: str, data: bytes, mime_type: str, *, place: str = "") -> Mapping[str, Any]:
        return await self._ctx.save_file(name, data, mime_type, place=f"{self._place}/{place}")

    async def recall(self, key: str) -> Any:
        return await self._ctx.recall(f"{self._place}/{key}")

    async def record(self, key: str, value: Any) -> bool:
        return await self._ctx.record(f"{self._place}/{key}", value)

    async def trace(self, call: Mapping[str, Any]) -> None:
        await self._ctx.trace(call)
