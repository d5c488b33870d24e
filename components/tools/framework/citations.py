"""Citations: search results as chunks of the run's references, and as text for a model (docs/tools.md).

    formalized = await citations.cite_hits([Hit("Widget supply", "https://example.com/b", "Supply stayed flat.")], ctx)

An answer cites a chunk by its display number. The id of a web page's chunk is a hash of its content, so the same
content found twice is one chunk.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from math import isfinite
from typing import Any

from components.context import NodeContext
from components.text.templates.templates import value_text
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.text.context_window import count_tokens
from providers.models.text.sanitizer import clean

MAX_CONTENT_LENGTH = 10_000  # characters of one web page's content
TOKEN_BUDGET = int(200_000 * 0.97)  # tokens of all contents together
_TOKENS_PER_LETTER = 3  # upper bound; texts below the budget by this bound are not counted

_PNG = re.compile(r"!?\[[a-z]+\]\(data:image/png;base64,[^()]*\)")  # stops at a "(", else the search is quadratic
_LINES = re.compile(r"[\r\n]+")

_CHUNK_FIELDS: Mapping[str, tuple[str, ...]] = {
    "id": ("chunk_id", "id"),
    "content": ("content", "content_with_weight"),
    "document_id": ("doc_id", "document_id"),
    "document_name": ("docnm_kwd", "document_name"),
    "dataset_id": ("kb_id", "dataset_id"),
    "image_id": ("image_id", "img_id"),
    "positions": ("positions", "position_int"),
    "url": ("url",),
    "similarity": ("similarity",),
    "vector_similarity": ("vector_similarity",),
    "term_similarity": ("term_similarity",),
    "row_id": ("row_id",),
    "doc_type": ("doc_type_kwd", "doc_type"),
    "document_metadata": ("document_metadata",),
}
"""The fields that the run's references store of a chunk, each with the names under which a search may return it."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a web search, as the vendor returns it: any field may be missing or not a text."""

    title: Any
    url: Any
    content: Any
    score: Any = None


async def cite_hits(hits: Iterable[Hit], ctx: NodeContext) -> str:
    """Add web results to the run's references; return their text for a model, "" if no result has content."""
    chunks = [chunk for hit in hits if (chunk := _chunk_of(hit)) is not None]
    documents = [
        {"doc_name": chunk["docnm_kwd"], "doc_id": chunk["doc_id"], "count": 1, "url": chunk["url"]} for chunk in chunks
    ]
    return await cite_chunks(chunks, documents, ctx)


async def cite_chunks(
    chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]], ctx: NodeContext
) -> str:
    """Add chunks of any search to the run's references; return their text for a model.

    A chunk has the field names of a search (`chunk_id`, `docnm_kwd`, `content_with_weight`, ...) or of the references.
    """
    if not chunks:
        return ""
    to_store = [reference_chunk(chunk) for chunk in chunks]
    cited = [{"chunk_id": value_text(chunk["id"]), **chunk} for chunk in to_store]
    numbers = await ctx.cite(cited, _merge_documents(documents))
    count = await _count_within_budget([value_text(chunk["content"]) for chunk in to_store])
    return "\n".join(chunk_text(number, chunk) for number, chunk in list(zip(numbers, to_store, strict=True))[:count])


def reference_chunk(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chunk with the fields that the run's references store; missing fields are null."""
    return {
        name: next((chunk[source] for source in sources if source in chunk), None)
        for name, sources in _CHUNK_FIELDS.items()
    }


def chunk_text(number: int, chunk: Mapping[str, Any]) -> str:
    """Return the text of one stored chunk for a model."""
    metadata = chunk.get("document_metadata")
    named = {"Title": chunk.get("document_name"), "URL": chunk.get("url")}
    named |= metadata if isinstance(metadata, Mapping) else {}
    lines = [f"\nID: {number}"]
    for name, value in named.items():
        text = _LINES.sub(" ", value_text(value))
        if text:
            lines.append(f"├── {name}: {text}")
    return "\n".join([*lines, "└── Content:", value_text(chunk.get("content"))])


def _chunk_of(hit: Hit) -> dict[str, Any] | None:
    """Return a web result as a chunk; None if its cleaned content is empty."""
    content = _PNG.sub("", clean(value_text(hit.content)))[:MAX_CONTENT_LENGTH]
    if not content:
        return None
    chunk_id = str(int(sha1(content.encode(), usedforsecurity=False).hexdigest(), 16) % 10**8)
    return {
        "chunk_id": chunk_id,
        "content": content,
        "doc_id": chunk_id,
        "docnm_kwd": clean(value_text(hit.title)),
        "similarity": _score(hit.score),
        "url": clean(value_text(hit.url)),
    }


def _score(score: Any) -> int | float:
    is_number = isinstance(score, int | float) and not isinstance(score, bool) and isfinite(score)
    return score if is_number else 1


def _merge_documents(documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each document once, by name, with the sum of its counts."""
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        name = value_text(document.get("doc_name"))
        if name in found:
            found[name]["count"] += document.get("count") or 0
        else:
            found[name] = {**document, "doc_name": name, "count": document.get("count") or 0}
    return list(found.values())


async def _count_within_budget(contents: Sequence[str]) -> int:
    """Return how many contents go to the model: up to and including the one that exceeds the budget."""
    if sum(map(len, contents)) * _TOKENS_PER_LETTER < TOKEN_BUDGET:
        return len(contents)
    return await in_untrusted_thread(_count_fitting, contents)


def _count_fitting(contents: Sequence[str]) -> int:
    spent = 0
    for count, content in enumerate(contents, 1):
        spent += count_tokens(content)
        if spent > TOKEN_BUDGET:
            return count
    return len(contents)
