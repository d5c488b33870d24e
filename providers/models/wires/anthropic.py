"""The wire for Anthropic's Messages API: POST {base}/messages, streamed as events or whole.

The vendor's SDK sends the requests: it knows the current version of the API and how to authenticate. Events are read as
JSON and not as the SDK's objects, as for OpenAI (`providers/models/wires/event_stream.py`).

Since version 2026-10-21 the API refuses `temperature`, `top_p` and `top_k`, at their defaults too, so they are not
sent. An account may name the version before it (`anthropic_version`: `2023-06-01`), which accepts them for models up to
4.6.

Thoughts are signed, and a tool call is refused later unless the thoughts before it are sent back unchanged. So the
first call of a round contains them (`ToolCall.extra`). The length of an answer must always be limited.
"""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, assert_never

import structlog

from canvas.errors import AddressRefused
from providers.errors import ErrorCode, ProviderError, provider_error
from providers.models.limits.idempotency_keys import HEADER
from providers.models.text.context_window import count_tokens, max_tokens_of
from providers.models.transport.clients import borrow_anthropic_client, warm_up
from providers.models.types.chat import (
    ChatRequest,
    ContentDelta,
    Delta,
    ModelSpec,
    ReasoningDelta,
    ToolCall,
    Usage,
    UsageDelta,
)
from providers.models.vendors.families import ParameterRules, wire_params
from providers.models.wires.alternating_messages import (
    AlternatingMessages,
    ImagePart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    alternate_messages,
    parameters_of,
    tools_called,
)
from providers.models.wires.event_stream import Chunks
from providers.models.wires.json_post import encode_body, error_from_response
from providers.models.wires.openai_responses import (
    NO_ANSWER,
    close_with_task,
    field_of,
    final_deltas,
    message_in,
)
from providers.models.wires.openai_sdk import HeaderObserver, RequestLimits, host_of, read_answer

if TYPE_CHECKING:
    import httpx2

SAMPLING_VERSION = "2023-06-01"  # the last version of the API with sampling parameters
PATH = "/messages"
EXTRA_KEY = "anthropic"  # our key in the `extra` of a call
_THOUGHTS = ("thinking", "redacted_thinking")
_MIN_ANSWER_TOKENS = 1024  # tokens
_MIN_THINKING_TOKENS = 1024  # tokens; the vendor's minimum
_THINKING_SHARE = 0.5  # share of the answer for thinking, if no budget is set
# models that choose how much to think
_ADAPTIVE_MODELS = re.compile(r"(?:.*[./])?claude-[a-z]+-(?:4[-.][6-9](?!\d)|[5-9])")
_FINISHES = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "content_filter"}

log = structlog.get_logger()


class AnthropicWire:
    """Requests to one model of one account. `default_answer` is the default limit of an answer in tokens."""

    def __init__(
        self,
        spec: ModelSpec,
        rules: ParameterRules,
        limits: RequestLimits,
        default_answer: int,
        *,
        observe_headers: HeaderObserver | None = None,
    ) -> None:
        self._spec = spec
        self._rules = rules
        self._limits = limits
        self._default_answer = default_answer
        self._observe_headers = observe_headers
        self._is_prepared = False

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        import httpx2

        body = body_of(request, self._spec, self._rules, self._default_answer)
        sent = encode_body({**body, "stream": True} if streamed else body)
        options: Any = {"headers": self._headers(request), "timeout": self._timeout()}
        async with borrow_anthropic_client(self._spec, self._limits.hosts) as client:
            with _provider_errors(self._spec.base_url):
                response = await client.post(
                    PATH, cast_to=httpx2.Response, content=sent, options=options, stream=streamed
                )
                if self._observe_headers is not None:
                    self._observe_headers(response.headers)
                if streamed:
                    async with aclosing(deltas_of_stream(Chunks(response))) as deltas:
                        async for delta in deltas:
                            yield delta
                else:
                    for delta in deltas_of_message(read_answer(response)):
                        yield delta

    async def prepare(self) -> None:
        """Import the SDK and create the client, which takes a second, before the request waits for rate limits."""
        if not self._is_prepared:
            with suppress(ImportError):  # the client's error says what to install
                await asyncio.to_thread(warm_up, "anthropic")
            async with borrow_anthropic_client(self._spec, self._limits.hosts):
                self._is_prepared = True

    def _headers(self, request: ChatRequest) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if version := self._spec.extra.get("anthropic_version"):
            headers["anthropic-version"] = str(version)
        if beta := self._spec.extra.get("anthropic_beta"):
            headers["anthropic-beta"] = str(beta)
        return headers | ({HEADER: request.key} if request.key else {})

    def _timeout(self) -> "httpx2.Timeout":
        import httpx2

        seconds = self._limits.request_timeout.total_seconds()
        return httpx2.Timeout(seconds, connect=min(seconds, self._limits.connect_timeout.total_seconds()))


@contextmanager
def _provider_errors(base_url: str | None) -> Generator[None]:
    """Convert errors of the SDK, and of the stream it opened, to ProviderError."""
    import httpx2
    from anthropic import APIConnectionError, APIStatusError, APITimeoutError

    try:
        yield
    except APIStatusError as problem:
        if problem.response.is_redirect:
            detail = (
                f"{host_of(base_url)} redirects, and redirects are not followed. Set the base URL that it redirects to."
            )
            raise ProviderError(ErrorCode.MODEL_ERROR, detail) from problem
        content = problem.response.content
        raise error_from_response(problem.status_code, problem.response.headers, content) from problem
    except AddressRefused as refused:
        raise ProviderError(ErrorCode.MODEL_ERROR, f"{host_of(base_url)}: {refused.message}") from refused
    except (APITimeoutError, httpx2.TimeoutException) as problem:
        raise ProviderError(ErrorCode.TIMEOUT, f"{host_of(base_url)} did not answer in time.") from problem
    except (APIConnectionError, httpx2.RequestError, ssl.SSLError) as problem:
        cause = problem.__cause__ or problem
        detail = f"{host_of(base_url)}: {str(cause) or type(cause).__name__}"
        raise ProviderError(ErrorCode.CONNECTION_ERROR, detail) from problem


def body_of(request: ChatRequest, spec: ModelSpec, manners: ParameterRules, answers: int) -> dict[str, Any]:
    """Return the body of a request for Anthropic's API."""
    dialogue = alternate_messages(request)
    params = wire_params(spec.name, request.params, manners, spec.extra)
    fields = dict(params.body)
    limit = fields.get("max_tokens") or fields.get("max_completion_tokens") or _answer_limit(dialogue, spec, answers)
    body: dict[str, Any] = {
        "model": spec.name,
        "max_tokens": limit,
        "messages": [
            {"role": "assistant" if turn.is_assistant else "user", "content": _blocks(turn.parts)}
            for turn in dialogue.messages
        ],
    }
    if dialogue.system:
        body["system"] = dialogue.system
    if stop := fields.get("stop"):
        body["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if request.tools and spec.is_tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _choice(fields.get("tool_choice"))
    elif request.tools:
        log.warning("tools_not_offered", model=spec.id, reason="the model is not declared to call tools")
    if "tools" not in body and (used := tools_called(dialogue)):
        body |= {"tools": [_tool(tool) for tool in used], "tool_choice": {"type": "none"}}
    if str(spec.extra.get("anthropic_version") or "") == SAMPLING_VERSION:
        body |= _sampling(fields)
    body |= _thinking(request.params.get("thinking"), spec, limit)
    if body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
        body.pop("temperature", None)  # not allowed together with thinking
        body.pop("top_p", None)
        body["max_tokens"] = max(limit, body["thinking"].get("budget_tokens", 0) + _MIN_ANSWER_TOKENS)
    return body | params.extra


async def deltas_of_stream(stream: Chunks) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a streamed answer. Raises ProviderError, also if the stream ends before the answer."""
    blocks: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    finish: str | None = None
    is_whole = False
    async with close_with_task(stream):
        async for event in stream:
            match field_of(event, "type"):
                case "message_start":
                    usage |= _integers(field_of(field_of(event, "message"), "usage"))
                case "content_block_start":
                    block = field_of(event, "content_block")
                    blocks[_index(event)] = dict(block) if isinstance(block, dict) else {}
                    if (delta := _delta_of(block)) is not None:
                        yield delta
                case "content_block_delta":
                    change = field_of(event, "delta")
                    _extend_block(blocks.setdefault(_index(event), {}), change)
                    if (delta := _delta_of(change)) is not None:
                        yield delta
                case "message_delta":
                    usage |= _integers(field_of(event, "usage"))
                    finish = field_of(field_of(event, "delta"), "stop_reason") or finish
                case "message_stop":
                    is_whole = True
                case "error":
                    error = field_of(event, "error")
                    detail = message_in(error) or "The provider sent an error instead of an answer."
                    raise provider_error(detail, names=[field_of(error, "type")])
                case _:
                    pass  # pings, and event types of the future
    if not is_whole and finish is None:
        raise ProviderError(ErrorCode.SERVER_ERROR, "The provider ended the reply before it was complete.")
    for delta in _final_deltas([blocks[index] for index in sorted(blocks)], finish):
        yield delta
    if usage:
        yield UsageDelta(_usage(usage))


def deltas_of_message(message: Any) -> list[Delta]:
    """Return the deltas of a whole answer. Raises ProviderError."""
    content = field_of(message, "content")
    if not isinstance(content, list):
        error = field_of(message, "error")
        detail = message_in(error) or NO_ANSWER
        raise (
            provider_error(detail, names=[field_of(error, "type")])
            if error
            else ProviderError(ErrorCode.MODEL_ERROR, detail)
        )
    blocks = [dict(block) for block in content if isinstance(block, dict)]
    texts = [delta for block in blocks if (delta := _delta_of(block)) is not None]
    figures = _integers(field_of(message, "usage"))
    usage = [UsageDelta(_usage(figures))] if figures else []
    return [*texts, *_final_deltas(blocks, field_of(message, "stop_reason") or "end_turn"), *usage]


# -- writing a request -----------------------------------------------------------------------------------------------


def _blocks(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the content of a message: signed thoughts, then results of tool calls, then the rest."""
    blocks: list[dict[str, Any]] = []
    thoughts: list[dict[str, Any]] = []
    for part in sorted(parts, key=lambda part: not isinstance(part, ToolResultPart)):
        match part:
            case TextPart(text):
                blocks.append({"type": "text", "text": text})
            case ImagePart():
                blocks.append({"type": "image", "source": _source(part)})
            case ToolCallPart():
                signed = part.extra.get(EXTRA_KEY)
                thoughts += signed if isinstance(signed, list) else []
                blocks.append({"type": "tool_use", "id": part.id, "name": part.name, "input": dict(part.arguments)})
            case ToolResultPart():
                blocks.append({"type": "tool_result", "tool_use_id": part.id, "content": part.text or "(nothing)"})
            case _:
                assert_never(part)
    return [*thoughts, *blocks]


def _source(picture: ImagePart) -> dict[str, Any]:
    if picture.url:
        return {"type": "url", "url": picture.url}
    return {"type": "base64", "media_type": picture.mime_type, "data": picture.data}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    described = {"description": function["description"]} if function.get("description") else {}
    return {"name": function["name"], **described, "input_schema": parameters_of(tool)}


def _choice(tool_choice: Any) -> dict[str, Any]:
    name = field_of(field_of(tool_choice, "function"), "name")
    if name:
        return {"type": "tool", "name": name}
    return {"type": {"required": "any", "none": "none"}.get(str(tool_choice), "auto")}


def _sampling(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return temperature (at most 1), or else top_p: newer models refuse both together."""
    if (temperature := params.get("temperature")) is not None:
        return {"temperature": min(1.0, temperature)}
    return {"top_p": params["top_p"]} if params.get("top_p") is not None else {}


def _thinking(chosen: Any, spec: ModelSpec, limit: int) -> dict[str, Any]:
    """Return the thinking parameters; without a choice the model's default applies."""
    match chosen:
        case "enabled" if spec.extra.get("thinking_is_adaptive", bool(_ADAPTIVE_MODELS.match(spec.name))):
            return {"thinking": {"type": "adaptive"}}
        case "enabled":
            own = spec.extra.get("thinking_budget")
            budget = own if isinstance(own, int) and own > 0 else int(limit * _THINKING_SHARE)
            return {"thinking": {"type": "enabled", "budget_tokens": max(_MIN_THINKING_TOKENS, budget)}}
        case "disabled":
            return {"thinking": {"type": "disabled"}}
        case _:
            return {}


def _answer_limit(dialogue: AlternatingMessages, spec: ModelSpec, answers: int) -> int:
    """Return the tokens that an answer may have: the model's limit, or what the question leaves of the context."""
    texts = [dialogue.system]
    for turn in dialogue.messages:
        texts += [part.text for part in turn.parts if isinstance(part, TextPart | ToolResultPart)]
    if sum(map(max_tokens_of, texts)) + answers <= spec.context_tokens:
        return answers
    return max(_MIN_ANSWER_TOKENS, min(answers, spec.context_tokens - sum(map(count_tokens, texts))))


# -- reading an answer -----------------------------------------------------------------------------------------------


def _delta_of(block: Any) -> Delta | None:
    """Return the text or thought in a block, or in a change of a block, as a delta."""
    text, thought = field_of(block, "text"), field_of(block, "thinking")
    if isinstance(text, str) and text:
        return ContentDelta(text)
    return ReasoningDelta(thought) if isinstance(thought, str) and thought else None


def _extend_block(block: dict[str, Any], change: Any) -> None:
    for name, target in (
        ("text", "text"),
        ("thinking", "thinking"),
        ("signature", "signature"),
        ("partial_json", "json"),
    ):
        value = field_of(change, name)
        if isinstance(value, str):
            block[target] = block.get(target, "") + value


def _final_deltas(blocks: Sequence[dict[str, Any]], finish: str | None) -> list[Delta]:
    answer = "".join(str(block.get("text") or "") for block in blocks)
    thoughts = [_signed_thought(block) for block in blocks if block.get("type") in _THOUGHTS]
    return final_deltas(
        answer, _calls(blocks, thoughts), _FINISHES.get(str(finish), finish), has_reasoned=bool(thoughts)
    )


def _calls(blocks: Sequence[dict[str, Any]], thoughts: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
    used = [block for block in blocks if block.get("type") == "tool_use" and block.get("name")]
    return tuple(
        ToolCall(
            str(block.get("id") or f"call_{number}"),
            str(block["name"]),
            block.get("json") or json.dumps(block.get("input") or {}),
            {EXTRA_KEY: thoughts} if thoughts and not number else None,
        )
        for number, block in enumerate(used)
    )


def _signed_thought(block: Mapping[str, Any]) -> dict[str, Any]:
    return {name: block[name] for name in ("type", "thinking", "signature", "data") if name in block}


def _index(event: Any) -> int:
    index = field_of(event, "index")
    return index if isinstance(index, int) else 0


def _integers(raw: Any) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if isinstance(value, int)} if isinstance(raw, dict) else {}


def _usage(figures: Mapping[str, int]) -> Usage:
    """Return the usage; tokens read from and written to the vendor's cache count as prompt tokens."""
    cached = figures.get("cache_creation_input_tokens", 0) + figures.get("cache_read_input_tokens", 0)
    prompt, completion = figures.get("input_tokens", 0) + cached, figures.get("output_tokens", 0)
    return Usage(prompt, completion, prompt + completion)
