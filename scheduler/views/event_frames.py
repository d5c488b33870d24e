"""Serialization of a run's frames to the events of RAGFlow's API.

Ids are 32 hex digits. Names and component types come from the version's canvas.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from canvas.budget import UNPRICED, usage_json
from canvas.events import run_events
from canvas.events.stream_sequencer import Frame, Position, SequencedEvent, TextDelta, message_data
from canvas.graph.canvas import Canvas
from canvas.graph.passwords import NO_PASSWORDS, PasswordMask
from canvas.ids import ActivationId
from canvas.run_warnings import has_model_error
from store.primitives.ids import created_at_of
from store.runs.events import EventRow
from store.runs.run_queries import RunSummary

USAGE = ("prompt_tokens", "completion_tokens", "total_tokens", "calls")


@dataclass(frozen=True, slots=True)
class EventSerializer:
    """Serializes the frames of one run. `run` has the ids of the conversation and message they belong to.

    `mask` hides the run's passwords in stored events, not in what the run says to its user.
    """

    run: RunSummary
    canvas: Canvas
    mask: PasswordMask = NO_PASSWORDS

    def frames(self, frame: Frame[EventRow]) -> Iterator[tuple[Position, dict[str, Any]]]:
        """Yield the events of a frame, each with the reader's position after it."""
        if isinstance(frame, TextDelta):
            at = (frame.position.offset or 0) - len(frame.text)
            for position, data in message_data(frame):
                yield position, {**self._envelope(run_events.MESSAGE, data), "turn": frame.stream_id.hex, "offset": at}
                at = position.offset or 0
        elif frame.stored.name == run_events.RUN_FAILED:
            yield frame.position, {**self._failure_frame(frame.stored), "seq": frame.number}
        else:
            envelope = self._envelope(frame.stored.name, self._data(frame))
            yield frame.position, {**envelope, "seq": frame.number}

    def error_frame(self, message: str) -> dict[str, Any]:
        """Return the last frame of a failed answer."""
        return {"code": 500, "message": message, "data": False, **self.ids}

    def _failure_frame(self, stored: EventRow) -> dict[str, Any]:
        """Return the last frame of a failed run: `message` names the node, `failure` has the same as fields."""
        error = self.mask.text(str(stored.body.get("error", "")))
        number = self.canvas.numbers.get(stored.node_id or "")
        if number is None:
            return self.error_frame(error)
        node = self.canvas.nodes[number]
        code = str(stored.body.get("code") or "")
        failure = {
            "node_id": node.id,
            "node_name": node.name,
            "component": node.component,
            "code": code,
            "error": error,
        }
        return {**self.error_frame(self.canvas.error_of(node.id, error, code)), "failure": failure}

    @property
    def ids(self) -> dict[str, str]:
        """The ids of the run in events; `task_id` is the id that a client cancels."""
        session = self.run.conversation_id.hex
        return {"task_id": session, "session_id": session, "run_id": self.run.id.hex}

    def _envelope(self, name: str, data: Mapping[str, Any]) -> dict[str, Any]:
        return run_events.envelope(
            name,
            data,
            message_id=self.run.message_id.hex,
            created_at=int(created_at_of(self.run.message_id).timestamp()),
            session_id=self.run.conversation_id.hex,
            run_id=self.run.id.hex,
        )

    def _data(self, frame: SequencedEvent[EventRow]) -> Mapping[str, Any]:
        stored = frame.stored
        at = stored.created_at.timestamp()
        number = self.canvas.numbers.get(stored.node_id or "")
        node = self.canvas.nodes[number] if number is not None else None
        match stored.name:
            case run_events.NODE_STARTED if node is not None:
                thoughts = run_events.thoughts_of(node.component, str(self.run.request.get("query") or ""))
                return run_events.node_started_data(node.id, node.name, node.component, at, self.mask.text(thoughts))
            case run_events.NODE_FINISHED if node is not None:
                return run_events.node_finished_data(
                    node.id,
                    node.name,
                    node.component,
                    at,
                    inputs=self._mask_values(node.id, stored.inputs),
                    outputs=self._mask_values(node.id, _public(stored.outputs)),
                    error=self.mask.value(stored.body.get("error")),
                )
            case run_events.MESSAGE_END:
                return run_events.message_end_data(self.mask.value(stored.body))
            case run_events.MESSAGE_RESET:
                return {"turn": _hex(stored.activation), "epoch": frame.epoch, "keep": frame.retained_length}
            case run_events.WORKFLOW_FINISHED:
                return self._workflow_finished_data(stored, at)
            case run_events.WORKFLOW_STARTED:
                return (
                    {**stored.body, "inputs": self.mask.answers(stored.body.get("inputs"))}
                    if self.mask
                    else stored.body
                )
            case _:
                return self.mask.value(stored.body)

    def _mask_values(self, node_id: str, values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return self.mask.node_values(node_id, values) if values and self.mask else values

    def _workflow_finished_data(self, stored: EventRow, at: float) -> dict[str, Any]:
        failed = {"has_model_error": True} if has_model_error(self.run.usage) else {}
        return {
            **failed,
            "inputs": self.mask.answers(self.run.request.get("inputs")),
            "outputs": self.mask.value(stored.body.get("outputs", _public(stored.outputs))),
            "elapsed_time": max(0.0, at - created_at_of(self.run.message_id).timestamp()),
            "created_at": at,
            "usage": self.usage,
        }

    @property
    def usage(self) -> dict[str, Any]:
        """The tokens of all model calls of the run, and their cost as far as it is known."""
        usage = usage_json(self.run.usage)
        optional = {name: usage[name] for name in ("cost", UNPRICED, "kinds") if name in usage}
        return {**{name: self.run.usage.get(name, 0) for name in USAGE}, **optional}


def _public(outputs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return outputs without those that only routing needs."""
    return None if outputs is None else {name: value for name, value in outputs.items() if name != "_spoken"}


def _hex(activation: ActivationId | None) -> str:
    return activation.hex if activation else ""
