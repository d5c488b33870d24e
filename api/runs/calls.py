"""Easel's own routes of what a run did inside its activations: model calls, tool calls, earlier attempts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from api.http.query_values import parse_number, parse_position
from api.http.replies import json_reply, parse_id
from api.http.reply_styles import OwnRoute
from api.requests.auth import RequestPrincipal, RunViewer
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.scopes import NEEDS_READ
from api.runs.reply_models import AttemptListReply, ModelCallListReply, ToolCallListReply, WholeModelCallReply
from api.runs.run_lookup import find_run_id
from api.visitors.redaction import Redaction, load_redaction
from canvas.errors import InvalidRequest, NotFound
from canvas.ids import ActivationId
from scheduler.views.call_views import attempt_json, call_json, call_with_bodies_json, tool_call_json
from scheduler.views.json_values import iso
from store.monitoring import server_info
from store.primitives.ids import NO_ID
from store.runs import attempt_records, attempts, model_calls

router = APIRouter(tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_READ])
T = TypeVar("T")

MAX_LIMIT = 500  # entries of a page
DEFAULT_LIMIT = "100"


@dataclass(frozen=True, slots=True)
class CallQuery:
    """Which entries of a run a page has: those of one activation, or all; after a position; at most so many."""

    activation_id: ActivationId | None
    after: str
    most: int

    @property
    def after_id(self) -> UUID:
        """The position as an id. Raises InvalidRequest."""
        return parse_position("after", self.after) or NO_ID


def call_query(activation_id: str = "", after: str = "", limit: str = DEFAULT_LIMIT) -> CallQuery:
    """Parse the query of a list. Raises InvalidRequest."""
    return CallQuery(_parse_activation(activation_id), after, parse_number("limit", limit, MAX_LIMIT))


CallQueryDep = Annotated[CallQuery, Depends(call_query)]


@router.get("/runs/{run_id}/model_calls", response_model=ModelCallListReply)
def list_model_calls(context: ApiContextDep, principal: RunViewer, run_id: str, query: CallQueryDep) -> Response:
    """List the model calls of a run, or of one activation, oldest first and without their bodies.

    `next` is the `after` of the next page, null on the last one.
    """
    after = query.after_id
    return _list_page(
        context,
        principal,
        run_id,
        query,
        "calls",
        read=partial(model_calls.list_calls, after=after),
        as_json=lambda redaction, call: redaction.model_call(call_json(call)),
        position=lambda call: call.id.hex,
    )


@router.get("/runs/{run_id}/model_calls/{call_id}", response_model=WholeModelCallReply)
def get_model_call(context: ApiContextDep, principal: RunViewer, run_id: str, call_id: str) -> Response:
    """Get a model call with its request and response, as far as they are stored."""
    chosen_call = parse_id(call_id)
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        chosen_run = find_run_id(tx, principal.tenant_id, run_id)
        call = model_calls.get_call(tx, principal.tenant_id, chosen_run, chosen_call) if chosen_call else None
        if call is None:
            raise NotFound(f"The run has no model call {call_id[:64]}, or it was deleted after its retention.")
        bodies = model_calls.load_bodies(tx, chosen_run, call)
        redaction = load_redaction(tx, principal)
    return json_reply(redaction.model_call({"now": iso(now), **call_with_bodies_json(call, bodies)}))


@router.get("/runs/{run_id}/attempts", response_model=AttemptListReply)
def list_attempts(context: ApiContextDep, principal: RunViewer, run_id: str, query: CallQueryDep) -> Response:
    """List the attempts after which an activation became ready again, by activation and number.

    The latest attempt of an activation is the activation itself. A run without retries has none here.
    """
    after = _parse_attempt(query.after)
    return _list_page(
        context,
        principal,
        run_id,
        query,
        "attempts",
        read=partial(attempts.list_attempts, after=after),
        as_json=lambda redaction, one: redaction.attempt(attempt_json(one)),
        position=lambda one: f"{one.activation_id.hex}.{one.attempt}",
    )


@router.get("/runs/{run_id}/tool_calls", response_model=ToolCallListReply)
def list_tool_calls(context: ApiContextDep, principal: RunViewer, run_id: str, query: CallQueryDep) -> Response:
    """List the tool calls of a run, or of one activation, oldest first, replayed ones included."""
    after = query.after_id
    return _list_page(
        context,
        principal,
        run_id,
        query,
        "tool_calls",
        read=partial(attempt_records.list_calls_of_run, after=after),
        as_json=lambda redaction, call: redaction.tool_call(tool_call_json(call)),
        position=lambda call: call.id.hex,
    )


def _list_page(
    context: ApiContext,
    principal: RequestPrincipal,
    run_id: str,
    query: CallQuery,
    name: str,
    *,
    read: Callable[..., Sequence[T]],
    as_json: Callable[[Redaction, T], Mapping[str, Any]],
    position: Callable[[T], str],
) -> Response:
    """Return a page of entries of a run under a name; there is a next page if one entry more was found."""
    tenant_id = principal.tenant_id
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        chosen_run = find_run_id(tx, tenant_id, run_id)
        found = read(tx, tenant_id, chosen_run, activation_id=query.activation_id, limit=query.most + 1)
        redaction = load_redaction(tx, principal)
    shown = found[: query.most]
    next_page = position(shown[-1]) if len(found) > query.most else None
    return json_reply({"now": iso(now), name: [as_json(redaction, each) for each in shown], "next": next_page})


def _parse_activation(written: str) -> ActivationId | None:
    if not written:
        return None
    activation_id = parse_id(written)
    if activation_id is None:
        raise InvalidRequest(
            f"`activation_id` is {written[:64]!r}. Use the `id` of an activation of the run.", field="activation_id"
        )
    return ActivationId(activation_id)


def _parse_attempt(written: str) -> tuple[UUID, int]:
    if not written:
        return NO_ID, 0
    activation, _, number = written.partition(".")
    found = parse_id(activation)
    if found is None or not (number.isascii() and number.isdigit() and len(number) <= 9):
        raise InvalidRequest(f"`after` is {written[:64]!r}. Use the `next` of a page.", field="after")
    return found, int(number)
