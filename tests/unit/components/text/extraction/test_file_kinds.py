"""What kind of file an upload is: by its mime type, its name, or its first bytes."""

import io
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.text.extraction.file_kinds import Kind, image_type, kind_of

WORD_MIME = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def archive(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        for name in names:
            written.writestr(name, "x")
    return file.getvalue()


@pytest.mark.parametrize(
    ("mime_type", "kind"),
    [
        ("text/plain", Kind.TEXT), ("text/csv; charset=utf-8", Kind.TEXT), ("application/ld+json", Kind.TEXT),
        ("image/svg+xml", Kind.IMAGE), ("Text/HTML", Kind.HTML), ("application/pdf", Kind.PDF), (WORD_MIME, Kind.WORD),
        ("video/mp4", Kind.MEDIA), ("application/rtf", Kind.OTHER_DOCUMENT),
    ],
)  # fmt: skip
def test_specific_mime_type_determines_the_kind(mime_type: str, kind: Kind):
    assert kind_of("a.bin", mime_type, b"") == kind


@pytest.mark.parametrize("mime_type", ["", "application/octet-stream", "application/vnd.ms-excel", "application/zip"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("A.CSV", Kind.TEXT), ("a.b.py", Kind.TEXT), ("a.htm", Kind.HTML), ("a.xlsx", Kind.EXCEL),
        ("a.xls", Kind.OLD_OFFICE), ("a.pptx", Kind.SLIDES), ("a.png", Kind.IMAGE),
        ("a.zip", Kind.ARCHIVE), ("a.docx", Kind.WORD),
    ],
)  # fmt: skip
def test_name_determines_the_kind_if_the_mime_type_is_unreliable(mime_type: str, name: str, kind: Kind):
    assert kind_of(name, mime_type, b"") == kind


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"%PDF-1.7", Kind.PDF), (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Kind.OLD_OFFICE),
        (b"{\\rtf1", Kind.OTHER_DOCUMENT), (archive("word/document.xml"), Kind.WORD),
        (archive("a", "xl/workbook.xml"), Kind.EXCEL), (archive("ppt/slide.xml"), Kind.SLIDES),
        (archive("a.txt"), Kind.ARCHIVE), (b"PK\x03\x04broken", Kind.ARCHIVE),
        (b"\xef\xbb\xbf\n<!DOCTYPE HTML>", Kind.HTML), (b"#!/bin/sh", Kind.TEXT), (b"", Kind.TEXT),
        ("wide".encode("utf-16"), Kind.TEXT), (b"\x7fELF\x00\x00", Kind.UNKNOWN),
        (b"\x89PNG\r\n\x1a\n\x00", Kind.IMAGE), (b"RIFF\x00\x00\x00\x00WEBP", Kind.IMAGE),
    ],
)  # fmt: skip
def test_first_bytes_determine_the_kind_if_the_extension_is_unknown(data: bytes, kind: Kind):
    for name in ("README", "data.bin"):
        assert kind_of(name, "", data) == kind


def test_an_image_without_a_mime_type_gets_one():
    assert image_type("photo.JPG", "application/octet-stream", b"") == "image/jpeg"
    assert image_type("photo", "", b"GIF89a") == "image/gif"
    assert image_type("notes.txt", "", b"GIF89a") == ""


@given(st.text(max_size=12), st.sampled_from(["", "text/plain", "application/x-thing"]), st.binary(max_size=20))
@settings(max_examples=50)
def test_every_file_is_of_some_kind(name: str, mime_type: str, data: bytes):
    assert kind_of(name, mime_type, data) in Kind
