"""OpenAI's chat completions around a turn (http-api 4.2).

The question is the last message of the user; earlier messages become the history of a new session. A form that the
canvas asks ends a stream with `waiting_for_user`, and a request that does not stream with 409.
"""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from api.auth import Principal
from api.edge import Edge, in_thread
from api.errors import DATA, Refused, TokenEnded
from api.replies import json_reply
from api.schemas import ChatCompletion, ChatMessage
from api.sse import BEAT, Wired
from api.talk import Talk, TalkResponse, Told, begin, chosen, gathered, keyed, spoken
from canvas import events
from providers.fitting import count_tokens
from scheduler.accepting import Start
from store.encoding import encode
from store.ids import moment_of

_DETAILS = {"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
_DONE = b"data: [DONE]\n\n"
_SPEAKERS = ("user", "assistant")

NO_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients repeat a 500 by themselves, and what ran before the failure would run again."""

ROUTE = "chat/completions"  # of idempotency keys, under every path


async def answer(request: Request, edge: Edge, principal: Principal, agent_id: str, wanted: ChatCompletion) -> Response:
    """One request of an OpenAI client."""
    question = next((place for place in reversed(range(len(wanted.messages))) if _is_user(wanted.messages[place])), -1)
    if question < 0:
        raise Refused(DATA, "You must provide at least one message.")
    said = wanted.messages[question]
    heard = [(message.role, message.text) for message in wanted.messages[:question] if message.role in _SPEAKERS]
    options = {
        "query": said.text,
        "session_id": wanted.session,
        "user_id": wanted.user_id,
        "release": wanted.release,
        "on_busy": wanted.on_busy,
        "heard": heard if not wanted.session else (),  # the history of a new session
    }
    given = keyed(request, {name: value for name, value in options.items() if value} | wanted.key())
    headers = wanted.custom_header
    start = await in_thread(lambda: chosen(edge, principal, agent_id, given, ROUTE, custom_header=headers))
    if isinstance(start, Start) and not wanted.session:
        start = replace(start, said_before=tuple(heard))
    talk = await begin(edge, principal.tenant_id, start, token_id=principal.token_id)
    talk.stops_with_client = wanted.cancel_on_disconnect
    prompt = sum(count_tokens(message.text) for message in wanted.messages)
    if wanted.stream:
        return TalkResponse(talk, _lines(talk, agent_id, prompt))
    return _completion(await gathered(talk, request), talk, agent_id, prompt)


def _is_user(message: ChatMessage) -> bool:
    return message.role == "user"


# -- streamed ---------------------------------------------------------------------------------------------------------


async def _lines(talk: Talk, agent_id: str, prompt: int) -> AsyncGenerator[bytes]:
    told = Told()
    envelopes = talk.envelopes()
    try:
        async for wired in envelopes:
            if wired is None:
                yield BEAT
                continue
            told.take(wired)
            for delta, reason in _deltas(wired):
                usage = _usage(told, prompt) if reason else None
                yield _data(_chunk(talk, agent_id, delta, reason, usage))
        yield _DONE
    except TokenEnded as ended:
        error = {"message": ended.message, "type": "authentication_error"}
        yield _data(_chunk(talk, agent_id, {"content": None, "error": error}, "error", None))
        yield _DONE
    finally:
        await envelopes.aclose()


def _deltas(wired: Wired) -> list[tuple[dict[str, Any], str | None]]:
    data = wired.body["data"]
    match wired.name:
        case events.MESSAGE:
            return [({"content": spoken(data)}, None)]
        case events.MESSAGE_END:
            return [({"content": "", "reference": data.get("reference") or {}}, None)]
        case events.WORKFLOW_FINISHED if data.get("has_model_error"):
            return [({"content": None, "error": _model_error("")}, "error")]
        case events.WORKFLOW_FINISHED:
            return [({"content": None}, "stop")]
        case events.USER_INPUTS:
            return [({"content": None, "waiting_for_user": _question(data)}, "waiting_for_user")]
        case events.RUN_FAILED:
            error = {"message": wired.body["message"], "type": "server_error"}
            return [({"content": None, "error": error}, "error")]
        case _:
            return []


def _question(data: dict[str, Any]) -> dict[str, Any]:
    return {"cpn_id": next(iter(data.get("forms") or {}), ""), "tips": data.get("tips"), "inputs": data.get("inputs")}


def _chunk(
    talk: Talk, agent_id: str, delta: dict[str, Any], reason: str | None, usage: dict[str, Any] | None
) -> dict[str, Any]:
    whole = {"role": "assistant", "content": "", "function_call": None, "tool_calls": None, **delta}
    return {
        "id": talk.started.conversation_id.hex,
        "object": "chat.completion.chunk",
        "created": _created(talk),
        "model": agent_id,
        "system_fingerprint": "",
        "usage": usage,
        "choices": [{"index": 0, "delta": whole, "finish_reason": reason, "logprobs": None}],
    }


def _data(body: dict[str, Any]) -> bytes:
    return f"data: {encode(body)}\n\n".encode()


# -- whole ------------------------------------------------------------------------------------------------------------


def _completion(told: Told, talk: Talk, agent_id: str, prompt: int) -> Response:
    if told.name == events.USER_INPUTS:
        error = {"message": "The agent waits for input.", "type": "waiting_for_user", **_question(told.last["data"])}
        return json_reply({"error": error}, 409)
    if told.name != events.WORKFLOW_FINISHED:
        reason = str(told.last.get("message") or events.CANCELLED_TEXT)
        return json_reply({"error": {"message": reason, "type": "server_error"}}, 500, NO_RETRY)
    if told.last["data"].get("has_model_error"):
        return json_reply({"error": _model_error(told.content)}, 500, NO_RETRY)
    message: dict[str, Any] = {"role": "assistant", "content": told.content}
    if told.reference:
        message["reference"] = told.reference
    return json_reply(
        {
            "id": talk.started.conversation_id.hex,
            "object": "chat.completion",
            "created": _created(talk),
            "model": agent_id,
            "param": None,
            "usage": _usage(told, prompt),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        }
    )


def _model_error(answer: str) -> dict[str, str]:
    """What a client of OpenAI's is told of a run that gave the error of a model as its answer."""
    return {"message": answer or "A model failed. Its error is the end of the answer.", "type": "model_error"}


def _usage(told: Told, prompt: int) -> dict[str, Any]:
    """Tokens of the conversation as the client sees it; `run` has what the providers counted."""
    completion = count_tokens(told.content)
    counted: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "completion_tokens_details": _DETAILS,
    }
    data = told.last.get("data") or {}
    return {**counted, "run": data["usage"]} if "usage" in data else counted


def _created(talk: Talk) -> int:
    return int(moment_of(talk.started.message_id).timestamp())
