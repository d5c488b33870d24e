"""What a node reads of the messages of its conversation."""

from typing import Any

import pytest

from worker.context import node_context


@pytest.mark.parametrize(
    ("role", "content", "plain"),
    [
        ("assistant", "Hello", "Hello"),
        ("assistant", {"content": "Hello", "reference": {}}, "Hello"),
        ("assistant", {"downloads": []}, ""),
        ("user", "Hi", "Hi"),
        ("user", {"content": "Hi"}, "Hi"),
        ("user", {"name": "Ada"}, {"name": "Ada"}),
        ("user", None, ""),
    ],
)
def test_content_of_a_message_is_its_text_and_an_object_of_the_user_without_one_stays(
    role: str, content: Any, plain: Any
):
    untyped: Any = node_context

    assert untyped._plain_content({"role": role, "content": content}) == plain
