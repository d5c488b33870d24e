"""What an agent has answered, as OpenAI's clients read it: text and reasoning apart, and citations as annotations.

An answer cites a source by a mark such as `[ID:12]`. Each mark becomes an annotation that has its place in the text: a
`url_citation` for a source with an address, else a `file_citation` for a document of a knowledge base.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from api.events.event_dialects import is_think_start, is_think_tag

_MARK = re.compile(r"\[ID:\s?(\d{1,9})\]")


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text without its reasoning, and the reasoning. `reasons_first`: the reasoning began before the text."""

    content: str
    reasoning: str
    reasons_first: bool = True


@dataclass(frozen=True, slots=True)
class Citation:
    """A mark in a text, by its first code point and the one after it, and the source that it cites."""

    start: int
    end: int
    title: str
    url: str  # "" for a document of a knowledge base
    document_id: str


def split_reasoning(parts: Iterable[str]) -> SplitText:
    """Return text and reasoning of parts, among which think tags are parts of their own (`message_text`)."""
    texts: dict[bool, list[str]] = {}
    is_reasoning = False
    for part in parts:
        if is_think_tag(part):
            is_reasoning = is_think_start(part)
        elif part:
            texts.setdefault(is_reasoning, []).append(part)
    first = next(iter(texts), True)
    return SplitText("".join(texts.get(False, [])), "".join(texts.get(True, [])), first)


def find_citations(text: str, reference: Mapping[str, Any]) -> list[Citation]:
    """Return the citations of a text, in order. `reference`: {"chunks": {number: chunk}}; marks of others are text."""
    chunks: Mapping[str, Any] = reference.get("chunks") or {}
    found: list[Citation] = []
    for mark in _MARK.finditer(text):
        chunk = chunks.get(str(int(mark[1])))
        if not isinstance(chunk, Mapping):
            continue
        url = str(chunk.get("url") or "")
        url = url if url.startswith(("http://", "https://")) else ""
        document_id = str(chunk.get("document_id") or chunk.get("id") or "")
        title = str(chunk.get("document_name") or url or document_id)
        found.append(Citation(mark.start(), mark.end(), title, url, document_id))
    return found


def flat_annotation(citation: Citation) -> dict[str, Any]:
    """Return a citation as an annotation of a response."""
    if not citation.url:
        return {
            "type": "file_citation",
            "file_id": citation.document_id,
            "filename": citation.title,
            "index": citation.start,
        }
    return {
        "type": "url_citation",
        "start_index": citation.start,
        "end_index": citation.end,
        "url": citation.url,
        "title": citation.title,
    }


def nested_annotation(citation: Citation) -> dict[str, Any]:
    """Return a citation as an annotation of a chat completion, whose fields are in an object named by its type."""
    flat = flat_annotation(citation)
    kind = flat.pop("type")
    return {"type": kind, kind: flat}
