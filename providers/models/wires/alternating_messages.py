"""Converts the messages of a request to alternating messages of user and assistant, for vendors other than OpenAI.

These vendors require a separate system text, a user message first, no two messages of one speaker in a row, no empty
texts, the arguments of a tool call as an object, and the result of a tool call in a user message.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from providers.models.text.context_window import text_of
from providers.models.types.chat import ChatRequest
from providers.models.wires.openai import with_images
from providers.models.wires.openai_responses import field_of

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)
_EMPTY_USER_TEXT = "..."  # text of a user message that is inserted before an assistant that speaks first


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text of a message."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image: its bytes in base64, or its URL."""

    mime_type: str = ""
    data: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A tool call of the assistant; `extra` is the vendor's opaque data (providers/models/types/chat.py)."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """The result of a tool call."""

    id: str
    name: str
    text: str


Part: TypeAlias = TextPart | ImagePart | ToolCallPart | ToolResultPart


@dataclass(slots=True)
class SpeakerMessage:
    """All that one speaker says before the other one speaks."""

    is_assistant: bool
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class AlternatingMessages:
    """A conversation of alternating messages. `system` is "" without a system message."""

    system: str
    messages: Sequence[SpeakerMessage]


def alternate_messages(request: ChatRequest) -> AlternatingMessages:
    """Convert the messages and images of a request."""
    messages = with_images(request.messages, request.images)
    system = "\n\n".join(text for message in messages if _is_system(message) and (text := text_of(message["content"])))
    turns: list[SpeakerMessage] = []
    names: dict[str, str] = {}  # of tools, by the id of the call
    for message in messages:
        if _is_system(message):
            continue
        is_assistant = message.get("role") == "assistant"
        parts = list(_parts(message, names))
        if turns and turns[-1].is_assistant is is_assistant:
            turns[-1].parts += parts
        elif parts:
            turns.append(SpeakerMessage(is_assistant, parts))
    if not turns or turns[0].is_assistant:
        turns.insert(0, SpeakerMessage(False, [TextPart(_EMPTY_USER_TEXT)]))
    return AlternatingMessages(system, turns)


def image_of(url: str) -> ImagePart:
    """Return the image of a URL, which may be a data URL."""
    found = _DATA_URL.fullmatch(url)
    return ImagePart(found[1] or "image/png", found[2]) if found else ImagePart(url=url)


def parameters_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a function's parameters; an empty object if it has none."""
    schema = tool["function"].get("parameters")
    return dict(schema) if schema else {"type": "object", "properties": {}}


def tools_called(dialogue: AlternatingMessages) -> list[dict[str, Any]]:
    """Return the functions that a conversation has called, since some vendors refuse calls of undeclared functions."""
    names = {part.name: None for turn in dialogue.messages for part in turn.parts if isinstance(part, ToolCallPart)}
    return [{"function": {"name": name}} for name in names]


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def _parts(message: Mapping[str, Any], names: dict[str, str]) -> Iterator[Part]:
    content = message.get("content")
    if message.get("role") == "tool":
        call_id = str(message.get("tool_call_id") or "")
        yield ToolResultPart(call_id, names.get(call_id, call_id), text_of(content))
        return
    items: list[Any] = content if isinstance(content, list) else [{"text": content}]
    for item in items:
        url = field_of(field_of(item, "image_url"), "url")
        text = field_of(item, "text")
        if isinstance(url, str) and url:
            yield image_of(url)
        elif isinstance(text, str) and text.strip():
            yield TextPart(text)
    for call in message.get("tool_calls") or ():
        function = field_of(call, "function")
        call_id, name = str(field_of(call, "id") or ""), str(field_of(function, "name") or "")
        names[call_id] = name
        yield ToolCallPart(
            call_id, name, _object_in(field_of(function, "arguments")), field_of(call, "extra_content") or {}
        )


def _object_in(arguments: Any) -> Mapping[str, Any]:
    """Return the arguments of a call; {} if they are not an object, which the result of the call reports."""
    try:
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}
