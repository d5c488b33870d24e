"""The wire for Gemini's own API: the vendor's SDK asks {base}/models/{model}:generateContent, or its stream.

The SDK writes the request from its types, continues an answer that exceeds the limit of one request ("long decode"),
also after a broken connection, and reads the reply. `providers/models/transport/open_responses.py` closes what it
leaves open.

Tool calls may have a signature of the thoughts before them, and are refused later without it. `ToolCall.extra` keeps
the signature, under the names that Gemini's OpenAI-compatible endpoint uses.
"""

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import quote

import structlog
from pydantic import ValidationError

from providers.errors import ErrorCode, ProviderError, provider_error
from providers.models.limits.idempotency_keys import HEADER
from providers.models.transport.clients import borrow_gemini_client, warm_up
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
from providers.models.wires.json_post import connection_errors, error_from_response
from providers.models.wires.openai_responses import NO_ANSWER, close_with_task, field_of, final_deltas, message_in
from providers.models.wires.openai_sdk import HeaderObserver, RequestLimits

if TYPE_CHECKING:
    from google.genai import types

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
_OWN_ID = re.compile(r"call_\d+")  # an id that this wire made up for a call without one
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")

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
        self._is_prepared = False

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        spec = self._spec
        async with borrow_gemini_client(spec, self._limits.hosts) as client:
            from providers.models.transport.open_responses import OpenResponses

            asked = arguments_of(request, spec, self._rules, self._limits)
            seconds = min(self._limits.request_timeout, self._limits.connect_timeout).total_seconds()
            answer = _AnswerReader()
            async with close_with_task(OpenResponses(seconds, self._observe_headers)):
                if streamed:
                    with _provider_errors(spec.base_url):
                        chunks = await client.aio.models.generate_content_stream(**asked)
                    async with aclosing(_chunks(chunks, spec.base_url)) as read:
                        async for chunk in read:
                            for delta in answer.deltas_of(chunk):
                                yield delta
                else:
                    with _provider_errors(spec.base_url):
                        reply = await client.aio.models.generate_content(**asked)
                    for delta in answer.deltas_of(reply):
                        yield delta
            for delta in answer.final_deltas(is_whole=not streamed):
                yield delta

    async def prepare(self) -> None:
        """Import the SDK and create the client, which takes a second, before the request waits for rate limits."""
        if not self._is_prepared:
            with suppress(ImportError):  # the client's error says what to install
                await asyncio.to_thread(warm_up, "google.genai")
            async with borrow_gemini_client(self._spec, self._limits.hosts):
                self._is_prepared = True


def arguments_of(request: ChatRequest, spec: ModelSpec, rules: ParameterRules, limits: RequestLimits) -> dict[str, Any]:
    """Return the arguments of the SDK for a request. Raises ProviderError for values that its types do not allow."""
    from google.genai import types

    if ".." in spec.name:
        raise ProviderError(ErrorCode.INVALID_REQUEST, f'Gemini has no model with the name "{spec.name}".')
    dialogue = alternate_messages(request)
    params = wire_params(spec.name, request.params, rules, spec.extra)
    config: dict[str, Any] = _config(params.body) | _thinking(request.params.get("thinking"), spec.name)
    if dialogue.system:
        config["systemInstruction"] = {"parts": [{"text": _storable(dialogue.system)}]}
    if request.tools and spec.is_tools:
        config["tools"] = [{"functionDeclarations": [_function(tool) for tool in request.tools]}]
        config["toolConfig"] = {"functionCallingConfig": _choice(params.body.get("tool_choice"))}
    elif request.tools:
        log.warning("tools_not_offered", model=spec.id, reason="the model is not declared to call tools")
    config["automaticFunctionCalling"] = {"disable": True}  # tools are called by the Agent
    config["httpOptions"] = {
        "timeout": int(limits.request_timeout.total_seconds() * 1000),
        "headers": {HEADER: request.key} if request.key else {},
        "extraBody": params.extra or None,
    }
    try:
        contents = [
            types.Content.model_validate(
                {"role": "model" if turn.is_assistant else "user", "parts": [_part(part) for part in turn.parts]}
            )
            for turn in dialogue.messages
        ]
        return {
            "model": quote(spec.name),  # the SDK puts it into the URL as it is
            "contents": contents,
            "config": types.GenerateContentConfig.model_validate(config),
        }
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        detail = f"Gemini does not allow this request: {place}: {first['msg']}."
        raise ProviderError(ErrorCode.INVALID_REQUEST, detail) from problem


async def _chunks(
    stream: AsyncIterator["types.GenerateContentResponse"], base_url: str | None
) -> AsyncGenerator["types.GenerateContentResponse"]:
    """Yield the chunks of a streamed answer. Raises ProviderError."""
    while True:
        with _provider_errors(base_url):
            try:
                chunk = await anext(stream)
            except StopAsyncIteration:
                return
        yield chunk


@contextmanager
def _provider_errors(base_url: str | None) -> Generator[None]:
    """Convert errors of the SDK to ProviderError."""
    import httpx2
    from google.genai.errors import APIError, UnknownApiResponseError

    try:
        with connection_errors(base_url):
            yield
    except APIError as problem:
        response = problem.response
        if isinstance(response, httpx2.Response):
            raise error_from_response(response.status_code, response.headers, response.content) from problem
        detail = message_in(problem.details) or "The provider sent an error instead of an answer."
        raise provider_error(detail, names=[problem.code, problem.status]) from problem
    except UnknownApiResponseError as problem:
        raise ProviderError(ErrorCode.SERVER_ERROR, "The provider sent a reply that is not valid JSON.") from problem
    except (ValueError, AttributeError, TypeError, RecursionError) as problem:  # a reply that is no answer
        raise ProviderError(ErrorCode.MODEL_ERROR, NO_ANSWER) from problem


class _AnswerReader:
    """Converts the chunks of an answer to deltas, and collects what the end of the answer needs."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self._has_thought = False
        self._finish: str | None = None
        self._usage: Usage | None = None

    def deltas_of(self, chunk: "types.GenerateContentResponse") -> list[Delta]:
        """Return the deltas of a chunk. Raises ProviderError if the provider has refused the question."""
        self._usage = _usage(chunk.usage_metadata) or self._usage
        if chunk.prompt_feedback is not None and (reason := chunk.prompt_feedback.block_reason):
            raise ProviderError(ErrorCode.CONTENT_FILTERED, f"The provider refuses the question: {reason.value}.")
        candidate = next(iter(chunk.candidates or ()), None)
        if candidate is None:
            return []
        if candidate.finish_reason is not None:
            self._finish = candidate.finish_reason.value
        parts = (candidate.content.parts if candidate.content is not None else None) or ()
        return [delta for part in parts if (delta := self._delta_of(part)) is not None]

    def final_deltas(self, *, is_whole: bool = False) -> list[Delta]:
        """Return the deltas after the last chunk. `is_whole`: the reply was not streamed and may lack a finish reason.

        Raises ProviderError if the reply has no answer.
        """
        answer, finish = "".join(self._text), self._finish
        if is_whole and (answer or self._calls):
            finish = finish or "STOP"
        if finish is None:
            raise ProviderError(ErrorCode.SERVER_ERROR, "The provider ended the reply before it was complete.")
        if finish in _INVALID_CALL_REASONS and not self._calls:
            raise ProviderError(ErrorCode.SERVER_ERROR, f"The model's function call is not valid: {finish}.")
        if finish in _FILTERED_REASONS:
            reason = "content_filter"
        else:
            reason = "length" if finish in ("MAX_TOKENS", "CONTINUATION") else "stop"
        deltas = final_deltas(answer, tuple(self._calls), reason, has_reasoned=self._has_thought)
        return deltas if self._usage is None else [*deltas, UsageDelta(self._usage)]

    def _delta_of(self, part: "types.Part") -> Delta | None:
        call = part.function_call
        if call is not None and call.name:
            signature = b64encode(part.thought_signature).decode() if part.thought_signature else None
            self._calls.append(
                ToolCall(
                    call.id or f"call_{len(self._calls)}",
                    call.name,
                    json.dumps(call.args or {}, ensure_ascii=False),
                    {"google": {"thought_signature": signature}} if signature else None,
                )
            )
            return None
        if not part.text:
            return None
        if part.thought:
            self._has_thought = True
            return ReasoningDelta(part.text)
        self._text.append(part.text)
        return ContentDelta(part.text)


# -- writing a request -----------------------------------------------------------------------------------------------


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"text": _storable(text)}
        case ImagePart() if part.url:
            return {"fileData": {"fileUri": part.url}}
        case ImagePart():
            return {"inlineData": {"mimeType": part.mime_type, "data": part.data}}
        case ToolCallPart():
            signature = field_of(part.extra.get("google"), "thought_signature")
            signed = {"thoughtSignature": signature} if signature else {}
            return {"functionCall": {**_id(part.id), "name": part.name, "args": dict(part.arguments)}, **signed}
        case ToolResultPart():
            result = {"result": _storable(part.text)}
            return {"functionResponse": {**_id(part.id), "name": part.name, "response": result}}
        case _:
            assert_never(part)


def _id(call_id: str) -> dict[str, str]:
    """Return the id of a call; models from Gemini 3.5 on require it in the result, older ones give none."""
    return {} if _OWN_ID.fullmatch(call_id) else {"id": call_id}


def _storable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which the SDK's types do not accept."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function declaration, with its parameters as a JSON schema."""
    function = tool["function"]
    described = {"description": function["description"]} if function.get("description") else {}
    schema = parameters_of(tool)
    parameters = {"parametersJsonSchema": schema} if schema.get("properties") else {}
    return {"name": function["name"], **described, **parameters}


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


def _usage(reported: "types.GenerateContentResponseUsageMetadata | None") -> Usage | None:
    """Return the reported usage; thoughts count as completion tokens."""
    if reported is None:
        return None
    prompt = (reported.prompt_token_count or 0) + (reported.tool_use_prompt_token_count or 0)
    completion = (reported.candidates_token_count or 0) + (reported.thoughts_token_count or 0)
    return Usage(prompt, completion, prompt + completion) if prompt or completion else None
