import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from canvas.errors import AddressRefused, UnresolvedReference
from components.browsing.uploads import UploadSource, fetch_files, read_sources
from providers.interfaces import HttpCall, HttpResponse, Services
from tests.fakes import FakeContext, FakeHttp


@dataclass
class Log:
    warnings: list[dict[str, Any]] = field(default_factory=list)

    def warning(self, event: str, **fields: Any) -> None:
        self.warnings.append({"event": event, **fields})


def keys(sources: Any, **begin: Any) -> list[str]:
    ctx = FakeContext(values={"begin": begin}, globals={"sys.user_id": "u1"})
    return [source.key for source in read_sources(sources, ctx)]


@pytest.mark.parametrize(
    ("sources", "begin", "expected"),
    [
        ("f1,{begin@ids},{begin@x},f1", {"ids": ["f2", "f3,f4"], "x": "f5"}, ["f1", "f2", "f3", "f4", "f5"]),
        ('["1","2"]', {}, ["1", "2"]),
        ("1,2", {}, ["1", "2"]),
        ([1, "2", [["3"]]], {}, ["1", "2", "3"]),
        ("{begin@o}", {"o": {"id": "40", "name": "d.pdf"}}, ["40"]),
        ("{begin@o}", {"o": {"url": "https://e.com/d.pdf"}}, ["https://e.com/d.pdf"]),
        ("{begin@o}", {"o": '{"id": "40"}'}, ["40"]),
        ("https://e.com/d?name=a,b.txt", {}, ["https://e.com/d?name=a,b.txt"]),
        ("begin@x", {"x": "f5"}, ["f5"]),
        ({"file_id": "1", "id": "2"}, {}, ["1"]),
        ({"file_id": "", "id": "2", "url": "https://e.com"}, {}, ["2"]),
        ({"value": ["5", "6"]}, {}, ["5", "6"]),
        ({"a": "7", "b": {"id": "8"}}, {}, ["7", "8"]),
        ({"doc_id": "9", "filename": "a.pdf"}, {}, ["9"]),
        ("https://e.com/{begin@x},y", {"x": "d"}, ["https://e.com/d,y"]),
        ("file-{begin@x}", {"x": "d"}, ["file-d"]),
        (" , ,f1, ", {}, ["f1"]),
        (None, {}, []),
        (True, {}, []),
        ("", {}, []),
        ("[1, 2", {}, ["[1", "2"]),
    ],
)
def test_upload_sources_are_parsed_from_many_shapes(sources: Any, begin: dict[str, Any], expected: list[str]):
    assert keys(sources, **begin) == expected


def test_a_value_is_never_read_as_a_reference():
    assert keys("{begin@x}", x="{sys.user_id}") == ["{sys.user_id}"]
    assert keys("{begin@x}", x=["sys.user_id", "https://e.com/{sys.user_id}"]) == [
        "sys.user_id",
        "https://e.com/{sys.user_id}",
    ]


def test_values_nested_too_deeply_are_ignored():
    nested: Any = "f1"
    for _ in range(100):
        nested = [nested]

    assert keys(nested) == []


def test_reference_to_a_file_field_of_a_form_names_its_files():
    ctx = FakeContext(values={"begin": {"f": ["text in it"]}}, raw_files={"begin@f": [{"id": "i1", "name": "a.pdf"}]})

    assert read_sources("{begin@f}", ctx) == [UploadSource("i1", "a.pdf")]
    assert ctx.inputs == {"begin@f": '[{"id": "i1", "name": "a.pdf"}]'}


def test_an_unknown_reference_fails_the_node():
    with pytest.raises(UnresolvedReference):
        keys("https://e.com/{nobody@x}")


# -- fetching ---------------------------------------------------------------------------------------------------------


def fetch(folder: Path, *sources: UploadSource, **stored: bytes) -> tuple[list[tuple[str, str, bytes]], FakeContext]:
    def answer(call: HttpCall) -> HttpResponse:
        if "refused" in call.url:
            raise AddressRefused("not allowed")
        status = 404 if "missing" in call.url else 200
        return HttpResponse(status, {"content-disposition": 'attachment; filename="remote.txt"'}, b"R", call.url)

    ctx = FakeContext(stored=stored, services=Services(FakeHttp(answer)), log=Log())
    files = asyncio.run(fetch_files(sources, folder, 1000, ctx))
    return [(file.id, file.name, file.path.read_bytes()) for file in files], ctx


def test_files_are_written_to_the_folder_under_distinct_names(tmp_path: Path):
    files, _ = fetch(
        tmp_path,
        UploadSource("f1", "a.txt"),
        UploadSource("f2", "../a.txt"),
        UploadSource("f3"),
        f1=b"1",
        f2=b"2",
        f3=b"3",
    )

    assert files == [("f1", "a.txt", b"1"), ("f2", "a_1.txt", b"2"), ("f3", "f3", b"3")]
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "a_1.txt", "f3"}


def test_file_at_a_url_is_fetched_by_the_guarded_client(tmp_path: Path):
    files, ctx = fetch(tmp_path, UploadSource("https://e.com/x"))

    assert files == [("https://e.com/x", "remote.txt", b"R")]
    assert isinstance(ctx.services.http, FakeHttp)
    assert ctx.services.http.calls == [HttpCall("GET", "https://e.com/x", timeout=30.0, redirects=5, max_bytes=1000)]


def test_file_that_cannot_be_fetched_is_skipped_with_a_warning(tmp_path: Path):
    files, ctx = fetch(
        tmp_path,
        UploadSource("gone"),
        UploadSource("empty"),
        UploadSource("https://e.com/missing?token=s3cret"),
        UploadSource("https://refused.example/"),
        UploadSource("here"),
        empty=b"",
        here=b"1",
    )

    assert [file[0] for file in files] == ["here"]
    assert [warning["reason"] for warning in ctx.log.warnings] == [
        'The file "gone" is not there. Upload it again.',
        "The file is empty.",
        "HTTP 404",
        "not allowed",
    ]
    assert "s3cret" not in str(ctx.log.warnings)
