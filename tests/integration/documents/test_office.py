"""Documents of other office programs. The files in the folder office were saved by LibreOffice."""

import asyncio
import gzip
import io
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("kreuzberg")

from canvas.errors import NodeFailure
from components.text.extraction import office
from components.text.extraction.file_kinds import FileTooLarge, FileUnreadable, kind_of
from components.text.extraction.file_texts import UnparsedFile, full_text
from components.text.extraction.office import format_of

FOLDER = Path(__file__).parent / "office"
LETTER, SLIDES, TABLE = "Refunds take five days. Äpfel und 退款.", "Second page: 退款", "Apple 1.5"


def content(name: str) -> bytes:
    path = FOLDER / name
    return path.read_bytes() if path.exists() else gzip.decompress((FOLDER / f"{name}.gz").read_bytes())


def archive(**files: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as written:
        for name, text in files.items():
            written.writestr(name, text)
    return made.getvalue()


def read(name: str, data: bytes, mime_type: str = "") -> str:
    return asyncio.run(UnparsedFile(name, mime_type, data).full_text(1_000_000))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("letter.doc", LETTER), ("letter.odt", LETTER), ("letter.rtf", LETTER), ("letter.epub", LETTER),
        ("slides.pptx", SLIDES), ("slides.ppt", SLIDES), ("table.ods", TABLE), ("table.xls", TABLE),
    ],
)  # fmt: skip
def test_document_is_read_in_a_process_with_limits(name: str, expected: str):
    assert expected in read(name, content(name))


@pytest.mark.parametrize("name", ["letter.doc", "letter.rtf", "slides.pptx", "slides.ppt", "table.xls"])
def test_document_without_an_extension_is_read(name: str):
    assert format_of("README", "application/octet-stream", content(name)) == name.rpartition(".")[2]
    assert full_text("README", "", content(name), 1_000_000)


@pytest.mark.parametrize(
    ("name", "mime_type", "expected"),
    [
        ("a.ods", "application/vnd.ms-excel", "ods"), ("a.bin", "text/rtf; charset=x", "rtf"),
        ("a.xls", "application/vnd.ms-excel", "xls"), ("a", "application/vnd.oasis.opendocument.text", "odt"),
        ("a.odp", "", None), ("a.key", "", None), ("a.pages", "", None), ("a", "", None),
    ],
)  # fmt: skip
def test_mime_type_and_name_determine_the_format(name: str, mime_type: str, expected: str | None):
    assert format_of(name, mime_type, b"") == expected


def test_format_without_a_reader_is_refused_with_a_remedy():
    with pytest.raises(FileUnreadable, match=r"cannot be read as text\. Save it as PDF"):
        read("slides.odp", b"PK\x03\x04")


def test_document_without_text_is_refused():
    with pytest.raises(FileUnreadable, match="has no text in it"):
        read("a.rtf", rb"{\rtf1 }")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.rtf", b"{\\rtf1 " + b"{" * 500_000),
        ("a.rtf", b"{\\rtf1 \\bin999999999 x}"),
        ("a.odt", archive(**{"content.xml": "<a>" * 200_000})),
        ("a.pptx", archive(**{"ppt/presentation.xml": "<x/>", "ppt/slides/slide1.xml": "<a:p>" * 300_000})),
        ("a.epub", archive(**{"META-INF/container.xml": "<container>" * 100_000})),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\xff" * 4096 + "WordDocument".encode("utf-16-le")),
        ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 100_000),
    ],
    ids=["deep rtf", "long rtf", "deep odt", "deep pptx", "deep epub", "odd doc", "empty xls"],
)
def test_hostile_document_is_an_error_or_text_and_ends_soon(name: str, data: bytes):
    async def bounded() -> str:
        async with asyncio.timeout(60):
            return await UnparsedFile(name, "", data).full_text(10_000_000)

    try:
        outcome = asyncio.run(bounded())
    except NodeFailure as failure:
        outcome = failure.message

    assert len(outcome) < 1000


def test_archive_that_unpacks_to_more_than_the_limit_is_refused_unopened(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(office, "MAX_XML_BYTES", 1000)

    with pytest.raises(FileTooLarge, match="unpacks to more than can be read"):
        full_text("a.odt", "", archive(**{"content.xml": " " * 2000}), 1000)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["letter.odt", "letter.rtf", "letter.epub", "slides.pptx", "table.ods", "table.xls", "letter.doc"]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=20),
)
def test_damaged_document_is_text_or_a_clear_error(name: str, changes: list[tuple[float, int]]):
    damaged = bytearray(content(name))
    for place, value in changes:
        damaged[int(place * len(damaged))] = value

    with suppress(FileUnreadable):  # and nothing else
        full_text(name, "", bytes(damaged), 1_000_000)


def test_panic_of_the_library_is_a_clear_error(monkeypatch: pytest.MonkeyPatch):
    class PanicException(BaseException):
        pass

    def panic(*_: object) -> None:
        raise PanicException("slice index starts at 3904 but ends at 2368")

    monkeypatch.setattr("kreuzberg.extract_bytes_sync", panic)

    with pytest.raises(FileUnreadable, match="is damaged"):
        full_text("a.xls", "", content("table.xls"), 1000)


def test_kind_of_a_format_is_one_that_the_reader_gets():
    for extension in office.FORMATS:
        assert str(kind_of(f"a.{extension}", "", b"")) != "archive"
