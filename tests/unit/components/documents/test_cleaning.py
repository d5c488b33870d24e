"""Reasoning and unprintable characters are removed from the text of a document."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.documents import without_reasoning
from components.documents.cleaning import one_line, strip_unprintable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>first this</think>Answer", "Answer"),
        ("a<think>x</think>b<think>y\nz</think>c", "abc"),
        ("Answer<think>never ends", "Answer"),
        ("<think>all of it", ""),
        ("stray</think> tags", "stray tags"),
        ("<think>a<think>b</think>c</think>d", "cd"),
        ("one\n\n\n\ntwo\n\nthree", "one\n\ntwo\n\nthree"),
        ("\n  Answer \n", "Answer"),
        ("<thinking>stays</thinking>", "<thinking>stays</thinking>"),
        ("", ""),
    ],
)
def test_reasoning_stray_tags_and_extra_blank_lines_are_removed(text: str, expected: str):
    assert without_reasoning(text) == expected


def test_text_of_many_reasoning_tags_is_cleaned_quickly():
    assert without_reasoning("<think>" * 100_000) == ""
    assert without_reasoning("<think></think>." * 50_000) == "." * 50_000


@settings(max_examples=30, deadline=None)
@given(st.text())
def test_any_text_becomes_printable(text: str):
    clean = strip_unprintable(text)

    assert clean.encode().decode() == clean
    assert all(char in "\t\n" or ord(char) >= 0x20 for char in clean)


def test_line_ends_are_normalized_and_invalid_characters_are_removed():
    assert strip_unprintable("a\r\nb\rc\x00\x1f\x85\ud800\ufffe\ufeffd\te") == "a\nb\ncd\te"
    assert one_line(" a\r\n b\x00\tc ") == "a b c"
