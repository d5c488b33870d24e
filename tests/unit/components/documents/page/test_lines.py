"""Paragraphs are broken into lines where their language allows it."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.documents.blocks import Span
from components.documents.page.fonts import Face, Glyph
from components.documents.page.lines import break_lines, cut_to_width, natural_width, to_cells

PLAIN = Face("text")


def glyph_of(char: str, span: Span) -> Glyph | None:
    """Return a glyph: a letter is 1 wide, a Chinese character 2, and a joiner has none."""
    wide = unicodedata.east_asian_width(char) in "WF"
    return None if char == "\u200d" else Glyph(char, PLAIN, 2 if wide else 1, wide)


def lines(text: str, width: float, verbatim: bool = False) -> list[str]:
    cells = to_cells([Span(text)], glyph_of)
    return ["".join(run.text for run in line) for line in break_lines(cells, width, verbatim=verbatim)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two three", ["one two", "three"]),
        ("one     two three", ["one", "two", "three"]),
        ("abcdefghijkl", ["abcdefgh", "ijkl"]),
        ("ab abcdefghijk", ["ab", "abcdefgh", "ijk"]),
        ("one\ntwo", ["one", "two"]),
        ("one\n\ntwo\n", ["one", "", "two", ""]),
        ("中文字符很多", ["中文字符", "很多"]),
        ("ab中文字符", ["ab中文字", "符"]),
        ("中文字符。很多", ["中文字", "符。很多"]),
        ("中文字（符）很", ["中文字", "（符）很"]),
        ("tab\there", ["tab here"]),
        ("   ", [""]),
        ("", [""]),
        ("a\u200db", ["ab"]),
    ],
)
def test_lines_break_at_blanks_and_beside_chinese_characters(text: str, expected: list[str]):
    assert lines(text, 8) == expected


def test_verbatim_lines_keep_their_blanks():
    assert lines("  a b c d\n", 4, verbatim=True) == ["  a ", "b c ", "d", ""]


def test_a_word_of_two_styles_stays_whole():
    cells = to_cells([Span("ab cd"), Span("ef", bold=True), Span("g")], glyph_of)

    words = [[run.text for run in line] for line in break_lines(cells, 6)]

    assert words == [["ab"], ["cd", "ef", "g"]]


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab 中。（\n", max_size=40), st.integers(min_value=2, max_value=9), st.booleans())
def test_lines_of_any_text_contain_it_and_fit_the_width(text: str, width: int, verbatim: bool):
    broken = lines(text, width, verbatim)

    assert "".join("".join(broken).split()) == "".join(text.split())
    assert all(natural_width(to_cells([Span(line)], glyph_of)) <= width for line in broken)


def test_text_that_does_not_fit_one_line_ends_in_an_ellipsis():
    def truncate(text: str) -> str:
        return "".join(run.text for run in cut_to_width(to_cells([Span(text)], glyph_of), 5, glyph_of))

    assert truncate("abcde") == "abcde"
    assert truncate("abcdef") == "abcd…"
    assert truncate("中文字") == "中文…"
