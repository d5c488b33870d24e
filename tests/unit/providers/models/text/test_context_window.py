from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.models.text.context_window import (
    count_tokens,
    fit_messages,
    max_tokens_of,
    message_budget,
    message_tokens,
    text_of,
    truncate_to_tokens,
)

WORDS = "word " * 400  # about 400 tokens


def message(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def total(messages: list[dict[str, Any]]) -> int:
    return message_tokens(messages)


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("The quick brown fox jumps over the lazy dog.", 10),
        ("def add(left, right):\n    return left + right\n", 12),
        ('{"name": "Ada", "born": 1815, "tags": ["maths", "engines"]}', 24),
        ("人工智能是计算机科学的一个分支，它企图了解智能的实质。", 30),
        ("Все люди рождаются свободными и равными.", 22),
        ("3f786850e387550fdab836ed7e6dc881de23001b", 20),
    ],
)
def test_token_estimate_is_near_the_exact_count(text: str, exact: int):
    assert count_tokens(text) == pytest.approx(exact, rel=0.25)


def test_empty_text_has_no_tokens():
    assert count_tokens("") == 0


@given(st.text(), st.text())
def test_two_texts_together_have_no_fewer_tokens_than_the_longer_half(left: str, right: str):
    assert count_tokens(left + right) >= max(count_tokens(left), count_tokens(right)) - 2


@given(st.text() | st.text("aZ09 ._-\n{}\u4e2d\u00e9"))
def test_token_count_is_never_above_the_maximum_estimate(text: str):
    assert count_tokens(text) <= max_tokens_of(text)


@given(st.text(), st.integers(min_value=-1, max_value=50))
def test_truncated_text_is_a_prefix_within_the_limit(text: str, limit: int):
    cut = truncate_to_tokens(text, limit)

    assert text.startswith(cut)
    assert count_tokens(cut) <= max(0, limit)


def test_a_text_that_fits_is_not_cut():
    assert truncate_to_tokens("Three small words", 3) == "Three small words"


def test_long_word_is_truncated_inside():
    cut = truncate_to_tokens("x" * 10_000, 20)

    assert 10 <= len(cut) < 200


def test_messages_that_fit_stay_as_they_are():
    messages = [message("system", "S"), message("user", "a"), message("assistant", "b"), message("user", "c")]

    assert fit_messages(messages, 100) == messages


def test_a_long_conversation_keeps_the_system_messages_and_the_last():
    messages = [message("system", "S"), message("user", WORDS), message("system", "T"), message("user", "last")]

    assert [m["content"] for m in fit_messages(messages, 100)] == ["S", "T", "last"]


def test_long_system_text_is_cut_before_the_question():
    fitted = fit_messages([message("system", WORDS), message("user", "Why is the sky blue?")], 100)

    assert fitted[1]["content"] == "Why is the sky blue?"
    assert 50 < total(fitted) <= 100


def test_long_question_is_cut_before_the_system_text():
    fitted = fit_messages([message("system", "Be brief."), message("user", WORDS)], 100)

    assert fitted[0]["content"] == "Be brief."
    assert 50 < total(fitted) <= 100


def test_a_single_long_message_is_cut():
    fitted = fit_messages([message("user", WORDS)], 100)

    assert 50 < total(fitted) <= 100


def test_limit_that_is_not_positive_means_8192_tokens():
    assert total(fit_messages([message("user", "word " * 9000)], 0)) <= 8192
    assert fit_messages([message("user", WORDS)], -1) == [message("user", WORDS)]


def test_empty_list_of_messages_stays_empty():
    assert fit_messages([], 10) == []


def test_fit_messages_does_not_change_its_input():
    given_messages = [message("system", WORDS), message("user", WORDS)]

    fit_messages(given_messages, 100)

    assert given_messages == [message("system", WORDS), message("user", WORDS)]


def test_images_beside_a_truncated_text_are_preserved():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}
    fitted = fit_messages([message("user", [{"type": "text", "text": WORDS}, image])], 100)

    parts = fitted[0]["content"]
    assert parts[1] == image
    assert 50 < count_tokens(parts[0]["text"]) <= 100


@given(
    st.lists(
        st.builds(message, st.sampled_from(["user", "assistant"]), st.text(alphabet="word \n字", max_size=200)),
        min_size=1,
    ),
    st.text(alphabet="be ", max_size=200),
    st.integers(min_value=1, max_value=60),
)
def test_messages_with_one_system_message_always_fit_the_limit(
    conversation: list[dict[str, Any]], system: str, limit: int
):
    fitted = fit_messages([message("system", system), *conversation], limit)

    assert total(fitted) <= limit
    assert fitted[-1]["role"] == conversation[-1]["role"]


def test_text_is_extracted_from_every_form_of_content():
    assert text_of("a") == "a"
    assert text_of([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]) == "a\nb"
    assert text_of(None) == ""


def test_three_percent_of_the_context_stay_free():
    assert message_budget(1000) == 970
    assert message_budget(0) == int(8192 * 0.97)
