"""A wire to Bedrock: POST {base}/model/{model}/converse, or converse-stream in AWS' own frames.

Requests go over our connections like any other; `botocore` signs them and takes the frames apart, and finds the
credentials of this machine where an account names none. Needs the extra `bedrock`.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import quote

import structlog

from providers.errors import Code, ProviderError, failure
from providers.models.types.chat import (
    ChatRequest,
    Delta,
    ModelSpec,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    Usage,
    UsageDelta,
)
from providers.models.vendors.families import ParameterRules, wire_params
from providers.models.wires.alternating_messages import (
    Part,
    Picture,
    Result,
    Text,
    ToolCallPart,
    dialogue_of,
    parameters_of,
    tools_called,
)
from providers.models.wires.aws import AwsSigner, frames_of
from providers.models.wires.json_post import encoded, post_json, whole_of
from providers.models.wires.openai_responses import closed_with_its_task, field_of, finish_reason_error, message_in
from providers.models.wires.openai_sdk import HeaderObserver, Limits

if TYPE_CHECKING:
    import httpx2

MARK = "bedrock"  # what is ours in the `extra` of a call
_LEAST_ANSWER = 1024  # tokens
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
        self, spec: ModelSpec, manners: ParameterRules, limits: Limits, *, hears: HeaderObserver | None = None
    ) -> None:
        self._spec = spec
        self._manners = manners
        self._limits = limits
        self._hears = hears
        self._aws = AwsSigner(spec, limits)

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        spec = self._spec
        sent = encoded(body_of(request, spec, self._manners))
        how = "converse-stream" if streamed else "converse"
        url = f"{(spec.base_url or '').rstrip('/')}/model/{quote(spec.name, safe='')}/{how}"
        headers = await self._aws.signed(url, sent, service="bedrock")
        async with post_json(spec, url, headers, sent, self._limits, hears=self._hears) as response:
            if streamed:
                async with aclosing(deltas_of_stream(Frames(response))) as deltas:
                    async for delta in deltas:
                        yield delta
            else:
                for delta in deltas_of_answer(await whole_of(response)):
                    yield delta


class Frames:
    """The events of a streamed reply, read once: their names, and their JSON. Raises CallFailed."""

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
                told = message_in(document) or str(headers.get(":error-message") or name or "The provider broke off.")
                raise failure(told, status=_STATUSES.get(name[:1].lower() + name[1:]), names=[name])

    async def close(self) -> None:
        """Close the connection, unless the reply is over."""
        await self._response.aclose()


def body_of(request: ChatRequest, spec: ModelSpec, manners: ParameterRules) -> dict[str, Any]:
    """A request in Bedrock's words."""
    dialogue = dialogue_of(request)
    params = wire_params(spec.name.rpartition(".")[2], request.params, manners, spec.extra)
    body: dict[str, Any] = {
        "messages": [
            {"role": "assistant" if turn.is_assistant else "user", "content": _blocks(turn.parts)}
            for turn in dialogue.turns
        ]
    }
    if dialogue.system:
        body["system"] = [{"text": dialogue.system}]
    offered = list(request.tools) if spec.is_tools else []
    if request.tools and not offered:
        log.warning("tools_not_offered", model=spec.id, reason="the model is not declared to call tools")
    if declared := offered or tools_called(dialogue):
        body["toolConfig"] = {"tools": [_tool(tool) for tool in declared], **_choice(params.body.get("tool_choice"))}
    config, thinking = _config(params.body), {}
    if "claude" in spec.name:
        thinking = _thinking(request.params.get("thinking"), spec)
        config = _as_claude_takes_it(config, thinking)
    if config:
        body["inferenceConfig"] = config
    if fields := {**thinking, **params.extra}:
        body["additionalModelRequestFields"] = fields
    return body


async def deltas_of_stream(stream: Frames) -> AsyncGenerator[Delta, None]:
    """What the events of an answer say. Raises CallFailed, also where they end before the answer does."""
    blocks: dict[int, dict[str, Any]] = {}
    usage: Usage | None = None
    finish: str | None = None
    async with closed_with_its_task(stream):
        async for name, event in stream:
            at = index if isinstance(index := field_of(event, "contentBlockIndex"), int) else 0
            match name:
                case "contentBlockStart":
                    used = field_of(field_of(event, "start"), "toolUse")
                    if isinstance(used, dict):
                        blocks.setdefault(at, {})["toolUse"] = {**used, "input": ""}
                case "contentBlockDelta":
                    delta = _extended(blocks.setdefault(at, {}), field_of(event, "delta"))
                    if delta is not None:
                        yield delta
                case "messageStop":
                    finish = str(field_of(event, "stopReason") or "end_turn")
                case "metadata":
                    usage = _usage(field_of(event, "usage")) or usage
                case _:
                    pass
    if finish is None:
        raise ProviderError(Code.SERVER_ERROR, "The provider ended the reply before it was whole.")
    for delta in _end([blocks[index] for index in sorted(blocks)], finish):
        yield delta
    if usage is not None:
        yield UsageDelta(usage)


def deltas_of_answer(answer: Any) -> list[Delta]:
    """What a whole answer says. Raises CallFailed."""
    content = field_of(field_of(field_of(answer, "output"), "message"), "content")
    if not isinstance(content, list):
        raise ProviderError(Code.MODEL_ERROR, "The provider's reply holds no answer; is its base URL right?")
    blocks: list[dict[str, Any]] = []
    spoken: list[Delta] = []
    for piece in content:
        blocks.append({"toolUse": piece["toolUse"]} if field_of(piece, "toolUse") else {})
        reasoning = field_of(piece, "reasoningContent")
        delta = _extended(blocks[-1], {"reasoningContent": _flat(reasoning)} if reasoning else piece)
        spoken += [delta] if delta is not None else []
    usage = _usage(field_of(answer, "usage"))
    finish = str(field_of(answer, "stopReason") or "end_turn")
    return [*spoken, *_end(blocks, finish), *([UsageDelta(usage)] if usage else [])]


# -- how a request is said -------------------------------------------------------------------------------------------


def _blocks(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """A turn's content. Results of calls come first, and signed thoughts stand where they stood."""
    blocks: list[dict[str, Any]] = []
    thoughts: list[dict[str, Any]] = []
    for part in sorted(parts, key=lambda part: not isinstance(part, Result)):
        match part:
            case Text(text):
                blocks.append({"text": text})
            case Picture():
                blocks.append({"image": _image(part)})
            case ToolCallPart():
                kept = part.extra.get(MARK)
                thoughts += kept if isinstance(kept, list) else []
                blocks.append({"toolUse": {"toolUseId": part.id, "name": part.name, "input": dict(part.arguments)}})
            case Result():
                blocks.append({"toolResult": {"toolUseId": part.id, "content": [{"text": part.text or "(nothing)"}]}})
            case _:
                assert_never(part)
    return [*thoughts, *blocks]


def _image(picture: Picture) -> dict[str, Any]:
    if picture.url:
        raise ProviderError(Code.INVALID_REQUEST, "Bedrock takes images, but no addresses of images.")
    kind = picture.mime_type.rpartition("/")[2]
    return {"format": {"jpg": "jpeg"}.get(kind, kind), "source": {"bytes": picture.data}}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    described = {"description": function["description"]} if function.get("description") else {}
    return {"toolSpec": {"name": function["name"], **described, "inputSchema": {"json": parameters_of(tool)}}}


def _choice(asked: Any) -> dict[str, Any]:
    name = field_of(field_of(asked, "function"), "name")
    if name:
        return {"toolChoice": {"tool": {"name": name}}}
    return {"toolChoice": {"any": {}}} if asked == "required" else {}


def _config(told: Mapping[str, Any]) -> dict[str, Any]:
    stop = told.get("stop")
    config = {
        "maxTokens": told.get("max_tokens") or told.get("max_completion_tokens"),
        "temperature": told.get("temperature"),
        "topP": told.get("top_p"),
        "stopSequences": [stop] if isinstance(stop, str) else stop,
    }
    return {name: value for name, value in config.items() if value is not None}


def _thinking(chosen: Any, spec: ModelSpec) -> dict[str, Any]:
    """Claude's thinking, where an account says how much it may think."""
    budget = spec.extra.get("thinking_budget")
    if chosen == "enabled" and isinstance(budget, int) and budget > 0:
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}
    return {}


def _as_claude_takes_it(config: Mapping[str, Any], thinking: Mapping[str, Any]) -> dict[str, Any]:
    """Temperature or top_p, never both, and neither while it thinks; an answer longer than the thoughts."""
    kept = dict(config)
    if "temperature" in kept:
        kept.pop("topP", None)
    if thinking:
        kept = {name: value for name, value in kept.items() if name not in ("temperature", "topP")}
        budget = thinking["thinking"]["budget_tokens"]
        if "maxTokens" in kept:
            kept["maxTokens"] = max(kept["maxTokens"], budget + _LEAST_ANSWER)
    return kept


# -- how an answer is read -------------------------------------------------------------------------------------------


def _extended(block: dict[str, Any], piece: Any) -> Delta | None:
    """Add a piece to a block; what it says at once."""
    text, reasoning = field_of(piece, "text"), field_of(piece, "reasoningContent")
    more = field_of(field_of(piece, "toolUse"), "input")
    if isinstance(more, str) and "toolUse" in block:
        block["toolUse"]["input"] += more
    if isinstance(reasoning, dict):
        kept = block.setdefault("reasoning", {})
        for name in ("text", "signature", "redactedContent"):
            if isinstance(reasoning.get(name), str):
                kept[name] = kept.get(name, "") + reasoning[name]
        return ReasoningDelta(reasoning["text"]) if reasoning.get("text") else None
    if isinstance(text, str) and text:
        block["text"] = block.get("text", "") + text
        return TextDelta(text)
    return None


def _end(blocks: Sequence[dict[str, Any]], finish: str) -> list[Delta]:
    answer = "".join(block.get("text", "") for block in blocks)
    thoughts = [_as_signed(block["reasoning"]) for block in blocks if "reasoning" in block]
    used = [block["toolUse"] for block in blocks if field_of(block.get("toolUse"), "name")]
    calls = tuple(
        ToolCall(
            str(call.get("toolUseId") or f"call_{number}"),
            str(call["name"]),
            call["input"] or "{}" if isinstance(call.get("input"), str) else json.dumps(call.get("input") or {}),
            {MARK: thoughts} if thoughts and not number else None,
        )
        for number, call in enumerate(used)
    )
    return finish_reason_error(answer, calls, _FINISHES.get(finish, "stop"), has_reasoned=bool(thoughts))


def _as_signed(reasoning: Mapping[str, str]) -> dict[str, Any]:
    if "redactedContent" in reasoning:
        return {"reasoningContent": {"redactedContent": reasoning["redactedContent"]}}
    return {"reasoningContent": {"reasoningText": dict(reasoning)}}


def _flat(reasoning: Any) -> Any:
    """Reasoning of a whole answer, as it comes in a stream."""
    return field_of(reasoning, "reasoningText") or reasoning


def _usage(told: Any) -> Usage | None:
    prompt, completion, read, written = (
        value if isinstance(value := field_of(told, name), int) else 0
        for name in ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    )
    prompt += read + written
    return Usage(prompt, completion, prompt + completion) if prompt or completion else None
