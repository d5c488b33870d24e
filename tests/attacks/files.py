"""Hostile files: they expand to far more data, or refer to other files and addresses."""

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping

MIB = 1024 * 1024
LEVELS = 12  # of entities, each ten times as many: more than a billion

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPE = "application/vnd.openxmlformats-officedocument"


def billion_laughs(inside: str = "") -> str:
    """The declarations of a "billion laughs" attack."""
    lines = ['<!ENTITY e0 "ha">', *(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, LEVELS))]
    return f"<!DOCTYPE x [{''.join(lines)}{inside}]>"


def quadratic() -> str:
    """The declaration of one long entity, for many references."""
    return f'<!DOCTYPE x [<!ENTITY e{LEVELS - 1} "{"a" * 100_000}">]>'


def external(address: str) -> str:
    """The declaration of an entity that is a file or a URL."""
    return f'<!DOCTYPE x [<!ENTITY e{LEVELS - 1} SYSTEM "{address}">]>'


ENTITY = f"&e{LEVELS - 1};"


def archive(members: Mapping[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return file.getvalue()


def word(body: str, declarations: str = "", **more: str | bytes) -> bytes:
    """A Word document whose body is this XML."""
    document = f'{declarations}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'
    return archive(_package("word/document.xml", f"{_TYPE}.wordprocessingml.document.main+xml", document) | more)


def excel(rows: str, declarations: str = "", strings: str = "") -> bytes:
    """A workbook whose only sheet has these rows."""
    sheet = f'{declarations}<worksheet xmlns="{_SHEET}"><sheetData>{rows}</sheetData></worksheet>'
    book = (
        f'<workbook xmlns="{_SHEET}" xmlns:r="{_OFFICE}"><sheets><sheet name="S" sheetId="1" r:id="rId1"/></sheets>'
        "</workbook>"
    )
    more = {
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="rId2" Type="{_OFFICE}/sharedStrings" Target="sharedStrings.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": sheet,
        "xl/sharedStrings.xml": strings or f'<sst xmlns="{_SHEET}"/>',
    }
    return archive(_package("xl/workbook.xml", f"{_TYPE}.spreadsheetml.sheet.main+xml", book) | more)


def _package(main: str, kind: str, content: str) -> dict[str, str | bytes]:
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
    folder = main.partition("/")[0]
    sheet = f"{_TYPE}.spreadsheetml.worksheet+xml"
    return {
        "[Content_Types].xml": f'{head}<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" '
        f'ContentType="application/xml"/><Override PartName="/{main}" ContentType="{kind}"/>'
        f'<Override PartName="/{folder}/worksheets/sheet1.xml" ContentType="{sheet}"/></Types>',
        "_rels/.rels": f'{head}<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="rId1" '
        f'Type="{_OFFICE}/officeDocument" Target="{main}"/></Relationships>',
        main: head + content,
    }


def many_members(number: int) -> bytes:
    """An archive whose directory alone takes as much memory as a large file, with hardly anything in it."""
    entry = b"PK\x01\x02" + bytes(24) + (1).to_bytes(2, "little") + bytes(16) + b"a"
    directory = entry * number
    count = min(number, 0xFFFF).to_bytes(2, "little")
    end = b"PK\x05\x06" + bytes(4) + count * 2 + len(directory).to_bytes(4, "little") + bytes(6)
    return b"PK\x03\x04" + bytes(26) + directory + end[:16] + (30).to_bytes(4, "little") + bytes(2)


def pdf(stream: bytes, filters: str = "", resources: str = "", extra: str = "", kids: str = "3 0 R") -> bytes:
    """A PDF of one page with this content stream."""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << {resources} >> >>",
    ]
    file = b"%PDF-1.7\n"
    offsets: list[int] = []
    for number, text in enumerate(objects, 1):
        offsets.append(len(file))
        file += f"{number} 0 obj\n{text}\nendobj\n".encode()
    offsets.append(len(file))
    file += f"4 0 obj\n<< /Length {len(stream)} {filters} >>\nstream\n".encode() + stream + b"\nendstream\nendobj\n"
    offsets.append(len(file))
    file += f"5 0 obj\n{extra or 'null'}\nendobj\n".encode()
    begin, size = len(file), len(offsets) + 1
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Root 1 0 R /Size {size} >>\nstartxref\n{begin}\n%%EOF"
    return file + f"xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode()


def deflated(size: int, times: int = 1) -> bytes:
    """So many bytes, compressed one or more times."""
    packed = b"BT ET " * (size // 6)
    for _ in range(times):
        packed = zlib.compress(packed, 9)
    return packed


_CELL = '<row r="1"><c r="A1" t="inlineStr"><is><t>{}</t></is></c></row>'
_PARAGRAPH = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"

_NO_TYPES = f'<Types xmlns="{_PACKAGE}/content-types"/>'
_ELSEWHERE = (
    f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="rId1" TargetMode="External" '
    f'Type="{_OFFICE}/officeDocument" Target="file:///etc/passwd"/></Relationships>'
)


def evasive_html(size: int) -> bytes:
    """A page that closes its elements for a simple tag scanner, but not for a browser."""
    unit = b"<div><script><!--<script></script></div>--></script>"
    return unit * (size // len(unit))


# name -> factory of the file; some take a moment to make
FILES: Mapping[str, Callable[[], bytes]] = {
    "billion laughs.docx": lambda: word(_PARAGRAPH.format(ENTITY), billion_laughs()),
    "quadratic.docx": lambda: word(_PARAGRAPH.format(ENTITY * 5000), quadratic()),
    "file.docx": lambda: word(_PARAGRAPH.format(ENTITY), external("file:///etc/passwd")),
    "address.docx": lambda: word(_PARAGRAPH.format(ENTITY), external("http://127.0.0.1:9/secret")),
    "parameter.docx": lambda: word("", '<!DOCTYPE x [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]>'),
    "deep.docx": lambda: word("<w:sdt>" * 20_000 + "</w:sdt>" * 20_000),
    "zip bomb.docx": lambda: archive({"word/document.xml": bytes(80 * MIB)}),
    "many members.docx": lambda: many_members(1_000_000),
    "traversal.docx": lambda: word(_PARAGRAPH.format("hi"), **{"../../../../tmp/escaped": "out"}),
    "relation.docx": lambda: archive({"[Content_Types].xml": _NO_TYPES, "_rels/.rels": _ELSEWHERE}),
    "billion laughs.xlsx": lambda: excel(_CELL.format(ENTITY), billion_laughs()),
    "quadratic.xlsx": lambda: excel(_CELL.format(ENTITY * 5000), quadratic()),
    "file.xlsx": lambda: excel(_CELL.format(ENTITY), external("file:///etc/passwd")),
    "address.xlsx": lambda: excel(_CELL.format(ENTITY), external("http://127.0.0.1:9/secret")),
    "laughing strings.xlsx": lambda: excel(
        '<row r="1"><c r="A1" t="s"><v>0</v></c></row>',
        strings=f'{billion_laughs()}<sst xmlns="{_SHEET}"><si><t>{ENTITY}</t></si></sst>',
    ),
    "far cell.xlsx": lambda: excel('<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'),
    "zip bomb.xlsx": lambda: archive({"xl/workbook.xml": bytes(260 * MIB)}),
    "many members.xlsx": lambda: many_members(1_000_000),
    "zeros.pdf": lambda: pdf(deflated(120 * MIB), "/Filter /FlateDecode"),
    "zeros twice.pdf": lambda: pdf(deflated(120 * MIB, 2), "/Filter [/FlateDecode /FlateDecode]"),
    "many filters.pdf": lambda: pdf(deflated(6 * MIB), f"/Filter [{'/FlateDecode ' * 500}]"),
    "itself.pdf": lambda: pdf(
        b"/F Do", resources="/XObject << /F 5 0 R >>",
        extra="<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Length 5 /Resources << /XObject << /F 5 0 R >> >> >>\n"
        "stream\n/F Do\nendstream",
    ),
    "circle of pages.pdf": lambda: pdf(b"", kids="2 0 R 3 0 R"),
    "nested arrays.pdf": lambda: pdf(b"[" * 200_000),
    "huge count.pdf": lambda: pdf(b"").replace(b"/Count 1", b"/Count 999999999"),
    "deep.html": lambda: b"<div>" * 200_000,
    "other closing tags.html": lambda: b"<div></x>" * 400_000,
    "lists and other closing tags.html": lambda: b"<ul></x><li>t" * 200_000,
    "closing tags in comments.html": lambda: b"<div><!--</div>-->" * 200_000,
    "closing tags in scripts.html": lambda: b"<div><script></div></script>" * 100_000,
    "closing tags of outer spans.html": lambda: b"<span><div></span>" * 200_000,
    "bold paragraphs.html": lambda: b"".join(b"<p><b id=%d>" % number for number in range(100_000)),
    "tables in tables.html": lambda: b"<table><tr><td>" * 200_000,
    "different attributes.html": lambda: b"<div " + b" ".join(b"a%d=1" % n for n in range(500_000)) + b">x</div>",
    "very many tags.html": lambda: b"<p>a</p>" * 1_000_000,
    "quotes.html": lambda: b"<a b=\"<a b='" * 400_000,
    "comments.html": lambda: b"<!--" * 1_000_000,
    "equals.html": lambda: b"<a ====" * 400_000,
    "attributes.html": lambda: b"<div " + b"a=1 " * 500_000 + b">x</div>",
    "laughing.xml": lambda: f'<?xml version="1.0"?>{billion_laughs()}<x>{ENTITY}</x>'.encode(),
    "deep.json": lambda: b"[" * 500_000,
    "utf-7.html": lambda: b'<meta charset="utf-7">+ADw-script+AD4-alert(1)+ADw-/script+AD4-',
    "zeros.txt": lambda: bytes(5 * MIB),
    "quotes.csv": lambda: b'"' * (2 * MIB),
    "columns.csv": lambda: b"," * (2 * MIB),
}  # fmt: skip
