"""Conversion of messages to a dialogue in which user and assistant alternate."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.models.types.chat import ChatRequest
from providers.models.wires.alternating_messages import (
    AlternatingMessages,
    ImagePart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    alternate_messages,
    image_of,
)

messages = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "user", "assistant", "tool"]),
            "content": st.sampled_from(["", " ", "a", "b c", None]),
        },
        optional={"tool_call_id": st.sampled_from(["c1", "c2"])},
    ),
    max_size=8,
)


def dialogue(*given_messages: dict[str, Any], images: tuple[str, ...] = ()) -> AlternatingMessages:
    return alternate_messages(ChatRequest(given_messages, images=images))


@given(messages)
def test_messages_alternate_begin_with_the_user_and_are_never_empty(given_messages: list[dict[str, Any]]):
    alternating = dialogue(*given_messages).messages

    assert [message.is_assistant for message in alternating] == [bool(at % 2) for at in range(len(alternating))]
    assert alternating
    for message in alternating:
        assert message.parts
        assert all(part.text.strip() for part in message.parts if isinstance(part, TextPart))


@given(messages)
def test_every_text_and_tool_result_is_preserved(given_messages: list[dict[str, Any]]):
    result = dialogue(*given_messages)
    parts = [part for message in result.messages for part in message.parts]

    texts = [
        m["content"] for m in given_messages if m["role"] in ("user", "assistant") and (m["content"] or "").strip()
    ]
    assert [part.text for part in parts if isinstance(part, TextPart) and part.text != "..."] == texts
    assert len([part for part in parts if isinstance(part, ToolResultPart)]) == sum(
        m["role"] == "tool" for m in given_messages
    )


def test_system_messages_are_separated_wherever_they_are():
    result = dialogue(
        {"role": "system", "content": "A"}, {"role": "user", "content": "Q"}, {"role": "developer", "content": "B"}
    )

    assert (result.system, len(result.messages)) == ("A\n\nB", 1)


def test_tool_result_has_the_name_of_its_call_even_if_call_ids_repeat():
    def call(name: str) -> dict[str, Any]:
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_0", "function": {"name": name, "arguments": '{"a": 1}'}, "extra_content": {}}],
        }

    tool_message = {"role": "tool", "tool_call_id": "call_0", "content": "r"}
    result = dialogue({"role": "user", "content": "Q"}, call("first"), tool_message, call("second"), tool_message)

    results = [part for message in result.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert [each.name for each in results] == ["first", "second"]
    assert result.messages[1].parts == [ToolCallPart("call_0", "first", {"a": 1})]


@pytest.mark.parametrize("arguments", ["{oops", "[1]", "", None, "1", "[" * 100_000])
def test_arguments_that_are_not_an_object_become_empty(arguments: Any):
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}

    (_, message) = dialogue({"role": "user", "content": "Q"}, {"role": "assistant", "tool_calls": [call]}).messages

    assert message.parts == [ToolCallPart("c", "f", {})]


@pytest.mark.parametrize(
    ("url", "picture"),
    [
        ("data:image/jpeg;base64,AAAA", ImagePart("image/jpeg", "AAAA")),
        ("data:image/svg+xml;charset=utf-8;base64,AAAA", ImagePart("image/svg+xml", "AAAA")),
        ("data:;base64,AAAA", ImagePart("image/png", "AAAA")),
        ("https://example.com/a.png", ImagePart(url="https://example.com/a.png")),
    ],
)
def test_image_is_read_from_a_data_url_or_referenced_by_url(url: str, picture: ImagePart):
    assert image_of(url) == picture


def test_images_belong_to_the_last_question():
    result = dialogue({"role": "user", "content": "Q"}, images=("data:image/png;base64,AAAA",))

    assert result.messages[-1].parts == [TextPart("Q"), ImagePart("image/png", "AAAA")]
