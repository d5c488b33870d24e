"""The layout of a DOCX document: page size, styles and fonts, header, footer and watermark."""

from typing import TYPE_CHECKING, Any

from docx.enum.style import WD_STYLE_TYPE
from docx.enum.text import WD_TAB_ALIGNMENT
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn
from docx.oxml.parser import OxmlElement
from docx.shared import Cm, Pt, RGBColor

from components.documents.cleaning import one_line
from components.documents.page.layout import HEADING_GROWTH, Layout

if TYPE_CHECKING:
    from docx.document import Document
    from docx.styles.style import CharacterStyle, ParagraphStyle
    from docx.text.paragraph import Paragraph

_SMALL_SIZE = 9  # points
_GREY = RGBColor(128, 128, 128)
_WATERMARK_LENGTH = 480  # points, along the diagonal
_WATERMARK_HEIGHT = 110
_BEHIND_THE_TEXT = (
    "position:absolute;width:{width}pt;height:{height}pt;rotation:315;z-index:-251658752;"
    "mso-position-horizontal:center;mso-position-horizontal-relative:margin;"
    "mso-position-vertical:center;mso-position-vertical-relative:margin"
)

# Text along a path, by which Word draws text effects: shape type 136.
_TEXT_SHAPE = """
<w:pict {namespaces} xmlns:v="urn:schemas-microsoft-com:vml" xmlns:o="urn:schemas-microsoft-com:office:office">
  <v:shapetype id="_x0000_t136" coordsize="21600,21600" o:spt="136" path="m,l21600,m,21600l21600,21600e">
    <v:path textpathok="t"/>
    <v:textpath on="t" fitshape="t"/>
  </v:shapetype>
  <v:shape id="Watermark" o:spid="_x0000_s2049" type="#_x0000_t136" fillcolor="#808080" stroked="f"
    style="{style}">
    <v:fill opacity=".15"/>
    <v:textpath style="font-family:&quot;{font}&quot;;font-size:1pt" string=""/>
  </v:shape>
</w:pict>
"""


def prepare_document(document: "Document", layout: Layout, font: str, wide_font: str, code_font: str) -> None:
    """Set up the page, the styles, the header, the footer and the watermark of an empty document."""
    section = document.sections[0]
    section.page_width, section.page_height = Cm(21.0), Cm(29.7)
    section.left_margin = section.right_margin = Cm(2.5)
    section.top_margin = section.bottom_margin = Cm(2.5)
    _set_styles(document, layout, font, wide_font, code_font)
    header, footer = section.header.paragraphs[0], section.footer.paragraphs[0]
    if text := one_line(layout.header):
        _add_small_text(header, text)
    if text := one_line(layout.watermark):
        _watermark(header, text, wide_font)
    _footer(footer, layout)


def _set_styles(document: "Document", layout: Layout, font: str, wide_font: str, code_font: str) -> None:
    styles: Any = document.styles
    body = float(layout.font_size)
    _set_font(styles["Normal"], font, wide_font, body)
    styles["Normal"].paragraph_format.space_after = Pt(body * 0.5)
    for level in range(1, 7):
        _set_font(styles[f"Heading {level}"], font, wide_font, body + HEADING_GROWTH.get(level, 0))
        styles[f"Heading {level}"].font.color.rgb = RGBColor(0, 0, 0)
    code = styles.add_style("Code", WD_STYLE_TYPE.PARAGRAPH)
    code.base_style = styles["Normal"]
    _set_font(code, code_font, wide_font, body * 0.85)
    code.element.get_or_add_pPr().append(parse_xml(f'<w:shd {nsdecls("w")} w:val="clear" w:fill="F2F2F2"/>'))
    inline = styles.add_style("InlineCode", WD_STYLE_TYPE.CHARACTER)
    _set_font(inline, code_font, wide_font, None)


def _set_font(style: "CharacterStyle | ParagraphStyle", font: str, wide_font: str, size: float | None) -> None:
    """Set a font for Latin letters and one for Chinese, Japanese and Korean; the theme's fonts, which would take
    precedence, are removed.
    """
    style.font.name = font
    if size is not None:
        style.font.size = Pt(round(size * 2) / 2)  # Word counts in half points
    fonts: Any = style.element.rPr.rFonts
    for name in ("asciiTheme", "hAnsiTheme", "eastAsiaTheme", "cstheme"):
        fonts.attrib.pop(qn(f"w:{name}"), None)
    fonts.set(qn("w:eastAsia"), wide_font)


def _footer(paragraph: "Paragraph", layout: Layout) -> None:
    """Write the footer: its text on the left, the timestamp in the middle, the page number on the right."""
    stops = paragraph.paragraph_format.tab_stops
    inherited: Any = paragraph.style
    for stop in inherited.paragraph_format.tab_stops if inherited is not None else ():
        stops.add_tab_stop(stop.position, WD_TAB_ALIGNMENT.CLEAR)
    stops.add_tab_stop(Cm(8.0), WD_TAB_ALIGNMENT.CENTER)
    stops.add_tab_stop(Cm(16.0), WD_TAB_ALIGNMENT.RIGHT)
    left, middle = one_line(layout.footer), one_line(layout.timestamp or "")
    if left or middle or layout.page_numbers:
        _add_small_text(paragraph, f"{left}\t{middle}\t{'Page ' if layout.page_numbers else ''}")
    if layout.page_numbers:
        field = OxmlElement("w:fldSimple")
        field.set(qn("w:instr"), "PAGE")
        number = _add_small_text(paragraph, "1")
        field.append(number)
        paragraph._p.append(field)  # pyright: ignore[reportPrivateUsage] - python-docx cannot make fields


def _add_small_text(paragraph: "Paragraph", text: str) -> Any:
    """Append a run of small grey text to a paragraph, and return its XML element."""
    run = paragraph.add_run(text)
    run.font.size = Pt(_SMALL_SIZE)
    run.font.color.rgb = _GREY
    return run._r  # pyright: ignore[reportPrivateUsage]


def _watermark(paragraph: "Paragraph", text: str, font: str) -> None:
    columns = sum(2 if ord(char) > 0x2E7F else 1 for char in text)
    width = min(_WATERMARK_LENGTH, max(120, columns * 48))
    height = min(_WATERMARK_HEIGHT, max(24, width * 2 / max(1, columns)))
    style = _BEHIND_THE_TEXT.format(width=width, height=round(height))
    source = _TEXT_SHAPE.format(namespaces=nsdecls("w"), style=style, font=font)
    shape: Any = parse_xml(source)
    path = shape.find(".//{urn:schemas-microsoft-com:vml}shape/{urn:schemas-microsoft-com:vml}textpath")
    path.set("string", text)
    run: Any = paragraph.add_run()._r  # pyright: ignore[reportPrivateUsage]
    run.append(shape)
