"""Bodies of model calls as they are stored: cut into parts, with secrets masked and large parts cut.

A body refers to its parts by their digests: `{"messages": [digest, ...], "tools": digest, "params": {...}}`. A run
stores each part once, so that an Agent of twenty rounds stores each of its messages once and not in every round.

- A part above 64 KiB is `{"$cut": bytes, "head": its beginning}`, with the `role` of a message.
- The messages of a call above 1 MiB in all that fit in neither from the first nor from the last are one part,
  `{"$cut": bytes, "parts": number}`.
- A data URL is `{"$data": {"type", "bytes", "sha256", "part"}}`. Its text is a part of its own up to 256 KiB, else
  `part` is null.
"""

import hashlib
import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from canvas.errors import NodeFailure
from canvas.graph.passwords import NO_PASSWORDS, PasswordMask
from providers.models.recording.model_calls import ModelCall
from providers.models.wires.openai import with_images
from store.primitives.json_codec import encode
from worker.context.outcomes import sanitize_json

MAX_PART_BYTES = 64 * 1024
MAX_CALL_BYTES = 1024 * 1024
MAX_DATA_BYTES = 256 * 1024  # of the content of a data URL
MAX_PARAMS_BYTES = 8 * 1024
MIN_SECRET_CHARS = 8  # a shorter secret may be an ordinary word
MASK = "***"
REFERENCE_BYTES = 34  # of a digest in a body
_DATA_URL_HEAD = 200  # characters in which the type of a data URL ends


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a body as JSON text. `bytes` are its own and those of `data`, the stored data URLs in it."""

    text: str
    data: Sequence[str] = ()

    @property
    def bytes(self) -> int:
        return max(REFERENCE_BYTES, len(self.text.encode())) + sum(map(len, self.data))


@dataclass(slots=True)
class BodyParts:
    """Cuts the bodies of calls into parts; `parts` has all of them by digest. `secrets` and `passwords` are masked."""

    secrets: Sequence[str] = ()
    passwords: PasswordMask = NO_PASSWORDS
    parts: dict[UUID, str] = field(default_factory=dict[UUID, str])
    _spellings: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        long = {secret for secret in self.secrets if len(secret) >= MIN_SECRET_CHARS}
        spelled = {spelling for secret in long for spelling in (encode(secret)[1:-1], json.dumps(secret)[1:-1])}
        self._spellings = tuple(sorted(spelled, key=len, reverse=True))

    @property
    def bytes(self) -> int:
        """Bytes of all parts."""
        return sum(len(text.encode()) for text in self.parts.values())

    def request_of(self, call: ModelCall) -> dict[str, Any]:
        """Return the body of a call's request; its parts are added."""
        if call.request is None:
            return self._plain_request(call)
        request = call.request
        messages = with_images(request.messages, request.images)
        body: dict[str, Any] = {}
        left = MAX_CALL_BYTES
        if request.tools:
            tools = self._part([dict(tool) for tool in request.tools])
            left -= tools.bytes
            body["tools"] = self._add(tools)
        body = {"messages": self._add_list([self._part(message) for message in messages], left), **body}
        more = {"chat_template_kwargs": request.chat_template_kwargs} if request.chat_template_kwargs else {}
        return {**body, "params": self._params({**request.params, **more})}

    def response_of(self, call: ModelCall) -> str | None:
        """Return the digest of the part that is a call's response; None if it has none."""
        return self._add(self._part(call.response)) if call.response is not None else None

    def mask(self, text: str) -> str:
        """Return a JSON text with the secrets masked."""
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
        return text

    def _plain_request(self, call: ModelCall) -> dict[str, Any]:
        if call.kind == "speech":
            return {"texts": self._add_list([self._part(call.content.decode(errors="replace"))], MAX_CALL_BYTES)}
        if call.content:
            digest = hashlib.sha256(call.content).hexdigest()
            return {"content": {"bytes": len(call.content), "sha256": digest}}
        return {"texts": self._add_list([self._part(text) for text in call.texts], MAX_CALL_BYTES)}

    def _params(self, params: Mapping[str, Any]) -> Any:
        text = self.mask(_json_text(self.passwords.value(params)))
        size = len(text.encode())
        return json.loads(text) if size <= MAX_PARAMS_BYTES else {"$cut": size}

    def _part(self, value: Any) -> Part:
        data_urls: list[str] = []
        plain = self.passwords.value(self._without_data(value, data_urls))
        text = self.mask(_json_text(plain))
        size = len(text.encode())
        return Part(_cut_text(plain, text, size) if size > MAX_PART_BYTES else text, data_urls)

    def _add(self, part: Part) -> str:
        for data in part.data:
            self.parts.setdefault(_digest(data), data)
        digest = _digest(part.text)
        self.parts.setdefault(digest, part.text)
        return digest.hex

    def _add_list(self, parts: Sequence[Part], left: int) -> list[str]:
        """Add parts up to so many bytes: the first, and the last ones; those between are one part."""
        sizes = [part.bytes for part in parts]
        if sum(sizes) <= left:
            return [self._add(part) for part in parts]
        head = 1 if sizes[0] <= left else 0
        left -= sum(sizes[:head])
        tail = len(parts)
        while tail > head and sizes[tail - 1] <= left:
            tail -= 1
            left -= sizes[tail]
        cut = Part(encode({"$cut": sum(sizes[head:tail]), "parts": tail - head}))
        return [self._add(part) for part in (*parts[:head], cut, *parts[tail:])]

    def _without_data(self, value: Any, data_urls: list[str]) -> Any:
        """Return a value with descriptions in place of its data URLs, of which the stored ones are added."""
        match value:
            case str() if value.startswith("data:") and ";base64," in value[:_DATA_URL_HEAD]:
                return {"$data": self._describe_data(value, data_urls)}
            case Mapping():
                return {name: self._without_data(member, data_urls) for name, member in value.items()}
            case list() | tuple():
                return [self._without_data(item, data_urls) for item in value]
            case _:
                return value

    def _describe_data(self, url: str, data_urls: list[str]) -> dict[str, Any]:
        head, _, written = url.partition(";base64,")
        try:
            content = b64decode(written)
        except (Base64Error, ValueError):
            content = written.encode(errors="replace")
        described = {
            "type": head.removeprefix("data:"),
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "part": None,
        }
        if len(content) > MAX_DATA_BYTES:
            return described
        text = _json_text(url)
        data_urls.append(text)
        return {**described, "part": _digest(text).hex}


def _digest(text: str) -> UUID:
    return UUID(bytes=hashlib.sha256(text.encode()).digest()[:16])


def _json_text(value: Any) -> str:
    try:
        return encode(sanitize_json(value))
    except (NodeFailure, RecursionError) as error:  # nested too deeply, or a number that no JSON reader accepts
        return encode({"$unreadable": str(error)})


def _cut_text(value: Any, text: str, size: int) -> str:
    """Return a part that is too large as JSON text: its size and its beginning."""
    content = value.get("content") if isinstance(value, Mapping) else value
    role = {"role": str(value["role"])} if isinstance(value, Mapping) and "role" in value else {}
    if isinstance(content, str):
        text = json.loads(text)["content"] if role or isinstance(value, Mapping) else json.loads(text)
    for chars in (60_000, 40_000, 20_000, 10_000, 5_000):
        short = encode({**role, "$cut": size, "head": text[:chars]})
        if len(short.encode()) <= MAX_PART_BYTES:
            return short
    return encode({**role, "$cut": size})
