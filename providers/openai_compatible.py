"""A wire to every endpoint that speaks OpenAI's chat completions, over the `openai` SDK.

The SDK builds requests, reads event streams and keeps connections; it repeats nothing (`max_retries=0`) and learns no
key from the environment. Replies are read by name with nothing taken for granted: what calls itself compatible often
is not quite.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from providers.chat import ChatRequest, Delta, ModelSpec
from providers.connections import lend_client
from providers.failures import CallFailed, Code, failure, retry_after
from providers.families import Manners, wire_params
from providers.repeats import HEADER
from providers.replies import deltas_of_answer, deltas_of_stream, field_of, message_in

if TYPE_CHECKING:
    from openai import APIError

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limits:
    """How long one request may take (LLM_TIMEOUT_SECONDS): until it begins to answer, and between two pieces."""

    request_timeout: timedelta = timedelta(seconds=600)
    connect_timeout: timedelta = timedelta(seconds=10)


class OpenAIWire:
    """Requests to one model of one account."""

    def __init__(self, spec: ModelSpec, manners: Manners, limits: Limits, *, is_azure: bool = False) -> None:
        self._spec = spec
        self._manners = manners
        self._limits = limits
        self._is_azure = is_azure

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        async with lend_client(self._spec, is_azure=self._is_azure) as client:
            body = self._body(request, streamed=streamed)
            try:
                reply = await client.chat.completions.create(**body)
                if streamed:
                    async with aclosing(deltas_of_stream(reply)) as deltas:
                        async for delta in deltas:
                            yield delta
                else:
                    for delta in deltas_of_answer(reply):
                        yield delta
            except _sdk_errors() as problem:
                raise self._failure(problem) from problem
            except json.JSONDecodeError as problem:
                raise CallFailed(Code.SERVER_ERROR, "The provider sent a reply that is no JSON.") from problem

    def _body(self, request: ChatRequest, *, streamed: bool) -> dict[str, Any]:
        from openai import Timeout

        spec, seconds = self._spec, self._limits.request_timeout.total_seconds()
        params = wire_params(spec.name, request.params, self._manners, spec.extra)
        extra = dict(params.extra)
        if request.chat_template_kwargs:
            extra["chat_template_kwargs"] = {**extra.get("chat_template_kwargs", {}), **request.chat_template_kwargs}
        if order := spec.extra.get("provider_order"):  # OpenRouter: which hosts to try, and in which order
            names = order.split(",") if isinstance(order, str) else order
            extra["provider"] = {"order": [str(name).strip() for name in names]}
        body: dict[str, Any] = {
            **params.body,
            "model": spec.name,
            "messages": with_images(request.messages, request.images),
            "timeout": Timeout(seconds, connect=min(seconds, self._limits.connect_timeout.total_seconds())),
        }
        if extra:
            body["extra_body"] = extra
        if request.key:
            body["extra_headers"] = {HEADER: request.key}
        if request.tools and spec.is_tools:
            body |= {"tools": list(request.tools), "tool_choice": params.body.get("tool_choice", "auto")}
        else:
            body.pop("tool_choice", None)
            if request.tools:
                log.warning("tools_not_offered", model=spec.id, reason="the model is not declared to call tools")
        if streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    @property
    def _host(self) -> str:
        """Where requests go, without what a URL may hold beside it (a password, a query)."""
        parts = urlsplit(self._spec.base_url or "")
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def _failure(self, problem: "APIError") -> CallFailed:
        """What an error of the SDK means. Its type and status speak first, the provider's words last."""
        from openai import APIConnectionError, APIStatusError, APITimeoutError

        match problem:
            case APITimeoutError():
                return CallFailed(Code.TIMEOUT, f"{self._host} did not answer in time.")
            case APIConnectionError():
                cause = problem.__cause__ or problem
                return CallFailed(Code.CONNECTION_ERROR, f"{self._host}: {str(cause) or type(cause).__name__}")
            case APIStatusError():
                return failure(
                    message_in(problem.body) or problem.message,
                    status=problem.status_code,
                    names=_names(problem.body),
                    retry_after=retry_after(problem.response.headers, datetime.now(UTC)),
                )
            case _:  # an error that came as an event of the stream
                return failure(problem.message, names=_names(problem.body))


def with_images(messages: Sequence[Mapping[str, Any]], images: Sequence[str]) -> list[dict[str, Any]]:
    """The messages with the images put into the last one of the user, behind its text."""
    given: list[dict[str, Any]] = [dict(message) for message in messages]
    if not images:
        return given
    last = next((message for message in reversed(given) if message.get("role") == "user"), None)
    if last is None:
        last = dict[str, Any](role="user", content="")
        given.append(last)
    content = last.get("content")
    parts: list[Any] = list(content) if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    last["content"] = [*parts, *({"type": "image_url", "image_url": {"url": image}} for image in images)]
    return given


def _sdk_errors() -> type["APIError"]:
    from openai import APIError

    return APIError


def _names(body: object) -> list[object]:
    inner = field_of(body, "error")
    source = inner if isinstance(inner, dict) else body
    return [field_of(source, "code"), field_of(source, "type")]
