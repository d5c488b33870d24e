"""Names and types of uploaded files and of the files in replies."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from api.agents.files import _disposition_name, _reply_type, is_page  # pyright: ignore[reportPrivateUsage] (rules without a row to read)
from api.http.errors import RequestRefused
from api.requests.uploads import MAX_NAME_CHARS, MAX_UPLOAD_BYTES, IncomingFile, fetch_file, file_name, mime_type_of
from canvas.errors import AddressRefused
from providers.interfaces import HttpCall, HttpResponse


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("report.pdf", "report.pdf"),
        ("C:\\Users\\ann\\report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("a\x00b\r\nc.txt", "abc.txt"),
        ("Übersicht 2.pdf", "Übersicht 2.pdf"),
        ("\ud800", "file"),
        ("..", "file"),
        ("", "file"),
        ("x" * 300 + ".txt", "x" * (MAX_NAME_CHARS - 4) + ".txt"),
    ],
)
def test_a_files_name_is_the_last_part_of_a_path(written: str, expected: str) -> None:
    assert file_name(written) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Text/HTML; charset=x", "text/html"),
        ("image/svg+xml", "image/svg+xml"),
        ("text", ""),
        ("text/html\r\nX-Evil: 1", ""),
        ("a b/c", ""),
        ("", ""),
    ],
)
def test_invalid_media_type_is_empty(written: str, expected: str) -> None:
    assert mime_type_of(written) == expected


@pytest.mark.parametrize(
    ("mime_type", "ext", "expected"),
    [
        ("application/pdf", "png", "application/pdf"),
        ("", "PNG", "image/png"),
        ("", ".pdf", "application/pdf"),
        ("nonsense", "", "application/octet-stream"),
        ("", "../x:y", "application/octet-stream"),
    ],
)
def test_reply_has_the_requested_type_or_that_of_its_extension(mime_type: str, ext: str, expected: str) -> None:
    assert _reply_type(mime_type, ext) == expected


@pytest.mark.parametrize(
    ("kind", "ext"),
    [
        ("text/html", ""),
        ("application/xhtml+xml", ""),
        ("text/xml", ""),
        ("application/atom+xml", ""),
        ("image/svg+xml", ""),
        ("message/rfc822", ""),
        ("multipart/related", ""),
        ("application/x-mimearchive", ""),
        ("text/plain", "html"),
        ("text/plain", ".SVG"),
        ("text/plain", "mht"),
    ],
)
def test_types_that_may_contain_scripts_are_pages(kind: str, ext: str) -> None:
    assert is_page(kind, ext)


@pytest.mark.parametrize(("kind", "ext"), [("application/pdf", "pdf"), ("image/png", ""), ("text/plain", "md")])
def test_documents_and_images_are_not_pages(kind: str, ext: str) -> None:
    assert not is_page(kind, ext)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a-b.pdf", '; filename="a-b.pdf"'),
        ('a"b\r\n c.pdf', '; filename="a_b___c.pdf"'),
        ("Übersicht.pdf", "; filename=\"_bersicht.pdf\"; filename*=UTF-8''%C3%9Cbersicht.pdf"),
        ("€ 5.pdf", '; filename="__5.pdf"'),
    ],
)
def test_disposition_name_contains_only_letters_digits_dots_and_dashes(name: str, expected: str) -> None:
    assert _disposition_name(name) == expected
    assert _disposition_name(name).isascii()


@dataclass
class Web:
    """An HTTP client that gives one reply and records its calls."""

    reply: HttpResponse | Exception
    calls: list[HttpCall] = field(default_factory=list[HttpCall])

    async def send(self, call: HttpCall) -> HttpResponse:
        self.calls.append(call)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def reply(
    status: int = 200, headers: Mapping[str, str] | None = None, url: str = "https://a.example/x"
) -> HttpResponse:
    return HttpResponse(status, headers or {}, b"bytes", url)


@pytest.mark.parametrize(
    ("url", "content_type", "expected"),
    [
        ("https://a.example/b/report.pdf?x=1", "application/pdf; a=b", ("report.pdf", "application/pdf")),
        ("https://a.example/My%20page", "text/html", ("My page.html", "text/html")),
        ("https://a.example/data.csv", "", ("data.csv", "text/csv")),
        ("https://a.example/", "application/pdf", ("a.example", "application/pdf")),
        ("https://a.example/%2e%2e%2fsecret", "", ("secret.bin", "application/octet-stream")),
    ],
)
def test_fetched_file_is_named_after_its_url(url: str, content_type: str, expected: tuple[str, str]) -> None:
    web = Web(reply(headers={"content-type": content_type}, url=url))

    file = asyncio.run(fetch_file(web, "https://a.example/first"))

    assert file == IncomingFile(*expected, b"bytes")
    assert (web.calls[0].url, web.calls[0].max_bytes, web.calls[0].trusted) == (
        "https://a.example/first",
        MAX_UPLOAD_BYTES,
        False,
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (AddressRefused("URL leads to 'localhost', which is not allowed."), "which is not allowed"),
        (reply(404), "status 404"),
    ],
)
def test_url_without_a_file_is_refused(answer: Any, message: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        asyncio.run(fetch_file(Web(answer), "http://localhost/"))

    assert message in caught.value.message
