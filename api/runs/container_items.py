"""The items of a container of a run, in columns."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.http.replies import large_json_reply
from api.http.reply_styles import OwnRoute
from api.requests.auth import RunViewer
from api.requests.dependencies import ApiContextDep
from api.requests.scopes import NEEDS_READ
from api.runs.reply_models import ItemListReply
from api.runs.run_lookup import find_run_id
from api.visitors.redaction import Redaction
from canvas.budget import usage_json
from canvas.errors import InvalidRequest, NotFound
from canvas.ids import ActivationId
from scheduler.views.activation_columns import shorten_error
from scheduler.views.json_values import milliseconds
from store.db.transaction import USE_SNAPSHOT
from store.runs import container_items
from store.runs.container_items import MAX_ERROR_LENGTH, ItemOrder, ItemPage, ItemRow, ItemState, NotAContainer
from store.runs.external_ids import uuid_of

router = APIRouter(tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_READ])

COLUMNS = (
    "item", "state", "created_at", "started_at", "ended_at", "steps", "failed", "attempts", "tokens", "cost",
)  # fmt: skip


@router.get("/runs/{run_id}/items", response_model=ItemListReply)
def list_items(
    request: Request,
    context: ApiContextDep,
    principal: RunViewer,
    run_id: str,
    of: str,
    first: Annotated[int, Query(alias="from", ge=0, lt=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=2_000)] = 2_000,
    state: ItemState | None = None,
    order: ItemOrder = ItemOrder.ITEM,
) -> Response:
    """List the items of a container, `of` its activation, from the row number `from` on in the chosen order."""
    container = uuid_of(of)
    try:
        with context.database.transaction() as tx:
            tx.execute(USE_SNAPSHOT)
            found_id = find_run_id(tx, principal.tenant_id, run_id)
            page = (
                container_items.read_items(
                    tx, found_id, ActivationId(container), order=order, state=state, first=first, limit=limit
                )
                if container is not None
                else None
            )
    except NotAContainer:
        message = f'"of" names {of[:64]}, which has not opened a container. Name an activation of an Iteration or Loop.'
        raise InvalidRequest(message, field="of") from None
    if page is None:
        raise NotFound(f"The run has no activation {of[:64]}.")
    return large_json_reply(request, page_json(page, first + limit, Redaction.of(principal)))


def page_json(page: ItemPage, following: int, redaction: Redaction) -> dict[str, Any]:
    """Return a page of items as the reply shows it to a caller. `following`: the number of the row after the page."""
    rows = redaction.items(page.rows)
    return {
        "now": milliseconds(page.now),
        "count": page.count,
        "done": page.ended,
        "columns": COLUMNS,
        "rows": [_compact(row) for row in rows],
        "error_of": {str(row.item): shorten_error(row.error, MAX_ERROR_LENGTH) for row in rows if row.error},
        "next": following if page.has_more else None,
    }


def _compact(row: ItemRow) -> list[Any]:
    usage = usage_json({name: int(amount) for name, amount in (row.usage or {}).items()})
    return [*row[:8], usage.get("total_tokens", 0), usage.get("cost")]
