"""Routes of the shares of a run: links that open this run for people without an account, with parts of it hidden."""

import json
from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from api.http.errors import RepeatedRequest
from api.http.query_values import parse_number, parse_position
from api.http.replies import json_reply, parse_id
from api.http.reply_styles import OwnRoute
from api.http.schemas import Body
from api.requests.auth import RequestPrincipal, Viewer
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.idempotency import IdempotentRequest, OnceByViewer
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from api.runs.reply_models import NewShareReply, ShareListReply
from api.runs.run_lookup import find_run_id, run_not_found
from canvas.errors import Conflict, NotAllowed, NotFound
from canvas.state.run_state import RunStatus
from scheduler.views.json_values import iso
from store.monitoring import server_info
from store.primitives.encryption import seal, unseal
from store.primitives.ids import NO_ID
from store.runs import run_queries
from store.tenants import run_shares
from store.tenants.audit import Action
from store.tenants.run_shares import DEFAULT_LIFETIME, MAX_LIFETIME, Hide, RunShare

router = APIRouter(prefix="/runs/{run_id}/shares", tags=["shares"], route_class=OwnRoute, dependencies=[NEEDS_EDIT])

MAX_VALID = 100  # shares of a run that are not over
MAX_LIMIT = 100  # shares of a page
SEALED = "sealed_secret"  # in the stored reply to a request with an idempotency key


class ShareBody(Body):
    """A new share of a run."""

    expires_in: Annotated[int, Field(ge=60, le=int(MAX_LIFETIME.total_seconds()))] = Field(
        default=int(DEFAULT_LIFETIME.total_seconds()), description="Seconds; 7 days by default, 90 days at most"
    )
    hide: list[Hide] = Field(default_factory=list[Hide], max_length=len(Hide), description="What visitors do not see")
    may_answer: bool = Field(default=False, description="Whether visitors may answer the open forms of the run")
    note: Annotated[str, Field(max_length=200)] = Field(default="", description="For whom the share is; owners see it")


@router.post("", status_code=201, response_model=NewShareReply, openapi_extra=body_openapi(ShareBody))
def create_share(
    context: ApiContextDep, principal: Viewer, run_id: str, body: SmallBody, once: OnceByViewer
) -> Response:
    """Share a run: 201 with the link and its secret, which are shown once.

    It needs the right to share: a token of kind `admin`, or one made with `easel tokens create --may-share`.
    """
    _require_right(context, principal)
    fields = parse_body(ShareBody, body)
    assert principal.token_id is not None  # only visitors of a share have none
    try:
        return _create(context, principal, principal.token_id, run_id, fields, once)
    except RepeatedRequest as repeat:
        raise RepeatedRequest(_with_secret(context, principal, json.loads(bytes(repeat.reply.body)))) from None


@router.get("", response_model=ShareListReply, dependencies=[NEEDS_READ])
def list_shares(context: ApiContextDep, principal: Viewer, run_id: str, after: str = "", limit: str = "50") -> Response:
    """List the shares of a run, the oldest first, without their secrets; those that are over for 30 days more."""
    most = parse_number("limit", limit, MAX_LIMIT)
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        chosen_run = find_run_id(tx, principal.tenant_id, run_id)
        first = parse_position("after", after) or NO_ID
        found = run_shares.list_shares(tx, principal.tenant_id, chosen_run, after=first, limit=most + 1)
    shown = [_share_json(share) for share in found[:most]]
    return json_reply({"now": iso(now), "shares": shown, "next": shown[-1]["id"] if len(found) > most else None})


@router.delete("/{share_id}", status_code=204)
def revoke_share(context: ApiContextDep, principal: Viewer, run_id: str, share_id: str) -> Response:
    """Revoke a share: it opens nothing from the next request on, and open streams end within seconds."""
    _require_right(context, principal)
    parsed = parse_id(share_id)
    with context.database.transaction() as tx:
        chosen_run = find_run_id(tx, principal.tenant_id, run_id)
        if parsed is None:
            raise NotFound(f"The run has no share {share_id[:64]}.")
        run_shares.revoke(tx, principal.tenant_id, chosen_run, parsed)
        principal.record(tx, Action.SHARE_REVOKED, parsed, run_id=chosen_run.hex)
    return Response(status_code=204)


def _create(
    context: ApiContext,
    principal: RequestPrincipal,
    token_id: UUID,
    run_id: str,
    fields: ShareBody,
    once: IdempotentRequest,
) -> Response:
    with once.transaction(context.database) as tx:
        run = run_queries.get_summary(tx, principal.tenant_id, find_run_id(tx, principal.tenant_id, run_id))
        if run is None:
            raise run_not_found(run_id)
        if run.status == RunStatus.REFUSED:
            raise Conflict("The start of this run was refused, so there is nothing to share.")
        if run_shares.count_valid(tx, principal.tenant_id, run.id) >= MAX_VALID:
            raise Conflict(f"The run has {MAX_VALID} shares that are not over. Revoke one of them first.")
        share, secret = run_shares.create(
            tx,
            principal.tenant_id,
            run.id,
            run.canvas_id,
            created_by=token_id,
            expires_in=timedelta(seconds=fields.expires_in),
            hide=set(fields.hide),
            may_answer=fields.may_answer,
            note=fields.note,
        )
        details = {"run_id": run.id.hex, "may_answer": fields.may_answer, "hide": list(share.hide)}
        principal.record(tx, Action.SHARE_CREATED, share.id, **details)
        sealed = seal(context.encryption_key, secret, _binding(principal, share.id.hex))
        stored = json_reply({**_share_json(share), SEALED: b64encode(sealed).decode()}, 201)
        once.store_reply(tx, stored)
    return _with_secret(context, principal, json.loads(bytes(stored.body)))


def _with_secret(context: ApiContext, principal: RequestPrincipal, stored: dict[str, Any]) -> Response:
    """Return the reply about a new share. For a repeat of the request it is stored, with its secret encrypted."""
    sealed = b64decode(stored.pop(SEALED))
    secret = unseal(context.encryption_key, sealed, _binding(principal, stored["id"]))
    url = f"{context.sign_ins.base_path}/s#{secret}"
    return json_reply({**stored, "url": url, "secret": secret}, 201, {"Cache-Control": "no-store"})


def _binding(principal: RequestPrincipal, share_id: str) -> str:
    return f"run_shares/{principal.tenant_id}/{share_id}"


def _require_right(context: ApiContext, principal: RequestPrincipal) -> None:
    """Raise NotAllowed if the caller may not share runs, or if shares are switched off."""
    if not context.sign_ins.may_share:
        raise NotAllowed("Runs are not shared here: EASEL_SHARES or EASEL_VIEWER is off.")
    if not principal.may_share:
        raise NotAllowed(
            "To share runs, a token needs the right to: `easel tokens create --may-share`. Tokens with the scope "
            "`admin` have it."
        )


def _share_json(share: RunShare) -> dict[str, Any]:
    return {
        "id": share.id.hex,
        "run_id": share.run_id.hex,
        "created_by": share.created_by.hex,
        "created_at": iso(share.created_at),
        "expires_at": iso(share.expires_at),
        "hide": list(share.hide),
        "may_answer": share.may_answer,
        "note": share.note,
        "revoked_at": iso(share.revoked_at),
        "last_used_at": iso(share.last_used_at),
        "uses": share.uses,
        "is_over": not share.is_valid,
    }
