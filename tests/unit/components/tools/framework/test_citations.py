"""Search results become numbered citations."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.tools.framework import citations
from components.tools.framework.citations import Hit
from tests.fakes import FakeContext
from tests.unit.components.tools.vendors import FC, W1, W2

PNG = "![chart](data:image/png;base64,iVBORw0KGgo=)"


def cite(hits: Iterable[Hit], ctx: FakeContext | None = None) -> str:
    return asyncio.run(citations.cite_hits(hits, ctx or FakeContext()))


def hit(row: Mapping[str, Any], score: Any = None) -> Hit:
    return Hit(row["title"], row["url"], row["content"], score)


def test_results_are_blocks_under_their_display_numbers():
    assert cite([hit(W1), hit(W2)]) == FC


def test_references_of_the_run_store_every_chunk_and_document():
    ctx = FakeContext()

    cite([hit(W1, 0.91)], ctx)

    assert ctx.reference_store["chunks"] == {
        "373": {
            "chunk_id": "29584016",
            "id": "29584016",
            "content": W1["content"],
            "document_id": "29584016",
            "document_name": W1["title"],
            "dataset_id": None,
            "image_id": None,
            "positions": None,
            "url": W1["url"],
            "similarity": 0.91,
            "vector_similarity": None,
            "term_similarity": None,
            "row_id": None,
            "doc_type": None,
            "document_metadata": None,
        }
    }
    assert ctx.reference_store["doc_aggs"] == {
        W1["title"]: {"doc_name": W1["title"], "doc_id": "29584016", "count": 1, "url": W1["url"]}
    }


@pytest.mark.parametrize("score", [None, "high", True, float("nan")])
def test_chunk_without_a_score_has_similarity_one(score: Any):
    ctx = FakeContext()

    cite([hit(W1, score)], ctx)

    assert ctx.reference_store["chunks"]["373"]["similarity"] == 1


def test_pages_without_content_are_left_out_and_no_results_are_an_empty_text():
    ctx = FakeContext()

    assert cite([Hit("t", "u", ""), Hit("t", "u", None), Hit("t", "u", PNG)], ctx) == ""
    assert ctx.reference_store["chunks"] == {}


def test_inline_images_are_removed_and_long_pages_are_truncated():
    text = cite([Hit("t", "", f"a{PNG}b{PNG[1:]}" + "c" * 20_000)])

    assert text.partition("Content:\n")[2] == "ab" + "c" * 9_998


def test_page_of_many_broken_image_links_is_cited_quickly():
    began = time.process_time()

    text = cite([Hit("t", "", "![a](data:image/png;base64," * 20_000)])

    assert text.partition("Content:\n")[2].startswith("![a](data:image/png;base64,![a](")
    assert time.process_time() - began < 2


def test_missing_fields_are_omitted_and_line_breaks_in_a_title_are_removed():
    assert cite([Hit("Two\n\nlines", None, "x\ny")]).endswith("├── Title: Two lines\n└── Content:\nx\ny")
    assert "Title" not in cite([Hit(None, None, "x")])


def test_two_pages_of_one_site_are_one_document_that_counts_both():
    ctx = FakeContext()

    cite([Hit("Shop", "u1", "one"), Hit("Shop", "u2", "two")], ctx)

    assert ctx.reference_store["doc_aggs"]["Shop"]["count"] == 2


def test_block_shows_the_number_that_the_run_assigned():
    class OtherNumbers(FakeContext):
        async def cite(self, chunks: Any, documents: Any) -> list[int]:
            return [499, 0]

    text = cite([hit(W1), hit(W2)], OtherNumbers())

    assert text.index("ID: 499") < text.index("ID: 0")


def test_a_chunk_of_a_dataset_shows_its_documents_metadata():
    chunk = {
        "chunk_id": "c1",
        "content_with_weight": "Refunds take 5 days.",
        "doc_id": "d1",
        "docnm_kwd": "policy.md",
        "kb_id": "k1",
        "image_id": "",
        "positions": [],
        "similarity": 0.8,
        "document_metadata": {"author": "Ann\nLee", "year": 2024, "none": ""},
    }
    ctx = FakeContext()

    text = asyncio.run(citations.cite_chunks([chunk], [{"doc_name": "policy.md", "doc_id": "d1", "count": 1}], ctx))

    assert text == (
        "\nID: 417\n├── Title: policy.md\n├── author: Ann Lee\n├── year: 2024\n└── Content:\nRefunds take 5 days."
    )
    stored = ctx.reference_store["chunks"]["417"]
    assert (stored["dataset_id"], stored["positions"], stored["url"]) == ("k1", [], None)
    assert ctx.reference_store["doc_aggs"] == {"policy.md": {"doc_name": "policy.md", "doc_id": "d1", "count": 1}}


def test_content_that_exceeds_the_budget_is_shown_and_later_ones_are_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(citations, "TOKEN_BUDGET", 4)
    ctx = FakeContext()

    text = cite([Hit("a", "", "one two three"), Hit("b", "", "four five six"), Hit("c", "", "seven")], ctx)

    assert ("four" in text, "seven" in text) == (True, False)
    assert len(ctx.reference_store["chunks"]) == 3


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20)), max_size=5))
def test_any_page_content_can_be_stored_as_a_citation(rows: list[tuple[str, str, str]]):
    ctx = FakeContext()

    text = cite([Hit(*row) for row in rows] + [Hit("\ud800", {"odd": 1}, "\x00\udfff!")], ctx)

    text.encode()
    assert "\x00" not in text
    assert {len(chunk["id"]) <= 8 for chunk in ctx.reference_store["chunks"].values()} == {True}
