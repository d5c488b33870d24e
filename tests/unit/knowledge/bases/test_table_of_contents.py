"""Tables of contents, made of the headings in a document's chunks."""

import pytest

from knowledge.bases import table_of_contents
from knowledge.bases.table_of_contents import SectionHeading


@pytest.mark.parametrize(
    ("line", "level", "title"),
    [
        ("# Rules", 1, "Rules"),
        ("### Notice periods ###", 3, "Notice periods"),
        ("3.2 Notice periods", 2, "3.2 Notice periods"),
        ("3.2.1. Notice", 3, "3.2.1. Notice"),
        ("Chapter 4: Leave", 1, "Chapter 4: Leave"),
        ("Anhang B", 1, "Anhang B"),
        ("PART IV Penalties", 1, "PART IV Penalties"),
        ("第三章 总则", 1, "第三章 总则"),
    ],
)
def test_headings_are_found_by_marks_numbers_and_names(line: str, level: int, title: str) -> None:
    assert table_of_contents.find_headings([(7, f"Before it.\n{line}\nAnd after it.")]) == [
        SectionHeading(7, level, title)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "1. Buy milk",
        "3.2 is the version that we ship today.",
        "#tag",
        "part of it",
        "10.5 20.5",
        "# " + "x" * 200,
        "section",
    ],
)
def test_lists_sentences_and_numbers_are_not_headings(line: str) -> None:
    assert table_of_contents.find_headings([(0, f"Before it.\n{line}\nAnd after it.")]) == []


def test_heading_repeated_in_the_overlap_counts_once() -> None:
    chunks = [(0, "# A\nof a\n## B\nof b"), (1, "## B\nof b\n## C"), (5, "## C")]

    found = table_of_contents.find_headings(chunks)

    assert [(each.position, each.title) for each in found] == [(0, "A"), (0, "B"), (1, "C"), (5, "C")]
    assert [each.begins_chunk for each in found] == [True, False, False, True]


def test_section_ends_at_the_next_heading_of_its_level() -> None:
    first, inner, second = headings = [
        SectionHeading(0, 1, "A"),
        SectionHeading(2, 2, "A.a"),
        SectionHeading(5, 1, "B"),
    ]
    last = SectionHeading(7, 1, "C", begins_chunk=True)

    assert list(table_of_contents.section_chunks(headings, first, 8)) == [0, 1, 2, 3, 4, 5]
    assert list(table_of_contents.section_chunks(headings, inner, 8)) == [2, 3, 4, 5]
    assert list(table_of_contents.section_chunks(headings, second, 8)) == [5, 6, 7, 8]
    assert list(table_of_contents.section_chunks([*headings, last], second, 8)) == [5, 6]


def test_deepest_headings_beyond_the_limit_are_dropped() -> None:
    headings = [SectionHeading(at, level, f"{at}") for at, level in enumerate([1, 2, 3, 2, 3, 3])]

    assert table_of_contents.limit_headings(headings, 6) == headings
    assert [each.level for each in table_of_contents.limit_headings(headings, 4)] == [1, 2, 2]
    assert table_of_contents.limit_headings([SectionHeading(at, 1, "") for at in range(9)], 4) == [
        SectionHeading(at, 1, "") for at in range(4)
    ]
    assert table_of_contents.limit_headings([]) == []
