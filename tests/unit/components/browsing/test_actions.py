import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.browsing.actions import (
    MAX_ACTIONS,
    MAX_WAIT_SECONDS,
    BackAction,
    ClickAction,
    DoneAction,
    DownloadAction,
    GotoAction,
    InvalidReply,
    ScrollAction,
    TypeAction,
    WaitAction,
    read_reply,
)

CLICK = ClickAction(action="click", index=3)


@pytest.mark.parametrize(
    "reply",
    [
        '{"thought": "", "actions": [{"action": "click", "index": 3}]}',
        '{"actions": {"action": "click", "index": "3"}}',
        '{"action": "click", "index": 3}',
        '[{"action": "click", "index": 3}]',
        '{"click": {"index": 3}}',
        '{"actions": [{"click": {"index": 3}}]}',
        '<think>Which one?</think>```json\n{"actions": [{"action": "click", "index": 3, "why": "it says so"}]}\n```',
        "{'actions': [{'action': 'click', 'index': 3},",
    ],
)
def test_action_is_parsed_from_several_json_shapes(reply: str):
    assert read_reply(reply).actions == (CLICK,)


def test_actions_keep_their_order_and_the_thought_is_read():
    reply = read_reply('{"thought": "look", "actions": [{"action": "back"}, {"action": "scroll", "direction": "up"}]}')

    assert reply.thought == "look"
    assert reply.actions == (BackAction(action="back"), ScrollAction(action="scroll", direction="up"))


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (
            {"action": "type", "index": 1, "text": 42, "submit": True},
            TypeAction(action="type", index=1, text="42", submit=True),
        ),
        ({"action": "scroll"}, ScrollAction(action="scroll", direction="down")),
        ({"action": "wait"}, WaitAction(action="wait", seconds=1)),
        ({"action": "done"}, DoneAction(action="done", result=None)),
        ({"action": "done", "result": {"a": [1]}}, DoneAction(action="done", result={"a": [1]})),
        ({"action": "done", "text": "It costs 4."}, DoneAction(action="done", result="It costs 4.")),
        ({"action": "done", "answer": 0, "result": None}, DoneAction(action="done", result=0)),
        ({"action": "done", "text": "no", "result": ""}, DoneAction(action="done", result="")),
        ({"done": {"content": "yes"}}, DoneAction(action="done", result="yes")),
        ({"done": "yes"}, DoneAction(action="done", result="yes")),
        ({"action": "goto", "url": "e.com"}, GotoAction(action="goto", url="e.com")),
        ({"action": "download", "url": "https://e.com/a"}, DownloadAction(action="download", url="https://e.com/a")),
    ],
)
def test_omitted_fields_of_an_action_have_defaults(action: dict[str, Any], expected: Any):
    assert read_reply(json.dumps({"actions": [action]})).actions == (expected,)


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ("I would click on it.", "not valid JSON"),
        ("", "not valid JSON"),
        ("{}", "names no actions"),
        ('{"thought": "hm", "actions": []}', "names no actions"),
        ('{"actions": ["click"]}', "is a JSON object"),
        ('{"actions": [{"action": "dance"}]}', "Known actions: back, click, done"),
        ('{"actions": [{"action": "click"}]}', "index"),
        ('{"actions": [{"action": "click", "index": "the first"}]}', "index"),
        ('{"actions": [{"action": "download"}]}', "either index or url"),
        (json.dumps({"actions": [{"action": "wait", "seconds": MAX_WAIT_SECONDS + 1}]}), "seconds"),
    ],
)
def test_invalid_reply_is_refused_with_the_reason(reply: str, complaint: str):
    with pytest.raises(InvalidReply, match=complaint):
        read_reply(reply)


def test_actions_of_a_reply_beyond_the_limit_are_dropped():
    reply = read_reply(json.dumps([{"action": "back"}] * (MAX_ACTIONS + 5)))

    assert len(reply.actions) == MAX_ACTIONS


def test_action_is_formatted_as_one_short_line():
    assert str(CLICK) == "click(index=3)"
    assert str(TypeAction(action="type", index=1, text="a\nb" + "x" * 500)).startswith("type(index=1, text='a\\nbxx")
    assert len(str(TypeAction(action="type", index=1, text="x" * 500))) < 150


KEYS = st.sampled_from(["action", "actions", "click", "index", "thought", "x"])
PLAIN = st.none() | st.integers() | st.sampled_from(["click", "done", "", "7"])


@settings(max_examples=25, deadline=None)
@given(st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner), max_leaves=6))
def test_any_reply_is_parsed_or_refused(reply: Any):
    try:
        actions = read_reply(json.dumps(reply)).actions
    except InvalidReply:
        return

    assert actions
