"""Extraction of text from uploads, and the errors for files without text."""

import io
import sys
import zipfile
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest
from docx import Document
from openpyxl import Workbook
from pypdf import PageObject, PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from canvas.errors import NodeFailure
from components.text.extraction import file_kinds, file_texts, spreadsheets
from components.text.extraction import pdf as pdf_text
from components.text.extraction.file_kinds import FileTooLarge, FileUnreadable
from components.text.extraction.file_texts import file_text

HEAD = "\n -----------------\nFile: {}\nContent as following: \n"


def text_of(name: str, data: bytes, mime_type: str = "") -> str:
    return file_text(name, mime_type, data).removeprefix(HEAD.format(name))


def pdf(*pages: str, password: str | None = None) -> bytes:
    writer = PdfWriter()
    font = DictionaryObject({NameObject(f"/{key}"): NameObject(f"/{value}") for key, value in (
        ("Type", "Font"), ("Subtype", "Type1"), ("BaseFont", "Helvetica"))})  # fmt: skip
    for text in pages:
        page = writer.add_blank_page(200, 200)
        if text:
            content = DecodedStreamObject()
            content.set_data(f"BT /F 12 Tf 10 100 Td ({text}) Tj ET".encode("latin-1"))
            page[NameObject("/Contents")] = content
            fonts = DictionaryObject({NameObject("/F"): font})
            page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    if password is not None:
        writer.encrypt(password, "owner", algorithm="RC4-128")
    return bytes_of(writer.write)


def docx(fill: Iterable[str] = (), table: list[list[str]] | None = None) -> bytes:
    document = Document()
    for paragraph in fill:
        document.add_paragraph(paragraph)
    if table:
        grid = document.add_table(len(table), len(table[0]))
        for row, texts in zip(grid.rows, table, strict=True):
            for cell, text in zip(row.cells, texts, strict=True):
                cell.text = text
        document.add_paragraph("after")
    return bytes_of(document.save)


def xlsx(**sheets: list[list[object]]) -> bytes:
    workbook = Workbook()
    for name, rows in sheets.items():
        page = workbook.create_sheet(name)
        for row in rows:
            page.append(row)
    workbook.remove(workbook.worksheets[0])
    return bytes_of(workbook.save)


def bytes_of(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def test_text_of_a_file_has_a_header_with_its_name():
    data = b"\xef\xbb\xbfname,age\nAnn,3"

    assert file_text("a.csv", "text/csv", data) == HEAD.format("a.csv") + "name,age\nAnn,3"


@pytest.mark.parametrize(("name", "mime_type"), [("p.png", "image/png"), ("p.png", ""), ("p", "image/png")])
def test_an_image_is_a_data_uri(name: str, mime_type: str):
    assert file_text(name, mime_type, b"\x89PNG\r\n\x1a\n") == "data:image/png;base64,iVBORw0KGgo="


def test_pdf_is_read_page_by_page():
    assert text_of("a.pdf", pdf("First page", "", "Third page")) == "First page\n\nThird page"


def test_text_of_a_scanned_pdf_says_that_it_has_no_text():
    assert text_of("scan.pdf", pdf("")) == pdf_text.WITHOUT_TEXT


def test_encrypted_pdf_with_an_empty_password_is_read():
    assert text_of("a.pdf", pdf("Secret", password="")) == "Secret"


def test_error_for_a_locked_pdf_names_the_remedy():
    with pytest.raises(FileUnreadable, match=r'"a.pdf" \(PDF\) is locked by a password. Save it without one'):
        text_of("a.pdf", pdf("Secret", password="hidden"))


def test_only_the_first_pages_of_a_long_pdf_are_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pdf_text, "MAX_PAGES", 2)

    assert text_of("a.pdf", pdf("1", "2", "3")) == "1\n\n2\n\n[Only the first 2 of 3 pages were read.]"


def test_a_pdf_whose_pages_take_25_seconds_each_is_read_for_a_minute(monkeypatch: pytest.MonkeyPatch):
    clock = 0.0
    extract_text = PageObject.extract_text

    def extract_slowly(page: PageObject) -> str:
        nonlocal clock
        clock += 25.0
        return extract_text(page)

    monkeypatch.setattr(PageObject, "extract_text", extract_slowly)
    monkeypatch.setattr(pdf_text, "time", SimpleNamespace(monotonic=lambda: clock))

    text = text_of("a.pdf", pdf("1", "2", "3", "4", "5"))

    assert text == "1\n\n2\n\n3\n\n[The 2 pages after page 3 took too long to read.]"


def test_word_document_is_read_in_document_order():
    data = docx(["Title", "a\tb"], table=[["name", "note"], ["Ann", "two\nlines"]])

    assert text_of("a.docx", data) == "Title\na\tb\nname | note\nAnn | two lines\nafter\n"


def test_text_in_controls_insertions_and_boxes_is_read_once_without_deletions():
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    compatible = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    body = (
        f"<w:document {word}><w:body>"
        "<w:sdt><w:sdtContent><w:p><w:r><w:t>control</w:t></w:r></w:p></w:sdtContent></w:sdt>"
        "<w:p><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del></w:p>"
        f"<w:p><w:r><mc:AlternateContent {compatible}><mc:Choice><w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p>"
        "</w:txbxContent></mc:Choice><mc:Fallback><w:p><w:r><w:t>box</w:t></w:r></w:p></mc:Fallback>"
        "</mc:AlternateContent></w:r></w:p></w:body></w:document>"
    )

    assert text_of("a.docx", with_member(docx(), "word/document.xml", body)) == "control\nnew\nbox\n\n"


def test_workbook_is_read_sheet_by_sheet():
    data = xlsx(Sales=[["id", "note"], [1.0, "a\nb"], [], [None, True]], Empty=[])

    assert text_of("a.xlsx", data) == "Sheet: Sales\nid\tnote\n1\ta b\n\tTRUE\n\nSheet: Empty\n"


def test_html_page_is_read_without_its_markup():
    text = text_of("a.html", b"<html><body><script>x()</script><p>Hello</p></body></html>")

    assert "Hello" in text
    assert "<" not in text
    assert "x()" not in text


@pytest.mark.parametrize(
    ("name", "data", "remedy"),
    [
        ("a.pdf", b"%PDF-1.4 broken", "save it again"),
        ("a.pdf", b"", "save it again"),
        ("a.docx", b"no archive", "save it again"),
        ("a.xlsx", b"PK\x03\x04broken", "save it again"),
        ("a.xlsx", b"\xd0\xcf\x11\xe0 encrypted", "locked by a password"),
        ("a.doc", b"", "save it again"),
        ("a.pptx", b"", "save it again"),
        ("a.odp", b"", "as PDF"),
        ("a.pages", b"", "as .docx"),
        ("a.mp3", b"", "transcript"),
        ("a.zip", b"", "Unpack it"),
        ("a.thing", b"\x00\x01", "Upload text"),
    ],
)
def test_error_for_an_unreadable_file_names_it_with_a_remedy(name: str, data: bytes, remedy: str):
    with pytest.raises(FileUnreadable, match=remedy) as caught:
        text_of(name, data)

    assert f'"{name}"' in caught.value.message
    assert not caught.value.retryable


def test_workbook_named_docx_is_not_a_valid_document():
    with pytest.raises(FileUnreadable, match="not a valid Word document"):
        text_of("a.docx", xlsx(S=[["a"]]))
    with pytest.raises(FileUnreadable, match="not a valid Excel workbook"):
        text_of("a.xlsx", docx())


@pytest.mark.parametrize("name", ["a.xlsx", "a.docx"])
def test_archive_with_a_large_unpacked_size_is_refused_unopened(name: str):
    with pytest.raises(FileTooLarge, match="unpacks to more"):
        text_of(name, bomb(300))


def test_an_archive_of_very_many_files_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_kinds, "MAX_MEMBERS", 3)

    with pytest.raises(FileTooLarge):
        text_of("a.xlsx", xlsx(S=[["a"]]))


def test_missing_rows_before_a_huge_row_number_are_not_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spreadsheets, "MAX_ROWS", 1000)
    rows = '<row r="99999999999"><c r="A99999999999"><v>1</v></c></row>'
    schema = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    page = f'<worksheet xmlns="{schema}"><sheetData>{rows}</sheetData></worksheet>'
    data = with_member(xlsx(S=[["a"]]), "xl/worksheets/sheet1.xml", page)

    assert text_of("a.xlsx", data).startswith("Sheet: S\n[The rest of the file is left out")


def test_file_above_the_upload_limit_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_kinds, "MAX_FILE_BYTES", 3)

    with pytest.raises(FileTooLarge, match=r'"a.txt" \(text\) is larger'):
        text_of("a.txt", b"1234")


def test_long_text_is_truncated_with_a_note(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_texts, "MAX_CHARACTERS", 5)

    assert text_of("a.txt", b"12345") == "12345"
    assert text_of("a.txt", b"123456") == "12345" + file_texts.CUT_NOTE


def test_null_bytes_are_removed_from_text():
    assert text_of("a.txt", b"a\x00b", "text/plain") == "ab"


@pytest.mark.parametrize(("library", "name"), [("pypdf", "a.pdf"), ("docx", "a.docx"), ("openpyxl", "a.xlsx")])
def test_error_for_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, library: str, name: str):
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(NodeFailure, match=r"pip install easel\[docs\]"):
        text_of(name, b"")


def with_member(data: bytes, member: str, content: str) -> bytes:
    """Return an Office file with one of its parts replaced."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            new.writestr(name, content if name == member else old.read(name))
    return file.getvalue()


def bomb(mebibytes: int) -> bytes:
    """Return an archive whose header declares this much XML, without compressing it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("xl/workbook.xml", "x")
        archive.getinfo("xl/workbook.xml").file_size = mebibytes * 1024 * 1024
    return file.getvalue()
