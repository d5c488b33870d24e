"""Receive files: from multipart bodies up to a limit, or from an address."""

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

from api.http.errors import ARGUMENT, DATA, RequestRefused
from api.requests.request_bodies import declared_size
from canvas.errors import AnswerTooLarge, NodeFailure
from providers.interfaces import Http, HttpCall
from store.files.blobs import Blobs
from store.tenants.uploads import StoredFile, StoredRef

MAX_UPLOAD_BYTES = 64 * 1024 * 1024  # bytes of a multipart body, and of a file that is fetched
MOST_FILES = 100
MAX_NAME_CHARS = 255
NO_FILE = "`file` field is required."
REDIRECTS = 5
FETCH_SECONDS = 60.0

OCTETS = "application/octet-stream"

_MIME_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file in memory that is to be stored."""

    name: str
    mime_type: str
    data: bytes = field(repr=False)


class FetchedFileTooLarge(RequestRefused):
    """The file at an address is too large."""


@asynccontextmanager
async def open_uploads(
    request: Request, *, most_files: int = MOST_FILES, without_file: str = NO_FILE
) -> AsyncGenerator[list[UploadFile]]:
    """Open the files in the field `file` of a multipart body until the block ends. Raises RequestRefused.

    `without_file`: the message about a body without a file.
    """
    if (declared_size(request.headers) or 0) > MAX_UPLOAD_BYTES:
        raise _too_large()
    if mime_type_of(request.headers.get("content-type", "")) != "multipart/form-data":
        raise RequestRefused(ARGUMENT, without_file)
    parser = MultiPartParser(request.headers, _limit_body(request), max_files=most_files)
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError) as error:  # ValueError: an invalid charset or name
        raise RequestRefused(
            ARGUMENT, f"The multipart body cannot be read. {getattr(error, 'message', '')}".strip()
        ) from None
    try:
        files = [item for item in form.getlist("file") if isinstance(item, UploadFile)]
        if not files:
            raise RequestRefused(ARGUMENT, without_file)
        yield files
    finally:
        await form.close()


def store_upload(blobs: Blobs, file: UploadFile) -> StoredRef:
    """Store the bytes of an uploaded file, which is read in parts.

    This slow step comes before a database connection is used. Bytes without a row are harmless if the request fails.
    """
    name = file_name(file.filename or "")
    sha256, size = blobs.store_file(file.file)
    return StoredRef(name, mime_type_of(file.content_type or "") or guess_type(name), size, sha256)


async def fetch_file(http: Http, url: str, most_bytes: int = MAX_UPLOAD_BYTES) -> IncomingFile:
    """Fetch the file at an address, which is checked like addresses of canvases. Raises RequestRefused."""
    try:
        reply = await http.send(HttpCall("GET", url, redirects=REDIRECTS, timeout=FETCH_SECONDS, max_bytes=most_bytes))
    except AnswerTooLarge as failure:
        raise FetchedFileTooLarge(DATA, failure.message) from failure
    except NodeFailure as failure:  # a refused address, or an incomplete answer
        raise RequestRefused(DATA, failure.message) from failure
    if not reply.is_success:
        raise RequestRefused(DATA, f"The address answered with status {reply.status}.")
    place = urlsplit(reply.url)
    name = file_name(unquote(place.path).rpartition("/")[2] or place.hostname or "")
    mime_type = mime_type_of(reply.headers.get("content-type", "")) or guess_type(name)
    if "." not in PurePosixPath(name).name:
        name += mimetypes.guess_extension(mime_type) or ""
    return IncomingFile(name, mime_type, reply.content)


def file_json(row: StoredFile) -> dict[str, Any]:
    """Return the descriptor of a stored file, for replies and for the `files` of a turn."""
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
    """Return the last part of a path, with / or \\, without characters that file names cannot have."""
    last = re.split(r"[\\/]", written)[-1]
    printable = "".join(letter for letter in last if unicodedata.category(letter)[0] != "C").strip()
    return printable[-MAX_NAME_CHARS:] if printable.strip(".") else "file"


def mime_type_of(written: str) -> str:
    """Return a media type without its parameters; "" for a text that is not a media type."""
    kind = written.partition(";")[0].strip().lower()
    return kind if _MIME_TYPE.fullmatch(kind) else ""


def guess_type(name: str) -> str:
    """Return the media type by a file's extension."""
    return mimetypes.guess_type(name, strict=False)[0] or OCTETS


async def _limit_body(request: Request) -> AsyncGenerator[bytes]:
    """Yield the body in parts. Raises RequestRefused if it is too large."""
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_UPLOAD_BYTES:
            raise _too_large()
        yield part


def _too_large() -> RequestRefused:
    message = f"request body too large: more than the {MAX_UPLOAD_BYTES} bytes that an upload may have."
    return RequestRefused(ARGUMENT, message, status=413)
