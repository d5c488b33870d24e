"""The schema of a request for a response, and its input: the question, its files, and earlier messages.

    "Hello"    [{"role": "user", "content": "Hello"}]    [{"role": "user", "content": [{"type": "input_text", …}]}]

The parts of a message become those of a chat completion, so that both formats have one meaning.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from api.http.errors import UnsupportedParameter
from api.http.schemas import Flag, NoEffect
from api.runs.openai_files import parse_attachments
from api.runs.openai_schemas import (
    READ_ROLES,
    ChatMessage,
    OpenAITurnBody,
    find_ignored,
    find_ignored_roles,
    refuse_unsupported,
)
from api.runs.openai_wire import Question
from canvas.errors import InvalidRequest

IGNORED = (
    "temperature", "top_p", "presence_penalty", "frequency_penalty", "max_output_tokens", "max_tool_calls",
    "parallel_tool_calls", "reasoning", "service_tier", "store", "truncation", "safety_identifier",
    "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "stream_options",
)  # fmt: skip
"""Parameters without an effect."""

NEUTRAL: NoEffect = {
    "instructions": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "prompt": (),
    "include": ([], ["reasoning.encrypted_content"]),
    "top_logprobs": (0,),
    "context_management": ([],),
    "moderation": (),
}
"""Parameters that change the kind of answer, each with its neutral values."""

_PLAIN_TEXT = {"type": "text"}
_SILENT_ITEMS = ("reasoning",)  # what a client sends back of earlier responses, and agents do not read


class ResponseBody(OpenAITurnBody):
    """A request for a response."""

    without_effect: ClassVar[NoEffect] = {**dict.fromkeys(IGNORED, ()), **NEUTRAL}

    input: str | list[Any] = Field(default="", description="The question, or messages of which it is the last")
    text: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="Only the format `text`; `verbosity` has no effect"
    )
    background: Flag = False
    previous_response_id: str | None = Field(
        default=None, description="The latest response of a session, which this request continues"
    )
    conversation: str | dict[str, Any] | None = Field(
        default=None, description="The same as `session_id`: the `conversation` of a response"
    )


def refuse_unsupported_parameters(body: Mapping[str, Any]) -> None:
    """Raise UnsupportedParameter for a parameter that would change the kind of answer."""
    refuse_unsupported(body, NEUTRAL)
    text = body.get("text")
    written = text.get("format") if isinstance(text, Mapping) else None
    if written is not None and written != _PLAIN_TEXT:
        raise UnsupportedParameter("`text.format` is not supported: an agent has its own formats.", field="text.format")


def find_ignored_parameters(body: Mapping[str, Any], messages: Sequence[ChatMessage]) -> list[str]:
    """Return the parameters and the roles of messages that have no effect."""
    text = body.get("text")
    verbosity = ["text.verbosity"] if isinstance(text, Mapping) and text.get("verbosity") is not None else []
    return [*find_ignored(body, IGNORED), *verbosity, *find_ignored_roles(messages, "input")]


def parse_messages(fields: ResponseBody) -> list[ChatMessage]:
    """Return the messages of the input, in the form of chat completions. Raises InvalidRequest."""
    if isinstance(fields.input, str):
        return [ChatMessage(role="user", content=fields.input)] if fields.input else []
    parsed = (_parse_item(item, f"input[{place}]") for place, item in enumerate(fields.input))
    return [message for message in parsed if message is not None]


def parse_question(fields: ResponseBody, messages: Sequence[ChatMessage], *, continues: bool) -> Question:
    """Return the question, which is the last message. It may be absent if the request answers a form.

    A request that continues a session has no earlier messages, since the session has them. Raises InvalidRequest.
    """
    read = [message for message in messages if message.role in READ_ROLES]
    if not read:
        if fields.inputs or fields.query is not None or fields.question is not None:
            return Question("")
        raise InvalidRequest("`input` is required: a text, or a list of messages.", field="input")
    last = read[-1]
    if last.role != "user":
        raise InvalidRequest("The last message of `input` must be one of the user.", field="input")
    if continues and len(read) > 1:
        message = "The session has the earlier messages. Send one message of the user as `input`."
        raise InvalidRequest(message, field="input")
    history = [(message.role, message.text) for message in read[:-1]]
    return Question(last.text, parse_attachments("input", last), history)


def _parse_item(item: Any, where: str) -> ChatMessage | None:
    """Return an item of the input as a message; None for one that agents do not read."""
    if not isinstance(item, Mapping):
        raise InvalidRequest(f"`{where}` must be an object.", field=where)
    kind = item.get("type", "message")
    if kind in _SILENT_ITEMS:
        return None
    if kind != "message":
        raise UnsupportedParameter(
            f"`{where}` has the type {str(kind)[:64]!r}. An agent calls its own tools: use messages.",
            field=f"{where}.type",
        )
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or not isinstance(content, str | list):
        raise InvalidRequest(f"`{where}` must have a `role` and a `content`.", field=where)
    if isinstance(content, str):
        return ChatMessage(role=role, content=content)
    return ChatMessage(
        role=role, content=[_parse_part(part, f"{where}.content[{place}]") for place, part in enumerate(content)]
    )


def _parse_part(part: Any, where: str) -> dict[str, Any]:
    """Return a part of a message in the form of chat completions."""
    if not isinstance(part, Mapping):
        raise InvalidRequest(f"`{where}` must be an object.", field=where)
    match part.get("type"):
        case "input_text" | "output_text" | "text" | "summary_text":
            return {"type": "text", "text": part.get("text")}
        case "refusal":
            return {"type": "text", "text": part.get("refusal")}
        case "input_image" if part.get("file_id"):
            return {"type": "file", "file": {"file_id": part["file_id"]}}
        case "input_image":
            return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
        case "input_file" if part.get("file_url"):
            if not str(part["file_url"]).startswith(("http://", "https://")):
                raise InvalidRequest(f"`{where}.file_url` is not an address. Use https://…", field=f"{where}.file_url")
            return {"type": "image_url", "image_url": {"url": str(part["file_url"])}}
        case "input_file":
            names = ("file_id", "file_data", "filename")
            return {"type": "file", "file": {name: part.get(name) for name in names}}
        case "input_audio":
            return {"type": "input_audio", "input_audio": part.get("input_audio")}
        case other:
            raise UnsupportedParameter(
                f"`{where}` has the type {str(other)[:64]!r}. Use input_text, input_image, input_file or input_audio.",
                field=f"{where}.type",
            )
