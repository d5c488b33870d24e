"""A Message may leave its answer as a file; the answer stands whether that works or not."""

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
    """Documents that are made in no time."""

    async def make_document(text: str, output_format: str) -> bytes:
        if "unprintable" in text:
            raise NodeFailure("Install easel[docs].")
        return f"{output_format}:{text}".encode()

    monkeypatch.setattr(message_file, "make_document", make_document)


def finished(ctx: FakeContext, text: str, output_format: Any) -> Finished:
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
def test_a_format_is_known_in_any_case_and_other_words_mean_markdown(output_format: Any, expected: str | None):
    assert message_file.parse_format(output_format) == expected


@pytest.mark.usefixtures("documents")
def test_the_answer_becomes_a_file_that_the_end_of_the_message_names():
    ctx = FakeContext()

    outcome = finished(ctx, "<think>x</think># Hi", "PDF")

    ((doc_id, saved),) = ctx.saved.items()
    attachment = {"doc_id": doc_id, "format": "pdf", "file_name": f"{doc_id[:8]}.pdf"}
    assert saved == ("message.pdf", b"pdf:# Hi", "application/pdf")
    assert outcome.outputs["attachment"] == attachment
    assert outcome.end is not None
    assert outcome.end.attachment == attachment


def test_files_are_converted_from_markdown_and_say_what_they_are():
    ctx = FakeContext()

    finished(ctx, "Hi\n\n**you** <think>x", "html")
    finished(ctx, "Hi\n\n\n\n\nyou", "txt")

    (page, html, page_type), (text, markdown, text_type) = ctx.saved.values()
    assert (page, page_type) == ("message.html", "text/html")
    assert b"<strong>you</strong>" in html
    assert b"think" not in html
    assert (text, text_type) == ("message.markdown", "text/markdown")
    assert markdown.strip() == b"Hi\n\nyou"
    assert set(message_file.FORMATS) <= set(MIME_TYPES)


@pytest.mark.usefixtures("documents")
@pytest.mark.parametrize("output_format", NO_FILE)
def test_no_file_is_made_unless_one_is_asked_for(output_format: Any):
    ctx = FakeContext()

    outcome = finished(ctx, "Hi", output_format)

    assert ctx.saved == {}
    assert "attachment" not in outcome.outputs


@pytest.mark.usefixtures("documents")
def test_a_file_that_cannot_be_made_is_logged_only_and_an_earlier_one_is_not_shown_again():
    ctx = FakeContext(log=Log(), previous={"attachment": {"doc_id": "old"}})

    outcome = finished(ctx, "unprintable", "pdf")

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

    assert finished(ctx, "Hi", "pdf").outputs["content"] == "Hi"
    assert ctx.log.names == ["message_file_not_made"]
