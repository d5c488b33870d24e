"""The activations of a run as a flat list in columns, for the views of large runs."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.http.query_values import parse_list
from api.http.replies import large_json_reply
from api.http.reply_styles import OwnRoute
from api.requests.auth import RunViewer
from api.requests.dependencies import ApiContextDep
from api.requests.scopes import NEEDS_READ
from api.runs.reply_models import ActivationListReply
from api.runs.run_lookup import find_run_id, run_not_found
from api.visitors.redaction import Redaction
from canvas.errors import InvalidRequest
from canvas.ids import ActivationId, RunId
from scheduler.views.activation_columns import COLUMNS, StringTable, stored_status, to_columns
from scheduler.views.json_values import milliseconds
from store.db.transaction import Transaction
from store.runs import activation_list, step_times
from store.runs.activation_list import ActivationFilter, ActivationPage, UnknownActivation
from store.runs.external_ids import uuid_of
from store.runs.step_times import may_have_attempts

router = APIRouter(tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_READ])

MAX_LIMIT = 2_000
MAX_IDS = 200
MAX_ATTEMPTS = 5_000  # earlier attempts of a page's rows
ALL_SCOPES = "*"
ATTEMPT_COLUMNS = ("row", "attempt", "ready_at", "started_at", "ended_at", "end_reason")


@router.get("/runs/{run_id}/activations", response_model=ActivationListReply)
def list_activations(
    request: Request,
    context: ApiContextDep,
    principal: RunViewer,
    run_id: str,
    scope: str = ALL_SCOPES,
    within: str | None = None,
    items: str | None = None,
    node_id: str | None = None,
    status: str | None = None,
    ids: str | None = None,
    since: Annotated[int | None, Query(ge=0, lt=2**31)] = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 500,
    with_: Annotated[Literal["", "attempts"], Query(alias="with")] = "",
) -> Response:
    """List activations in columns; `strings` has the repeated texts, and rows refer to them by number.

    Without filters the order is that of ids; with one, canonical order. `since` lists what may have changed after that
    revision: a copy to which such rows are applied again and again has the rows of the run. `with=attempts` adds the
    earlier attempts of the rows.
    """
    chosen = ActivationFilter(
        scope=None if scope == ALL_SCOPES else scope,
        entry=within,
        items=_item_range(items, within),
        node_ids=parse_list("node_id", node_id, MAX_IDS),
        statuses=[stored_status(name) for name in parse_list("status", status, MAX_IDS) or ()] or None,
        ids=[_activation_id("ids", each) for each in parse_list("ids", ids, MAX_IDS) or ()] or None,
    )
    after_id = _activation_id("after", after) if after is not None else None
    with context.database.statements() as tx:
        found_id = find_run_id(tx, principal.tenant_id, run_id)
    try:
        with context.database.transaction() as tx:
            page = activation_list.read_page(
                tx, principal.tenant_id, found_id, chosen, since=since, after=after_id, limit=limit
            )
            earlier = _attempts_json(tx, found_id, page) if page is not None and with_ else {}
    except UnknownActivation:
        message = f'"after" names {after}, which is not an activation of this run. Use the "next" of a page.'
        raise InvalidRequest(message, field="after") from None
    if page is None:
        raise run_not_found(run_id)
    return large_json_reply(request, {**page_json(page, Redaction.of(principal)), **earlier})


def page_json(page: ActivationPage, redaction: Redaction) -> dict[str, Any]:
    """Return a page of activations as the reply shows it to a caller."""
    strings = StringTable()
    rows = to_columns(redaction.rows(page.rows), page.last_finished, strings)
    return {
        "now": milliseconds(page.now),
        "revision": page.revision,
        "columns": COLUMNS,
        "strings": strings.texts,
        "rows": rows,
        "next": page.rows[-1].id if page.has_more else None,
        "total": page.total,
    }


def _attempts_json(tx: Transaction, run_id: RunId, page: ActivationPage) -> dict[str, Any]:
    """Return the earlier attempts of a page's rows, each with the number of its row."""
    numbers = {row.id: number for number, row in enumerate(page.rows)}
    ids = [ActivationId(UUID(hex=row.id)) for row in page.rows if may_have_attempts(row.status, row.attempt)]
    found = step_times.load_attempts(tx, run_id, ids, MAX_ATTEMPTS + 1)
    shown = sorted(found[:MAX_ATTEMPTS], key=lambda each: (numbers[each.activation_id], each.attempt))
    return {
        "attempt_columns": ATTEMPT_COLUMNS,
        "attempts": [[numbers[each.activation_id], *each[1:]] for each in shown],
        "attempts_cut": len(found) > MAX_ATTEMPTS,
    }


def _activation_id(field: str, written: str) -> ActivationId:
    parsed = uuid_of(written)
    if parsed is None:
        message = f'"{field}" has {written[:64]!r}, which is not an activation id. An id has 32 hex digits.'
        raise InvalidRequest(message, field=field)
    return ActivationId(parsed)


def _item_range(written: str | None, within: str | None) -> tuple[int, int] | None:
    """Return the first and the last item of `0-499`. Raises InvalidRequest."""
    if written is None:
        return None
    first, _, last = written.partition("-")
    is_range = all(part.isascii() and part.isdigit() and len(part) < 10 for part in (first, last))
    if within is None or not is_range or int(first) > int(last):
        message = f'"items" is {written[:64]!r}. Write it as 0-499, together with "within".'
        raise InvalidRequest(message, field="items")
    return int(first), int(last)
