"""Files in the messages of an OpenAI request, such as pictures. They become files of the turn, like uploads.

Only files of the last user message are used. Of earlier messages, a session has the text only.
"""

import binascii
import hashlib
import mimetypes
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from api.http.errors import ARGUMENT, RequestRefused, UnsupportedParameter
from api.http.replies import parse_id
from api.requests.auth import RequestPrincipal
from api.requests.dependencies import ApiContext, run_in_thread
from api.requests.uploads import (
    MAX_UPLOAD_BYTES,
    OCTETS,
    FetchedFileTooLarge,
    IncomingFile,
    fetch_file,
    file_json,
    file_name,
    mime_type_of,
)
from api.runs.openai_schemas import ChatMessage
from canvas.errors import InvalidRequest, NotFound
from providers.interfaces import Http
from store.db.transaction import Transaction
from store.tenants import uploads
from store.tenants.uploads import StoredRef

MAX_FILES = 20  # of one message


@dataclass(frozen=True, slots=True)
class FileAddress:
    """The address of a file that is to be fetched."""

    url: str


@dataclass(frozen=True, slots=True)
class Attachments:
    """The files of a message: new ones, addresses, and ids of uploads. `encoded`: size of the new ones in the body."""

    parts: Sequence[IncomingFile | FileAddress | UUID] = field(default=(), repr=False)
    encoded: int = 0

    @property
    def digests(self) -> list[str]:
        """Return digests that tell the files of two requests apart."""
        return [_digest(part) for part in self.parts]


def parse_attachments(number: int, message: ChatMessage) -> Attachments:
    """Return the files in message `number`.

    Raises UnsupportedParameter for a part that is neither text nor file, and InvalidRequest.
    """
    content = message.content if isinstance(message.content, list) else []
    parts: list[IncomingFile | FileAddress | UUID] = []
    encoded = 0
    for place, part in enumerate(content):
        where = f"messages[{number}].content[{place}]"
        kind = part.get("type", "text") if isinstance(part, Mapping) else None
        if kind == "text":
            continue
        if len(parts) == MAX_FILES:
            raise InvalidRequest(f"`{where}`: a message may bring at most {MAX_FILES} files.", field=where)
        match kind:
            case "image_url":
                written = _require_text(part, "image_url", "url", where)
                is_address = written.startswith(("http://", "https://"))
                found = FileAddress(written) if is_address else _decode_data_url(written, "image", where)
                encoded += 0 if is_address else len(written)
            case "file":
                found, size = _parse_file(part, where)
                encoded += size
            case "input_audio":
                written = _require_text(part, "input_audio", "data", where)
                suffix = file_name(str(part["input_audio"].get("format") or "wav"))
                found = _decode_file(
                    written, f"audio.{suffix}", mimetypes.guess_type(f"a.{suffix}")[0] or OCTETS, where
                )
                encoded += len(written)
            case _:
                raise UnsupportedParameter(
                    f"`{where}` has the type {str(kind)[:64]!r}. Use text, image_url, file or input_audio.",
                    field=f"{where}.type",
                )
        parts.append(found)
    return Attachments(parts, encoded)


async def store_attachments(
    http: Http, context: ApiContext, principal: RequestPrincipal, attachments: Attachments
) -> list[dict[str, Any]]:
    """Store the files and return their descriptors for the turn. Addresses are checked like those of canvases.

    Raises InvalidRequest for an upload that does not exist, RequestRefused for an address that cannot be fetched and
    for files that are too large together.
    """
    left = MAX_UPLOAD_BYTES - sum(len(part.data) for part in attachments.parts if isinstance(part, IncomingFile))
    if left < 0:
        raise _too_large()
    references: list[StoredRef | UUID] = []
    for part in attachments.parts:  # one after the other, since each may use the whole limit
        if isinstance(part, UUID):
            references.append(part)
            continue
        file = await _store_file(http, context, part, left)
        references.append(file)
        left -= file.size if isinstance(part, FileAddress) else 0
    return await run_in_thread(lambda: _register_files(context, principal, references))


async def _store_file(http: Http, context: ApiContext, part: IncomingFile | FileAddress, left: int) -> StoredRef:
    """Store a new file; one at an address may have at most `left` bytes."""
    file = await _fetch_file(http, part, left) if isinstance(part, FileAddress) else part
    sha256 = await run_in_thread(lambda: context.blobs.store(file.data))
    return StoredRef(file.name, file.mime_type, len(file.data), sha256)


async def _fetch_file(http: Http, address: FileAddress, left: int) -> IncomingFile:
    try:
        return await fetch_file(http, address.url, left)
    except FetchedFileTooLarge as error:
        raise _too_large() from error


def _too_large() -> RequestRefused:
    most = f"The files of a message may have at most {MAX_UPLOAD_BYTES} bytes together."
    message = f"{most} Upload large files first, and send their `file_id`."
    return RequestRefused(ARGUMENT, message, status=413)


def _register_files(
    context: ApiContext, principal: RequestPrincipal, references: Sequence[StoredRef | UUID]
) -> list[dict[str, Any]]:
    token_id = principal.uploader_id
    with context.database.transaction() as tx:
        rows = [
            _get_upload(principal, tx, each)
            if isinstance(each, UUID)
            else uploads.register(tx, principal.tenant_id, each, created_by=principal.user_id, token_id=token_id)
            for each in references
        ]
    return [file_json(row) for row in rows]


def _digest(part: IncomingFile | FileAddress | UUID) -> str:
    match part:
        case UUID():
            return part.hex
        case FileAddress():
            return part.url
        case IncomingFile():
            return hashlib.sha256(part.data).hexdigest()


def _get_upload(principal: RequestPrincipal, tx: Transaction, file_id: UUID) -> uploads.StoredFile:
    """Return an upload of the caller; a share link reaches only uploads by this link. Raises InvalidRequest."""
    try:
        return uploads.get(tx, principal.tenant_id, file_id, token_id=principal.uploader_id, canvas_id=principal.agent)
    except NotFound:
        raise InvalidRequest(f"There is no file {file_id.hex}. Upload it first.", field="messages") from None


def _parse_file(part: Mapping[str, Any], where: str) -> tuple[IncomingFile | UUID, int]:
    """Return a file or the id of an upload, and the size of its content in the body."""
    described = part.get("file")
    described = described if isinstance(described, Mapping) else {}
    if described.get("file_id"):
        file_id = parse_id(described["file_id"])
        if file_id is None:
            raise InvalidRequest(f"`{where}.file.file_id` is not the id of an upload.", field=f"{where}.file.file_id")
        return file_id, 0
    written = _require_text(part, "file", "file_data", where)
    name = file_name(str(described.get("filename") or "file"))
    found = _decode_data_url(written, "file", where)
    return IncomingFile(name, found.mime_type, found.data), len(written)


def _require_text(part: Mapping[str, Any], name: str, inner: str, where: str) -> str:
    described = part.get(name)
    written = described.get(inner) if isinstance(described, Mapping) else None
    if not isinstance(written, str) or not written:
        raise InvalidRequest(f"`{where}.{name}.{inner}` is missing.", field=f"{where}.{name}.{inner}")
    return written


def _decode_data_url(url: str, name: str, where: str) -> IncomingFile:
    """Return the file in a `data:` URL; its name gets the extension of its type."""
    head, comma, encoded = url.partition(",")
    scheme, _, described = head.partition(":")
    if scheme.lower() != "data" or not comma or not described.lower().endswith(";base64"):
        message = f"`{where}` is neither an address nor data. Use https://… or data:image/png;base64,…"
        raise InvalidRequest(message, field=where)
    kind = mime_type_of(described) or OCTETS
    return _decode_file(encoded, f"{name}{mimetypes.guess_extension(kind) or ''}", kind, where)


def _decode_file(encoded: str, name: str, kind: str, where: str) -> IncomingFile:
    try:
        return IncomingFile(name, kind, b64decode(encoded, validate=True))
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"`{where}` is not base64.", field=where) from None
