"""The events of a run as JSON for a log: pages from its beginning or end, filters, and the activation of each event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Depends, Query

from api.http.query_values import parse_list
from api.requests.auth import RequestPrincipal
from api.requests.dependencies import ApiContext
from canvas.errors import InvalidRequest
from canvas.events.run_events import MESSAGE_RESET
from canvas.events.stream_sequencer import Position, SequencedEvent
from canvas.ids import ActivationId, RunId
from scheduler.views.event_frames import EventSerializer
from scheduler.views.json_values import milliseconds
from store.runs import event_log
from store.runs.event_log import MAX_LIMIT, EventDetails, LogFilter, LogPage
from store.runs.external_ids import uuid_of
from store.runs.passwords import load_mask

MAX_ENTRIES = 100
_VALUE_FIELDS = ("inputs", "outputs", "reference", "attachment", "downloads")
_NO_DETAILS = EventDetails(None, None, None, None)


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The parameters of a log. `is_log`: only stored events are shown, without the text of messages between them."""

    is_detailed: bool
    has_values: bool
    before: int | None
    limit: int | None
    names: Sequence[str] | None
    node_ids: Sequence[str] | None
    activation: ActivationId | None

    @property
    def is_log(self) -> bool:
        """Return whether any parameter needs the log, and not the sequence with text that streams have."""
        chosen = (self.before, self.limit, self.names, self.node_ids, self.activation)
        return not self.has_values or any(each is not None for each in chosen)


def parse_log_query(
    detail: Literal["0", "1"] = "0",
    values: Literal["full", "none"] = "full",
    before: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    limit: Annotated[int | None, Query(ge=1, le=MAX_LIMIT)] = None,
    name: str | None = None,
    node_id: str | None = None,
    activation: str | None = None,
) -> LogQuery:
    """Return the log that a query asks for. Raises InvalidRequest."""
    parsed = uuid_of(activation) if activation is not None else None
    if activation is not None and parsed is None:
        raise InvalidRequest(f'"activation" is {activation[:64]!r}. An id has 32 hex digits.', field="activation")
    return LogQuery(
        is_detailed=detail == "1",
        has_values=values == "full",
        before=before,
        limit=limit,
        names=parse_list("name", name, MAX_ENTRIES),
        node_ids=parse_list("node_id", node_id, MAX_ENTRIES),
        activation=ActivationId(parsed) if parsed is not None else None,
    )


LogQueryDep = Annotated[LogQuery, Depends(parse_log_query)]


def read_log(
    context: ApiContext, principal: RequestPrincipal, run_id: RunId, after: Position, query: LogQuery
) -> dict[str, Any] | None:
    """Return a page of stored events; None if the run is gone meanwhile. `next` continues in the same direction."""
    chosen = LogFilter(after.event, query.before, query.names, query.node_ids, query.activation)
    limit = query.limit or MAX_LIMIT
    with context.database.transaction() as tx:
        page = event_log.read_log(tx, principal.tenant_id, run_id, chosen, limit=limit, has_values=query.has_values)
        if page is None:
            return None
        canvas = context.versions.get_or_empty(tx, page.run.version_id).canvas
        mask = load_mask(tx, canvas, principal.tenant_id, run_id)
    numbers = [event.number for event, _ in page.events]
    return {
        "events": _events(EventSerializer(page.run, canvas, mask), page, query),
        "position": str(max(numbers, default=after.event)),
        "status": page.run.status,
        "next": numbers[-1] if page.has_more else None,
    }


def add_details(context: ApiContext, run_id: RunId, events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return events of a sequence, which may have text of messages between them, with the activation of each."""
    streams = {event["turn"] for event in events if isinstance(event.get("turn"), str)}
    with context.database.statements() as tx:
        stored = event_log.load_details(tx, run_id, [event["seq"] for event in events if "seq" in event])
        texts = event_log.load_stream_details(tx, run_id, [ActivationId(UUID(each)) for each in sorted(streams)])
    of_streams = {id_.hex: details for id_, details in texts.items()}
    return [
        {
            **event,
            **_details_json(stored.get(event.get("seq", -1)) or of_streams.get(event.get("turn", ""), _NO_DETAILS)),
        }
        for event in events
    ]


def _events(wire: EventSerializer, page: LogPage, query: LogQuery) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for event, details in page.events:
        for position, body in wire.frames(SequencedEvent(Position(event.number), event)):
            made: dict[str, Any] = {"id": str(position), **body}
            if event.name == MESSAGE_RESET:  # the text that stays is known to a reader of the stream only
                made["data"] = {"turn": details.activation.hex if details.activation else ""}
            if not query.has_values and isinstance(made.get("data"), dict):
                made["data"] = {name: value for name, value in made["data"].items() if name not in _VALUE_FIELDS}
            shown.append({**made, **_details_json(details)} if query.is_detailed else made)
    return shown


def _details_json(details: EventDetails) -> dict[str, Any]:
    return {
        "activation": details.activation.hex if details.activation is not None else None,
        "item": details.item,
        "attempt": details.attempt,
        "at": milliseconds(details.at),
    }
