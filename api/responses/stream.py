"""A turn as the events of a streamed response, numbered from 0.

    response.created, response.in_progress
    response.output_item.added, response.content_part.added, response.output_text.delta …,
        response.output_text.annotation.added …, response.output_text.done, response.content_part.done,
        response.output_item.done                                                 for each item
    response.completed | response.failed | response.incomplete

Each Message has an item for its text, and one for its reasoning. If a node is tried again, deltas cannot withdraw its
text: the text begins again, and the `done` events have the one that counts.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from api.events.event_dialects import is_think_start, is_think_tag, message_text
from api.events.event_stream import KEEPALIVE, Envelope
from api.http.errors import TokenEnded
from api.responses import wire
from api.responses.wire import ResponseHead
from api.runs.openai_content import SplitText, split_reasoning
from api.runs.turn import ActiveTurn, TurnResult
from canvas.events import run_events
from store.primitives.json_codec import encode

_REASONING, _MESSAGE = "reasoning", "message"
_LAST_EVENTS = {wire.COMPLETED: "response.completed", wire.FAILED: "response.failed"}


async def response_lines(
    talk: ActiveTurn, head: ResponseHead, load: Callable[[], Awaitable[Mapping[str, Any]]]
) -> AsyncGenerator[bytes]:
    """Yield the events of a turn as lines of a stream. `load` reads the response of a run whose events were deleted."""
    writer = _Writer(head)
    envelopes = talk.envelopes()
    try:
        for line in writer.begin(is_queued=talk.started.queued):
            yield line
        async for wired in envelopes:
            if wired is None:
                yield KEEPALIVE
                continue
            for line in writer.add(wired):
                yield line
        if not writer.turn_result.last:
            yield writer.end_with(await load())
            return
        for line in writer.end():
            yield line
    except TokenEnded as ended:
        yield writer.error(ended.message)
    finally:
        await envelopes.aclose()


@dataclass(slots=True)
class _Writer:
    """Turns envelopes into numbered events."""

    head: ResponseHead
    turn_result: TurnResult = field(default_factory=TurnResult)
    number: int = 0
    stream: str = ""  # the message stream whose items are open
    items: dict[str, int] = field(default_factory=dict[str, int])  # the open ones: kind -> index in the output
    output: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    is_reasoning: bool = False

    def begin(self, *, is_queued: bool) -> Iterator[bytes]:
        status = wire.QUEUED if is_queued else wire.IN_PROGRESS
        yield self._response("response.created", status)
        yield self._response(f"response.{status}", status)

    def add(self, wired: Envelope) -> Iterator[bytes]:
        self.turn_result.add(wired)
        match wired.name:
            case run_events.MESSAGE:
                yield from self._add_text(wired.body["turn"], message_text(wired.body["data"]))
            case run_events.MESSAGE_END:
                yield from self._close_items(wire.COMPLETED)
            case _:
                pass

    def end(self) -> Iterator[bytes]:
        status = wire.status_of_turn(self.turn_result)
        yield from self._close_items(wire.COMPLETED if status == wire.COMPLETED else wire.INCOMPLETE)
        yield self._response(_LAST_EVENTS.get(status, "response.incomplete"), status)

    def end_with(self, response: Mapping[str, Any]) -> bytes:
        """Return the last event, with a response that was read from the rows of its run."""
        return self._event(_LAST_EVENTS.get(response["status"], "response.incomplete"), {"response": response})

    def error(self, message: str) -> bytes:
        """Return the event that ends a stream whose token has ended. The run goes on."""
        error = {"message": message, "type": "authentication_error", "code": "invalid_api_key", "param": None}
        return self._event("error", {**error, "error": {**error, "run_id": self.head.run_id.hex}})

    def _add_text(self, stream: str, text: str) -> Iterator[bytes]:
        if stream != self.stream:
            yield from self._close_items(wire.COMPLETED)
            self.stream = stream
        if is_think_tag(text):
            self.is_reasoning = is_think_start(text)
            return
        if not text:
            return
        kind = _REASONING if self.is_reasoning else _MESSAGE
        if kind not in self.items:
            yield from self._open_item(kind)
        name = "response.reasoning_text.delta" if self.is_reasoning else "response.output_text.delta"
        logprobs = {} if self.is_reasoning else {"logprobs": []}
        yield self._event(name, {**self._place(kind), "content_index": 0, "delta": text, **logprobs})

    def _open_item(self, kind: str) -> Iterator[bytes]:
        item = self._item(kind, SplitText("", ""), wire.IN_PROGRESS)
        self.items[kind] = len(self.output)
        self.output.append(item)
        yield self._event("response.output_item.added", {"output_index": self.items[kind], "item": item})
        yield self._event(
            "response.content_part.added",
            {**self._place(kind), "content_index": 0, "part": self._part(kind, SplitText("", ""))},
        )

    def _close_items(self, status: str) -> Iterator[bytes]:
        split = split_reasoning(text for _, text in self.turn_result.texts.get(self.stream, []))
        for kind in self.items:
            place = {**self._place(kind), "content_index": 0}
            part = self._part(kind, split)
            for index, annotation in enumerate(part.get("annotations", [])):
                yield self._event(
                    "response.output_text.annotation.added",
                    {**place, "annotation_index": index, "annotation": annotation},
                )
            if kind == _REASONING:
                yield self._event("response.reasoning_text.done", {**place, "text": split.reasoning})
            else:
                yield self._event("response.output_text.done", {**place, "text": split.content, "logprobs": []})
            yield self._event("response.content_part.done", {**place, "part": part})
            index = self.items[kind]
            self.output[index] = self._item(kind, split, status)
            yield self._event("response.output_item.done", {"output_index": index, "item": self.output[index]})
        self.items.clear()
        self.is_reasoning = False

    def _item(self, kind: str, split: SplitText, status: str) -> dict[str, Any]:
        if kind == _REASONING:
            return wire.reasoning_item(self.stream, split, status)
        return wire.message_item(self.stream, split, self.turn_result.reference, status)

    def _part(self, kind: str, split: SplitText) -> dict[str, Any]:
        if kind == _REASONING:
            return {"type": "reasoning_text", "text": split.reasoning}
        return wire.text_part(split, self.turn_result.reference)

    def _place(self, kind: str) -> dict[str, Any]:
        index = self.items[kind]
        return {"item_id": self.output[index]["id"], "output_index": index}

    def _response(self, name: str, status: str) -> bytes:
        body = wire.response_json(self.head, self.turn_result, status, self.output)
        return self._event(name, {"response": body})

    def _event(self, name: str, body: dict[str, Any]) -> bytes:
        line = f"event: {name}\ndata: {encode({**body, 'type': name, 'sequence_number': self.number})}\n\n"
        self.number += 1
        return line.encode()
