"""OpenAI's chat completions for a turn.

The query is the last user message; earlier messages become the history of a new session. If the canvas asks for input,
a stream ends with `waiting_for_user`, and a request without a stream gets 409.

OpenAI clients repeat a request after a 409 or a 5xx. Once a run may have been accepted, every reply tells them not to,
and names the run, so that one call of a client is one run.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from api.events.event_dialects import is_think_start, is_think_tag, message_text
from api.events.event_stream import KEEPALIVE, Envelope
from api.http.errors import (
    ARGUMENT,
    DATA,
    SERVER,
    Failure,
    RequestedRun,
    RequestRefused,
    TokenEnded,
    failure_reply,
    set_requested_run,
)
from api.http.replies import json_reply
from api.http.reply_styles import Style, set_style
from api.requests.auth import RequestPrincipal
from api.requests.dependencies import ApiContext, run_in_thread
from api.requests.request_bodies import SIZE, parse_body
from api.runs.openai_content import SplitText, find_citations, nested_annotation, split_reasoning
from api.runs.openai_files import Attachments, parse_attachments, store_attachments
from api.runs.openai_schemas import (
    READ_ROLES,
    ChatCompletionBody,
    OpenAITurnBody,
    find_ignored,
    find_ignored_roles,
    refuse_unsupported,
)
from api.runs.turn import (
    ActiveTurn,
    TurnResult,
    TurnStreamResponse,
    TurnToStart,
    begin,
    begin_stream,
    choose_turn,
    gather,
    id_headers,
    ignored_headers,
    with_idempotency_key,
)
from canvas.errors import InvalidRequest
from canvas.events import run_events
from providers.models.text.context_window import count_tokens
from scheduler.lifecycle.accept import Start
from store.primitives.ids import created_at_of
from store.primitives.json_codec import encode

_DONE = b"data: [DONE]\n\n"

MODEL_FAILED = "A model failed. Its error is at the end of the answer."

ROUTE = "chat/completions"  # of idempotency keys, under every path


@dataclass(frozen=True, slots=True)
class Question:
    """What a client asks: text and files of its last message, and earlier messages, the history of a new session."""

    text: str = field(repr=False)
    attached: Attachments = field(default_factory=Attachments)
    history: Sequence[tuple[str, str]] = field(default=(), repr=False)


async def answer(
    request: Request,
    context: ApiContext,
    principal: RequestPrincipal,
    agent_id: str | None,
    body: Mapping[str, Any],
    *,
    with_tags: bool = False,
) -> Response:
    """Answer one request of an OpenAI client. Without an agent's id, `model` names the agent.

    `with_tags`: reasoning is part of the text, between think tags, as on RAGFlow's routes.
    """
    set_style(request, Style.OPENAI)
    refuse_unsupported(body)
    fields = parse_body(ChatCompletionBody, body)
    agent = require_agent(agent_id, fields)
    question_index = next(
        (index for index, message in reversed(list(enumerate(fields.messages))) if message.role == "user"), -1
    )
    if question_index < 0:
        raise InvalidRequest("You must provide at least one message.", field="messages")
    asked = fields.messages[question_index]
    question = Question(
        asked.text,
        parse_attachments(f"messages[{question_index}]", asked),
        [(message.role, message.text) for message in fields.messages[:question_index] if message.role in READ_ROLES],
    )
    start = await choose(request, context, principal, agent, fields, question, ROUTE)
    accept = begin_stream if fields.stream else begin
    talk = await accept(context, principal.tenant_id, start, token_id=principal.token_id)
    note_accepted(request, talk, fields)
    ignored = ignored_headers([*find_ignored(body), *find_ignored_roles(fields.messages, "messages")])
    rendering = _Rendering(
        agent, sum(count_tokens(message.text) for message in fields.messages), fields.metadata, with_tags=with_tags
    )
    if fields.stream:
        lines = _lines(talk, rendering, with_usage=fields.stream_options.include_usage)
        return TurnStreamResponse(talk, lines, ignored)
    reply = _completion(request, await gather(talk, request), talk, rendering)
    reply.headers.update({**id_headers(talk), **ignored})
    return reply


def require_agent(agent_id: str | None, fields: OpenAITurnBody) -> str:
    """Return the agent that the path or `model` names. Raises InvalidRequest."""
    agent = agent_id or fields.model
    if not agent:
        raise InvalidRequest("`model` is required: the id of an agent. GET …/openai/models lists them.", field="model")
    return agent


async def choose(
    request: Request,
    context: ApiContext,
    principal: RequestPrincipal,
    agent: str,
    fields: OpenAITurnBody,
    question: Question,
    route: str,
    more: Mapping[str, Any] | None = None,
) -> TurnToStart:
    """Return the turn to start, or the one that started before with the same key. Store the files of a new turn.

    `more` are further options of the start. From here on, replies about internal errors name the run.
    """
    _check_size(request, context, question.attached)
    session = fields.session or (more or {}).get("session_id")
    # these two distinguish requests with the same key
    compared: dict[str, Any] = {} if session else {"heard": list(question.history)}
    if question.attached.parts:
        compared["attached"] = question.attached.digests
    options = {"query": question.text, **fields.options(), **(more or {})}
    options_with_key = with_idempotency_key(
        request, options | {name: value for name, value in compared.items() if value}
    )
    headers = fields.custom_header
    start = await run_in_thread(
        lambda: choose_turn(context, principal, agent, options_with_key, route, custom_header=headers)
    )
    if not isinstance(start, Start):
        return start
    if question.attached.parts:
        files = await store_attachments(request.app.state.http, context, principal, question.attached)
        start = replace(start, request=replace(start.request, files=(*start.request.files, *files)))
    if start.run_id is not None:
        set_requested_run(request, RequestedRun(start.run_id.hex))
    return start if session else replace(start, history=tuple(question.history))


def note_accepted(request: Request, talk: ActiveTurn, fields: OpenAITurnBody) -> None:
    """Record that the run of a request was accepted: every later error names it, and is not to be retried."""
    ids = talk.started
    set_requested_run(request, RequestedRun(ids.run_id.hex, ids.conversation_id.hex, is_accepted=True))
    talk.stops_with_client = fields.cancel_on_disconnect


def _check_size(request: Request, context: ApiContext, attached: Attachments) -> None:
    """Raise RequestRefused for a body that is too large even without its files."""
    size = getattr(request.state, SIZE, 0) - attached.encoded
    if size > context.max_body_bytes:
        raise RequestRefused(
            ARGUMENT,
            f"The request has {size} bytes without its files, more than the {context.max_body_bytes} that "
            "EASEL_MAX_BODY_BYTES allows.",
            status=413,
        )


@dataclass(frozen=True, slots=True)
class _Rendering:
    """How a completion is written: its `model`, the tokens of the messages, metadata, and where reasoning goes."""

    model: str
    prompt: int
    metadata: Mapping[str, Any]
    with_tags: bool

    def text_of(self, turn_result: TurnResult) -> SplitText:
        """Return the text of the answer, and its reasoning unless that is part of the text."""
        if self.with_tags:
            return SplitText(turn_result.content, "")
        return split_reasoning(text for parts in turn_result.texts.values() for _, text in parts)

    def annotations(self, turn_result: TurnResult) -> list[dict[str, Any]]:
        """Return the citations of the answer's text."""
        text = self.text_of(turn_result).content
        return [nested_annotation(each) for each in find_citations(text, turn_result.reference)]


# -- streamed ---------------------------------------------------------------------------------------------------------


async def _lines(talk: ActiveTurn, rendering: _Rendering, *, with_usage: bool) -> AsyncGenerator[bytes]:
    """Yield the chunks. Usage is in the last one, or in a separate one for clients that request that."""
    turn_result = TurnResult()
    deltas = _Deltas(turn_result, rendering)
    envelopes = talk.envelopes()
    try:
        async for wired in envelopes:
            if wired is None:
                yield KEEPALIVE
                continue
            turn_result.add(wired)
            for delta, reason in deltas.of(wired):
                usage = _usage(turn_result, rendering) if reason else None
                yield _data(_chunk(talk, rendering, delta, reason, None if with_usage else usage))
                if with_usage and usage is not None:
                    yield _data({**_chunk(talk, rendering, {}, None, usage), "choices": []})
        yield _DONE
    except TokenEnded as ended:
        delta = _error(ended.message, "authentication_error", "invalid_api_key")
        yield _data(_chunk(talk, rendering, delta, "error", None))
        yield _DONE
    finally:
        await envelopes.aclose()


@dataclass(slots=True)
class _Deltas:
    """The deltas of a stream. `turn_result` has every envelope up to the present one."""

    turn_result: TurnResult
    rendering: _Rendering
    is_reasoning: bool = False

    def of(self, wired: Envelope) -> list[tuple[dict[str, Any], str | None]]:
        """Return the deltas of an envelope, each with the reason for which the stream ends, or None."""
        data = wired.body["data"]
        match wired.name:
            case run_events.MESSAGE:
                return self._of_text(message_text(data))
            case run_events.MESSAGE_END:
                return [({"content": "", "reference": data.get("reference") or {}}, None)]
            case run_events.WORKFLOW_FINISHED if data.get("has_model_error"):
                return [(_error(MODEL_FAILED, "model_error", "model_error"), "error")]
            case run_events.WORKFLOW_FINISHED:
                annotations = self.rendering.annotations(self.turn_result)
                return [({"content": None, **({"annotations": annotations} if annotations else {})}, "stop")]
            case run_events.USER_INPUTS:
                return [({"content": None, "waiting_for_user": question_json(data)}, "waiting_for_user")]
            case run_events.RUN_FAILED:
                return [(_error(wired.body["message"], "server_error", "run_failed"), "error")]
            case _:
                return []

    def _of_text(self, text: str) -> list[tuple[dict[str, Any], str | None]]:
        if self.rendering.with_tags:
            return [({"content": text}, None)]
        if is_think_tag(text):
            self.is_reasoning = is_think_start(text)
            return []
        return [({"content": None, "reasoning_content": text} if self.is_reasoning else {"content": text}, None)]


def _error(message: str, kind: str, code: str) -> dict[str, Any]:
    """Return the delta that ends a stream with an error."""
    return {"content": None, "error": {"message": message, "type": kind, "code": code}}


def _ids(talk: ActiveTurn) -> dict[str, str]:
    return {"run_id": talk.started.run_id.hex, "session_id": talk.started.conversation_id.hex}


def question_json(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form that a run asks, by the data of its event: the node, its prompt, and its fields."""
    return {"cpn_id": next(iter(data.get("forms") or {}), ""), "tips": data.get("tips"), "inputs": data.get("inputs")}


def _chunk(
    talk: ActiveTurn, rendering: _Rendering, delta: dict[str, Any], reason: str | None, usage: dict[str, Any] | None
) -> dict[str, Any]:
    whole = {"role": "assistant", "content": "", "function_call": None, "tool_calls": None, **delta}
    chunk: dict[str, Any] = {
        "id": talk.started.conversation_id.hex,
        "object": "chat.completion.chunk",
        "created": _created_at(talk),
        "model": rendering.model,
        "system_fingerprint": "",
        "usage": usage,
        "choices": [{"index": 0, "delta": whole, "finish_reason": reason, "logprobs": None}],
    }
    if reason is not None and rendering.metadata:
        chunk["metadata"] = rendering.metadata
    if "error" in delta:  # at the top, where clients look for it; the delta has it too, for clients that know Easel
        chunk["error"] = {**delta["error"], "param": None, **_ids(talk)}
    return chunk


def _data(body: dict[str, Any]) -> bytes:
    return f"data: {encode(body)}\n\n".encode()


# -- whole ------------------------------------------------------------------------------------------------------------


def _completion(request: Request, turn_result: TurnResult, talk: ActiveTurn, rendering: _Rendering) -> Response:
    if turn_result.name == run_events.USER_INPUTS:
        question = question_json(turn_result.last["data"])
        return failure_reply(request, Failure(409, "waiting_for_user", "The agent waits for input.", DATA, question))
    if turn_result.name != run_events.WORKFLOW_FINISHED or turn_result.was_cancelled:
        reason = str(turn_result.last.get("message") or run_events.CANCELLED_TEXT)
        if turn_result.was_cancelled:
            return failure_reply(request, Failure(409, "run_cancelled", reason, SERVER))
        return failure_reply(request, Failure(500, "run_failed", reason, SERVER))
    if turn_result.last["data"].get("has_model_error"):
        return failure_reply(request, Failure(500, "model_error", turn_result.content or MODEL_FAILED, SERVER))
    split = rendering.text_of(turn_result)
    message: dict[str, Any] = {"role": "assistant", "content": split.content}
    if split.reasoning:
        message["reasoning_content"] = split.reasoning
    if annotations := rendering.annotations(turn_result):
        message["annotations"] = annotations
    if turn_result.reference:
        message["reference"] = turn_result.reference
    return json_reply(
        {
            "id": talk.started.conversation_id.hex,
            "object": "chat.completion",
            "created": _created_at(talk),
            "model": rendering.model,
            "param": None,
            **({"metadata": rendering.metadata} if rendering.metadata else {}),
            "usage": _usage(turn_result, rendering),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        }
    )


def _usage(turn_result: TurnResult, rendering: _Rendering) -> dict[str, Any]:
    """Return the token usage of the conversation as the client sees it; `run` has the counts of the providers."""
    split = rendering.text_of(turn_result)
    reasoning = count_tokens(split.reasoning) if split.reasoning else 0
    completion = count_tokens(split.content) + reasoning
    counted: dict[str, Any] = {
        "prompt_tokens": rendering.prompt,
        "completion_tokens": completion,
        "total_tokens": rendering.prompt + completion,
        "completion_tokens_details": {
            "reasoning_tokens": reasoning,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
    data = turn_result.last.get("data") or {}
    return {**counted, "run": data["usage"]} if "usage" in data else counted


def _created_at(talk: ActiveTurn) -> int:
    return int(created_at_of(talk.started.message_id).timestamp())
