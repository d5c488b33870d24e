"""An answer as OpenAI's clients read it: text and reasoning apart, citations with their place and source."""

from typing import Any

import pytest

from api.runs.openai_content import SplitText, find_citations, flat_annotation, nested_annotation, split_reasoning

REFERENCE: dict[str, Any] = {
    "chunks": {
        "3": {"document_name": "Prices", "url": "https://example.com/a"},
        "4": {"document_name": "june.pdf", "document_id": "d4", "url": ""},
        "5": {"id": "c5", "url": "ftp://example.com"},
    }
}


@pytest.mark.parametrize(
    ("parts", "split"),
    [
        (["<think>", "Hm", ".", "</think>", "Yes", "."], SplitText("Yes.", "Hm.")),
        (["Yes", "<think>", "Hm", "</think>", "."], SplitText("Yes.", "Hm", reasons_first=False)),
        (["<think>", "cut off"], SplitText("", "cut off")),
        (["a <think> b"], SplitText("a <think> b", "", reasons_first=False)),
        ([], SplitText("", "")),
    ],
)
def test_reasoning_is_split_from_the_text(parts: list[str], split: SplitText) -> None:
    assert split_reasoning(parts) == split


def test_marks_of_known_sources_are_citations_at_their_place() -> None:
    text = "Müll [ID:3][ID: 4] and [ID:9] or [ID:5]."

    found = find_citations(text, REFERENCE)

    assert [text[each.start : each.end] for each in found] == ["[ID:3]", "[ID: 4]", "[ID:5]"]
    assert [(each.title, each.url, each.document_id) for each in found] == [
        ("Prices", "https://example.com/a", ""),
        ("june.pdf", "", "d4"),
        ("c5", "", "c5"),
    ]


def test_annotation_is_flat_in_a_response_and_nested_in_a_completion() -> None:
    web_page, document = find_citations("[ID:3][ID:4]", REFERENCE)

    assert flat_annotation(web_page) == {
        "type": "url_citation", "start_index": 0, "end_index": 6, "url": "https://example.com/a", "title": "Prices"
    }  # fmt: skip
    assert nested_annotation(document) == {
        "type": "file_citation",
        "file_citation": {"file_id": "d4", "filename": "june.pdf", "index": 6},
    }


def test_answer_without_sources_has_no_citations() -> None:
    assert find_citations("[ID:3]", {}) == []
