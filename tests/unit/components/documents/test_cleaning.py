"""What is taken out of a text before anybody reads it in a document."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.documents import without_reasoning
from components.documents.cleaning import one_line, strip_unprintable


@pytest.mark.parametrize(
    ("text", "seen"),
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
def test_a_reader_sees_no_thoughts_no_stray_tags_and_no_wide_gaps(text: str, seen: str):
    assert without_reasoning(text) == seen


def test_a_text_full_of_open_thoughts_is_read_once():
    assert without_reasoning("<think>" * 100_000) == ""
    assert without_reasoning("<think></think>." * 50_000) == "." * 50_000


@settings(max_examples=30, deadline=None)
@given(st.text())
def test_printable_text_can_be_written_into_any_file(text: str):
    clean = strip_unprintable(text)

    assert clean.encode().decode() == clean
    assert all(char in "\t\n" or ord(char) >= 0x20 for char in clean)


def test_line_ends_are_of_one_kind_and_broken_characters_are_gone():
    assert strip_unprintable("a\r\nb\rc\x00\x1f\x85\ud800\ufffe\ufeffd\te") == "a\nb\ncd\te"
    assert one_line(" a\r\n b\x00\tc ") == "a b c"
