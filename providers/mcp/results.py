"""Converts the result of an MCP tool to the text that a model reads.

Texts are joined line by line; other content is described by its kind and size. Structured content is used if there is
no text.
"""

import json
from binascii import a2b_base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

EMPTY = "MCP server returned empty content."


def text_of(content: Sequence[Mapping[str, Any]], structured: Any, *, is_error: bool) -> str:
    """Return the text for the model. `content` has the protocol's items: {type, text | data, mimeType, ...}."""
    lines = list(_lines(content, structured))
    if is_error:
        return f"MCP server error: {chr(10).join(lines)}"
    return "\n".join(lines) if lines else EMPTY


def _lines(content: Sequence[Mapping[str, Any]], structured: Any) -> Iterator[str]:
    has_text = False
    for item in content:
        text = _text(item)
        has_text = has_text or text is not None
        yield _describe(item) if text is None else text
    if structured is not None and not has_text:
        yield json.dumps(structured, ensure_ascii=False)


def _text(item: Mapping[str, Any]) -> str | None:
    """Return the text of a text item or an embedded text resource; None for other items."""
    if item.get("type") == "text":
        return str(item.get("text") or "")
    resource = item.get("resource")
    if item.get("type") == "resource" and isinstance(resource, Mapping) and isinstance(resource.get("text"), str):
        return resource["text"]
    return None


def _describe(item: Mapping[str, Any]) -> str:
    """Return a short description of an item that is not text."""
    match item.get("type"):
        case "image" | "audio" as kind:
            return f"[{kind}: {item.get('mimeType')}, {_size(item.get('data'))} bytes]"
        case "resource":
            resource = item.get("resource") or {}
            return f"[resource: {resource.get('mimeType') or 'unknown'}, {_size(resource.get('blob'))} bytes]"
        case "resource_link":
            return f"[resource: {item.get('title') or item.get('name')}, {item.get('uri')}]"
        case kind:
            return f"Unsupported content type {kind}"


def _size(data: Any) -> int:
    """Return the number of bytes that base64 data decodes to; 0 if it is not valid."""
    try:
        return len(a2b_base64(str(data or "")))
    except ValueError:
        return 0
