"""The HTTP reply to the caller of a webhook."""

import json
from typing import Any
from uuid import UUID

import pytest

from api.runs.turn import TurnResult
from api.webhooks.reply import parse_template, turn_reply
from canvas.errors import InvalidRequest
from canvas.events.run_events import CANCELLED_TEXT
from scheduler.lifecycle.accept import Started

STARTED = Started(UUID(int=1), UUID(int=2), UUID(int=3), 0)
IDS = {"run_id": STARTED.run_id.hex, "session_id": STARTED.conversation_id.hex}


def immediate_reply(**response: Any) -> Any:
    template = parse_template({"response": response})
    assert template is not None
    return template.reply(STARTED)


def turn_result(text: str = "", name: str = "workflow_finished", **last: Any) -> TurnResult:
    return TurnResult(last={"data": {}, **last}, name=name, texts={"t": [(0, text)]})


@pytest.mark.parametrize(
    ("written", "content_type", "body"),
    [
        ('{"ok": true}', "application/json", {**IDS, "ok": True}),
        ('{"run_id": "mine"}', "application/json", {**IDS, "run_id": "mine"}),
        ('{"big": 123456789012345678901234567890}', "application/json", {**IDS, "big": 123456789012345678901234567890}),
        ({"ok": True}, "application/json", {**IDS, "ok": True}),
        ("[1, 2]", "application/json", [1, 2]),
        ("  ", "application/json", None),
        ("", "application/json", None),
        (None, "application/json", None),
        ("Thank you", "text/plain; charset=utf-8", "Thank you"),
        ('{"a": NaN}', "text/plain; charset=utf-8", '{"a": NaN}'),
        ("[" * 100_000, "text/plain; charset=utf-8", "[" * 100_000),
    ],
)
def test_immediate_reply_has_the_body_template_of_the_author(written: Any, content_type: str, body: Any) -> None:
    reply = immediate_reply(body_template=written)

    assert reply.status_code == 200
    assert reply.headers["content-type"] == content_type
    assert reply.headers["x-run-id"] == STARTED.run_id.hex
    assert (bytes(reply.body).decode() if content_type.startswith("text") else json.loads(bytes(reply.body))) == body


@pytest.mark.parametrize(("status", "expected"), [(202, 202), ("302", 302), (None, 200), ("", 200), (399, 399)])
def test_an_immediate_reply_has_the_authors_status(status: Any, expected: int) -> None:
    assert immediate_reply(status=status).status_code == expected


@pytest.mark.parametrize("status", [204, 304])
def test_status_without_body_has_no_body(status: int) -> None:
    assert immediate_reply(status=status, body_template="text").body == b""


@pytest.mark.parametrize("status", [199, 400, 500, 0, -1, "ok", True, [], float("nan")])
def test_a_status_that_is_neither_success_nor_redirection_is_refused(status: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        immediate_reply(status=status)

    assert caught.value.message == f"Invalid response status code: {status}"


@pytest.mark.parametrize("settings", [None, [], "text", 5])
def test_webhook_without_a_response_template_replies_null(settings: Any) -> None:
    template = parse_template({"response": settings, "execution_mode": None})

    assert template is not None
    assert template.reply(STARTED).body == b"null"


def test_caller_waits_in_other_execution_modes() -> None:
    assert parse_template({"execution_mode": "Streaming", "response": {"status": 500}}) is None


def test_waiting_caller_gets_the_answer() -> None:
    reply = turn_reply(turn_result("<think>so</think>Hello"), STARTED, [])

    assert reply.status_code == 200
    assert json.loads(bytes(reply.body)) == {"message": "<think>so</think>Hello", "success": True, "code": 200, **IDS}


def test_run_that_waits_for_input_replies_with_its_text() -> None:
    reply = turn_reply(turn_result("Who are you?", "user_inputs", data={"inputs": {}}), STARTED, [])

    assert json.loads(bytes(reply.body)) == {"message": "Who are you?", "success": True, "code": 200, **IDS}


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [([201, 418], 418), ([201, None], 201), (["503"], 503), (["often", 99, 600, True], 200), ([404, "x"], 404)],
)
def test_last_status_of_messages_is_that_of_the_reply(statuses: list[Any], expected: int) -> None:
    reply = turn_reply(turn_result("Hello"), STARTED, statuses)

    assert (reply.status_code, json.loads(bytes(reply.body))["code"]) == (expected, expected)


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (turn_result("half", "run_failed", message="It broke.", data=False), "It broke."),
        (turn_result("half", data={"outputs": CANCELLED_TEXT}), CANCELLED_TEXT),
    ],
)
def test_a_run_that_did_not_succeed_is_a_bad_request(ended: TurnResult, message: str) -> None:
    reply = turn_reply(ended, STARTED, [200])

    assert reply.status_code == 400
    assert json.loads(bytes(reply.body)) == {"code": 400, "message": message, "success": False, **IDS}
