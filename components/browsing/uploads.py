"""Uploads of a browser: read from the parameter `upload_sources`, fetched, and written to a folder.

The parameter is what an author or a form wrote: ids and URLs as text, lists, objects, and references to any of these.
Only the author's text is searched for references, never the value of a reference.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canvas.errors import NodeFailure
from components.browsing.files import UploadedFile, fit_name, free_name, name_from_response
from components.context import NodeContext
from components.text.templates.templates import format_text, value_text
from providers.http.redirects import mask_secrets
from providers.interfaces import HttpCall

FETCH_SECONDS = 30.0
REDIRECTS = 5
MAX_DEPTH = 20  # levels of nested values
MAX_UPLOADS = 100

_ID_KEYS = ("file_id", "id", "url", "value", "doc_id")
_NAME_KEYS = ("name", "filename", "file_name")
_URL = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UploadSource:
    """The source of a file: the id of a stored file or a URL, and the file's name ("" if unknown)."""

    key: str
    name: str = ""

    @property
    def is_address(self) -> bool:
        return _URL.match(self.key) is not None


def read_sources(parameter: Any, ctx: NodeContext) -> list[UploadSource]:
    """Return every file that the parameter names, each once, in order."""
    found: dict[str, UploadSource] = {}
    for source in _iter_sources(parameter, ctx, 0, is_authored=True):
        if source.key and source.key not in found:
            found[source.key] = source
    return list(found.values())


def fill_and_note(text: str, ctx: NodeContext) -> str:
    """Return the text with its references replaced by their values, and note the values as inputs."""

    def text_of(expression: str) -> Any:
        text = value_text(ctx.lookup(expression))
        ctx.note_input(expression, text)
        return text

    return format_text(text, text_of)


async def fetch_files(
    sources: Sequence[UploadSource], folder: Path, max_bytes: int, ctx: NodeContext
) -> list[UploadedFile]:
    """Write the files to the folder under distinct names and return them. A file that fails is logged and skipped."""
    files: list[UploadedFile] = []
    for source in sources[:MAX_UPLOADS]:
        try:
            name, content = await _fetch(source, max_bytes, ctx)
        except NodeFailure as failure:
            ctx.log.warning("upload_skipped", source=mask_secrets(source.key)[:200], reason=failure.message)
            continue
        name = free_name(fit_name(name), [file.name for file in files])
        await asyncio.to_thread((folder / name).write_bytes, content)
        files.append(UploadedFile(source.key, name, folder / name))
    return files


# -- reading the parameter --------------------------------------------------------------------------------------------


def _iter_sources(value: Any, ctx: NodeContext, depth: int, *, is_authored: bool) -> Iterator[UploadSource]:
    if depth > MAX_DEPTH:
        return
    match value:
        case str():
            yield from _iter_in_text(value.strip(), ctx, depth, is_authored=is_authored)
        case bool():
            return
        case int() | float():
            yield UploadSource(str(value))
        case Mapping():
            yield from _iter_in_object(value, ctx, depth, is_authored=is_authored)
        case list() | tuple():
            for item in value:
                yield from _iter_sources(item, ctx, depth + 1, is_authored=is_authored)
        case _:
            return


def _iter_in_text(text: str, ctx: NodeContext, depth: int, *, is_authored: bool) -> Iterator[UploadSource]:
    if is_authored and ctx.is_reference(text):
        value = ctx.descriptors(text) or ctx.lookup(text)  # the value of a form's file field is the text of its files
        ctx.note_input(text.strip("{} "), value_text(value))
        yield from _iter_sources(value, ctx, depth + 1, is_authored=False)
    elif _URL.match(text):
        yield UploadSource(_fill(text, ctx) if is_authored else text)
    elif (decoded := _decode_json(text)) is not None:
        yield from _iter_sources(decoded, ctx, depth + 1, is_authored=is_authored)
    elif "," in text:
        for part in text.split(","):
            yield from _iter_in_text(part.strip(), ctx, depth + 1, is_authored=is_authored)
    else:
        yield UploadSource(_fill(text, ctx) if is_authored else text)


def _iter_in_object(
    value: Mapping[str, Any], ctx: NodeContext, depth: int, *, is_authored: bool
) -> Iterator[UploadSource]:
    identifier = next((value[key] for key in _ID_KEYS if value.get(key) not in (None, "")), None)
    inner = [identifier] if identifier is not None else list(value.values())
    found = [source for item in inner for source in _iter_sources(item, ctx, depth + 1, is_authored=is_authored)]
    name = next((str(value[key]) for key in _NAME_KEYS if value.get(key)), "")
    if identifier is not None and len(found) == 1 and name:
        found = [UploadSource(found[0].key, name)]
    yield from found


def _decode_json(text: str) -> list[Any] | dict[str, Any] | None:
    if not text.startswith(("[", "{")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list | dict) else None


def _fill(text: str, ctx: NodeContext) -> str:
    return fill_and_note(text, ctx).strip()


# -- fetching the files -----------------------------------------------------------------------------------------------


async def _fetch(source: UploadSource, max_bytes: int, ctx: NodeContext) -> tuple[str, bytes]:
    """Return the file's name and bytes. Raises NodeFailure if it does not exist, is empty, or may not be reached."""
    if source.is_address:
        call = HttpCall("GET", source.key, timeout=FETCH_SECONDS, redirects=REDIRECTS, max_bytes=max_bytes)
        reply = await ctx.services.http.send(call)
        if not reply.is_success:
            raise NodeFailure(f"HTTP {reply.status}")
        name, content = source.name or name_from_response(source.key, reply.headers), reply.content
    else:
        name, content = source.name or source.key, await ctx.read_file({"id": source.key})
    if not content:
        raise NodeFailure("The file is empty.")
    return name, content
