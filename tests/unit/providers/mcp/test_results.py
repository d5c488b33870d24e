"""The text that a model reads for the result of an MCP tool."""

from typing import Any

import pytest

from providers.mcp.results import text_of


@pytest.mark.parametrize(
    ("content", "structured", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], None, "a\nb"),
        ([{"type": "text", "text": "a"}], {"x": 1}, "a"),
        ([], {"x": "ü"}, '{"x": "ü"}'),
        ([], [], "[]"),
        ([], None, "MCP server returned empty content."),
        ([{"type": "image", "mimeType": "image/png", "data": "AAAA"}], None, "[image: image/png, 3 bytes]"),
        ([{"type": "audio", "mimeType": "audio/wav", "data": "A"}], None, "[audio: audio/wav, 0 bytes]"),
        ([{"type": "resource", "resource": {"text": "t"}}], {"x": 1}, "t"),
        ([{"type": "resource", "resource": {"blob": "AAAA"}}], None, "[resource: unknown, 3 bytes]"),
        ([{"type": "resource_link", "name": "n", "uri": "file:///n"}], None, "[resource: n, file:///n]"),
        ([{"type": "hologram"}], None, "Unsupported content type hologram"),
    ],
)
def test_content_becomes_text(content: list[dict[str, Any]], structured: Any, text: str):
    assert text_of(content, structured, is_error=False) == text


def test_error_result_is_marked_as_an_error():
    assert text_of([{"type": "text", "text": "boom"}], None, is_error=True) == "MCP server error: boom"
