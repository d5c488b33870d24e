"""What differs between the versions of the protocol: names of methods and states, and the shapes of parts.

Version 1.0 is what a request with the header `A2A-Version: 1.0` uses; without the header it is 0.3.

    1.0   SendMessage    {"role": "ROLE_USER", "parts": [{"text": "Hello"}]}                result: {"task": {…}}
    0.3   message/send   {"role": "user", "parts": [{"kind": "text", "text": "Hello"}]}    result: {"kind": "task", …}
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Any

VERSION_HEADER = "a2a-version"


class ProtocolVersion(StrEnum):
    """A version of the protocol."""

    V1_0 = "1.0"
    V0_3 = "0.3"


class Method(Enum):
    """A method, with its name in version 1.0 and in 0.3."""

    SEND = ("SendMessage", "message/send")
    STREAM = ("SendStreamingMessage", "message/stream")
    GET = ("GetTask", "tasks/get")
    CANCEL = ("CancelTask", "tasks/cancel")
    SUBSCRIBE = ("SubscribeToTask", "tasks/resubscribe")
    LIST = ("ListTasks", "tasks/list")
    SET_PUSH = ("CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/set")
    GET_PUSH = ("GetTaskPushNotificationConfig", "tasks/pushNotificationConfig/get")
    LIST_PUSH = ("ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/list")
    DELETE_PUSH = ("DeleteTaskPushNotificationConfig", "tasks/pushNotificationConfig/delete")
    EXTENDED_CARD = ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard")


class AgentTaskState(StrEnum):
    """The state of a task, with its name in version 0.3."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"

    @property
    def is_over(self) -> bool:
        """Whether the state is final."""
        return self in (
            AgentTaskState.COMPLETED,
            AgentTaskState.FAILED,
            AgentTaskState.CANCELED,
            AgentTaskState.REJECTED,
        )


class RpcErrorCode(Enum):
    """A code of an error, of JSON-RPC or of the protocol."""

    PARSE = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL = -32603
    TASK_NOT_FOUND = -32001
    TASK_NOT_CANCELABLE = -32002
    PUSH_NOT_SUPPORTED = -32003
    UNSUPPORTED_OPERATION = -32004
    CONTENT_TYPE_NOT_SUPPORTED = -32005
    NO_EXTENDED_CARD = -32007
    VERSION_NOT_SUPPORTED = -32009


class CallRefused(Exception):
    """A call gets an error. `data`: further facts, such as the id of the run."""

    def __init__(self, code: RpcErrorCode, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def method_of(name: Any, version: ProtocolVersion) -> Method:
    """Return the method of a request. Raises CallRefused."""
    place = 0 if version is ProtocolVersion.V1_0 else 1
    for method in Method:
        if method.value[place] == name:
            return method
    other = next((method for method in Method if name in method.value), None)
    advice = f" In version {version} it is {other.value[place]}." if other is not None else ""
    message = f"There is no method {str(name)[:64]!r} in version {version} of the protocol.{advice}"
    raise CallRefused(RpcErrorCode.METHOD_NOT_FOUND, message)


# -- shapes -----------------------------------------------------------------------------------------------------------
def state_name(state: AgentTaskState, version: ProtocolVersion) -> str:
    """Return the name of a state on the wire."""
    if version is ProtocolVersion.V0_3:
        return state.value
    return f"TASK_STATE_{state.name}"


def role_name(*, is_user: bool, version: ProtocolVersion) -> str:
    """Return the name of a message's role on the wire."""
    if version is ProtocolVersion.V0_3:
        return "user" if is_user else "agent"
    return "ROLE_USER" if is_user else "ROLE_AGENT"


def text_part(text: str, version: ProtocolVersion) -> dict[str, Any]:
    """Return a part with text."""
    return {"kind": "text", "text": text} if version is ProtocolVersion.V0_3 else {"text": text}


def data_part(data: Any, version: ProtocolVersion) -> dict[str, Any]:
    """Return a part with a JSON value."""
    return {"kind": "data", "data": data} if version is ProtocolVersion.V0_3 else {"data": data}


def file_part(url: str, name: str, mime_type: str, version: ProtocolVersion) -> dict[str, Any]:
    """Return a part with the address of a file."""
    if version is ProtocolVersion.V0_3:
        return {"kind": "file", "file": {"uri": url, "name": name, "mimeType": mime_type}}
    return {"url": url, "filename": name, "mediaType": mime_type}


def with_kind(kind: str, body: Mapping[str, Any], version: ProtocolVersion) -> dict[str, Any]:
    """Return an object with its kind, as version 0.3 has it; in 1.0 it has none."""
    return {**body, "kind": kind} if version is ProtocolVersion.V0_3 else dict(body)


_RESULT_NAMES = {"task": "task", "status-update": "statusUpdate", "artifact-update": "artifactUpdate"}


def as_result(kind: str, body: Mapping[str, Any], version: ProtocolVersion) -> dict[str, Any]:
    """Return what a call or a stream answers: in version 1.0 it is the member of an object that its kind names."""
    if version is ProtocolVersion.V0_3:
        return with_kind(kind, body, version)
    return {_RESULT_NAMES[kind]: dict(body)}
