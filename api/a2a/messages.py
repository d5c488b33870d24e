"""The message of a call: its text is the question, its data the inputs, and its files are files of the turn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.a2a.protocol import CallRefused, ProtocolVersion, RpcErrorCode
from api.http.replies import parse_id, parse_session_id
from api.runs.openai_files import MAX_FILES, Attachments, parse_attachments
from api.runs.openai_schemas import ChatMessage
from canvas.ids import RunId, SessionId

_OUTPUT_MODES = {"text", "text/plain", "text/markdown", "text/*", "application/json", "*/*", "*"}


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message to an agent. `task_id`: the task that it continues; `session_id`: the session of its context."""

    text: str = field(repr=False)
    inputs: Mapping[str, Any] = field(repr=False)
    attached: Attachments = field(repr=False)
    task_id: RunId | None = None
    session_id: SessionId | None = None
    is_awaited: bool = True  # the reply waits for the end of the turn


def parse_message(params: Mapping[str, Any], version: ProtocolVersion) -> SentMessage:
    """Return the message of a call. Raises CallRefused and InvalidRequest."""
    message = params.get("message")
    if not isinstance(message, Mapping):
        raise CallRefused(RpcErrorCode.INVALID_PARAMS, "`message` is required.")
    role = message.get("role")
    if role not in ("user", "ROLE_USER"):
        raise CallRefused(RpcErrorCode.INVALID_PARAMS, f"`message.role` is {str(role)[:64]!r}. Use that of the user.")
    parts = message.get("parts")
    if not isinstance(parts, list) or not parts:
        raise CallRefused(RpcErrorCode.INVALID_PARAMS, "`message.parts` is required: a list with at least one part.")
    texts: list[str] = []
    inputs: dict[str, Any] = {}
    files: list[dict[str, Any]] = []
    for place, part in enumerate(parts):
        where = f"message.parts[{place}]"
        if not isinstance(part, Mapping):
            raise CallRefused(RpcErrorCode.INVALID_PARAMS, f"`{where}` must be an object.")
        if isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif "data" in part:
            inputs |= _parse_data(part["data"], where)
        else:
            files.append(_parse_file(part, where, version))
    if len(files) > MAX_FILES:
        raise CallRefused(RpcErrorCode.INVALID_PARAMS, f"A message may have {MAX_FILES} files, and has {len(files)}.")
    attached = parse_attachments("message", ChatMessage(role="user", content=files))
    task_id = _parse_optional(message, "taskId")
    session_id = _parse_optional(message, "contextId")
    return SentMessage(
        "\n".join(texts),
        inputs,
        attached,
        RunId(task_id) if task_id is not None else None,
        parse_session_id(session_id.hex) if session_id is not None else None,
        _parse_is_awaited(params, version),
    )


def _parse_data(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        message = f"`{where}.data` must be an object: the values of a form by the names of its fields."
        raise CallRefused(RpcErrorCode.INVALID_PARAMS, message)
    return {str(name): value if isinstance(value, Mapping) else {"value": value} for name, value in data.items()}


def _parse_file(part: Mapping[str, Any], where: str, version: ProtocolVersion) -> dict[str, Any]:
    """Return a file in the form of chat completions, whose rules for data and addresses apply. Raises CallRefused."""
    described = part.get("file") if version is ProtocolVersion.V0_3 else part
    described = described if isinstance(described, Mapping) else {}
    names = (
        ("uri", "bytes", "name", "mimeType")
        if version is ProtocolVersion.V0_3
        else ("url", "raw", "filename", "mediaType")
    )
    url, data, name, mime_type = (described.get(each) for each in names)
    if isinstance(url, str) and url.startswith(("http://", "https://")):
        return {"type": "image_url", "image_url": {"url": url}}
    if isinstance(data, str) and data:
        written = f"data:{mime_type or 'application/octet-stream'};base64,{data}"
        return {"type": "file", "file": {"file_data": written, "filename": name}}
    message = f"`{where}` must have text, data, the bytes of a file as base64, or an address such as https://…"
    raise CallRefused(RpcErrorCode.INVALID_PARAMS, message)


def _parse_optional(message: Mapping[str, Any], name: str) -> Any:
    written = message.get(name)
    if not written:
        return None
    found = parse_id(written)
    if found is None:
        code = RpcErrorCode.TASK_NOT_FOUND if name == "taskId" else RpcErrorCode.INVALID_PARAMS
        raise CallRefused(code, f"`message.{name}` is not an id that this agent has given. Leave it out to begin anew.")
    return found


def _parse_is_awaited(params: Mapping[str, Any], version: ProtocolVersion) -> bool:
    """Return whether the reply waits for the end of the turn. Raises CallRefused for what is not supported."""
    configuration = params.get("configuration")
    if not isinstance(configuration, Mapping):
        return True
    if configuration.get("pushNotificationConfig") or configuration.get("taskPushNotificationConfig"):
        raise CallRefused(
            RpcErrorCode.PUSH_NOT_SUPPORTED, "Push notifications are not supported. Stream, or poll the task."
        )
    modes = configuration.get("acceptedOutputModes") or []
    if modes and not _OUTPUT_MODES & set(map(str, modes)):
        raise CallRefused(RpcErrorCode.CONTENT_TYPE_NOT_SUPPORTED, "Answers are text/plain and application/json.")
    if version is ProtocolVersion.V0_3:
        return configuration.get("blocking") is not False
    return not configuration.get("returnImmediately")
