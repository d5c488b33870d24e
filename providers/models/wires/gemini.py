"""The wire for Gemini's own API: POST {base}/models/{model}:generateContent, or :streamGenerateContent as events.

Tool calls may have a signature of the thoughts before them, and are refused later without it. `ToolCall.extra` keeps
the signature, under the names that Gemini's OpenAI-compatible endpoint uses.
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, assert_never
from urllib.parse import quote

import structlog

from providers.errors import ErrorCode, ProviderError, provider_error
from providers.models.limits.idempotency_keys import HEADER
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
)
from providers.models.wires.event_stream import Chunks
from providers.models.wires.json_post import encode_body, post_json, read_json
from providers.models.wires.openai_responses import (
    NO_ANSWER,
    close_with_task,
    field_of,
    final_deltas,
    message_in,
)
from providers.models.wires.openai_sdk import HeaderObserver, RequestLimits

_SAMPLING = {
    "temperature": "temperature",
    "top_p": "topP",
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "seed": "seed",
    "n": "candidateCount",
}
_SCHEMA_FIELDS = frozenset(
    {
        "type", "format", "title", "description", "nullable", "enum", "items", "maxItems", "minItems", "properties",
        "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf",
        "propertyOrdering", "default", "minimum", "maximum",
    }
)  # fmt: skip
_THINKING_OFF: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (r"gemini-2\.5-pro", {"thinkingBudget": 128}),  # the minimum; its thinking cannot be turned off
    (r"gemini-2\.5", {"thinkingBudget": 0}),
    (r"gemini-([3-9]|\d\d)", {"thinkingLevel": "low"}),
)
"""Parameters that turn thinking off, by the beginning of a model's name; older models do not think."""
_FILTERED_REASONS = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE", "OTHER"}
)
_INVALID_CALL_REASONS = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"})

log = structlog.get_logger()


class GeminiWire:
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

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        spec = self._spec
        sent = encode_body(body_of(request, spec, self._rules))
        how = "streamGenerateContent?alt=sse" if streamed else "generateContent"
        name = spec.name if spec.name.startswith(("models/", "tunedModels/")) else f"models/{spec.name}"
        url = f"{(spec.base_url or '').rstrip('/')}/{quote(name)}:{how}"
        headers = ({"x-goog-api-key": spec.api_key} if spec.api_key else {}) | (
            {HEADER: request.key} if request.key else {}
        )
        async with post_json(spec, url, headers, sent, self._limits, observe_headers=self._observe_headers) as response:
            if streamed:
                async with aclosing(deltas_of_stream(Chunks(response))) as deltas:
                    async for delta in deltas:
                        yield delta
            else:
                answer = _AnswerReader()
                for delta in (*answer.deltas_of(await read_json(response)), *answer.final_deltas(is_whole=True)):
                    yield delta


def body_of(request: ChatRequest, spec: ModelSpec, manners: ParameterRules) -> dict[str, Any]:
    """Return the body of a request for Gemini's API."""
    dialogue = alternate_messages(request)
    params = wire_params(spec.name, request.params, manners, spec.extra)
    body: dict[str, Any] = {
        "contents": [
            {"role": "model" if turn.is_assistant else "user", "parts": [_part(part) for part in turn.parts]}
            for turn in dialogue.messages
        ]
    }
    if dialogue.system:
        body["systemInstruction"] = {"parts": [{"text": dialogue.system}]}
    if request.tools and spec.is_tools:
        body["tools"] = [{"functionDeclarations": [_function(tool) for tool in request.tools]}]
        body["toolConfig"] = {"functionCallingConfig": _choice(params.body.get("tool_choice"))}
    elif request.tools:
        log.warning("tools_not_offered", model=spec.id, reason="the model is not declared to call tools")
    if config := _config(params.body) | _thinking(request.params.get("thinking"), spec.name):
        body["generationConfig"] = config
    return body | params.extra


async def deltas_of_stream(stream: Chunks) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a streamed answer. Raises ProviderError, also if the stream ends before the answer."""
    answer = _AnswerReader()
    async with close_with_task(stream):
        async for chunk in stream:
            for delta in answer.deltas_of(chunk):
                yield delta
    for delta in answer.final_deltas():
        yield delta


class _AnswerReader:
    """Converts the chunks of an answer to deltas, and collects what the end of the answer needs."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self._has_thought = False
        self._finish: str | None = None
        self._usage: Usage | None = None

    def deltas_of(self, chunk: Any) -> list[Delta]:
        """Return the deltas of a chunk. Raises ProviderError for an error or an invalid chunk."""
        if error := field_of(chunk, "error"):
            detail = message_in(error) or "The provider sent an error instead of an answer."
            raise provider_error(detail, names=[field_of(error, "code"), field_of(error, "status")])
        if not isinstance(chunk, dict):
            raise ProviderError(ErrorCode.MODEL_ERROR, NO_ANSWER)
        self._usage = _usage(chunk.get("usageMetadata")) or self._usage
        if reason := field_of(chunk.get("promptFeedback"), "blockReason"):
            raise ProviderError(ErrorCode.CONTENT_FILTERED, f"The provider refuses the question: {reason}.")
        candidate = next(iter(chunk.get("candidates") or ()), None)
        self._finish = field_of(candidate, "finishReason") or self._finish
        parts = field_of(field_of(candidate, "content"), "parts")
        return [delta for part in parts or () if (delta := self._delta_of(part)) is not None]

    def final_deltas(self, *, is_whole: bool = False) -> list[Delta]:
        """Return the deltas after the last chunk. `is_whole`: the reply was not streamed and may lack a finish reason.

        Raises ProviderError if there is no answer.
        """
        answer, finish = "".join(self._text), self._finish
        if is_whole and (answer or self._calls):
            finish = finish or "STOP"
        if finish is None:
            raise ProviderError(ErrorCode.SERVER_ERROR, "The provider ended the reply before it was complete.")
        if finish in _INVALID_CALL_REASONS and not self._calls:
            raise ProviderError(ErrorCode.SERVER_ERROR, f"The model's function call is not valid: {finish}.")
        reason = "content_filter" if finish in _FILTERED_REASONS else {"MAX_TOKENS": "length"}.get(finish, "stop")
        deltas = final_deltas(answer, tuple(self._calls), reason, has_reasoned=self._has_thought)
        return deltas if self._usage is None else [*deltas, UsageDelta(self._usage)]

    def _delta_of(self, part: Any) -> Delta | None:
        call, text = field_of(part, "functionCall"), field_of(part, "text")
        if field_of(call, "name"):
            signature = field_of(part, "thoughtSignature")
            self._calls.append(
                ToolCall(
                    str(call.get("id") or f"call_{len(self._calls)}"),
                    str(call["name"]),
                    json.dumps(call.get("args") or {}, ensure_ascii=False),
                    {"google": {"thought_signature": signature}} if signature else None,
                )
            )
            return None
        if not isinstance(text, str) or not text:
            return None
        if field_of(part, "thought"):
            self._has_thought = True
            return ReasoningDelta(text)
        self._text.append(text)
        return ContentDelta(text)


# -- writing a request -----------------------------------------------------------------------------------------------


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"text": text}
        case ImagePart() if part.url:
            return {"fileData": {"fileUri": part.url}}
        case ImagePart():
            return {"inlineData": {"mimeType": part.mime_type, "data": part.data}}
        case ToolCallPart():
            signature = field_of(part.extra.get("google"), "thought_signature")
            signed = {"thoughtSignature": signature} if signature else {}
            return {"functionCall": {"name": part.name, "args": dict(part.arguments)}, **signed}
        case ToolResultPart():
            return {"functionResponse": {"name": part.name, "response": {"result": part.text}}}
        case _:
            assert_never(part)


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function declaration. A schema beyond Gemini's own schema type is sent as JSON schema."""
    function = tool["function"]
    described = {"description": function["description"]} if function.get("description") else {}
    schema = parameters_of(tool)
    if not schema.get("properties"):
        return {"name": function["name"], **described}
    kind = "parameters" if _is_gemini_schema(schema) else "parametersJsonSchema"
    return {"name": function["name"], **described, kind: schema}


def _is_gemini_schema(schema: Any) -> bool:
    """Return whether Gemini's own schema type can express a schema: no references, one type each, no exclusions."""
    if (
        not isinstance(schema, dict)
        or not _SCHEMA_FIELDS.issuperset(schema)
        or not isinstance(schema.get("type", ""), str)
    ):
        return False
    properties: Sequence[Any] = list(schema.get("properties", {}).values())
    inner = [*properties, *schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])]
    return all(map(_is_gemini_schema, inner)) and all(isinstance(value, str) for value in schema.get("enum", ()))


def _choice(tool_choice: Any) -> dict[str, Any]:
    name = field_of(field_of(tool_choice, "function"), "name")
    if name:
        return {"mode": "ANY", "allowedFunctionNames": [name]}
    return {"mode": {"required": "ANY", "none": "NONE"}.get(str(tool_choice), "AUTO")}


def _config(params: Mapping[str, Any]) -> dict[str, Any]:
    config = {theirs: params[ours] for ours, theirs in _SAMPLING.items() if ours in params}
    if stop := params.get("stop"):
        config["stopSequences"] = [stop] if isinstance(stop, str) else list(stop)
    form = params.get("response_format")
    if field_of(form, "type") in ("json_object", "json_schema"):
        config["responseMimeType"] = "application/json"
        if schema := field_of(field_of(form, "json_schema"), "schema"):
            config["responseJsonSchema"] = schema
    return config


def _thinking(chosen: Any, model: str) -> dict[str, Any]:
    """Return the thinking parameters; without a choice the model's default applies and thoughts are not returned."""
    if chosen == "enabled":
        return {"thinkingConfig": {"includeThoughts": True}}
    if chosen == "disabled":
        name = model.rpartition("/")[2]
        quiet = next((config for pattern, config in _THINKING_OFF if re.match(pattern, name)), None)
        return {"thinkingConfig": dict(quiet)} if quiet else {}
    return {}


def _usage(raw: Any) -> Usage | None:
    """Return the reported usage; thoughts count as completion tokens."""
    prompt, spoken, thought, tools = (
        value if isinstance(value := field_of(raw, name), int) else 0
        for name in ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")
    )
    if not (prompt or spoken or thought):
        return None
    return Usage(prompt + tools, spoken + thought, prompt + tools + spoken + thought)
