"""Files that come in: out of multipart bodies read up to a limit, or from an address (http-api 6.1)."""

import mimetypes
import re
import unicodedata
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from api.http.errors import ARGUMENT, DATA, Refused
from api.http.request_bodies import declared_size
from canvas.errors import AnswerTooLarge, NodeFailure
from providers.interfaces import Call, Http
from store.files.blobs import Blobs
from store.tenants.uploads import StoredFile, StoredRef

LARGEST = 64 * 1024 * 1024  # bytes of a body, and of a file that is fetched
MOST_FILES = 100
LONGEST_NAME = 255
REDIRECTS = 5
FETCH_SECONDS = 60.0

OCTETS = "application/octet-stream"

_MIME_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")


@dataclass(frozen=True, slots=True)
class Incoming:
    """A file that is to be stored, and is in memory."""

    name: str
    mime_type: str
    data: bytes = field(repr=False)


class FileTooLarge(Refused):
    """The file at an address has more bytes than are taken."""


@asynccontextmanager
async def uploaded(request: Request) -> AsyncGenerator[list[UploadFile]]:
    """The files in the field `file` of a multipart body, until the block ends. Raises Refused."""
    if (declared_size(request.headers) or 0) > LARGEST:
        raise _too_large()
    if mime_type_of(request.headers.get("content-type", "")) != "multipart/form-data":
        raise _missing()
    parser = MultiPartParser(request.headers, _bounded(request), max_files=MOST_FILES)
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError) as error:  # the latter out of a charset or a name that is none
        raise Refused(ARGUMENT, f"The multipart body cannot be read. {getattr(error, 'message', '')}".strip()) from None
    try:
        files = [item for item in form.getlist("file") if isinstance(item, UploadFile)]
        if not files:
            raise _missing()
        yield files
    finally:
        await form.close()


def keep(blobs: Blobs, file: UploadFile) -> StoredRef:
    """Store the bytes of an uploaded file, which is read a part at a time.

    This is the slow part, before a connection is taken. Bytes that no row will name harm nobody.
    """
    name = file_name(file.filename or "")
    sha256, size = blobs.put_file(file.file)
    return StoredRef(name, mime_type_of(file.content_type or "") or guessed_type(name), size, sha256)


async def fetched(http: Http, url: str, most_bytes: int = LARGEST) -> Incoming:
    """The file at an address, which is checked like any that a canvas reaches. Raises Refused."""
    try:
        reply = await http.send(Call("GET", url, redirects=REDIRECTS, timeout=FETCH_SECONDS, most_bytes=most_bytes))
    except AnswerTooLarge as failure:
        raise FileTooLarge(DATA, failure.message) from failure
    except NodeFailure as failure:  # a refused address, or no whole answer
        raise Refused(DATA, failure.message) from failure
    if not reply.is_success:
        raise Refused(DATA, f"The address was answered with status {reply.status}.")
    place = urlsplit(reply.url)
    name = file_name(unquote(place.path).rpartition("/")[2] or place.hostname or "")
    mime_type = mime_type_of(reply.headers.get("content-type", "")) or guessed_type(name)
    if "." not in PurePosixPath(name).name:
        name += mimetypes.guess_extension(mime_type) or ""
    return Incoming(name, mime_type, reply.content)


def shown(row: StoredFile) -> dict[str, Any]:
    """A stored file as replies have it, and as turns name it among their `files`."""
    return {
        "id": row.id.hex,
        "name": row.name,
        "size": row.size,
        "extension": row.name.rpartition(".")[2].lower() if "." in row.name else "",
        "mime_type": row.mime_type,
        "created_by": row.created_by,
        "created_at": row.created_at.timestamp(),
        "preview_url": None,
    }


def file_name(written: str) -> str:
    """The last part of a path in either spelling, without characters that no name has."""
    last = re.split(r"[\\/]", written)[-1]
    kept = "".join(letter for letter in last if unicodedata.category(letter)[0] != "C").strip()
    return kept[-LONGEST_NAME:] if kept.strip(".") else "file"


def mime_type_of(written: str) -> str:
    """A media type without its parameters; "" for what is none."""
    kind = written.partition(";")[0].strip().lower()
    return kind if _MIME_TYPE.fullmatch(kind) else ""


def guessed_type(name: str) -> str:
    """The media type that a file's name promises."""
    return mimetypes.guess_type(name, strict=False)[0] or OCTETS


async def _bounded(request: Request) -> AsyncGenerator[bytes]:
    """The body as it comes; ends with a refusal where it is too large."""
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST:
            raise _too_large()
        yield part


def _too_large() -> Refused:
    message = f"request body too large: more than the {LARGEST} bytes that an upload may have."
    return Refused(ARGUMENT, message, status=413)


def _missing() -> Refused:
    return Refused(ARGUMENT, "`file` field is required.")
