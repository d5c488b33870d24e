"""A wire to every endpoint that speaks OpenAI's chat completions, over the `openai` SDK.

The SDK builds requests, signs them and tells errors apart; it repeats nothing (`max_retries=0`) and learns no key from
the environment. It is asked by its door for any path, whose replies are responses and no trees of objects: those cost
more than all the rest of a call, and five of their fields are read. Replies are JSON, read by name with nothing taken
for granted: what calls itself compatible often is not quite.
"""

import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from providers.chat import ChatRequest, Delta, ModelSpec
from providers.connections import lend_client
from providers.event_stream import Chunks, json_of
from providers.failures import CallFailed, Code, failure, retry_after
from providers.families import Manners, wire_params
from providers.repeats import HEADER
from providers.replies import deltas_of_answer, deltas_of_stream, field_of, message_in

if TYPE_CHECKING:
    import httpx2
    from openai import APIError

_PATH = "/chat/completions"

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
        import httpx2

        async with lend_client(self._spec, is_azure=self._is_azure) as client:
            try:
                reply = await client.post(
                    _PATH,
                    cast_to=httpx2.Response,
                    body=self._body(request, streamed=streamed),
                    options=self._options(request),
                    stream=streamed,
                )
                if streamed:
                    async with aclosing(deltas_of_stream(Chunks(reply))) as deltas:
                        async for delta in deltas:
                            yield delta
                else:
                    for delta in deltas_of_answer(_answer(reply)):
                        yield delta
            except (_sdk_errors(), httpx2.RequestError, ssl.SSLError) as problem:
                raise self._failure(problem) from problem

    def _body(self, request: ChatRequest, *, streamed: bool) -> dict[str, Any]:
        spec = self._spec
        params = wire_params(spec.name, request.params, self._manners, spec.extra)
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
            given = params.extra.get("chat_template_kwargs", {})
            body["chat_template_kwargs"] = {**given, **request.chat_template_kwargs}
        if order := spec.extra.get("provider_order"):  # OpenRouter: which hosts to try, and in which order
            names = order.split(",") if isinstance(order, str) else order
            body["provider"] = {"order": [str(name).strip() for name in names]}
        return body

    def _options(self, request: ChatRequest) -> Any:
        """What is said beside the body."""
        from openai import Timeout

        seconds = self._limits.request_timeout.total_seconds()
        timeout = Timeout(seconds, connect=min(seconds, self._limits.connect_timeout.total_seconds()))
        return {"timeout": timeout, "headers": {HEADER: request.key}} if request.key else {"timeout": timeout}

    @property
    def _host(self) -> str:
        """Where requests go, without what a URL may hold beside it (a password, a query)."""
        parts = urlsplit(self._spec.base_url or "")
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def _failure(self, problem: Exception) -> CallFailed:
        """What an error of the SDK, or of the stream it opened, means. Type and status speak first, words last."""
        import httpx2
        from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

        match problem:
            case APITimeoutError() | httpx2.TimeoutException():
                return CallFailed(Code.TIMEOUT, f"{self._host} did not answer in time.")
            case APIConnectionError() | httpx2.RequestError() | ssl.SSLError():
                cause = problem.__cause__ or problem
                return CallFailed(Code.CONNECTION_ERROR, f"{self._host}: {str(cause) or type(cause).__name__}")
            case APIStatusError():
                return failure(
                    message_in(problem.body) or problem.message,
                    status=problem.status_code,
                    names=_names(problem.body),
                    retry_after=retry_after(problem.response.headers, datetime.now(UTC)),
                )
            case APIError():
                return failure(problem.message, names=_names(problem.body))
            case _:
                raise AssertionError("no error of a provider") from problem


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


def _answer(reply: "httpx2.Response") -> Any:
    """A whole reply; None for a page that was never meant to be one. Raises CallFailed."""
    kind = reply.headers.get("content-type", "json").partition(";")[0].strip().lower()
    return json_of(reply.content) if kind.endswith("json") else None


def _sdk_errors() -> type["APIError"]:
    from openai import APIError

    return APIError


def _names(body: object) -> list[object]:
    inner = field_of(body, "error")
    source = inner if isinstance(inner, dict) else body
    return [field_of(source, "code"), field_of(source, "type")]
