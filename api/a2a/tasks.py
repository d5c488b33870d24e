"""A turn of a run as a task: its state, and its texts, files and structured outputs as artifacts."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from api.a2a.protocol import (
    AgentTaskState,
    ProtocolVersion,
    as_result,
    data_part,
    file_part,
    role_name,
    state_name,
    text_part,
    with_kind,
)
from api.events.event_dialects import is_think_start, is_think_tag, message_text
from api.events.event_stream import Envelope
from api.runs.openai_content import split_reasoning
from api.runs.openai_wire import MODEL_FAILED, question_json
from api.runs.turn import ActiveTurn, TurnResult
from canvas.events import run_events
from canvas.ids import RunId, SessionId
from canvas.run_warnings import has_model_error
from canvas.state.run_state import RunStatus
from store.runs.run_queries import RunSummary

_OF_RUNS = {
    RunStatus.QUEUED: AgentTaskState.SUBMITTED,
    RunStatus.RUNNING: AgentTaskState.WORKING,
    RunStatus.STOPPING: AgentTaskState.WORKING,
    RunStatus.WAITING: AgentTaskState.INPUT_REQUIRED,
    RunStatus.SUCCEEDED: AgentTaskState.COMPLETED,
    RunStatus.FAILED: AgentTaskState.FAILED,
    RunStatus.CANCELLED: AgentTaskState.CANCELED,
    RunStatus.REFUSED: AgentTaskState.REJECTED,
}


@dataclass(frozen=True, slots=True)
class TaskHead:
    """The ids of a task, and how it is written. `root`: the address of the API, for files."""

    run_id: RunId
    session_id: SessionId
    root: str
    version: ProtocolVersion
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)  # of the message, given back

    @property
    def ids(self) -> dict[str, str]:
        """The ids, as messages and updates of the task have them."""
        return {"taskId": self.run_id.hex, "contextId": self.session_id.hex}


def state_of_turn(turn_result: TurnResult) -> AgentTaskState:
    """Return the state of a task by the last event of its turn."""
    match turn_result.name:
        case run_events.USER_INPUTS:
            return AgentTaskState.INPUT_REQUIRED
        case run_events.RUN_FAILED:
            return AgentTaskState.FAILED
        case run_events.WORKFLOW_FINISHED if turn_result.was_cancelled:
            return AgentTaskState.CANCELED
        case run_events.WORKFLOW_FINISHED:
            return (
                AgentTaskState.FAILED if turn_result.last["data"].get("has_model_error") else AgentTaskState.COMPLETED
            )
        case _:
            return AgentTaskState.WORKING


def state_of_run(run: RunSummary) -> AgentTaskState:
    """Return the state of the task of a run."""
    state = _OF_RUNS[RunStatus(run.status)]
    return AgentTaskState.FAILED if state is AgentTaskState.COMPLETED and has_model_error(run.usage) else state


def task_json(
    head: TaskHead, turn_result: TurnResult, state: AgentTaskState, error: str = "", question: str | None = None
) -> dict[str, Any]:
    """Return a task. `error`: that of a failed run whose last event is not known. `question`: for its history."""
    body: dict[str, Any] = {
        "id": head.run_id.hex,
        "contextId": head.session_id.hex,
        "status": _status_json(head, turn_result, state, error),
    }
    if head.metadata:
        body["metadata"] = head.metadata
    if artifacts := _artifacts(head, turn_result):
        body["artifacts"] = artifacts
    if question is not None:
        asked = {
            "messageId": f"{head.run_id.hex}-question",
            "role": role_name(is_user=True, version=head.version),
            "parts": [text_part(question, head.version)],
            **head.ids,
        }
        body["history"] = [with_kind("message", asked, head.version)]
    return body


def _status_json(head: TaskHead, turn_result: TurnResult, state: AgentTaskState, error: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {"state": state_name(state, head.version), "timestamp": _now()}
    parts: list[dict[str, Any]] = []
    if state is AgentTaskState.INPUT_REQUIRED:
        asked = question_json(turn_result.last.get("data") or {})
        parts = [text_part(asked["tips"], head.version)] if asked["tips"] else []
        parts.append(data_part(asked, head.version))
    elif state is AgentTaskState.FAILED:
        is_model = turn_result.name == run_events.WORKFLOW_FINISHED
        message = MODEL_FAILED if is_model else str(turn_result.last.get("message") or error or "The run has failed.")
        parts = [text_part(message, head.version)]
    if parts:
        message = {
            "messageId": f"{head.run_id.hex}-status",
            "role": role_name(is_user=False, version=head.version),
            "parts": parts,
            **head.ids,
        }
        status["message"] = with_kind("message", message, head.version)
    return status


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _artifacts(head: TaskHead, turn_result: TurnResult) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for stream, parts in turn_result.texts.items():
        if text := split_reasoning(text for _, text in parts).content:
            found.append({"artifactId": stream, "name": "answer", "parts": [text_part(text, head.version)]})
    return [*found, *_later_artifacts(head, turn_result)]


def _later_artifacts(head: TaskHead, turn_result: TurnResult) -> list[dict[str, Any]]:
    """Return the artifacts that are known at the end of a turn: files, and structured outputs by node."""
    found: list[dict[str, Any]] = []
    for doc_id, file in turn_result.files.items():
        name = str(file.get("file_name") or file.get("filename") or file.get("name") or doc_id)
        url = f"{head.root}/api/v1/agents/attachments/{doc_id}/download"
        part = file_part(url, name, str(file.get("mime_type") or "application/octet-stream"), head.version)
        found.append({"artifactId": doc_id, "name": name, "parts": [part]})
    for node, value in turn_result.structured.items():
        part = data_part(value, head.version)
        found.append({"artifactId": f"structured {node}", "name": node, "parts": [part]})
    return found


# -- streamed ---------------------------------------------------------------------------------------------------------
async def task_events(talk: ActiveTurn, head: TaskHead) -> AsyncGenerator[dict[str, Any] | None]:
    """Yield the results of a stream: the task, updates, and its last status. None: a keep-alive is due.

    Raises TokenEnded.
    """
    updates = _Updates(head)
    envelopes = talk.envelopes()
    try:
        state = AgentTaskState.SUBMITTED if talk.started.queued else AgentTaskState.WORKING
        yield as_result("task", task_json(head, updates.turn_result, state), head.version)
        async for wired in envelopes:
            if wired is None:
                yield None
                continue
            for update in updates.of(wired):
                yield update
        for update in updates.end():
            yield update
    finally:
        await envelopes.aclose()


@dataclass(slots=True)
class _Updates:
    """Turns envelopes into updates of a task. An update that does not append replaces the artifact."""

    head: TaskHead
    turn_result: TurnResult = field(default_factory=TurnResult)
    stream: str = ""  # the artifact that receives text
    has_text: bool = False
    is_reasoning: bool = False

    def of(self, wired: Envelope) -> Iterator[dict[str, Any]]:
        self.turn_result.add(wired)
        match wired.name:
            case run_events.MESSAGE:
                text = message_text(wired.body["data"])
                if is_think_tag(text):
                    self.is_reasoning = is_think_start(text)
                elif text and not self.is_reasoning:
                    if wired.body["turn"] != self.stream:
                        self.stream, self.has_text = wired.body["turn"], False
                    yield self._text_update(text, append=self.has_text)
                    self.has_text = True
            case run_events.MESSAGE_RESET if self.has_text:
                kept = split_reasoning(text for _, text in self.turn_result.texts.get(self.stream, []))
                self.is_reasoning = False
                yield self._text_update(kept.content, append=False)
            case run_events.MESSAGE_END:
                if self.has_text:
                    yield self._text_update("", append=True, is_last=True)
                self.stream, self.has_text, self.is_reasoning = "", False, False
            case _:
                pass

    def end(self) -> Iterator[dict[str, Any]]:
        for artifact in _later_artifacts(self.head, self.turn_result):
            yield self._artifact_update(artifact, append=False, is_last=True)
        state = state_of_turn(self.turn_result)
        body: dict[str, Any] = {**self.head.ids, "status": _status_json(self.head, self.turn_result, state)}
        if self.head.version is ProtocolVersion.V0_3:
            body["final"] = True
        yield as_result("status-update", body, self.head.version)

    def _text_update(self, text: str, *, append: bool, is_last: bool = False) -> dict[str, Any]:
        artifact = {"artifactId": self.stream, "name": "answer", "parts": [text_part(text, self.head.version)]}
        return self._artifact_update(artifact, append=append, is_last=is_last)

    def _artifact_update(self, artifact: Mapping[str, Any], *, append: bool, is_last: bool) -> dict[str, Any]:
        body = {**self.head.ids, "artifact": artifact, "append": append, "lastChunk": is_last}
        return as_result("artifact-update", body, self.head.version)
