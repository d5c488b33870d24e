"""Texts are split as by a regular expression, but in linear time."""

import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import NodeFailure
from components.text.splitting import MAX_DELIMITER_CHARS, replace_words, split_at

LONG = 200_000
MOST_SECONDS = 10.0  # of CPU time; each case takes a fraction of a second on an idle machine


@given(
    text=st.text("ab.|", max_size=60),
    delimiters=st.lists(st.text("ab.|", max_size=5), max_size=8),
)
def test_parts_are_those_of_a_regular_expression_alternation(text: str, delimiters: list[str]):
    pattern = "|".join(re.escape(delimiter) for delimiter in delimiters if delimiter)

    assert split_at(text, delimiters) == (re.split(pattern, text) if pattern else [text])


@given(
    text=st.text("ab_", max_size=60),
    by_word=st.dictionaries(st.text("ab_", min_size=1, max_size=5), st.text("ab_", max_size=3), max_size=8),
)
def test_words_are_replaced_as_by_an_alternation_in_order(text: str, by_word: dict[str, str]):
    pattern = "|".join(map(re.escape, by_word))

    assert replace_words(text, by_word) == (re.sub(pattern, lambda found: by_word[found[0]], text) if pattern else text)


@pytest.mark.parametrize(
    ("text", "delimiters"),
    [
        ("a" * LONG, ["a" * length + "b" for length in range(1, 440)]),
        ("a" * LONG, ["b" + "a" * length for length in range(1, 440)]),
        ("a" * LONG, [*("a" * length + "b" for length in range(1, 440)), "a"]),
        ("a" * LONG, ["a" * length for length in range(440, 0, -1)]),
        ("ab" * (LONG // 2), [f"{number:05}" for number in range(20_000)]),
        ("x" * LONG, [chr(0x4E00 + number) for number in range(20_000)]),
        ("a" * LONG, ["a" * 50_000 + "b", "b" + "a" * 40_000]),
    ],
    ids=range(7),
)
def test_splitting_is_fast_for_any_delimiters(text: str, delimiters: list[str]):
    began = process_time()

    parts = split_at(text, delimiters)

    assert process_time() - began < MOST_SECONDS
    assert sum(map(len, parts)) <= len(text)


def test_ordinary_text_is_split_quickly():
    text = "A paragraph of a page that people read, and more of it.\n\n" * 20_000
    began = process_time()

    parts = split_at(text, ["\n\n", "---", "==="])

    assert len(parts) == 20_001
    assert process_time() - began < MOST_SECONDS


def test_too_many_delimiters_are_refused():
    with pytest.raises(NodeFailure, match=r"100,001 characters. Use up to 100,000"):
        split_at("a", ["b" * MAX_DELIMITER_CHARS, "c"])
