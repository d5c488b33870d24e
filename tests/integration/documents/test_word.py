"""Rendering of documents as DOCX, with the styles of Word."""

# What the API of python-docx does not expose is read from the XML.
# pyright: reportPrivateUsage=false, reportOptionalMemberAccess=false, reportAttributeAccessIssue=false

import io

import docx
import pytest
from docx.document import Document
from docx.enum.text import WD_ALIGN_PARAGRAPH
from docx.oxml.ns import qn

from components.documents import Layout, render
from tests.integration.documents.test_blocks import picture_uri

FULL = Layout("Kopf 标题", "Left\nfoot", 'DRAFT <&">', True, "Generated: now", 14)


def open_document(text: str, layout: Layout | None = None) -> Document:
    return docx.Document(io.BytesIO(render(text, "docx", layout or Layout())))


def styles_of(document: Document) -> list[tuple[str, str]]:
    return [(paragraph.style.name or "", paragraph.text) for paragraph in document.paragraphs if paragraph.style]


def test_blocks_have_word_styles():
    document = open_document("# T\n\na\n\n- b\n\n1. c\n\n> d\n\n```\ne\n```\n\n###### f")

    assert styles_of(document) == [
        ("Heading 1", "T"),
        ("Normal", "a"),
        ("List Bullet", "b"),
        ("List Number", "c"),
        ("Quote", "d"),
        ("Code", "e"),
        ("Heading 6", "f"),
    ]


def test_text_runs_have_the_formatting_of_their_text():
    (paragraph,) = open_document("a **b** *c* ~~d~~ `e` [f](http://x.y/z)").paragraphs

    formats = {run.text: (run.bold, run.italic, run.font.strike, run.style.name) for run in paragraph.runs}
    assert formats["b"] == (True, None, None, "Default Paragraph Font")
    assert formats["c"] == (None, True, None, "Default Paragraph Font")
    assert formats["d"] == (None, None, True, "Default Paragraph Font")
    assert formats["e"] == (None, None, None, "InlineCode")
    assert [(link.text, link.address) for link in paragraph.hyperlinks] == [("f", "http://x.y/z")]


def test_every_ordered_list_has_its_own_numbering():
    document = open_document("1. a\n2. b\n\ntext\n\n5. c\n   1. d")

    numbers = {
        paragraph.text: paragraph._p.pPr.numPr.numId.val
        for paragraph in document.paragraphs
        if paragraph.text != "text"
    }
    numbering = document.part.numbering_part.element
    starts = {text: numbering.num_having_numId(number).lvlOverride_lst[0] for text, number in numbers.items()}
    assert numbers["a"] == numbers["b"]
    assert len(set(numbers.values())) == 3
    assert {text: level.startOverride.val for text, level in starts.items()} == {"a": 1, "b": 1, "c": 5, "d": 1}


def test_nested_items_are_indented_and_later_paragraphs_have_no_mark():
    item, later, nested, empty = open_document("- a\n\n  b\n\n  - c\n- \n").paragraphs

    indents = [paragraph.paragraph_format.left_indent or 0 for paragraph in (item, later, nested, empty)]
    assert indents[0] == indents[1] == indents[3] < indents[2]
    assert [paragraph.style and paragraph.style.name for paragraph in (item, later, nested, empty)] == [
        "List Bullet",
        "Normal",
        "List Bullet",
        "List Bullet",
    ]


def test_tables_have_a_bold_header():
    (table,) = open_document("|A|B|\n|-|-|\n|1|**2**|\n|3|").tables

    assert [[cell.text for cell in row.cells] for row in table.rows] == [["A", "B"], ["1", "2"], ["3", ""]]
    assert [run.bold for cell in table.rows[0].cells for run in cell.paragraphs[0].runs] == [True, True]


def test_table_columns_are_aligned_as_in_markdown():
    [table] = open_document("| a | b | c |\n|---|:-:|--:|\n| 1 | 2 | 3 |").tables

    alignments = [cell.paragraphs[0].alignment for cell in table.rows[1].cells]
    assert alignments == [None, WD_ALIGN_PARAGRAPH.CENTER, WD_ALIGN_PARAGRAPH.RIGHT]


def test_table_wider_than_word_allows_becomes_lines_of_text():
    document = open_document("|a" * 70 + "|\n" + "|-" * 70 + "|\n|x|")

    assert document.tables == []
    assert document.paragraphs[0].text.startswith("a | a | a")


def test_pictures_are_embedded():
    assert len(open_document(f"![x]({picture_uri()})").inline_shapes) == 1


def test_heading_sizes_follow_the_body_font_size():
    document = open_document("a", FULL)

    sizes = [
        document.styles[name].font.size.pt for name in ("Normal", "Heading 1", "Heading 2", "Heading 3", "Heading 4")
    ]
    assert sizes == [14, 20, 18, 16, 14]


def test_chinese_has_a_font_of_its_own():
    document = open_document("中文")

    fonts = document.styles["Normal"].element.rPr.rFonts
    assert fonts.get(qn("w:eastAsia")) not in (None, fonts.get(qn("w:ascii")))
    assert document.styles["Heading 1"].element.rPr.rFonts.get(qn("w:asciiTheme")) is None


def test_header_footer_and_watermark_are_on_every_page():
    section = open_document("a", FULL).sections[0]

    assert section.header.paragraphs[0].text == "Kopf 标题"
    assert section.footer.paragraphs[0].text == "Left foot\tGenerated: now\tPage "
    assert 'w:instr="PAGE"' in section.footer._element.xml
    watermark = next(
        element
        for element in section.header._element.iter()
        if element.tag.endswith("}textpath") and element.get("string")
    )
    assert watermark.get("string") == 'DRAFT <&">'


def test_document_without_a_layout_has_no_header_or_footer():
    section = open_document("a").sections[0]

    assert section.header.paragraphs[0].text == section.footer.paragraphs[0].text == ""
    assert "PAGE" not in section.footer._element.xml


@pytest.mark.parametrize("text", ["", "a\x00\x0b\ud800b", "> - > 1. > a\n\n---\n> ---"])
def test_any_text_can_be_rendered(text: str):
    assert open_document(text).sections
