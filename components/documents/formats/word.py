"""DOCX: blocks as paragraphs in Word's own styles, so that readers can change the styles of the document."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

from canvas.errors import NodeFailure
from components.documents.blocks import (
    Block,
    CodeBlock,
    HeadingBlock,
    Inlines,
    ListBlock,
    ParagraphBlock,
    QuoteBlock,
    RuleBlock,
    Span,
    TableBlock,
    plain_text,
)
from components.documents.page.layout import Layout
from components.documents.page.pictures import EmbeddedImage

if TYPE_CHECKING:
    from docx.document import Document
    from docx.oxml.xmlchemy import BaseOxmlElement
    from docx.text.paragraph import Paragraph as WordParagraph
    from docx.text.run import Run

_FONT, _WIDE_FONT, _CODE_FONT = "Arial", "Microsoft YaHei", "Consolas"
_INDENT = 0.75  # centimetres by which a list or quote is indented
_MAX_INDENTS = 12  # indents; deeper blocks are not indented further
_TEXT_WIDTH = 16.0  # centimetres between the margins
_MAX_COLUMNS = 63  # Word cannot open a table with more
_MAX_LINKS = 2000  # python-docx searches all links for each new one; later links show their URL as text


def render_word(blocks: Sequence[Block], layout: Layout) -> bytes:
    """Return the blocks as a DOCX document."""
    try:
        import docx

        from components.documents.formats import word_frame
    except ImportError as missing:
        raise NodeFailure('Making a DOCX needs the extra "docs": pip install easel[docs].') from missing
    document = docx.Document()
    word_frame.prepare_document(document, layout, _FONT, _WIDE_FONT, _CODE_FONT)
    writer = _WordWriter(document)
    writer.blocks(blocks)
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


class _WordWriter:
    """Appends blocks to a document. `_depth` is the current indent, `_mark` the list mark of the next paragraph."""

    def __init__(self, document: "Document") -> None:
        self._document = document
        self._end: Any = document.element.body.sectPr  # new elements are inserted before it
        self._numbering: Any = document.part.numbering_part.element
        self._next_number = max(int(number.numId) for number in self._numbering.num_lst) + 1
        known: Any = document.styles["List Number"].element
        self._kind = self._numbering.num_having_numId(known.pPr.numPr.numId.val).abstractNumId.val
        self._addresses: dict[str, str] = {}
        self._depth = 0
        self._style = ""
        self._mark: tuple[str, int | None] | None = None

    def blocks(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self._block(block)

    def _block(self, block: Block) -> None:
        match block:
            case HeadingBlock(level, content):
                self._content(content, f"Heading{level}")
            case ParagraphBlock(content, tight):
                self._content(content, self._style, tight=tight)
            case CodeBlock(text):
                self._paragraph("Code").add_run(text)
            case RuleBlock():
                self._rule()
            case QuoteBlock(blocks):
                self._quote(blocks)
            case ListBlock():
                self._listing(block)
            case TableBlock():
                self._table(block)
            case _:
                assert_never(block)

    def _quote(self, blocks: Sequence[Block]) -> None:
        before, self._style = self._style, "Quote"
        self._depth += 1
        self.blocks(blocks)
        self._depth -= 1
        self._style = before

    def _listing(self, listing: ListBlock) -> None:
        number = None if listing.start is None else self._add_numbering(listing.start)
        self._depth += 1
        for item in listing.items:
            self._mark = ("ListBullet" if number is None else "ListNumber", number)
            self.blocks(item)
            if self._mark:
                self._paragraph(self._style)  # an empty item still shows its mark
        self._depth -= 1

    def _add_numbering(self, start: int) -> int:
        """Add a numbering for one list, which counts from `start`; return its id."""
        from docx.oxml.numbering import CT_Num

        numbering: Any = CT_Num.new(self._next_number, self._kind)
        numbering.add_lvlOverride(0).add_startOverride(start)
        self._numbering.append(numbering)
        self._next_number += 1
        return self._next_number - 1

    def _content(self, content: Inlines, style: str, *, tight: bool = False) -> None:
        paragraph = self._paragraph(style)
        if tight:
            from docx.shared import Pt

            paragraph.paragraph_format.space_after = Pt(2)
        self._inlines(paragraph, content)

    def _paragraph(self, style: str) -> "WordParagraph":
        """Append a paragraph in a style (by its id), with the current indent and the pending list mark."""
        from docx.oxml.parser import OxmlElement
        from docx.shared import Cm
        from docx.text.paragraph import Paragraph as WordParagraph

        element: Any = OxmlElement("w:p")
        self._end.addprevious(element)
        paragraph = WordParagraph(element, self._document._body)  # pyright: ignore[reportPrivateUsage] - add_paragraph() looks through the whole body every time
        mark, self._mark = self._mark, None
        if mark and not style.startswith("Heading"):
            style, number = mark
            if number is not None:
                element.get_or_add_pPr().get_or_add_numPr().get_or_add_numId().val = number
        if style:
            element.get_or_add_pPr().style = style
        if self._depth:
            paragraph.paragraph_format.left_indent = Cm(_INDENT * min(self._depth, _MAX_INDENTS))
            paragraph.paragraph_format.first_line_indent = Cm(-_INDENT) if mark else Cm(0)
        return paragraph

    def _inlines(self, paragraph: "WordParagraph", content: Inlines, bold: bool = False) -> None:
        for part in content:
            if isinstance(part, EmbeddedImage):
                self._picture(paragraph, part)
            elif part.link.startswith(("http://", "https://", "mailto:")):
                self._link(paragraph, part, bold)
            else:
                _apply_style(paragraph.add_run(part.text), part, bold)

    def _link(self, paragraph: "WordParagraph", span: Span, bold: bool) -> None:
        from docx.opc.constants import RELATIONSHIP_TYPE
        from docx.oxml.ns import qn
        from docx.oxml.parser import OxmlElement

        if span.link not in self._addresses and len(self._addresses) >= _MAX_LINKS:
            _apply_style(paragraph.add_run(plain_text((span,))), span, bold)
            return
        if span.link not in self._addresses:
            related = self._document.part.relate_to(span.link, RELATIONSHIP_TYPE.HYPERLINK, is_external=True)
            self._addresses[span.link] = related
        run = paragraph.add_run(span.text)
        _apply_style(run, span, bold)
        link: BaseOxmlElement = OxmlElement("w:hyperlink")
        link.set(qn("r:id"), self._addresses[span.link])
        link.append(run._r)  # pyright: ignore[reportPrivateUsage] - python-docx cannot make links
        paragraph._p.append(link)  # pyright: ignore[reportPrivateUsage]

    def _picture(self, paragraph: "WordParagraph", picture: EmbeddedImage) -> None:
        from docx.shared import Cm

        width = min(_TEXT_WIDTH, picture.width * 2.54 / 96)
        paragraph.add_run().add_picture(io.BytesIO(picture.data), width=Cm(max(width, 0.03)))

    def _rule(self) -> None:
        from docx.oxml import parse_xml
        from docx.oxml.ns import nsdecls

        border = '<w:bottom w:val="single" w:sz="6" w:space="1" w:color="B4B4B4"/>'
        properties: Any = self._paragraph("")._p.get_or_add_pPr()  # pyright: ignore[reportPrivateUsage]
        rule: Any = parse_xml(f"<w:pBdr {nsdecls('w')}>{border}</w:pBdr>")
        properties.insert_element_before(rule, "w:spacing", "w:ind")

    def _table(self, table: TableBlock) -> None:
        from docx.enum.text import WD_ALIGN_PARAGRAPH
        from docx.oxml.table import CT_Tbl
        from docx.shared import Cm
        from docx.text.paragraph import Paragraph as WordParagraph

        rows = (table.header, *table.rows)
        if len(table.header) > _MAX_COLUMNS:
            for row in rows:
                self._paragraph(self._style).add_run(" | ".join(map(plain_text, row)))
            return
        self._mark = None
        element: Any = CT_Tbl.new_tbl(len(rows), len(table.header), Cm(_TEXT_WIDTH))
        element.tblPr.style = "TableGrid"
        self._end.addprevious(element)
        for number, (line, row) in enumerate(zip(element.tr_lst, rows, strict=True)):
            for column, (box, cell) in enumerate(zip(line.tc_lst, row, strict=True)):
                paragraph = WordParagraph(box.p_lst[0], self._document._body)  # pyright: ignore[reportPrivateUsage]
                if (alignment := table.alignment(column)) != "left":
                    paragraph.alignment = WD_ALIGN_PARAGRAPH[alignment.upper()]
                self._inlines(paragraph, cell, bold=number == 0)
        self._paragraph("NoSpacing")  # Word would merge two adjacent tables


def _apply_style(run: "Run", span: Span, bold: bool) -> None:
    """Apply a span's style to a run."""
    if span.bold or bold:
        run.bold = True
    if span.italic:
        run.italic = True
    if span.strike:
        run.font.strike = True
    if span.code:
        run._r.get_or_add_rPr().style = "InlineCode"  # pyright: ignore[reportPrivateUsage] - by name it is searched for
    if span.link:
        from docx.shared import RGBColor

        run.font.underline = True
        run.font.color.rgb = RGBColor(5, 80, 180)
