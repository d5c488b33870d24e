"""Files that a browser may offer to a page: found in the node's parameter, fetched, and laid into a folder.

The parameter is whatever an author or a form made of it: ids and addresses as text, lists, objects, references to any
of these (components 3.11). Only what the author wrote is searched for references; a value that one brought is not.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canvas.errors import NodeFailure
from components.browsing.files import UploadedFile, fit_name, free_name, name_from
from components.context import NodeContext
from components.text.templates.templates import format_text, value_text
from providers.http.redirects import masked
from providers.interfaces import Call

FETCH_SECONDS = 30.0
REDIRECTS = 5
DEEPEST = 20  # values in one another
MOST_FILES = 100

_ID_KEYS = ("file_id", "id", "url", "value", "doc_id")
_NAME_KEYS = ("name", "filename", "file_name")
_URL = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a file comes from: the id of a stored one or an address, and its name as far as it is known."""

    key: str
    name: str = ""

    @property
    def is_address(self) -> bool:
        return _URL.match(self.key) is not None


def sources_of(given: Any, ctx: NodeContext) -> list[Source]:
    """Every file that the parameter names, each once, in order."""
    found: dict[str, Source] = {}
    for source in _flat(given, ctx, 0, is_authored=True):
        if source.key and source.key not in found:
            found[source.key] = source
    return list(found.values())


def filled_and_noted(text: str, ctx: NodeContext) -> str:
    """A text with the values it refers to, which are noted as inputs."""

    def text_of(expression: str) -> Any:
        shown = value_text(ctx.lookup(expression))
        ctx.note_input(expression, shown)
        return shown

    return format_text(text, text_of)


async def collected(sources: Sequence[Source], folder: Path, most_bytes: int, ctx: NodeContext) -> list[UploadedFile]:
    """The files, laid into the folder under names that differ. What cannot be had is left out with a warning."""
    files: list[UploadedFile] = []
    for source in sources[:MOST_FILES]:
        try:
            name, content = await _content(source, most_bytes, ctx)
        except NodeFailure as failure:
            ctx.log.warning("upload_skipped", source=masked(source.key)[:200], reason=failure.message)
            continue
        name = free_name(fit_name(name), [file.name for file in files])
        await asyncio.to_thread((folder / name).write_bytes, content)
        files.append(UploadedFile(source.key, name, folder / name))
    return files


# -- what the parameter names -----------------------------------------------------------------------------------------


def _flat(value: Any, ctx: NodeContext, depth: int, *, is_authored: bool) -> Iterator[Source]:
    if depth > DEEPEST:
        return
    match value:
        case str():
            yield from _of_text(value.strip(), ctx, depth, is_authored=is_authored)
        case bool():
            return
        case int() | float():
            yield Source(str(value))
        case Mapping():
            yield from _of_object(value, ctx, depth, is_authored=is_authored)
        case list() | tuple():
            for item in value:
                yield from _flat(item, ctx, depth + 1, is_authored=is_authored)
        case _:
            return


def _of_text(text: str, ctx: NodeContext, depth: int, *, is_authored: bool) -> Iterator[Source]:
    if is_authored and ctx.is_reference(text):
        value = ctx.descriptors(text) or ctx.lookup(text)  # a form's file field has the text of its files as value
        ctx.note_input(text.strip("{} "), value_text(value))
        yield from _flat(value, ctx, depth + 1, is_authored=False)
    elif _URL.match(text):
        yield Source(_filled(text, ctx) if is_authored else text)
    elif (decoded := _decoded(text)) is not None:
        yield from _flat(decoded, ctx, depth + 1, is_authored=is_authored)
    elif "," in text:
        for part in text.split(","):
            yield from _of_text(part.strip(), ctx, depth + 1, is_authored=is_authored)
    else:
        yield Source(_filled(text, ctx) if is_authored else text)


def _of_object(value: Mapping[str, Any], ctx: NodeContext, depth: int, *, is_authored: bool) -> Iterator[Source]:
    named = next((value[key] for key in _ID_KEYS if value.get(key) not in (None, "")), None)
    inner = [named] if named is not None else list(value.values())
    found = [source for item in inner for source in _flat(item, ctx, depth + 1, is_authored=is_authored)]
    name = next((str(value[key]) for key in _NAME_KEYS if value.get(key)), "")
    if named is not None and len(found) == 1 and name:
        found = [Source(found[0].key, name)]
    yield from found


def _decoded(text: str) -> list[Any] | dict[str, Any] | None:
    if not text.startswith(("[", "{")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list | dict) else None


def _filled(text: str, ctx: NodeContext) -> str:
    return filled_and_noted(text, ctx).strip()


# -- where the files are ----------------------------------------------------------------------------------------------


async def _content(source: Source, most_bytes: int, ctx: NodeContext) -> tuple[str, bytes]:
    """Name and bytes. Raises NodeFailure for what is not there, is empty, or may not be reached."""
    if source.is_address:
        call = Call("GET", source.key, timeout=FETCH_SECONDS, redirects=REDIRECTS, most_bytes=most_bytes)
        reply = await ctx.services.http.send(call)
        if not reply.is_success:
            raise NodeFailure(f"HTTP {reply.status}")
        name, content = source.name or name_from(source.key, reply.headers), reply.content
    else:
        name, content = source.name or source.key, await ctx.read_file({"id": source.key})
    if not content:
        raise NodeFailure("The file is empty.")
    return name, content
