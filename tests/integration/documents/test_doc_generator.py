"""DocGenerator makes a file of a text and offers it for download."""

import asyncio
import base64
import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components.documents import Layout, make_document, render
from components.nodes.data import doc_generator as module
from components.nodes.data.doc_generator import DocGeneratorParams, doc_generator, file_name
from tests.fakes import FakeContext, run

TEXT = {"content": "# T", "output_format": "html", "add_timestamp": False}


def made(params: dict[str, Any], ctx: FakeContext | None = None) -> tuple[dict[str, Any], bytes]:
    """The outputs, and the bytes that were kept."""
    ctx = ctx or FakeContext()
    outcome = run(doc_generator, params, ctx)
    assert isinstance(outcome, Finished)
    return dict(outcome.outputs), ctx.saved[outcome.outputs["doc_id"]][1]


def test_a_text_becomes_a_file_with_its_particulars():
    outputs, data = made({**TEXT, "filename": "my report.pdf"})

    assert b"<body>\n<h1>T</h1>\n</body>" in data
    assert re.fullmatch("[0-9a-f]{32}", outputs["doc_id"])
    assert (outputs["filename"], outputs["mime_type"], outputs["size"]) == ("my report.html", "text/html", len(data))


def test_the_download_tells_a_message_all_about_the_file():
    outputs, data = made({**TEXT, "output_format": "markdown", "filename": "übersicht"})

    doc_id = outputs["doc_id"]
    assert json.loads(outputs["download"]) == {
        "doc_id": doc_id,
        "filename": "übersicht.md",
        "mime_type": "text/markdown",
        "size": 4,
        "base64": base64.b64encode(data).decode(),
        "preview_url": f"/api/v1/agents/attachments/{doc_id}/preview?ext=markdown&mime_type=text%2Fmarkdown",
        "download_url": f"/api/v1/agents/attachments/{doc_id}/download?ext=markdown&mime_type=text%2Fmarkdown",
        "include_download_info_in_content": False,
    }
    assert "übersicht" in outputs["download"]


def test_a_large_file_is_fetched_and_not_carried_along():
    frame = len(made({**TEXT, "content": "x"})[1]) - 1
    small, _ = made({**TEXT, "content": "x" * (module.INLINE_BYTES - frame)})
    large, data = made({**TEXT, "content": "x" * (module.INLINE_BYTES - frame + 1)})

    assert "base64" in json.loads(small["download"])
    assert "base64" not in json.loads(large["download"])
    assert json.loads(large["download"])["size"] == len(data) == module.INLINE_BYTES + 1


@pytest.mark.parametrize("output_format", ["pdf", "docx", "txt", "markdown", "html"])
def test_every_format_is_kept_with_its_own_type(output_format: str):
    outputs, data = made({"content": "Hello", "output_format": output_format})

    assert outputs["mime_type"] == module.MIME_TYPES[output_format]
    assert data


@pytest.mark.parametrize(
    ("given", "output_format", "name"),
    [
        ("my report.pdf", "docx", "my report.docx"),
        ("a/b\\c:*?.docx", "docx", "a b c.docx"),
        ("v1.2", "pdf", "v1.pdf"),
        ("///", "markdown", "file.md"),
        ("archive.tar.gz", "txt", "archive.tar.txt"),
        (" . a  \t b . ", "pdf", "a b.pdf"),
        (".pdf", "pdf", "pdf.pdf"),
        ('x#%|<>"\x00\x9fy', "html", "x y.html"),
        ("x" * 200, "pdf", "x" * 180 + ".pdf"),
        ("x" * 179 + " y", "pdf", "x" * 179 + ".pdf"),
        ("报告.pdf", "pdf", "报告.pdf"),
        ("\ud800", "pdf", "file.pdf"),
        ("..", "pdf", "file.pdf"),
        ("", "pdf", ""),
    ],
)
def test_file_names_are_fit_for_any_file_system(given: str, output_format: str, name: str):
    assert file_name(given, output_format) == name


def test_a_file_without_a_name_is_named_after_the_time_and_the_visit():
    named = [made(TEXT, FakeContext(activation_id=visit))[0]["filename"] for visit in ("a", "b")]

    assert all(re.fullmatch(r"document_\d{8}_\d{6}_[0-9a-f]{8}\.html", name) for name in named)
    assert named[0][-13:] != named[1][-13:]


def test_a_second_attempt_makes_the_same_file_at_the_time_of_the_first():
    ctx = FakeContext(journal={"begun": "2026-08-01T12:00:05+02:00"})
    params = {**TEXT, "add_timestamp": True}

    first, data = made(params, ctx)
    again, data_again = made(params, ctx)

    assert data == data_again
    assert b"<body>\n<p>Generated: 2026-08-01 12:00:05</p>\n<h1>T</h1>\n</body>" in data
    assert first == again
    assert first["filename"].startswith("document_20260801_120005_")


def test_the_first_attempt_notes_its_time():
    ctx = FakeContext()

    _, data = made({**TEXT, "output_format": "txt", "add_timestamp": True}, ctx)

    assert ctx.journal["begun"].replace("T", " ")[:19] in data.decode()


def test_values_stand_in_the_text_and_their_reasoning_does_not():
    ctx = FakeContext(
        values={"LLM:0": {"content": "<think>hm</think>Done"}},
        globals={"env.n": None, "env.l": [1, "ä"], "sys.query": "Q"},
    )

    _, data = made({**TEXT, "output_format": "markdown", "content": "{LLM:0@content} {sys.query} {env.n}{env.l}"}, ctx)

    assert data.decode() == 'Done Q [1, "ä"]\n'
    assert ctx.inputs["content"] == '<think>hm</think>Done Q [1, "ä"]'


def test_a_reference_that_leads_nowhere_is_shown_and_the_document_is_made():
    _, data = made({**TEXT, "output_format": "markdown", "content": "a {env.zz} {item}"})

    assert data.decode() == "a [ERROR: Can't find variable: 'env.zz'] {item}\n"


def test_the_frame_reaches_the_document(monkeypatch: pytest.MonkeyPatch):
    layouts: list[Any] = []

    async def noted(text: str, output_format: str, layout: Any) -> bytes:
        layouts.append(layout)
        return b"x"

    monkeypatch.setattr(module, "make_document", noted)

    made({"content": "a", "header_text": "H", "footer_text": "F", "watermark_text": "W", "font_size": 14.5})
    made({"content": "a", "add_page_numbers": False, "add_timestamp": False})

    full, bare = layouts
    assert (full.header, full.footer, full.watermark, full.font_size, full.page_numbers) == ("H", "F", "W", 14.5, True)
    assert re.fullmatch(r"Generated: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", full.timestamp)
    assert (bare.page_numbers, bare.timestamp) == (False, None)


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"content": ""}, r"\[DocGenerator\] Content"),
        ({"content": None}, r"\[DocGenerator\] Content"),
        ({}, r"\[DocGenerator\] Content"),
        ({"content": "a", "output_format": "odt"}, r"\[DocGenerator\] Output format 'odt'"),
        ({"content": "a", "output_format": "PDF"}, r"\[DocGenerator\] Output format 'PDF'"),
        ({"content": "a", "output_format": []}, r"\[DocGenerator\] Output format"),
        ({"content": "a", "font_size": 10}, r"\[DocGenerator\] Font size 10"),
        ({"content": "a", "font_size": "12"}, r"\[DocGenerator\] Font size '12'"),
        ({"content": "a", "font_size": True}, r"\[DocGenerator\] Font size True"),
        ({"content": "a", "font_size": float("nan")}, r"\[DocGenerator\] Font size nan"),
    ],
)
def test_params_that_cannot_work_are_refused_when_the_canvas_is_loaded(params: dict[str, Any], complaint: str):
    with pytest.raises(ValidationError, match=complaint):
        DocGeneratorParams.model_validate(params)


def test_nothing_to_write_is_a_failure():
    ctx = FakeContext(globals={"env.n": None})

    with pytest.raises(NodeFailure, match=r"^Document generation failed: the file is empty$"):
        run(doc_generator, {**TEXT, "content": "{env.n}"}, ctx)


def test_a_document_that_cannot_be_made_fails_the_node(monkeypatch: pytest.MonkeyPatch):
    async def broken(*_: Any) -> bytes:
        raise NodeFailure("too long")

    monkeypatch.setattr(module, "make_document", broken)

    with pytest.raises(NodeFailure, match=r"^Document generation failed: too long$"):
        run(doc_generator, TEXT, FakeContext())


def test_a_document_is_the_same_from_a_process_of_its_own_as_from_here():
    layout = Layout(header="H", footer="F", page_numbers=True, timestamp="Generated: now", font_size=14.5)

    made_elsewhere = asyncio.run(make_document("# Title\n\ntext", "html", layout))
    long = asyncio.run(make_document("# Title\n\n" + "text " * 10_000, "html", layout))

    assert made_elsewhere == render("# Title\n\ntext", "html", layout)
    assert long == render("# Title\n\n" + "text " * 10_000, "html", layout)
    assert asyncio.run(make_document("# Title", "pdf", layout)).startswith(b"%PDF-")
