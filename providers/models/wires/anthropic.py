"""A wire to vendors that speak Anthropic's messages: POST {base}/messages, streamed as events or whole.

Thoughts are signed, and a call is refused later unless the thoughts that led to it come back with it, as they were. So
a round's first call carries them (`ToolCall.extra`). How long an answer may be must always be said.
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, assert_never

import structlog

from providers.errors import Code, ProviderError, failure
from providers.models.limits.idempotency_keys import HEADER
from providers.models.text.context_window import count_tokens, most_tokens
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
    Dialogue,
    Part,
    Picture,
    Result,
    Text,
    ToolCallPart,
    dialogue_of,
    parameters_of,
    tools_called,
)
from providers.models.wires.event_stream import Chunks
from providers.models.wires.json_post import encoded, post_json, whole_of
from providers.models.wires.openai_responses import closed_with_its_task, field_of, finish_reason_error, message_in
from providers.models.wires.openai_sdk import HeaderObserver, Limits

VERSION = "2023-06-01"
MARK = "anthropic"  # what is ours in the `extra` of a call
_THOUGHTS = ("thinking", "redacted_thinking")
_LEAST_ANSWER = 1024  # tokens
_LEAST_THOUGHT = 1024  # tokens; theirs
_THOUGHT_SHARE = 0.5  # of the answer, where nobody says how much
_ADAPTS = re.compile(r"(?:.*[./])?claude-[a-z]+-(?:4[-.][6-9](?!\d)|[5-9])")  # they see how much to think
_FINISHES = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "content_filter"}

log = structlog.get_logger()


class AnthropicWire:
    """Requests to one model of one account. `answers` is how many tokens an answer may have where nobody says."""

    def __init__(
        self,
        spec: ModelSpec,
        manners: ParameterRules,
        limits: Limits,
        answers: int,
        *,
        hears: HeaderObserver | None = None,
    ) -> None:
        self._spec = spec
        self._manners = manners
        self._limits = limits
        self._answers = answers
        self._hears = hears

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        body = body_of(request, self._spec, self._manners, self._answers)
        url = f"{(self._spec.base_url or '').rstrip('/')}/messages"
        sent = encoded({**body, "stream": True} if streamed else body)
        headers = self._headers(request)
        async with post_json(self._spec, url, headers, sent, self._limits, hears=self._hears) as response:
            if streamed:
                async with aclosing(deltas_of_stream(Chunks(response))) as deltas:
                    async for delta in deltas:
                        yield delta
            else:
                for delta in deltas_of_message(await whole_of(response)):
                    yield delta

    def _headers(self, request: ChatRequest) -> dict[str, str]:
        headers = {"anthropic-version": str(self._spec.extra.get("anthropic_version") or VERSION)}
        if beta := self._spec.extra.get("anthropic_beta"):
            headers["anthropic-beta"] = str(beta)
        if self._spec.api_key:
            headers["x-api-key"] = self._spec.api_key
        return headers | ({HEADER: request.key} if request.key else {})


def body_of(request: ChatRequest, spec: ModelSpec, manners: ParameterRules, answers: int) -> dict[str, Any]:
    """A request in Anthropic's words."""
    dialogue = dialogue_of(request)
    params = wire_params(spec.name, request.params, manners, spec.extra)
    told = dict(params.body)
    limit = told.get("max_tokens") or told.get("max_completion_tokens") or _room(dialogue, spec, answers)
    body: dict[str, Any] = {
        "model": spec.name,
        "max_tokens": limit,
        "messages": [
            {"role": "assistant" if turn.is_assistant else "user", "content": _blocks(turn.parts)}
            for turn in dialogue.turns
        ],
    }
    if dialogue.system:
        body["system"] = dialogue.system
    if stop := told.get("stop"):
        body["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if request.tools and spec.is_tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _choice(told.get("tool_choice"))
    elif request.tools:
        log.warning("tools_not_offered", model=spec.id, reason="the model is not declared to call tools")
    if "tools" not in body and (used := tools_called(dialogue)):
        body |= {"tools": [_tool(tool) for tool in used], "tool_choice": {"type": "none"}}
    body |= _sampling(told)
    body |= _thinking(request.params.get("thinking"), spec, limit)
    if body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
        body.pop("temperature", None)  # thinking takes its own
        body.pop("top_p", None)
        body["max_tokens"] = max(limit, body["thinking"].get("budget_tokens", 0) + _LEAST_ANSWER)
    return body | params.extra


async def deltas_of_stream(stream: Chunks) -> AsyncGenerator[Delta, None]:
    """What the events of an answer say. Raises CallFailed, also where they end before the answer does."""
    blocks: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    finish: str | None = None
    is_whole = False
    async with closed_with_its_task(stream):
        async for event in stream:
            match field_of(event, "type"):
                case "message_start":
                    usage |= _figures(field_of(field_of(event, "message"), "usage"))
                case "content_block_start":
                    block = field_of(event, "content_block")
                    blocks[_index(event)] = dict(block) if isinstance(block, dict) else {}
                    if (delta := _spoken(block)) is not None:
                        yield delta
                case "content_block_delta":
                    piece = field_of(event, "delta")
                    _extend(blocks.setdefault(_index(event), {}), piece)
                    if (delta := _spoken(piece)) is not None:
                        yield delta
                case "message_delta":
                    usage |= _figures(field_of(event, "usage"))
                    finish = field_of(field_of(event, "delta"), "stop_reason") or finish
                case "message_stop":
                    is_whole = True
                case "error":
                    error = field_of(event, "error")
                    told = message_in(error) or "The provider sent an error in place of its answer."
                    raise failure(told, names=[field_of(error, "type")])
                case _:
                    pass  # pings, and what will be invented
    if not is_whole and finish is None:
        raise ProviderError(Code.SERVER_ERROR, "The provider ended the reply before it was whole.")
    for delta in _end([blocks[index] for index in sorted(blocks)], finish):
        yield delta
    if usage:
        yield UsageDelta(_usage(usage))


def deltas_of_message(message: Any) -> list[Delta]:
    """What a whole answer says. Raises CallFailed."""
    content = field_of(message, "content")
    if not isinstance(content, list):
        error = field_of(message, "error")
        told = message_in(error) or "The provider's reply holds no answer; is its base URL right?"
        raise failure(told, names=[field_of(error, "type")]) if error else ProviderError(Code.MODEL_ERROR, told)
    blocks = [dict(block) for block in content if isinstance(block, dict)]
    spoken = [delta for block in blocks if (delta := _spoken(block)) is not None]
    usage = _figures(field_of(message, "usage"))
    told = [UsageDelta(_usage(usage))] if usage else []
    return [*spoken, *_end(blocks, field_of(message, "stop_reason") or "end_turn"), *told]


# -- how a request is said -------------------------------------------------------------------------------------------


def _blocks(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """A turn's content. Results of calls come first, and signed thoughts stand where they stood."""
    blocks: list[dict[str, Any]] = []
    thoughts: list[dict[str, Any]] = []
    for part in sorted(parts, key=lambda part: not isinstance(part, Result)):
        match part:
            case Text(text):
                blocks.append({"type": "text", "text": text})
            case Picture():
                blocks.append({"type": "image", "source": _source(part)})
            case ToolCallPart():
                kept = part.extra.get(MARK)
                thoughts += kept if isinstance(kept, list) else []
                blocks.append({"type": "tool_use", "id": part.id, "name": part.name, "input": dict(part.arguments)})
            case Result():
                blocks.append({"type": "tool_result", "tool_use_id": part.id, "content": part.text or "(nothing)"})
            case _:
                assert_never(part)
    return [*thoughts, *blocks]


def _source(picture: Picture) -> dict[str, Any]:
    if picture.url:
        return {"type": "url", "url": picture.url}
    return {"type": "base64", "media_type": picture.mime_type, "data": picture.data}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    described = {"description": function["description"]} if function.get("description") else {}
    return {"name": function["name"], **described, "input_schema": parameters_of(tool)}


def _choice(asked: Any) -> dict[str, Any]:
    name = field_of(field_of(asked, "function"), "name")
    if name:
        return {"type": "tool", "name": name}
    return {"type": {"required": "any", "none": "none"}.get(str(asked), "auto")}


def _sampling(told: Mapping[str, Any]) -> dict[str, Any]:
    """Temperature, or else top_p: newer models refuse both together. Temperatures end at 1."""
    if (temperature := told.get("temperature")) is not None:
        return {"temperature": min(1.0, temperature)}
    return {"top_p": told["top_p"]} if told.get("top_p") is not None else {}


def _thinking(chosen: Any, spec: ModelSpec, limit: int) -> dict[str, Any]:
    """What the author says about thinking; unsaid, the model does what it does by default."""
    match chosen:
        case "enabled" if spec.extra.get("thinking_is_adaptive", bool(_ADAPTS.match(spec.name))):
            return {"thinking": {"type": "adaptive"}}
        case "enabled":
            own = spec.extra.get("thinking_budget")
            wanted = own if isinstance(own, int) and own > 0 else int(limit * _THOUGHT_SHARE)
            return {"thinking": {"type": "enabled", "budget_tokens": max(_LEAST_THOUGHT, wanted)}}
        case "disabled":
            return {"thinking": {"type": "disabled"}}
        case _:
            return {}


def _room(dialogue: Dialogue, spec: ModelSpec, answers: int) -> int:
    """The tokens that an answer may have: as many as the model gives, and as there is room for beside the question."""
    texts = [dialogue.system]
    for turn in dialogue.turns:
        texts += [part.text for part in turn.parts if isinstance(part, Text | Result)]
    if sum(map(most_tokens, texts)) + answers <= spec.context_tokens:
        return answers
    return max(_LEAST_ANSWER, min(answers, spec.context_tokens - sum(map(count_tokens, texts))))


# -- how an answer is read -------------------------------------------------------------------------------------------


def _spoken(piece: Any) -> Delta | None:
    """What a block, or a piece of one, says at once."""
    text, thought = field_of(piece, "text"), field_of(piece, "thinking")
    if isinstance(text, str) and text:
        return TextDelta(text)
    return ReasoningDelta(thought) if isinstance(thought, str) and thought else None


def _extend(block: dict[str, Any], piece: Any) -> None:
    for name, kept in (
        ("text", "text"),
        ("thinking", "thinking"),
        ("signature", "signature"),
        ("partial_json", "json"),
    ):
        value = field_of(piece, name)
        if isinstance(value, str):
            block[kept] = block.get(kept, "") + value


def _end(blocks: Sequence[dict[str, Any]], finish: str | None) -> list[Delta]:
    answer = "".join(str(block.get("text") or "") for block in blocks)
    thoughts = [_as_signed(block) for block in blocks if block.get("type") in _THOUGHTS]
    return finish_reason_error(
        answer, _calls(blocks, thoughts), _FINISHES.get(str(finish), finish), has_reasoned=bool(thoughts)
    )


def _calls(blocks: Sequence[dict[str, Any]], thoughts: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
    used = [block for block in blocks if block.get("type") == "tool_use" and block.get("name")]
    return tuple(
        ToolCall(
            str(block.get("id") or f"call_{number}"),
            str(block["name"]),
            block.get("json") or json.dumps(block.get("input") or {}),
            {MARK: thoughts} if thoughts and not number else None,
        )
        for number, block in enumerate(used)
    )


def _as_signed(block: Mapping[str, Any]) -> dict[str, Any]:
    return {name: block[name] for name in ("type", "thinking", "signature", "data") if name in block}


def _index(event: Any) -> int:
    index = field_of(event, "index")
    return index if isinstance(index, int) else 0


def _figures(told: Any) -> dict[str, Any]:
    return {name: value for name, value in told.items() if isinstance(value, int)} if isinstance(told, dict) else {}


def _usage(told: Mapping[str, int]) -> Usage:
    """What is read from their cache, and what is put there, is part of the prompt."""
    cached = told.get("cache_creation_input_tokens", 0) + told.get("cache_read_input_tokens", 0)
    prompt, completion = told.get("input_tokens", 0) + cached, told.get("output_tokens", 0)
    return Usage(prompt, completion, prompt + completion)
