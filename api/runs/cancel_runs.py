"""The route that cancels many runs with one request."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.replies import json_reply
from api.http.reply_styles import OwnRoute
from api.http.schemas import CancelRunsBody
from api.requests.auth import Viewer
from api.requests.dependencies import ApiContextDep
from api.requests.idempotency import OnceByViewer
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_RUN, OF_ONE_AGENT
from api.runs.reply_models import CancelledRunsReply
from scheduler.lifecycle import cancellation

router = APIRouter(tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_RUN])


@router.post(
    "/runs/cancel",
    response_model=CancelledRunsReply,
    openapi_extra=body_openapi(CancelRunsBody),
    dependencies=[OF_ONE_AGENT],
)
def cancel_runs(context: ApiContextDep, principal: Viewer, body: SmallBody, once: OnceByViewer) -> Response:
    """Cancel up to 500 runs by their ids or external ids: those that were cancelled, were over, or are unknown.

    The lists have the ids of the request, each once.
    """
    fields = parse_body(CancelRunsBody, body)
    once.check_repeat(context.database)
    done = cancellation.cancel_runs(
        context.lifecycle, principal.tenant_id, fields.ids, canvas_id=principal.agent, by=principal.actor
    )
    reply = json_reply(
        {
            "cancelled": [each.written for each in done if each.run_id is not None and not each.was_over],
            "over": [each.written for each in done if each.was_over],
            "unknown": [each.written for each in done if each.run_id is None],
        }
    )
    with once.transaction(context.database) as tx:
        return once.store_reply(tx, reply)
