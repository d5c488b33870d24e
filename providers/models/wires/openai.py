"""The wire for endpoints with OpenAI's chat completions API, over the `openai` SDK.

The SDK builds and signs requests and classifies errors; its retries are off (`max_retries=0`), and it gets no key from
the environment. Requests use its generic `post`, which returns plain responses: building its trees of objects costs
more than the rest of a call, and only five fields are read. All fields of replies are optional, because many endpoints
are not fully compatible.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import structlog

from providers.models.limits.idempotency_keys import HEADER
from providers.models.transport.clients import borrow_client, warm_up
from providers.models.types.chat import ChatRequest, Delta, ModelSpec
from providers.models.vendors.families import ParameterRules, wire_params
from providers.models.wires.event_stream import Chunks
from providers.models.wires.openai_responses import deltas_of_answer, deltas_of_stream
from providers.models.wires.openai_sdk import (
    HeaderObserver,
    RequestLimits,
    convert_error,
    read_answer,
    request_errors,
    timeout_of,
)

__all__ = ["OpenAIWire", "RequestLimits", "with_images"]

_PATH = "/chat/completions"

log = structlog.get_logger()


class OpenAIWire:
    """Requests to one model of one account."""

    def __init__(
        self,
        spec: ModelSpec,
        rules: ParameterRules,
        limits: RequestLimits,
        *,
        is_azure: bool = False,
        observe_headers: HeaderObserver | None = None,  # called with the headers of each response
    ) -> None:
        self._spec = spec
        self._observe_headers = observe_headers
        self._is_prepared = False
        self._rules = rules
        self._limits = limits
        self._is_azure = is_azure

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        import httpx2

        async with borrow_client(self._spec, self._limits.hosts, is_azure=self._is_azure) as client:
            try:
                reply = await client.post(
                    _PATH,
                    cast_to=httpx2.Response,
                    body=self._body(request, streamed=streamed),
                    options=self._options(request),
                    stream=streamed,
                )
                if self._observe_headers is not None:
                    self._observe_headers(reply.headers)
                if streamed:
                    async with aclosing(deltas_of_stream(Chunks(reply))) as deltas:
                        async for delta in deltas:
                            yield delta
                else:
                    for delta in deltas_of_answer(read_answer(reply)):
                        yield delta
            except request_errors() as problem:
                raise convert_error(problem, self._spec.base_url) from problem

    async def prepare(self) -> None:
        """Import the SDK and create the client, which takes a second, before the request waits for rate limits."""
        if not self._is_prepared:
            await asyncio.to_thread(warm_up)
            async with borrow_client(self._spec, self._limits.hosts, is_azure=self._is_azure):
                self._is_prepared = True

    def _body(self, request: ChatRequest, *, streamed: bool) -> dict[str, Any]:
        spec = self._spec
        params = wire_params(spec.name, request.params, self._rules, spec.extra)
        body: dict[str, Any] = {
            **params.body,
            "model": spec.name,
            "messages": with_images(request.messages, request.images),
        }
        if request.tools and spec.is_tools:
            body |= {"tools": list(request.tools), "tool_choice": params.body.get("tool_choice", "auto")}
        else:
            body.pop("tool_choice", None)
            if request.tools:
                log.warning("tools_not_offered", model=spec.id, reason="the model is not declared to call tools")
        if streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= params.extra
        if request.chat_template_kwargs:
            defaults = params.extra.get("chat_template_kwargs", {})
            body["chat_template_kwargs"] = {**defaults, **request.chat_template_kwargs}
        if order := spec.extra.get("provider_order"):  # OpenRouter: the hosts to try, in this order
            names = order.split(",") if isinstance(order, str) else order
            body["provider"] = {"order": [str(name).strip() for name in names]}
        return body

    def _options(self, request: ChatRequest) -> Any:
        """Return the request options of the SDK: timeout and headers."""
        own = self._spec.extra.get("extra_headers")  # mostly for gateways
        headers = {str(name): str(value) for name, value in own.items()} if isinstance(own, Mapping) else {}
        if request.key:
            headers[HEADER] = request.key
        return {"timeout": timeout_of(self._limits), "headers": headers}


def with_images(messages: Sequence[Mapping[str, Any]], images: Sequence[str]) -> list[dict[str, Any]]:
    """Return the messages with the images added to the last user message, after its text."""
    copies: list[dict[str, Any]] = [dict(message) for message in messages]
    if not images:
        return copies
    last = next((message for message in reversed(copies) if message.get("role") == "user"), None)
    if last is None:
        last = dict[str, Any](role="user", content="")
        copies.append(last)
    content = last.get("content")
    parts: list[Any] = list(content) if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    last["content"] = [*parts, *({"type": "image_url", "image_url": {"url": image}} for image in images)]
    return copies
