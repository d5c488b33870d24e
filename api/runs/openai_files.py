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

from api.dependencies import ApiContext, in_thread
from api.http.auth import Principal
from api.http.errors import ARGUMENT, Refused, UnsupportedParameter
from api.http.replies import id_of
from api.http.uploads import LARGEST, OCTETS, FileTooLarge, Incoming, fetched, file_name, mime_type_of, shown
from api.runs.openai_schemas import ChatMessage
from canvas.errors import InvalidRequest, NotFound
from providers.interfaces import Http
from store.db.transaction import Transaction
from store.tenants import uploads
from store.tenants.uploads import StoredRef

MOST_FILES = 20  # of one message


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a file that is to be fetched."""

    url: str


@dataclass(frozen=True, slots=True)
class Attachments:
    """The files of a message: new ones, addresses, and ids of uploads. `encoded`: size of the new ones in the body."""

    parts: Sequence[Incoming | Address | UUID] = field(default=(), repr=False)
    encoded: int = 0

    @property
    def digests(self) -> list[str]:
        """Return digests that tell the files of two requests apart."""
        return [_digest(part) for part in self.parts]


def attachments_of(number: int, message: ChatMessage) -> Attachments:
    """Return the files in message `number`.

    Raises UnsupportedParameter for a part that is neither text nor file, and InvalidRequest.
    """
    content = message.content if isinstance(message.content, list) else []
    parts: list[Incoming | Address | UUID] = []
    encoded = 0
    for place, part in enumerate(content):
        where = f"messages[{number}].content[{place}]"
        kind = part.get("type", "text") if isinstance(part, Mapping) else None
        if kind == "text":
            continue
        if len(parts) == MOST_FILES:
            raise InvalidRequest(f"`{where}`: a message may bring at most {MOST_FILES} files.", field=where)
        match kind:
            case "image_url":
                written = _written(part, "image_url", "url", where)
                is_address = written.startswith(("http://", "https://"))
                found = Address(written) if is_address else _decoded(written, "image", where)
                encoded += 0 if is_address else len(written)
            case "file":
                found, size = _file(part, where)
                encoded += size
            case "input_audio":
                written = _written(part, "input_audio", "data", where)
                suffix = file_name(str(part["input_audio"].get("format") or "wav"))
                found = _incoming(written, f"audio.{suffix}", mimetypes.guess_type(f"a.{suffix}")[0] or OCTETS, where)
                encoded += len(written)
            case _:
                raise UnsupportedParameter(
                    f"`{where}` has the type {str(kind)[:64]!r}. Use text, image_url, file or input_audio.",
                    field=f"{where}.type",
                )
        parts.append(found)
    return Attachments(parts, encoded)


async def stored(
    http: Http, context: ApiContext, principal: Principal, attachments: Attachments
) -> list[dict[str, Any]]:
    """Store the files and return their descriptors for the turn. Addresses are checked like those of canvases.

    Raises InvalidRequest for an upload that does not exist, Refused for an address that cannot be fetched and for files
    that are too large together.
    """
    left = LARGEST - sum(len(part.data) for part in attachments.parts if isinstance(part, Incoming))
    if left < 0:
        raise _too_large()
    kept: list[StoredRef | UUID] = []
    for part in attachments.parts:  # one after the other, since each may use the whole limit
        if isinstance(part, UUID):
            kept.append(part)
            continue
        file = await _kept(http, context, part, left)
        kept.append(file)
        left -= file.size if isinstance(part, Address) else 0
    return await in_thread(lambda: _noted(context, principal, kept))


async def _kept(http: Http, context: ApiContext, part: Incoming | Address, left: int) -> StoredRef:
    """Store a new file; one at an address may have at most `left` bytes."""
    file = await _fetched(http, part, left) if isinstance(part, Address) else part
    sha256 = await in_thread(lambda: context.storage.put(file.data))
    return StoredRef(file.name, file.mime_type, len(file.data), sha256)


async def _fetched(http: Http, address: Address, left: int) -> Incoming:
    try:
        return await fetched(http, address.url, left)
    except FileTooLarge as error:
        raise _too_large() from error


def _too_large() -> Refused:
    most = f"The files of a message may have at most {LARGEST} bytes together."
    message = f"{most} Upload large files first, and send their `file_id`."
    return Refused(ARGUMENT, message, status=413)


def _noted(context: ApiContext, principal: Principal, kept: Sequence[StoredRef | UUID]) -> list[dict[str, Any]]:
    token_id = principal.link.token_id if principal.link is not None else None
    with context.database.transaction() as tx:
        rows = [
            _upload(principal, tx, each)
            if isinstance(each, UUID)
            else uploads.register(tx, principal.tenant_id, each, created_by=principal.user_id, token_id=token_id)
            for each in kept
        ]
    return [shown(row) for row in rows]


def _digest(part: Incoming | Address | UUID) -> str:
    match part:
        case UUID():
            return part.hex
        case Address():
            return part.url
        case Incoming():
            return hashlib.sha256(part.data).hexdigest()


def _upload(principal: Principal, tx: Transaction, file_id: UUID) -> uploads.StoredFile:
    """Return an upload of the caller; a share link reaches only uploads by this link. Raises InvalidRequest."""
    token_id = principal.link.token_id if principal.link is not None else None
    try:
        return uploads.get(tx, principal.tenant_id, file_id, token_id=token_id)
    except NotFound:
        raise InvalidRequest(f"There is no file {file_id.hex}. Upload it first.", field="messages") from None


def _file(part: Mapping[str, Any], where: str) -> tuple[Incoming | UUID, int]:
    """Return a file or the id of an upload, and the size of its content in the body."""
    described = part.get("file")
    described = described if isinstance(described, Mapping) else {}
    if described.get("file_id"):
        file_id = id_of(described["file_id"])
        if file_id is None:
            raise InvalidRequest(f"`{where}.file.file_id` is not the id of an upload.", field=f"{where}.file.file_id")
        return file_id, 0
    written = _written(part, "file", "file_data", where)
    name = file_name(str(described.get("filename") or "file"))
    found = _decoded(written, "file", where)
    return Incoming(name, found.mime_type, found.data), len(written)


def _written(part: Mapping[str, Any], name: str, inner: str, where: str) -> str:
    described = part.get(name)
    written = described.get(inner) if isinstance(described, Mapping) else None
    if not isinstance(written, str) or not written:
        raise InvalidRequest(f"`{where}.{name}.{inner}` is missing.", field=f"{where}.{name}.{inner}")
    return written


def _decoded(url: str, name: str, where: str) -> Incoming:
    """Return the file in a `data:` URL; its name gets the extension of its type."""
    head, comma, encoded = url.partition(",")
    scheme, _, described = head.partition(":")
    if scheme.lower() != "data" or not comma or not described.lower().endswith(";base64"):
        message = f"`{where}` is neither an address nor data. Use https://… or data:image/png;base64,…"
        raise InvalidRequest(message, field=where)
    kind = mime_type_of(described) or OCTETS
    return _incoming(encoded, f"{name}{mimetypes.guess_extension(kind) or ''}", kind, where)


def _incoming(encoded: str, name: str, kind: str, where: str) -> Incoming:
    try:
        return Incoming(name, kind, b64decode(encoded, validate=True))
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"`{where}` is not base64.", field=where) from None
