import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from canvas.errors import ModelError
from providers.models.chat.retrying_model import RetryingModel, RetryPolicy
from providers.models.chat.scripted import Script, ScriptedWire, is_match, load_script, scripted_spec
from providers.models.types.chat import (
    CallsDelta,
    ChatRequest,
    ContentDelta,
    Delta,
    ErrorDelta,
    ReasoningDelta,
    ToolCall,
    UsageDelta,
)

TALK = [
    {"role": "system", "content": "You help."},
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": "ok"},
    {"role": "user", "content": "Where is\nmy order?"},
]


async def no_wait(_: float) -> None:
    """Replace the wait between two requests."""


def model(script: Script, name: str = "m") -> RetryingModel:
    return RetryingModel(scripted_spec(name), ScriptedWire(script, name), RetryPolicy(no_wait))


def answer(script: Script, messages: list[dict[str, Any]] | None = None, name: str = "m", **request: Any) -> str:
    return asyncio.run(model(script, name).complete(ChatRequest(messages or TALK, **request))).text


def deltas(script: Script, **request: Any) -> list[Delta]:
    async def read() -> list[Delta]:
        return [delta async for delta in model(script).stream(ChatRequest(TALK, **request))]

    return [delta for delta in asyncio.run(read()) if not isinstance(delta, UsageDelta)]


@pytest.mark.parametrize(
    ("matcher", "text", "accepted"),
    [
        ("order", "my order?", True),
        ("order", "my Order?", False),
        (["my", "order"], "my order", True),
        (["my", "car"], "my order", False),
        ([], "anything", True),
        ({"regex": "^my.order$"}, "my\norder", True),
        ({"regex": "^order"}, "my order", False),
        ({"equals": "my"}, "my", True),
        ({"equals": "my"}, "my order", False),
        ({"not": "car"}, "my order", True),
        ({"not": ["my", {"regex": "o.d"}]}, "my order", False),
        (None, "anything", True),
    ],
)
def test_matcher_accepts_the_described_texts(matcher: Any, text: str, accepted: bool):
    assert is_match(matcher, text) is accepted


@pytest.mark.parametrize("matcher", [3, {"regex": "("}, {"regex": "a", "equals": "a"}, {"like": "a"}, ["a", {}]])
def test_rule_with_an_invalid_matcher_is_refused_with_its_number(matcher: Any):
    with pytest.raises(ModelError, match="Rule 1 of the script, field user"):
        Script([{"reply": "a"}, {"user": matcher}])


def test_a_rule_with_an_unknown_key_is_refused():
    with pytest.raises(ModelError, match="Rule 0 of the script, field replay"):
        Script([{"replay": "a"}])


@pytest.mark.parametrize(
    ("condition", "holds_here"),
    [
        ({"system": "help"}, True),
        ({"system": "first"}, False),
        ({"user": "order"}, True),
        ({"user": "first"}, False),
        ({"last": "Where"}, True),
        ({"last_role": "user"}, True),
        ({"last_role": "tool"}, False),
        ({"any": ["first", "ok", "order"]}, True),
        ({"model": "m"}, True),
        ({"model": "n"}, False),
        ({"user": "order", "model": "n"}, False),
    ],
)
def test_a_rule_answers_when_all_its_conditions_hold(condition: dict[str, Any], holds_here: bool):
    script = Script([{**condition, "reply": "this"}, {"reply": "other"}])

    assert answer(script) == ("this" if holds_here else "other")


def test_first_matching_rule_answers_until_its_uses_are_exhausted():
    script = Script([{"reply": "once", "times": 1}, {"reply": "twice", "times": 2}, {"reply": "always"}])

    assert [answer(script) for _ in range(5)] == ["once", "twice", "twice", "always", "always"]


def test_uses_are_counted_over_all_models_and_threads_of_a_script():
    script = Script([{"reply": "rare", "times": 20}, {"reply": "common"}])
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.extend(answer(script) for _ in range(10))) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == ["common"] * 20 + ["rare"] * 20


def test_answer_is_streamed_in_deltas_of_eight_and_then_five_characters():
    script = Script([{"reasoning": "0123456789", "reply": "abcdefghijklmnop"}])

    assert deltas(script) == [
        *(ReasoningDelta(text) for text in ("01234567", "89")),
        *(ContentDelta(text) for text in ("abcdefgh", "ijklm", "nop")),
    ]


def test_empty_reply_is_a_valid_answer():
    assert answer(Script([{"reply": ""}])) == ""


def test_tool_call_arguments_are_sent_as_text_and_each_call_has_its_own_id():
    script = Script([{"tool_calls": [{"name": "a", "arguments": {"é": 1}}, {"name": "b", "arguments": "{bad"}]}])
    first, second = deltas(script), deltas(script)

    assert first == [CallsDelta((ToolCall("call_1_0", "a", '{"é": 1}'), ToolCall("call_1_1", "b", "{bad")))]
    assert second != first


def test_scripted_error_is_classified_and_retried_like_a_vendor_error():
    script = Script([{"error": "429 rate limit", "times": 2}, {"reply": "Refund"}])

    assert answer(script, retries=5) == "Refund"
    assert [seen.rule for seen in script.requests] == [0, 0, 1]


def test_permanent_error_is_the_answer():
    script = Script([{"error": "invalid request: bad"}])

    assert answer(script, retries=5) == "**ERROR**: INVALID_REQUEST - invalid request: bad"
    assert len(script.requests) == 1


def test_a_stream_can_break_after_its_reply():
    script = Script([{"reply": "half an answer", "error_after": "503 server unavailable"}])

    assert deltas(script, retries=3) == [
        *(ContentDelta(text) for text in ("half an ", "answe", "r")),
        ErrorDelta("SERVER_ERROR", "503 server unavailable"),
    ]


def test_a_request_that_no_rule_answers_fails():
    script = Script([{"user": "something else", "reply": "a"}])

    assert answer(script).startswith("**ERROR**: MODEL_ERROR - No rule of the script")
    assert script.requests[0].rule is None


def test_script_records_its_requests():
    script = Script([{"reply": "a"}, {"reply": "b"}])
    messages = [{"role": "user", "content": "hi"}]
    tool = {"type": "function", "function": {"name": "look_up"}}
    answer(script, messages, "gpt@X", params={"temperature": 0.2}, tools=[tool])
    messages[0]["content"] = "changed later"

    seen = script.requests[0]

    assert (seen.model, seen.tools, seen.params, seen.rule) == ("gpt@X", ("look_up",), {"temperature": 0.2}, 0)
    assert seen.messages == ({"role": "user", "content": "hi"},)


def test_the_text_of_a_message_in_parts_is_matched():
    script = Script([{"user": {"equals": "look"}, "reply": "seen"}])
    content = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:,"}}]

    assert answer(script, [{"role": "user", "content": content}]) == "seen"


@pytest.mark.parametrize("form", ["list", "rules", "llm"])
def test_rules_are_read_from_json(tmp_path: Path, form: str):
    rules = [{"reply": "from a file"}]
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(rules if form == "list" else {form: rules}))

    assert answer(load_script(path)) == "from a file"


def test_rules_are_read_from_toml(tmp_path: Path):
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nuser = "order"\nreply = "on its way"\n')

    assert answer(load_script(path)) == "on its way"


def test_all_callers_of_a_file_share_one_script(tmp_path: Path):
    path = tmp_path / "rules.json"
    path.write_text('[{"reply": "once", "times": 1}, {"reply": "then"}]')

    assert [answer(load_script(path)), answer(load_script(path))] == ["once", "then"]


@pytest.mark.parametrize("content", [None, "{", '{"rules": 3}', "7"])
def test_file_without_rules_is_refused_with_its_name(tmp_path: Path, content: str | None):
    path = tmp_path / "rules.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ModelError, match=r"rules\.json"):
        load_script(path)
