"""A turn of a run as a response of OpenAI's API. Its id is that of the run, `resp_<run id>`.

The output has the items of each Message in the order of their streams: its reasoning, if there is some, and its text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api.http.replies import parse_id
from api.runs.openai_content import SplitText, find_citations, flat_annotation, split_reasoning
from api.runs.openai_wire import MODEL_FAILED, question_json
from api.runs.turn import ActiveTurn, TurnResult
from canvas.events import run_events
from canvas.ids import RunId, SessionId
from canvas.run_warnings import has_model_error
from canvas.state.run_state import RunStatus
from providers.models.text.context_window import count_tokens
from store.primitives.ids import created_at_of
from store.runs.run_queries import RunSummary

PREFIX = "resp_"
CONVERSATION = "conv_"

QUEUED, IN_PROGRESS, COMPLETED, INCOMPLETE, FAILED, CANCELLED = (
    "queued", "in_progress", "completed", "incomplete", "failed", "cancelled",
)  # fmt: skip

_OF_RUNS = {
    RunStatus.QUEUED: QUEUED,
    RunStatus.RUNNING: IN_PROGRESS,
    RunStatus.STOPPING: IN_PROGRESS,
    RunStatus.WAITING: INCOMPLETE,
    RunStatus.SUCCEEDED: COMPLETED,
    RunStatus.FAILED: FAILED,
    RunStatus.CANCELLED: CANCELLED,
    RunStatus.REFUSED: FAILED,
}
_LAST_ITEM = {QUEUED: IN_PROGRESS, IN_PROGRESS: IN_PROGRESS, FAILED: INCOMPLETE, CANCELLED: INCOMPLETE}


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What a response says beside its answer."""

    run_id: RunId
    session_id: SessionId
    created_at: int
    model: str
    user_id: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    previous_response_id: str | None = None
    is_background: bool = False

    @staticmethod
    def of_turn(talk: ActiveTurn, model: str, user_id: str, options: Mapping[str, Any]) -> "ResponseHead":
        """Return the head of a turn that was accepted, with the options of its request."""
        created_at = int(created_at_of(talk.started.message_id).timestamp())
        return _head(talk.started.run_id, talk.started.conversation_id, created_at, model, user_id, options)

    @staticmethod
    def of_run(run: RunSummary) -> "ResponseHead":
        """Return the head of the current turn of a run."""
        created_at = int(created_at_of(run.message_id).timestamp())
        options = run.request.get("options") or {}
        user_id = str(run.request.get("user_id") or "")
        return _head(run.id, run.conversation_id, created_at, run.canvas_id.hex, user_id, options)


def _head(
    run_id: RunId, session_id: SessionId, created_at: int, model: str, user_id: str, options: Mapping[str, Any]
) -> ResponseHead:
    return ResponseHead(
        run_id,
        session_id,
        created_at,
        model,
        user_id,
        options.get("metadata") or {},
        options.get("previous_response_id"),
        bool(options.get("background")),
    )


def response_id(run_id: RunId) -> str:
    """Return the id of the response of a run."""
    return f"{PREFIX}{run_id.hex}"


def parse_response_id(written: str) -> RunId | None:
    """Return the run of a response's id; None for any other text."""
    found = parse_id(written.removeprefix(PREFIX)) if written.startswith(PREFIX) else None
    return RunId(found) if found is not None else None


# -- status -----------------------------------------------------------------------------------------------------------
def status_of_turn(turn_result: TurnResult) -> str:
    """Return the status of a response by the last event of its turn; `in_progress` before that."""
    match turn_result.name:
        case run_events.USER_INPUTS:
            return INCOMPLETE
        case run_events.RUN_FAILED:
            return FAILED
        case run_events.WORKFLOW_FINISHED if turn_result.was_cancelled:
            return CANCELLED
        case run_events.WORKFLOW_FINISHED:
            return FAILED if turn_result.last["data"].get("has_model_error") else COMPLETED
        case _:
            return IN_PROGRESS


def status_of_run(run: RunSummary) -> str:
    """Return the status of the response of a run."""
    status = _OF_RUNS[RunStatus(run.status)]
    return FAILED if status == COMPLETED and has_model_error(run.usage) else status


# -- the response -----------------------------------------------------------------------------------------------------
def response_json(
    head: ResponseHead, turn_result: TurnResult, status: str, output: Sequence[Mapping[str, Any]], error: str = ""
) -> dict[str, Any]:
    """Return a response. `error` is the error of a failed run whose last event is not known."""
    data: Mapping[str, Any] = turn_result.last.get("data") or {}
    waits = turn_result.name == run_events.USER_INPUTS
    return {
        "id": response_id(head.run_id),
        "object": "response",
        "created_at": head.created_at,
        "status": status,
        "background": head.is_background,
        "error": _error_json(turn_result, error) if status == FAILED else None,
        "incomplete_details": {"reason": "waiting_for_user"} if status == INCOMPLETE else None,
        "waiting_for_user": question_json(data) if waits and status == INCOMPLETE else None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": head.metadata,
        "model": head.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": head.previous_response_id,
        "conversation": {"id": f"{CONVERSATION}{head.session_id.hex}"},
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": _usage_json(data["usage"], turn_result) if "usage" in data else None,
        "user": head.user_id,
        "run_id": head.run_id.hex,
        "session_id": head.session_id.hex,
    }


def _error_json(turn_result: TurnResult, error: str) -> dict[str, Any]:
    if turn_result.name == run_events.WORKFLOW_FINISHED:
        return {"code": "model_error", "type": "model_error", "message": turn_result.content or MODEL_FAILED}
    message = str(turn_result.last.get("message") or error or "The run has failed.")
    return {"code": "run_failed", "type": "server_error", "message": message}


def _usage_json(usage: Mapping[str, Any], turn_result: TurnResult) -> dict[str, Any]:
    """Return the tokens of the run's model calls, those of the reasoning estimated; `run` has their cost too."""
    parts = (text for each in turn_result.texts.values() for _, text in each)
    reasoning = split_reasoning(parts).reasoning
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": count_tokens(reasoning) if reasoning else 0},
        "total_tokens": usage["total_tokens"],
        "run": usage,
    }


# -- items of the output ----------------------------------------------------------------------------------------------
def output_items(turn_result: TurnResult, status: str) -> list[dict[str, Any]]:
    """Return the items of an answer. The last one is not completed if the answer is not."""
    items: list[dict[str, Any]] = []
    for stream, parts in turn_result.texts.items():
        split = split_reasoning(text for _, text in parts)
        pair = [
            reasoning_item(stream, split, COMPLETED) if split.reasoning else None,
            message_item(stream, split, turn_result.reference, COMPLETED) if split.content else None,
        ]
        items += [each for each in (pair if split.reasons_first else reversed(pair)) if each is not None]
    if items:
        items[-1]["status"] = _LAST_ITEM.get(status, COMPLETED)
    return items


def reasoning_item(stream: str, split: SplitText, status: str) -> dict[str, Any]:
    """Return the item with the reasoning of a message stream."""
    return {
        "id": f"rs_{stream}",
        "type": "reasoning",
        "status": status,
        "summary": [],
        "content": [{"type": "reasoning_text", "text": split.reasoning}] if split.reasoning else [],
    }


def message_item(stream: str, split: SplitText, reference: Mapping[str, Any], status: str) -> dict[str, Any]:
    """Return the item with the text of a message stream."""
    return {
        "id": f"msg_{stream}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [text_part(split, reference)] if split.content else [],
    }


def text_part(split: SplitText, reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text of a message with its citations."""
    annotations = [flat_annotation(each) for each in find_citations(split.content, reference)]
    return {"type": "output_text", "text": split.content, "annotations": annotations, "logprobs": []}
