"""Files that a program wrote: stored, linked, and described for a model.

stored = await store_files(result.files, ctx)
stored.artifacts    [{"name", "url", "mime_type", "size"}]
stored.links        ["![chart.png](/api/v1/documents/artifact/...)"]
stored.content      "attachment_count: 1\\n\\nattachment1 (image): chart.png\\n..."
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from canvas.errors import NodeFailure
from components.context import NodeContext
from components.text.extraction.charsets import decode
from components.text.extraction.pdf import pdf_parts
from providers.interfaces import ProducedFile
from providers.isolation.limited_process import in_limited_process
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.text.sanitizer import clean

MAX_TEXT_LENGTH = 20_000  # characters of one file
_TEXT_EXTENSIONS = frozenset({"csv", "json", "html", "txt", "md", "xml", "tsv"})
_DIGEST_LENGTH = 8  # of a file's digest, in its stored name


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """A node's outputs about its files; all are empty if there are none."""

    artifacts: list[dict[str, Any]]
    links: list[str]
    content: str


async def store_files(files: Sequence[ProducedFile], ctx: NodeContext) -> StoredFiles:
    """Store the files; return their descriptions, in order."""
    artifacts: list[dict[str, Any]] = []
    links: list[str] = []
    descriptions: list[str] = []
    for number, file in enumerate(files, 1):
        name = clean(file.name)
        url = await _store_file(name, file, ctx)
        is_image = file.mime_type.startswith("image/")
        kind = "image" if is_image else _extension(name) or "file"
        text = await _extract_text(name, kind, file.data)
        if text is None:
            text = f"Artifact generated but parse failed. Download: {url}"
        artifacts.append({"name": name, "url": url, "mime_type": file.mime_type, "size": len(file.data)})
        links.append(f"![{name}]({url})" if is_image else f"[Download {name}]({url})")
        descriptions.append(f"attachment{number} ({kind}): {name}\n{text}")
    content = "\n\n".join([f"attachment_count: {len(descriptions)}", *descriptions]) if descriptions else ""
    return StoredFiles(artifacts, links, content)


async def _store_file(name: str, file: ProducedFile, ctx: NodeContext) -> str:
    """Store a file and return its URL. The digest in its name separates different files of the same name."""
    digest = sha256(file.data).hexdigest()[:_DIGEST_LENGTH]
    bare = name.rpartition("/")[2]
    saved = await ctx.save_file(f"{digest}-{bare}", file.data, file.mime_type)
    extension = _extension(name)
    stored = f"{saved['doc_id']}.{extension}" if extension else str(saved["doc_id"])
    return f"/api/v1/documents/artifact/{quote(stored)}?session_id={quote(ctx.run_id)}"


async def _extract_text(name: str, kind: str, data: bytes) -> str | None:
    """Return the beginning of a file's text; None if it has no text that can be read, as images do."""
    try:
        if kind in _TEXT_EXTENSIONS:
            return await in_untrusted_thread(_decode_beginning, data, may_declare=kind == "html")
        if kind == "pdf":
            return await in_limited_process(extract_pdf_beginning, name, data)
    except NodeFailure:
        return None
    return None


def _decode_beginning(data: bytes, *, may_declare: bool) -> str:
    return clean(decode(data, may_declare=may_declare))[:MAX_TEXT_LENGTH]


def extract_pdf_beginning(name: str, data: bytes) -> str:
    """Return the beginning of a PDF's text."""
    return _first_characters(pdf_parts(name, data))


def _first_characters(parts: Iterable[str]) -> str:
    """Return the beginning of a text that comes in parts."""
    beginning: list[str] = []
    remaining = MAX_TEXT_LENGTH
    for part in parts:
        beginning.append(clean(part)[:remaining])
        remaining -= len(part)
        if remaining <= 0:
            break
    return "".join(beginning)


def _extension(name: str) -> str:
    bare = name.rpartition("/")[2]
    return bare.rpartition(".")[2].lower() if "." in bare else ""
