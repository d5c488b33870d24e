"""DocGenerator renders a text to a file and offers it for download."""

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


def generate(params: dict[str, Any], ctx: FakeContext | None = None) -> tuple[dict[str, Any], bytes]:
    """Run the component; return its outputs and the stored bytes."""
    ctx = ctx or FakeContext()
    outcome = run(doc_generator, params, ctx)
    assert isinstance(outcome, Finished)
    return dict(outcome.outputs), ctx.saved[outcome.outputs["doc_id"]][1]


def test_text_becomes_a_file_with_id_name_type_and_size():
    outputs, data = generate({**TEXT, "filename": "my report.pdf"})

    assert b"<body>\n<h1>T</h1>\n</body>" in data
    assert re.fullmatch("[0-9a-f]{32}", outputs["doc_id"])
    assert (outputs["filename"], outputs["mime_type"], outputs["size"]) == ("my report.html", "text/html", len(data))


def test_download_output_describes_the_file_for_a_message():
    outputs, data = generate({**TEXT, "output_format": "markdown", "filename": "übersicht"})

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


def test_large_file_is_not_inlined_in_the_download():
    frame = len(generate({**TEXT, "content": "x"})[1]) - 1
    small, _ = generate({**TEXT, "content": "x" * (module.INLINE_BYTES - frame)})
    large, data = generate({**TEXT, "content": "x" * (module.INLINE_BYTES - frame + 1)})

    assert "base64" in json.loads(small["download"])
    assert "base64" not in json.loads(large["download"])
    assert json.loads(large["download"])["size"] == len(data) == module.INLINE_BYTES + 1


@pytest.mark.parametrize("output_format", ["pdf", "docx", "txt", "markdown", "html"])
def test_every_format_is_stored_with_its_mime_type(output_format: str):
    outputs, data = generate({"content": "Hello", "output_format": output_format})

    assert outputs["mime_type"] == module.MIME_TYPES[output_format]
    assert data


@pytest.mark.parametrize(
    ("filename", "output_format", "name"),
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
def test_file_names_are_valid_on_every_file_system(filename: str, output_format: str, name: str):
    assert file_name(filename, output_format) == name


def test_file_without_a_name_is_named_after_the_time_and_the_activation():
    names = [generate(TEXT, FakeContext(activation_id=activation_id))[0]["filename"] for activation_id in ("a", "b")]

    assert all(re.fullmatch(r"document_\d{8}_\d{6}_[0-9a-f]{8}\.html", name) for name in names)
    assert names[0][-13:] != names[1][-13:]


def test_second_attempt_creates_the_same_file_with_the_time_of_the_first():
    ctx = FakeContext(journal={"begun": "2026-08-01T12:00:05+02:00"})
    params = {**TEXT, "add_timestamp": True}

    first, data = generate(params, ctx)
    again, data_again = generate(params, ctx)

    assert data == data_again
    assert b"<body>\n<p>Generated: 2026-08-01 12:00:05</p>\n<h1>T</h1>\n</body>" in data
    assert first == again
    assert first["filename"].startswith("document_20260801_120005_")


def test_first_attempt_stores_its_time_in_the_journal():
    ctx = FakeContext()

    _, data = generate({**TEXT, "output_format": "txt", "add_timestamp": True}, ctx)

    assert ctx.journal["begun"].replace("T", " ")[:19] in data.decode()


def test_references_are_replaced_by_values_without_reasoning():
    ctx = FakeContext(
        values={"LLM:0": {"content": "<think>hm</think>Done"}},
        globals={"env.n": None, "env.l": [1, "ä"], "sys.query": "Q"},
    )

    _, data = generate(
        {**TEXT, "output_format": "markdown", "content": "{LLM:0@content} {sys.query} {env.n}{env.l}"}, ctx
    )

    assert data.decode() == 'Done Q [1, "ä"]\n'
    assert ctx.inputs["content"] == '<think>hm</think>Done Q [1, "ä"]'


def test_unresolved_reference_is_shown_in_the_document():
    _, data = generate({**TEXT, "output_format": "markdown", "content": "a {env.zz} {item}"})

    assert data.decode() == "a [ERROR: Can't find variable: 'env.zz'] {item}\n"


def test_layout_params_are_passed_to_the_document(monkeypatch: pytest.MonkeyPatch):
    layouts: list[Any] = []

    async def record_layout(text: str, output_format: str, layout: Any) -> bytes:
        layouts.append(layout)
        return b"x"

    monkeypatch.setattr(module, "make_document", record_layout)

    generate({"content": "a", "header_text": "H", "footer_text": "F", "watermark_text": "W", "font_size": 14.5})
    generate({"content": "a", "add_page_numbers": False, "add_timestamp": False})

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
def test_invalid_params_are_refused_when_the_canvas_is_loaded(params: dict[str, Any], complaint: str):
    with pytest.raises(ValidationError, match=complaint):
        DocGeneratorParams.model_validate(params)


def test_empty_content_fails_the_node():
    ctx = FakeContext(globals={"env.n": None})

    with pytest.raises(NodeFailure, match=r"^Document generation failed: the file is empty$"):
        run(doc_generator, {**TEXT, "content": "{env.n}"}, ctx)


def test_a_document_that_cannot_be_made_fails_the_node(monkeypatch: pytest.MonkeyPatch):
    async def broken(*_: Any) -> bytes:
        raise NodeFailure("too long")

    monkeypatch.setattr(module, "make_document", broken)

    with pytest.raises(NodeFailure, match=r"^Document generation failed: too long$"):
        run(doc_generator, TEXT, FakeContext())


def test_document_of_a_child_process_equals_one_of_this_process():
    layout = Layout(header="H", footer="F", page_numbers=True, timestamp="Generated: now", font_size=14.5)

    from_child_process = asyncio.run(make_document("# Title\n\ntext", "html", layout))
    long = asyncio.run(make_document("# Title\n\n" + "text " * 10_000, "html", layout))

    assert from_child_process == render("# Title\n\ntext", "html", layout)
    assert long == render("# Title\n\n" + "text " * 10_000, "html", layout)
    assert asyncio.run(make_document("# Title", "pdf", layout)).startswith(b"%PDF-")
