"""OpenAI's chat completions for a turn.

The query is the last user message; earlier messages become the history of a new session. If the canvas asks for input,
a stream ends with `waiting_for_user`, and a request without a stream gets 409.

OpenAI clients repeat a request after a 409 or a 5xx. Once a run may have been accepted, every reply tells them not to,
and names the run, so that one call of a client is one run.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from api.events.event_dialects import message_text
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
from api.runs.openai_files import Attachments, parse_attachments, store_attachments
from api.runs.openai_schemas import ChatCompletionBody, find_ignored, refuse_unsupported
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

_DETAILS = {"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
_DONE = b"data: [DONE]\n\n"
_ROLES = ("user", "assistant")

MODEL_FAILED = "A model failed. Its error is at the end of the answer."

ROUTE = "chat/completions"  # of idempotency keys, under every path


async def answer(
    request: Request, context: ApiContext, principal: RequestPrincipal, agent_id: str | None, body: Mapping[str, Any]
) -> Response:
    """Answer one request of an OpenAI client. Without an agent's id, `model` names the agent."""
    set_style(request, Style.OPENAI)
    refuse_unsupported(body)
    fields = parse_body(ChatCompletionBody, body)
    agent = agent_id or fields.model
    if not agent:
        raise InvalidRequest("`model` is required: the id of an agent. GET …/openai/models lists them.", field="model")
    question_index = next(
        (index for index, message in reversed(list(enumerate(fields.messages))) if message.role == "user"), -1
    )
    if question_index < 0:
        raise InvalidRequest("You must provide at least one message.", field="messages")
    attached = parse_attachments(question_index, fields.messages[question_index])
    _check_size(request, context, attached)
    start = await _start(request, context, principal, agent, fields, question_index, attached)
    if isinstance(start, Start) and start.run_id is not None:
        set_requested_run(request, RequestedRun(start.run_id.hex))
    accept = begin_stream if fields.stream else begin
    talk = await accept(context, principal.tenant_id, start, token_id=principal.token_id)
    set_requested_run(
        request, RequestedRun(talk.started.run_id.hex, talk.started.conversation_id.hex, is_accepted=True)
    )
    talk.stops_with_client = fields.cancel_on_disconnect
    prompt = sum(count_tokens(message.text) for message in fields.messages)
    ignored = ignored_headers(find_ignored(body))
    if fields.stream:
        lines = _lines(talk, agent, prompt, with_usage=fields.stream_options.include_usage)
        return TurnStreamResponse(talk, lines, ignored)
    reply = _completion(request, await gather(talk, request), talk, agent, prompt)
    reply.headers.update({**id_headers(talk), **ignored})
    return reply


async def _start(
    request: Request,
    context: ApiContext,
    principal: RequestPrincipal,
    agent: str,
    fields: ChatCompletionBody,
    question_index: int,
    attached: Attachments,
) -> TurnToStart:
    """Return the turn to start, or the one that started before with the same key. Store the files of a new turn."""
    history = [(message.role, message.text) for message in fields.messages[:question_index] if message.role in _ROLES]
    # these two distinguish requests with the same key
    compared: dict[str, Any] = {} if fields.session else {"heard": history}
    if attached.parts:
        compared["attached"] = attached.digests
    options = {"query": fields.messages[question_index].text, **fields.options()}
    options_with_key = with_idempotency_key(
        request, options | {name: value for name, value in compared.items() if value}
    )
    headers = fields.custom_header
    start = await run_in_thread(
        lambda: choose_turn(context, principal, agent, options_with_key, ROUTE, custom_header=headers)
    )
    if not isinstance(start, Start):
        return start
    if attached.parts:
        files = await store_attachments(request.app.state.http, context, principal, attached)
        start = replace(start, request=replace(start.request, files=(*start.request.files, *files)))
    return start if fields.session else replace(start, history=tuple(history))


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


# -- streamed ---------------------------------------------------------------------------------------------------------


async def _lines(talk: ActiveTurn, agent_id: str, prompt: int, *, with_usage: bool) -> AsyncGenerator[bytes]:
    """Yield the chunks. Usage is in the last one, or in a separate one for clients that request that."""
    turn_result = TurnResult()
    envelopes = talk.envelopes()
    try:
        async for wired in envelopes:
            if wired is None:
                yield KEEPALIVE
                continue
            turn_result.add(wired)
            for delta, reason in _deltas(wired):
                usage = _usage(turn_result, prompt) if reason else None
                yield _data(_chunk(talk, agent_id, delta, reason, None if with_usage else usage))
                if with_usage and usage is not None:
                    yield _data({**_chunk(talk, agent_id, {}, None, usage), "choices": []})
        yield _DONE
    except TokenEnded as ended:
        delta = _error(ended.message, "authentication_error", "invalid_api_key")
        yield _data(_chunk(talk, agent_id, delta, "error", None))
        yield _DONE
    finally:
        await envelopes.aclose()


def _deltas(wired: Envelope) -> list[tuple[dict[str, Any], str | None]]:
    data = wired.body["data"]
    match wired.name:
        case run_events.MESSAGE:
            return [({"content": message_text(data)}, None)]
        case run_events.MESSAGE_END:
            return [({"content": "", "reference": data.get("reference") or {}}, None)]
        case run_events.WORKFLOW_FINISHED if data.get("has_model_error"):
            return [(_error(MODEL_FAILED, "model_error", "model_error"), "error")]
        case run_events.WORKFLOW_FINISHED:
            return [({"content": None}, "stop")]
        case run_events.USER_INPUTS:
            return [({"content": None, "waiting_for_user": _question(data)}, "waiting_for_user")]
        case run_events.RUN_FAILED:
            return [(_error(wired.body["message"], "server_error", "run_failed"), "error")]
        case _:
            return []


def _error(message: str, kind: str, code: str) -> dict[str, Any]:
    """Return the delta that ends a stream with an error."""
    return {"content": None, "error": {"message": message, "type": kind, "code": code}}


def _ids(talk: ActiveTurn) -> dict[str, str]:
    return {"run_id": talk.started.run_id.hex, "session_id": talk.started.conversation_id.hex}


def _question(data: dict[str, Any]) -> dict[str, Any]:
    return {"cpn_id": next(iter(data.get("forms") or {}), ""), "tips": data.get("tips"), "inputs": data.get("inputs")}


def _chunk(
    talk: ActiveTurn, agent_id: str, delta: dict[str, Any], reason: str | None, usage: dict[str, Any] | None
) -> dict[str, Any]:
    whole = {"role": "assistant", "content": "", "function_call": None, "tool_calls": None, **delta}
    chunk: dict[str, Any] = {
        "id": talk.started.conversation_id.hex,
        "object": "chat.completion.chunk",
        "created": _created_at(talk),
        "model": agent_id,
        "system_fingerprint": "",
        "usage": usage,
        "choices": [{"index": 0, "delta": whole, "finish_reason": reason, "logprobs": None}],
    }
    if "error" in delta:  # at the top, where clients look for it; the delta has it too, for clients that know Easel
        chunk["error"] = {**delta["error"], "param": None, **_ids(talk)}
    return chunk


def _data(body: dict[str, Any]) -> bytes:
    return f"data: {encode(body)}\n\n".encode()


# -- whole ------------------------------------------------------------------------------------------------------------


def _completion(request: Request, turn_result: TurnResult, talk: ActiveTurn, agent_id: str, prompt: int) -> Response:
    if turn_result.name == run_events.USER_INPUTS:
        question = _question(turn_result.last["data"])
        return failure_reply(request, Failure(409, "waiting_for_user", "The agent waits for input.", DATA, question))
    if turn_result.name != run_events.WORKFLOW_FINISHED or turn_result.was_cancelled:
        reason = str(turn_result.last.get("message") or run_events.CANCELLED_TEXT)
        if turn_result.was_cancelled:
            return failure_reply(request, Failure(409, "run_cancelled", reason, SERVER))
        return failure_reply(request, Failure(500, "run_failed", reason, SERVER))
    if turn_result.last["data"].get("has_model_error"):
        return failure_reply(request, Failure(500, "model_error", turn_result.content or MODEL_FAILED, SERVER))
    message: dict[str, Any] = {"role": "assistant", "content": turn_result.content}
    if turn_result.reference:
        message["reference"] = turn_result.reference
    return json_reply(
        {
            "id": talk.started.conversation_id.hex,
            "object": "chat.completion",
            "created": _created_at(talk),
            "model": agent_id,
            "param": None,
            "usage": _usage(turn_result, prompt),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        }
    )


def _usage(turn_result: TurnResult, prompt: int) -> dict[str, Any]:
    """Return the token usage of the conversation as the client sees it; `run` has the counts of the providers."""
    completion = count_tokens(turn_result.content)
    counted: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "completion_tokens_details": _DETAILS,
    }
    data = turn_result.last.get("data") or {}
    return {**counted, "run": data["usage"]} if "usage" in data else counted


def _created_at(talk: ActiveTurn) -> int:
    return int(created_at_of(talk.started.message_id).timestamp())
