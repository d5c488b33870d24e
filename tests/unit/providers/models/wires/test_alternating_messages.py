"""Messages as the turns of two speakers."""

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
def test_messages_alternate_begin_with_the_user_and_are_never_empty(said: list[dict[str, Any]]):
    turns = dialogue(*said).messages

    assert [turn.is_assistant for turn in turns] == [bool(at % 2) for at in range(len(turns))]
    assert turns
    for turn in turns:
        assert turn.parts
        assert all(part.text.strip() for part in turn.parts if isinstance(part, TextPart))


@given(messages)
def test_no_text_and_no_result_is_lost(said: list[dict[str, Any]]):
    found = dialogue(*said)
    parts = [part for turn in found.messages for part in turn.parts]

    spoken = [m["content"] for m in said if m["role"] in ("user", "assistant") and (m["content"] or "").strip()]
    assert [part.text for part in parts if isinstance(part, TextPart) and part.text != "..."] == spoken
    assert len([part for part in parts if isinstance(part, ToolResultPart)]) == sum(m["role"] == "tool" for m in said)


def test_system_messages_are_separated_wherever_they_are():
    found = dialogue(
        {"role": "system", "content": "A"}, {"role": "user", "content": "Q"}, {"role": "developer", "content": "B"}
    )

    assert (found.system, len(found.messages)) == ("A\n\nB", 1)


def test_a_result_knows_the_name_of_its_call_also_where_ids_are_used_again():
    def call(name: str) -> dict[str, Any]:
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_0", "function": {"name": name, "arguments": '{"a": 1}'}, "extra_content": {}}],
        }

    result = {"role": "tool", "tool_call_id": "call_0", "content": "r"}
    found = dialogue({"role": "user", "content": "Q"}, call("first"), result, call("second"), result)

    results = [part for turn in found.messages for part in turn.parts if isinstance(part, ToolResultPart)]
    assert [result.name for result in results] == ["first", "second"]
    assert found.messages[1].parts == [ToolCallPart("call_0", "first", {"a": 1})]


@pytest.mark.parametrize("arguments", ["{oops", "[1]", "", None, "1", "[" * 100_000])
def test_arguments_that_are_no_object_are_none(arguments: Any):
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}

    (_, turn) = dialogue({"role": "user", "content": "Q"}, {"role": "assistant", "tool_calls": [call]}).messages

    assert turn.parts == [ToolCallPart("c", "f", {})]


@pytest.mark.parametrize(
    ("url", "picture"),
    [
        ("data:image/jpeg;base64,AAAA", ImagePart("image/jpeg", "AAAA")),
        ("data:image/svg+xml;charset=utf-8;base64,AAAA", ImagePart("image/svg+xml", "AAAA")),
        ("data:;base64,AAAA", ImagePart("image/png", "AAAA")),
        ("https://example.com/a.png", ImagePart(url="https://example.com/a.png")),
    ],
)
def test_an_image_is_its_bytes_or_where_it_is(url: str, picture: ImagePart):
    assert image_of(url) == picture


def test_images_belong_to_the_last_question():
    found = dialogue({"role": "user", "content": "Q"}, images=("data:image/png;base64,AAAA",))

    assert found.messages[-1].parts == [TextPart("Q"), ImagePart("image/png", "AAAA")]
