"""A turn as updates of a task: artifacts that grow, are replaced, and end; files; and the end of a token."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.a2a.protocol import ProtocolVersion
from api.a2a.tasks import TaskHead, task_events
from api.events.event_stream import Envelope
from api.http.errors import TokenEnded
from api.runs.turn import ActiveTurn
from canvas.events.stream_sequencer import Position
from canvas.ids import RunId, SessionId
from store.primitives.ids import new_id

STREAM = "5" * 32
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def message(offset: int, stream: str = STREAM, **data: Any) -> Envelope:
    return Envelope(Position(1, offset), {"data": {"content": "", **data}, "turn": stream, "offset": offset}, "message")


def event(name: str, **data: Any) -> Envelope:
    return Envelope(Position(2), {"data": data}, name)


FINISHED = event("workflow_finished", outputs={}, usage=USAGE)


def results_of(
    *envelopes: Envelope | Exception, version: ProtocolVersion = ProtocolVersion.V1_0, queued: bool = False
) -> list[Any]:
    """Return the results of a stream with these envelopes; an exception ends it."""
    head = TaskHead(RunId(new_id()), SessionId(new_id()), "https://easel.example", version)

    async def follow() -> AsyncGenerator[Envelope]:
        for each in envelopes:
            if isinstance(each, Exception):
                raise each
            yield each

    async def collect() -> list[Any]:
        talk = SimpleNamespace(envelopes=follow, started=SimpleNamespace(queued=queued))
        return [each async for each in task_events(cast(ActiveTurn, talk), head)]

    return asyncio.run(collect())


def assemble(results: list[Any]) -> dict[str, str]:
    """Return the text of each artifact, as a client assembles it."""
    found: dict[str, str] = {}
    for update in (each["artifactUpdate"] for each in results if "artifactUpdate" in each):
        artifact = update["artifact"]
        text = "".join(part.get("text", "") for part in artifact["parts"])
        found[artifact["artifactId"]] = found[artifact["artifactId"]] + text if update["append"] else text
    return found


def test_text_that_a_retry_has_withdrawn_is_replaced() -> None:
    results = results_of(
        message(0, content="Kept "),
        message(5, content="wrong"),
        event("message_reset", turn=STREAM, epoch=1, keep=5),
        message(5, content="right"),
        event("message_end"),
        FINISHED,
    )

    assert assemble(results) == {STREAM: "Kept right"}


def test_reasoning_is_left_out_of_updates() -> None:
    results = results_of(
        message(1, start_to_think=True),
        message(3, content="Hm"),
        message(4, end_to_think=True),
        message(7, content="Yes"),
        event("message_end"),
        FINISHED,
    )

    assert assemble(results) == {STREAM: "Yes"}


def test_files_and_structured_outputs_are_artifacts_before_the_last_status() -> None:
    file = {"doc_id": "f1", "file_name": "report.pdf", "mime_type": "application/pdf"}
    node = {"component_id": "LLM:0", "outputs": {"structured": {"price": 4}}}

    *_, report, structured, last = results_of(
        message(0, content="See"),
        event("message_end", downloads=[file], attachment=file),
        event("node_finished", **node),
        FINISHED,
    )

    assert report["artifactUpdate"]["artifact"] == {
        "artifactId": "f1",
        "name": "report.pdf",
        "parts": [
            {
                "url": "https://easel.example/api/v1/agents/attachments/f1/download",
                "filename": "report.pdf",
                "mediaType": "application/pdf",
            }
        ],
    }
    assert structured["artifactUpdate"]["artifact"]["parts"] == [{"data": {"price": 4}}]
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize(
    ("closing", "state"),
    [
        (FINISHED, "completed"),
        (event("workflow_finished", outputs={}, usage=USAGE, has_model_error=True), "failed"),
        (event("workflow_finished", outputs="Task has been canceled", usage=USAGE), "canceled"),
        (event("user_inputs", forms={"UserFillUp:0": {}}, inputs={"name": {}}, tips="Who?"), "input-required"),
        (Envelope(Position(2), {"data": False, "message": "It broke."}, "run_failed"), "failed"),
    ],
)
def test_last_status_says_how_the_turn_has_ended(closing: Envelope, state: str) -> None:
    first, last = results_of(closing, version=ProtocolVersion.V0_3, queued=True)

    assert (first["kind"], first["status"]["state"]) == ("task", "submitted")
    assert (last["kind"], last["status"]["state"], last["final"]) == ("status-update", state, True)


def test_stream_of_a_token_that_has_ended_raises() -> None:
    with pytest.raises(TokenEnded):
        results_of(message(0, content="Begun"), TokenEnded())
