"""A Message may also store its answer as a file; a failure of that does not fail the answer."""

from collections.abc import Mapping
from typing import Any

import pytest

from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components.documents import MIME_TYPES
from components.nodes.flow import message_file
from components.nodes.flow.message import message
from tests.fakes import FakeContext, run
from tests.unit.components.nodes.llm.test_read_aloud import Log

NO_FILE = ("", "  ", None, 3, ["pdf"])


@pytest.fixture
def documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the conversion of documents by a fast one."""

    async def make_document(text: str, output_format: str) -> bytes:
        if "unprintable" in text:
            raise NodeFailure("Install easel[docs].")
        return f"{output_format}:{text}".encode()

    monkeypatch.setattr(message_file, "make_document", make_document)


def run_message(ctx: FakeContext, text: str, output_format: Any) -> Finished:
    outcome = run(message, {"content": [text], "output_format": output_format}, ctx)
    assert isinstance(outcome, Finished)
    return outcome


@pytest.mark.parametrize(
    ("output_format", "expected"),
    [
        ("pdf", "pdf"),
        ("PDF", "pdf"),
        ("Docx", "docx"),
        ("xlsx", "xlsx"),
        ("html", "html"),
        ("markdown", "markdown"),
        ("txt", "markdown"),
        *((nothing, None) for nothing in NO_FILE),
    ],
)
def test_output_format_ignores_case_and_unknown_formats_mean_markdown(output_format: Any, expected: str | None):
    assert message_file.parse_format(output_format) == expected


@pytest.mark.usefixtures("documents")
def test_answer_is_stored_as_a_file_and_attached_to_the_message_end():
    ctx = FakeContext()

    outcome = run_message(ctx, "<think>x</think># Hi", "PDF")

    ((doc_id, saved),) = ctx.saved.items()
    attachment = {"doc_id": doc_id, "format": "pdf", "file_name": f"{doc_id[:8]}.pdf"}
    assert saved == ("message.pdf", b"pdf:# Hi", "application/pdf")
    assert outcome.outputs["attachment"] == attachment
    assert outcome.end is not None
    assert outcome.end.attachment == attachment


def test_files_are_converted_from_markdown_and_have_a_mime_type():
    ctx = FakeContext()

    run_message(ctx, "Hi\n\n**you** <think>x", "html")
    run_message(ctx, "Hi\n\n\n\n\nyou", "txt")

    (page, html, page_type), (text, markdown, text_type) = ctx.saved.values()
    assert (page, page_type) == ("message.html", "text/html")
    assert b"<strong>you</strong>" in html
    assert b"think" not in html
    assert (text, text_type) == ("message.markdown", "text/markdown")
    assert markdown.strip() == b"Hi\n\nyou"
    assert set(message_file.FORMATS) <= set(MIME_TYPES)


@pytest.mark.usefixtures("documents")
@pytest.mark.parametrize("output_format", NO_FILE)
def test_no_file_is_made_without_an_output_format(output_format: Any):
    ctx = FakeContext()

    outcome = run_message(ctx, "Hi", output_format)

    assert ctx.saved == {}
    assert "attachment" not in outcome.outputs


@pytest.mark.usefixtures("documents")
def test_file_that_cannot_be_made_is_only_logged_and_an_earlier_attachment_is_cleared():
    ctx = FakeContext(log=Log(), previous={"attachment": {"doc_id": "old"}})

    outcome = run_message(ctx, "unprintable", "pdf")

    assert outcome.outputs == {"content": "unprintable", "downloads": [], "attachment": None}
    assert outcome.end is not None
    assert outcome.end.attachment is None
    assert ctx.log.names == ["message_file_not_made"]


@pytest.mark.usefixtures("documents")
def test_file_that_cannot_be_stored_is_only_logged():
    class Full(FakeContext):
        async def save_file(self, name: str, data: bytes, mime_type: str) -> Mapping[str, Any]:
            raise OSError("No space left on device")

    ctx = Full(log=Log())

    assert run_message(ctx, "Hi", "pdf").outputs["content"] == "Hi"
    assert ctx.log.names == ["message_file_not_made"]
