"""The wire for Bedrock's Converse API: POST {base}/model/{model}/converse, or converse-stream in AWS event frames.

Requests use our own connections. `botocore` signs them, parses the frames, and finds the credentials of this machine if
an account has none. Needs the extra `bedrock`.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import quote

import structlog

from providers.errors import ErrorCode, ProviderError, provider_error
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
    ImagePart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    alternate_messages,
    parameters_of,
    tools_called,
)
from providers.models.wires.aws import AwsSigner, frames_of
from providers.models.wires.json_post import encode_body, post_json, read_json
from providers.models.wires.openai_responses import (
    NO_ANSWER,
    close_with_task,
    field_of,
    final_deltas,
    message_in,
)
from providers.models.wires.openai_sdk import HeaderObserver, RequestLimits

if TYPE_CHECKING:
    import httpx2

EXTRA_KEY = "bedrock"  # our key in the `extra` of a call
_MIN_ANSWER_TOKENS = 1024  # tokens
_STATUSES = {
    "throttlingException": 429,
    "modelStreamErrorException": 500,
    "validationException": 400,
    "serviceUnavailableException": 503,
    "internalServerException": 500,
    "modelTimeoutException": 408,
}
_FINISHES = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}

log = structlog.get_logger()


class BedrockWire:
    """Requests to one model of one account."""

    def __init__(
        self,
        spec: ModelSpec,
        rules: ParameterRules,
        limits: RequestLimits,
        *,
        observe_headers: HeaderObserver | None = None,
    ) -> None:
        self._spec = spec
        self._rules = rules
        self._limits = limits
        self._observe_headers = observe_headers
        self._signer = AwsSigner(spec, limits)

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        spec = self._spec
        sent = encode_body(body_of(request, spec, self._rules))
        how = "converse-stream" if streamed else "converse"
        url = f"{(spec.base_url or '').rstrip('/')}/model/{quote(spec.name, safe='')}/{how}"
        headers = await self._signer.sign(url, sent, service="bedrock")
        async with post_json(spec, url, headers, sent, self._limits, observe_headers=self._observe_headers) as response:
            if streamed:
                async with aclosing(deltas_of_stream(BedrockEvents(response))) as deltas:
                    async for delta in deltas:
                        yield delta
            else:
                for delta in deltas_of_answer(await read_json(response)):
                    yield delta


class BedrockEvents:
    """The events of a streamed reply as (name, JSON), to be read once. Raises ProviderError."""

    def __init__(self, response: "httpx2.Response") -> None:
        self._response = response

    async def __aiter__(self) -> AsyncGenerator[tuple[str, Any], None]:
        async with aclosing(frames_of(self._response)) as frames:
            async for headers, document in frames:
                kind = headers.get(":message-type")
                if kind == "event":
                    yield str(headers.get(":event-type")), document
                    continue
                name = str(headers.get(":exception-type") or headers.get(":error-code") or "")
                detail = message_in(document) or str(
                    headers.get(":error-message") or name or "The provider ended the stream with an error."
                )
                raise provider_error(detail, status=_STATUSES.get(name[:1].lower() + name[1:]), names=[name])

    async def close(self) -> None:
        """Close the connection, unless the reply is complete."""
        await self._response.aclose()


def body_of(request: ChatRequest, spec: ModelSpec, manners: ParameterRules) -> dict[str, Any]:
    """Return the body of a request for Bedrock's API."""
    dialogue = alternate_messages(request)
    params = wire_params(spec.name.rpartition(".")[2], request.params, manners, spec.extra)
    body: dict[str, Any] = {
        "messages": [
            {"role": "assistant" if turn.is_assistant else "user", "content": _blocks(turn.parts)}
            for turn in dialogue.messages
        ]
    }
    if dialogue.system:
        body["system"] = [{"text": dialogue.system}]
    tools = list(request.tools) if spec.is_tools else []
    if request.tools and not tools:
        log.warning("tools_not_offered", model=spec.id, reason="the model is not declared to call tools")
    if declared := tools or tools_called(dialogue):
        body["toolConfig"] = {"tools": [_tool(tool) for tool in declared], **_choice(params.body.get("tool_choice"))}
    config, thinking = _config(params.body), {}
    if "claude" in spec.name:
        thinking = _thinking(request.params.get("thinking"), spec)
        config = _adapt_to_claude(config, thinking)
    if config:
        body["inferenceConfig"] = config
    if fields := {**thinking, **params.extra}:
        body["additionalModelRequestFields"] = fields
    return body


async def deltas_of_stream(stream: BedrockEvents) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a streamed answer. Raises ProviderError, also if the stream ends before the answer."""
    blocks: dict[int, dict[str, Any]] = {}
    usage: Usage | None = None
    finish: str | None = None
    async with close_with_task(stream):
        async for name, event in stream:
            at = index if isinstance(index := field_of(event, "contentBlockIndex"), int) else 0
            match name:
                case "contentBlockStart":
                    used = field_of(field_of(event, "start"), "toolUse")
                    if isinstance(used, dict):
                        blocks.setdefault(at, {})["toolUse"] = {**used, "input": ""}
                case "contentBlockDelta":
                    delta = _extend_block(blocks.setdefault(at, {}), field_of(event, "delta"))
                    if delta is not None:
                        yield delta
                case "messageStop":
                    finish = str(field_of(event, "stopReason") or "end_turn")
                case "metadata":
                    usage = _usage(field_of(event, "usage")) or usage
                case _:
                    pass
    if finish is None:
        raise ProviderError(ErrorCode.SERVER_ERROR, "The provider ended the reply before it was complete.")
    for delta in _final_deltas([blocks[index] for index in sorted(blocks)], finish):
        yield delta
    if usage is not None:
        yield UsageDelta(usage)


def deltas_of_answer(answer: Any) -> list[Delta]:
    """Return the deltas of a whole answer. Raises ProviderError."""
    content = field_of(field_of(field_of(answer, "output"), "message"), "content")
    if not isinstance(content, list):
        raise ProviderError(ErrorCode.MODEL_ERROR, NO_ANSWER)
    blocks: list[dict[str, Any]] = []
    texts: list[Delta] = []
    for block in content:
        blocks.append({"toolUse": block["toolUse"]} if field_of(block, "toolUse") else {})
        reasoning = field_of(block, "reasoningContent")
        delta = _extend_block(blocks[-1], {"reasoningContent": _flatten_reasoning(reasoning)} if reasoning else block)
        texts += [delta] if delta is not None else []
    usage = _usage(field_of(answer, "usage"))
    finish = str(field_of(answer, "stopReason") or "end_turn")
    return [*texts, *_final_deltas(blocks, finish), *([UsageDelta(usage)] if usage else [])]


# -- writing a request -----------------------------------------------------------------------------------------------


def _blocks(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the content of a message: signed thoughts, then results of tool calls, then the rest."""
    blocks: list[dict[str, Any]] = []
    thoughts: list[dict[str, Any]] = []
    for part in sorted(parts, key=lambda part: not isinstance(part, ToolResultPart)):
        match part:
            case TextPart(text):
                blocks.append({"text": text})
            case ImagePart():
                blocks.append({"image": _image(part)})
            case ToolCallPart():
                signed = part.extra.get(EXTRA_KEY)
                thoughts += signed if isinstance(signed, list) else []
                blocks.append({"toolUse": {"toolUseId": part.id, "name": part.name, "input": dict(part.arguments)}})
            case ToolResultPart():
                blocks.append({"toolResult": {"toolUseId": part.id, "content": [{"text": part.text or "(nothing)"}]}})
            case _:
                assert_never(part)
    return [*thoughts, *blocks]


def _image(picture: ImagePart) -> dict[str, Any]:
    if picture.url:
        raise ProviderError(ErrorCode.INVALID_REQUEST, "Bedrock does not accept URLs of images. Send the image itself.")
    kind = picture.mime_type.rpartition("/")[2]
    return {"format": {"jpg": "jpeg"}.get(kind, kind), "source": {"bytes": picture.data}}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    described = {"description": function["description"]} if function.get("description") else {}
    return {"toolSpec": {"name": function["name"], **described, "inputSchema": {"json": parameters_of(tool)}}}


def _choice(tool_choice: Any) -> dict[str, Any]:
    name = field_of(field_of(tool_choice, "function"), "name")
    if name:
        return {"toolChoice": {"tool": {"name": name}}}
    return {"toolChoice": {"any": {}}} if tool_choice == "required" else {}


def _config(params: Mapping[str, Any]) -> dict[str, Any]:
    stop = params.get("stop")
    config = {
        "maxTokens": params.get("max_tokens") or params.get("max_completion_tokens"),
        "temperature": params.get("temperature"),
        "topP": params.get("top_p"),
        "stopSequences": [stop] if isinstance(stop, str) else stop,
    }
    return {name: value for name, value in config.items() if value is not None}


def _thinking(chosen: Any, spec: ModelSpec) -> dict[str, Any]:
    """Return Claude's thinking parameters if the account sets a `thinking_budget`."""
    budget = spec.extra.get("thinking_budget")
    if chosen == "enabled" and isinstance(budget, int) and budget > 0:
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}
    return {}


def _adapt_to_claude(config: Mapping[str, Any], thinking: Mapping[str, Any]) -> dict[str, Any]:
    """Adapt a config to Claude: temperature or top_p but not both, neither with thinking, and room for the thoughts."""
    adapted = dict(config)
    if "temperature" in adapted:
        adapted.pop("topP", None)
    if thinking:
        adapted = {name: value for name, value in adapted.items() if name not in ("temperature", "topP")}
        budget = thinking["thinking"]["budget_tokens"]
        if "maxTokens" in adapted:
            adapted["maxTokens"] = max(adapted["maxTokens"], budget + _MIN_ANSWER_TOKENS)
    return adapted


# -- reading an answer -----------------------------------------------------------------------------------------------


def _extend_block(block: dict[str, Any], change: Any) -> Delta | None:
    """Add a change to a block, and return its text or thought as a delta."""
    text, reasoning = field_of(change, "text"), field_of(change, "reasoningContent")
    more = field_of(field_of(change, "toolUse"), "input")
    if isinstance(more, str) and "toolUse" in block:
        block["toolUse"]["input"] += more
    if isinstance(reasoning, dict):
        collected = block.setdefault("reasoning", {})
        for name in ("text", "signature", "redactedContent"):
            if isinstance(reasoning.get(name), str):
                collected[name] = collected.get(name, "") + reasoning[name]
        return ReasoningDelta(reasoning["text"]) if reasoning.get("text") else None
    if isinstance(text, str) and text:
        block["text"] = block.get("text", "") + text
        return ContentDelta(text)
    return None


def _final_deltas(blocks: Sequence[dict[str, Any]], finish: str) -> list[Delta]:
    answer = "".join(block.get("text", "") for block in blocks)
    thoughts = [_signed_thought(block["reasoning"]) for block in blocks if "reasoning" in block]
    used = [block["toolUse"] for block in blocks if field_of(block.get("toolUse"), "name")]
    calls = tuple(
        ToolCall(
            str(call.get("toolUseId") or f"call_{number}"),
            str(call["name"]),
            call["input"] or "{}" if isinstance(call.get("input"), str) else json.dumps(call.get("input") or {}),
            {EXTRA_KEY: thoughts} if thoughts and not number else None,
        )
        for number, call in enumerate(used)
    )
    return final_deltas(answer, calls, _FINISHES.get(finish, "stop"), has_reasoned=bool(thoughts))


def _signed_thought(reasoning: Mapping[str, str]) -> dict[str, Any]:
    if "redactedContent" in reasoning:
        return {"reasoningContent": {"redactedContent": reasoning["redactedContent"]}}
    return {"reasoningContent": {"reasoningText": dict(reasoning)}}


def _flatten_reasoning(reasoning: Any) -> Any:
    """Return the reasoning of a whole answer in the form of a stream."""
    return field_of(reasoning, "reasoningText") or reasoning


def _usage(raw: Any) -> Usage | None:
    prompt, completion, read, written = (
        value if isinstance(value := field_of(raw, name), int) else 0
        for name in ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    )
    prompt += read + written
    return Usage(prompt, completion, prompt + completion) if prompt or completion else None
