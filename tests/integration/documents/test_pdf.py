"""Rendering of documents as PDF, whose text can be extracted in every language that has a font."""

import io

import pytest
from pypdf import PageObject, PdfReader

from canvas.errors import NodeFailure
from components.documents import Layout, render
from components.documents.page import pdf_pages
from tests.integration.documents.test_blocks import picture_uri

RICH = f"""# Quarterly 季度报告

A **bold *both*** ~~gone~~ `code` [link](https://example.com/x) word. Русский Ελληνικά 日本語 한국어 😀 🦖 👍🏽

- one
  1. nested
-

> quoted **重点**

```
def f(x):
	return x
```

| Name | 数量 |
|------|------|
| Apple | **1** |

---

![dot]({picture_uri()})

<b>tag</b>
"""
FULL = Layout("Header 页眉", "Footer", "SECRET", True, "Generated: now", 12)


def pages(text: str, layout: Layout | None = None) -> list[PageObject]:
    return list(PdfReader(io.BytesIO(render(text, "pdf", layout or Layout()))).pages)


@pytest.fixture(scope="module")
def rich() -> PageObject:
    (page,) = pages(RICH, FULL)
    return page


def test_text_of_every_script_can_be_extracted(rich: PageObject):
    text = rich.extract_text()

    for words in ("Quarterly", "季度报告", "Русский", "Ελληνικά", "日本語", "한국어", "重点", "数量", "<b>tag</b>"):
        assert words in text


def test_extracted_text_is_in_document_order(rich: PageObject):
    text = " ".join(rich.extract_text().split())

    for line in ("A bold both gone code link word.", "• one 1. nested •", "def f(x): return x", "Name 数量 Apple 1"):
        assert line in text


def test_character_without_a_font_is_a_box(rich: PageObject):
    text = rich.extract_text()

    assert "🦖" not in text
    assert "□" in text


def test_header_footer_timestamp_and_page_number_have_their_positions(rich: PageObject):
    positions: dict[str, tuple[float, float]] = {}

    def record_position(text: str, _: object, matrix: list[float], *rest: object) -> None:
        if text.strip():
            positions.setdefault(text.strip(), (matrix[4], matrix[5]))

    rich.extract_text(visitor_text=record_position)

    width, height = float(rich.mediabox.width), float(rich.mediabox.height)
    (header_x, header_y), (footer_x, footer_y) = positions["Header"], positions["Footer"]
    (stamp_x, stamp_y), (page_x, page_y) = positions["Generated: now"], positions["Page 1"]
    assert header_x == footer_x < width / 6
    assert header_y > height * 0.9
    assert footer_y == stamp_y == page_y < height * 0.1
    assert width / 3 < stamp_x < width / 2
    assert page_x > width * 0.8


def test_the_watermark_is_faint_and_behind_the_text(rich: PageObject):
    states = rich["/Resources"]["/ExtGState"].get_object()  # type: ignore[index] - pypdf types no resources

    assert any(state.get_object().get("/ca") == 0.15 for state in states.values())
    assert rich.extract_text().index("SECRET") < rich.extract_text().index("Quarterly")


def test_links_have_addresses_and_pictures_are_embedded(rich: PageObject):
    addresses = [link.get_object()["/A"]["/URI"] for link in rich["/Annots"]]  # type: ignore[attr-defined] - untyped

    assert addresses == ["https://example.com/x"]
    assert len(rich.images) == 1


def test_document_embeds_only_the_characters_it_uses():
    assert len(render("Just a few words.", "pdf")) < 20_000


def test_long_texts_and_tables_continue_on_pages_with_header_row_and_page_number():
    table = "|Head|B|\n|-|-|\n" + "|row|x|\n" * 60

    texts = [page.extract_text() for page in pages("Line.\n\n" * 40 + table, Layout(page_numbers=True))]

    assert len(texts) > 2
    assert [f"Page {number}" in text for number, text in enumerate(texts, start=1)] == [True] * len(texts)
    assert "Head" in texts[-1]
    assert sum(text.count("Line.") for text in texts) == 40
    assert sum(text.count("row") for text in texts) == 60


def test_too_wide_content_is_wrapped_without_loss():
    text = (
        "x" * 500
        + "\n\n"
        + "|y" * 60
        + "|\n"
        + "|-" * 60
        + "|\n\n"
        + "> " * 30
        + "deep\n\n```\n"
        + "z" * 300
        + "\n```\n"
    )

    extracted = "".join(page.extract_text() for page in pages(text, Layout(font_size=40)))

    assert (extracted.count("x"), extracted.count("y"), extracted.count("z")) == (500, 60, 300)


def test_a_document_of_too_many_pages_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pdf_pages, "MAX_PAGES", 2)

    with pytest.raises(NodeFailure, match="more than 2 pages"):
        render("a\n\n" * 200, "pdf")


def test_empty_text_is_an_empty_page():
    (page,) = pages("")

    assert page.extract_text() == ""


def test_table_columns_are_aligned_as_in_markdown():
    text = "| left | centre | right |\n|:--|:-:|--:|\n| a | b | c |\n| wider | wider text | 1,000,000 |\n"
    starts: dict[str, float] = {}

    def record_start(words: str, _: object, matrix: list[float], *__: object) -> None:
        if words.strip():
            starts[words.strip()] = matrix[4]

    pages(text)[0].extract_text(visitor_text=record_start)

    assert starts["a"] == pytest.approx(starts["wider"], abs=1)
    assert starts["b"] > starts["wider text"] + 5
    assert starts["c"] > starts["1,000,000"] + 20
