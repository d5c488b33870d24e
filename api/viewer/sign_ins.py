"""Routes with which browsers sign in and out, and the route about this API for pages.

A browser signs in with a token, a one-time code, or the secret of a share, and gets a cookie
(api/requests/cookies.py). All of them are a 404 where EASEL_VIEWER is off.
"""

from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import Any
from uuid import UUID

import structlog
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import Field

from api.http.errors import TooManyTries, Unauthorized, UnknownSecret
from api.http.query_parameters import refuse_unknown_parameters
from api.http.query_values import parse_number, parse_position
from api.http.replies import json_reply, parse_id
from api.http.reply_styles import OwnRoute
from api.http.schemas import Body
from api.pages import page_files
from api.requests.auth import (
    ApiTokenCaller,
    RequestPrincipal,
    Viewer,
    find_caller,
    find_principal,
)
from api.requests.cookies import (
    clear_cookie,
    read_cookie,
    refuse_cross_site,
    refuse_cross_site_sign_in,
    set_cookie,
)
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_READ, NEEDS_RUN, OF_ONE_AGENT
from api.requests.token_bucket import BucketsUnavailable, TokenBuckets
from api.requests.uploads import MAX_UPLOAD_BYTES
from api.viewer.reply_models import AboutReply, CodeReply, SignInListReply
from api.viewer.state import ViewerState, ViewerStateDep
from canvas.errors import InvalidRequest, NotFound
from scheduler.views.json_values import hex_of, iso, milliseconds
from store.db.transaction import Transaction
from store.monitoring import server_info
from store.tenants import run_shares, tenants, viewer_sessions
from store.tenants.scopes import TokenScope, in_order

log = structlog.get_logger()

MAX_TRIES = 10  # sign-ins a minute and address
WINDOW = timedelta(minutes=1)
MAX_LIMIT = 100  # sign-ins of a page
LAST_ID = UUID(int=(1 << 128) - 1)
PREFIX_OF_A_SITE = 64  # bits of an IPv6 address that name a site: the others are free to its owner
UNKNOWN = "This token, code or link is unknown, or is no longer valid."


async def require_sign_ins(request: Request, context: ApiContextDep) -> None:
    """Raise NotFound where browsers cannot sign in, and UnknownParameter for an invalid query."""
    if not context.sign_ins.is_on:
        raise NotFound("Browsers cannot sign in here: EASEL_VIEWER is off.")
    refuse_unknown_parameters(request)


router = APIRouter(tags=["viewer"], route_class=OwnRoute, dependencies=[Depends(require_sign_ins), NEEDS_READ])


class SignInBody(Body):
    """What a browser signs in with: one of these."""

    token: str | None = Field(default=None, max_length=1000, description="An API token, of any kind but `beta`")
    code: str | None = Field(default=None, max_length=1000, description="A one-time code")
    share: str | None = Field(default=None, max_length=1000, description="The secret of a share of one run")

    def secret(self) -> tuple[str, str]:
        """Return the name of the field that is sent, and its value. Raises InvalidRequest."""
        fields = ("token", "code", "share")
        sent = [(name, value) for name in fields if (value := getattr(self, name)) is not None]
        if len(sent) != 1:
            raise InvalidRequest("Send one of `token`, `code` and `share`.", field=sent[1][0] if sent else "token")
        return sent[0]


class ShareOver(UnknownSecret):
    """The share of a secret was revoked or has expired."""

    code = "share_over"


@router.get("/viewer", response_model=AboutReply)
async def about(request: Request, context: ApiContextDep, state: ViewerStateDep) -> Response:
    """Get the release, and for a caller with a token or a cookie who it is and what it may do."""
    shown: dict[str, Any] = {
        "build": page_files.find_build() if page_files.pages_are_served(is_on=context.sign_ins.is_on) else None,
        "release": request.app.version,
        "base": context.sign_ins.base_path,
    }
    try:
        principal = await find_caller(request, context)
    except Unauthorized:
        principal = None
    if principal is None or principal.link is not None:
        return _private({**shown, "signed_in": False})
    return _private({**shown, "signed_in": True, **await _describe(context, state, principal)})


@router.post("/viewer/session", status_code=204, openapi_extra=body_openapi(SignInBody))
async def sign_in(request: Request, context: ApiContextDep, state: ViewerStateDep, body: SmallBody) -> Response:
    """Sign in a browser with a token, a code or a share: 204 with its cookie.

    401 `unknown` for what is unknown or over, `share_over` for a share that is; 429 after ten tries a minute and
    address.
    """
    earlier = read_cookie(request, context.sign_ins)
    if earlier is None:
        refuse_cross_site_sign_in(request)
    else:
        refuse_cross_site(request)
    await run_in_thread(lambda: _count_try(state.buckets, request))
    kind, secret = parse_body(SignInBody, body).secret()
    agent = "".join(filter(str.isprintable, request.headers.get("user-agent", "")))
    cookie = await run_in_thread(lambda: _exchange(context, kind, secret.strip(), agent, earlier))
    state.count_sign_in(kind)
    reply = Response(status_code=204, headers={"Cache-Control": "no-store"})
    set_cookie(reply, request, context.sign_ins, cookie)
    return reply


@router.delete("/viewer/session", status_code=204)
async def sign_out(request: Request, context: ApiContextDep) -> Response:
    """End the sign-in of the cookie, and remove the cookie. An ended sign-in gets the same reply."""
    cookie = read_cookie(request, context.sign_ins)
    if cookie is None:
        raise Unauthorized
    refuse_cross_site(request)
    await run_in_thread(lambda: _end_by_secret(context, cookie))
    reply = Response(status_code=204, headers={"Cache-Control": "no-store", "Clear-Site-Data": '"cache"'})
    clear_cookie(reply, request, context.sign_ins)
    return reply


@router.get("/viewer/sessions_of_mine", response_model=SignInListReply, dependencies=[OF_ONE_AGENT])
def list_sign_ins(context: ApiContextDep, principal: Viewer, before: str = "", limit: str = "50") -> Response:
    """List the browsers that are signed in with the caller's token, the newest first."""
    most = parse_number("limit", limit, MAX_LIMIT)
    assert principal.token_id is not None  # only visitors of a share have none
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        found = viewer_sessions.list_of_token(
            tx,
            principal.tenant_id,
            principal.token_id,
            before=parse_position("before", before) or LAST_ID,
            limit=most + 1,
        )
    shown = [
        {
            "id": each.id.hex,
            "kind": each.kind,
            "created_at": iso(each.created_at),
            "last_seen_at": iso(each.last_seen_at),
            "expires_at": iso(each.expires_at),
            "agent": each.agent,
            "is_current": each.id == principal.session_id,
        }
        for each in found[:most]
    ]
    return _private(
        {"now": milliseconds(now), "sessions": shown, "next": shown[-1]["id"] if len(found) > most else None}
    )


@router.delete("/viewer/sessions_of_mine/{sign_in_id}", status_code=204, dependencies=[NEEDS_RUN, OF_ONE_AGENT])
def end_sign_in(context: ApiContextDep, principal: Viewer, sign_in_id: str) -> Response:
    """Sign out a browser that is signed in with the caller's token."""
    parsed = parse_id(sign_in_id)
    if parsed is None:
        raise NotFound(f"There is no sign-in {sign_in_id[:64]}.")
    assert principal.token_id is not None  # only visitors of a share have none
    with context.database.transaction() as tx:
        viewer_sessions.end(tx, principal.tenant_id, principal.token_id, parsed)
    return Response(status_code=204)


@router.post("/viewer/codes", status_code=201, response_model=CodeReply, dependencies=[NEEDS_RUN, OF_ONE_AGENT])
def create_code(context: ApiContextDep, principal: ApiTokenCaller) -> Response:
    """Create a code with which a browser signs in once, within ten minutes, as with the token of this request."""
    assert principal.token_id is not None  # a caller with a token
    with context.database.transaction() as tx:
        code, expires_at = viewer_sessions.create_code(tx, principal.tenant_id, principal.token_id)
    return _private({"code": code, "expires_at": iso(expires_at)}, 201)


# -- about ------------------------------------------------------------------------------------------------------------
async def _describe(context: ApiContext, state: ViewerState, principal: RequestPrincipal) -> dict[str, Any]:
    """Return who the caller is. Visitors of a share learn nothing about the tenant."""
    share = principal.share
    if share is not None:
        return {
            "kind": principal.kind,
            "may": ["answer"] if share.may_answer else [],
            "share": {
                "run_id": share.run_id.hex,
                "hide": sorted(each.value for each in share.hide),
                "may_answer": share.may_answer,
                "expires_at": iso(share.expires_at),
            },
        }
    name = await run_in_thread(lambda: _tenant_name(context, principal))
    rights = {
        "read": True,
        "change": principal.has(TokenScope.RUN) and principal.has(TokenScope.EDIT),
        "share": principal.may_share and context.sign_ins.may_share,
        "administer": principal.has(TokenScope.ADMIN),
    }
    return {
        "flower_url": state.flower_url,
        "tenant": {"id": principal.tenant_id.hex, "name": name},
        "user_id": principal.user_id,
        "kind": principal.kind,
        "scopes": in_order(principal.scopes),
        "agent_id": hex_of(principal.agent),
        "may": [right for right, is_given in rights.items() if is_given],
        "model_calls": state.model_calls,
        "limits": {
            "body_bytes": context.max_body_bytes,
            "canvas_bytes": context.max_canvas_bytes,
            "upload_bytes": MAX_UPLOAD_BYTES,
            "share_days": run_shares.MAX_LIFETIME.days,
        },
    }


def _tenant_name(context: ApiContext, principal: RequestPrincipal) -> str | None:
    with context.database.statements() as tx:
        return tenants.find_name(tx, principal.tenant_id)


def _private(body: Any, status: int = 200) -> Response:
    return json_reply(body, status, {"Cache-Control": "no-store"})


# -- sign in ----------------------------------------------------------------------------------------------------------
def _exchange(context: ApiContext, kind: str, secret: str, agent: str, earlier: str | None) -> str:
    """Return the cookie for a secret, and end the earlier sign-in of the browser. Raises UnknownSecret."""
    found = find_principal(context, secret) if kind == "token" else None
    with context.database.transaction() as tx:
        if kind == "share":
            cookie = _sign_in_visitor(tx, context, secret, agent)
        else:
            principal = found if kind == "token" else viewer_sessions.use_code(tx, secret)
            if principal is None or principal.kind == tenants.SHARE_LINK:
                raise UnknownSecret(UNKNOWN)
            cookie = viewer_sessions.sign_in_with_token(tx, principal, agent)
        if earlier is not None:
            viewer_sessions.end_by_secret(tx, earlier)
    return cookie


def _sign_in_visitor(tx: Transaction, context: ApiContext, secret: str, agent: str) -> str:
    found = run_shares.find_by_secret(tx, secret) if context.sign_ins.has_shares else None
    if found is None:
        raise UnknownSecret(UNKNOWN)
    if not found.is_valid:
        raise ShareOver(
            f"This share {'was revoked' if found.was_revoked else 'has expired'}. Ask its owner for a new one."
        )
    return viewer_sessions.sign_in_with_share(tx, found.tenant_id, found.share, agent)


def _count_try(buckets: TokenBuckets, request: Request) -> None:
    """Count a try of the client's address. Raises TooManyTries.

    Without Redis nothing is counted: secrets are too long to be guessed, and people still have to see their runs.
    """
    seconds = int(WINDOW.total_seconds())
    try:
        if buckets.take_named(f"sign-in:{site_of(request.client.host if request.client else '')}", MAX_TRIES, seconds):
            return
    except BucketsUnavailable as error:
        log.warning("sign_ins_not_counted", error=str(error.__cause__))
        return
    wait = -(-seconds // MAX_TRIES)
    raise TooManyTries(
        f"Too many sign-ins from this address: {MAX_TRIES} a minute. Try again in {wait} s.", retry_after=wait
    )


def site_of(address: str) -> str:
    """Return the address for which tries are counted: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    return str(ip_network((parsed, PREFIX_OF_A_SITE), strict=False))


def _end_by_secret(context: ApiContext, cookie: str) -> None:
    with context.database.statements() as tx:
        viewer_sessions.end_by_secret(tx, cookie)
