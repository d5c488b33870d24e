"""Routes of API tokens: make, list, revoke.

A token makes tokens with at most its own rights: its scopes, its agent, its time. It lists and revokes itself and those
that it has made; with the scope `admin`, all tokens of the tenant.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from api.http.errors import RepeatedRequest
from api.http.query_values import parse_number, parse_position, parse_time
from api.http.replies import json_reply, parse_canvas_id, parse_id
from api.http.reply_styles import OwnRoute
from api.http.schemas import Body
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.idempotency import IdempotentRequest, OnceByBody
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_EDIT, OF_ONE_AGENT
from api.viewer.reply_models import NewTokenReply, TokenListReply
from canvas.errors import InvalidRequest, NotAllowed, NotFound
from canvas.ids import CanvasId
from scheduler.views.json_values import hex_of, iso
from store.db.transaction import Transaction
from store.monitoring import server_info
from store.primitives.encryption import seal, unseal
from store.tenants import tenants
from store.tenants.audit import Action
from store.tenants.scopes import TokenScope, in_order, parse_scopes
from store.tenants.tenants import LAST_ID, Token

router = APIRouter(prefix="/tokens", tags=["tokens"], route_class=OwnRoute, dependencies=[NEEDS_EDIT, OF_ONE_AGENT])

MAX_LIFETIME = timedelta(days=3650)
MAX_LIMIT = 100  # tokens of a page
SEALED = "sealed_token"  # in the stored reply to a request with an idempotency key


class TokenBody(Body):
    """A new token."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="What the token is for")
    scopes: list[str] = Field(
        default=["read", "run", "edit"],
        max_length=len(TokenScope),
        description="read, run, edit, admin (includes these three); or share alone: chat with one published agent",
    )
    agent_id: str | None = Field(default=None, description="The only agent that the token opens; share needs one")
    expires_in: Annotated[int, Field(ge=60, le=int(MAX_LIFETIME.total_seconds()))] | None = Field(
        default=None, description="Seconds until the token is refused"
    )
    expires_at: str | None = Field(default=None, description="Or the time, in ISO 8601. Without either: never")
    may_share: bool = Field(default=False, description="The token may share single runs (needs the scope edit)")

    def parse_end(self) -> datetime | None:
        """Return when the token expires; None: never. Raises InvalidRequest."""
        now = datetime.now(UTC)
        if self.expires_at is None:
            return now + timedelta(seconds=self.expires_in) if self.expires_in is not None else None
        if self.expires_in is not None:
            raise InvalidRequest("Send `expires_in` or `expires_at`, not both.", field="expires_at")
        moment = parse_time("expires_at", self.expires_at)
        if not now < moment <= now + MAX_LIFETIME:
            message = f"`expires_at` is {self.expires_at[:64]!r}. Use a time in the next {MAX_LIFETIME.days} days."
            raise InvalidRequest(message, field="expires_at")
        return moment


@router.post("", status_code=201, response_model=NewTokenReply, openapi_extra=body_openapi(TokenBody))
def create_token(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, once: OnceByBody) -> Response:
    """Make a token: 201 with its text, which is shown once. It has at most the rights of the caller's token.

    A repeat with the same `Idempotency-Key` by the same caller gets the text again; it is stored encrypted for that.
    """
    assert principal.token_id is not None  # a caller with a token
    # the key belongs to this token: another one with fewer rights must not get the text by a repeat
    once = replace(once, route=f"{once.route} by {principal.token_id.hex}")
    fields = parse_body(TokenBody, body)
    try:
        return _create(context, principal, principal.token_id, fields, once)
    except RepeatedRequest as repeat:
        raise RepeatedRequest(_with_text(context, principal, json.loads(bytes(repeat.reply.body)))) from None


@router.get("", response_model=TokenListReply)
def list_tokens(context: ApiContextDep, principal: ApiTokenCaller, before: str = "", limit: str = "50") -> Response:
    """List tokens, the newest first, never with their text; those that are over for 30 days more.

    With the scope `admin` all of the tenant, else the caller's token and those that it has made.
    """
    most = parse_number("limit", limit, MAX_LIMIT)
    maker = None if principal.has(TokenScope.ADMIN) else principal.token_id
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        last = parse_position("before", before) or LAST_ID
        found = tenants.page(tx, principal.tenant_id, maker=maker, before=last, limit=most + 1)
    shown = [token_json(token, now) for token in found[:most]]
    return json_reply({"now": iso(now), "tokens": shown, "next": shown[-1]["id"] if len(found) > most else None})


@router.delete("/{token_id}", status_code=204)
def revoke_token(
    context: ApiContextDep, principal: ApiTokenCaller, token_id: str, with_made: Literal["0", "1"] = "0"
) -> Response:
    """Revoke a token, which may be the caller's: it is refused from the next request on, and its sign-ins end.

    `with_made=1`: also all tokens that it has made, and those that these have made.
    """
    parsed = parse_id(token_id)
    with context.database.transaction() as tx:
        found = tenants.find_token(tx, principal.tenant_id, parsed) if parsed is not None else None
        if found is None or not _may_revoke(principal, found):
            raise NotFound(f"There is no token {token_id[:64]}.")
        tenants.revoke_token(tx, principal.tenant_id, found.id)
        if found.revoked_at is None:
            principal.record(tx, Action.TOKEN_REVOKED, found.id, name=found.name)
        made = tenants.revoke_made(tx, principal.tenant_id, found.id) if with_made == "1" else ()
        for each in made:
            principal.record(tx, Action.TOKEN_REVOKED, each, made_by=found.id.hex)
    return Response(status_code=204)


def token_json(token: Token, now: datetime) -> dict[str, Any]:
    """Return a token as lists show it."""
    is_over = token.revoked_at is not None or (token.expires_at is not None and token.expires_at <= now)
    return {
        "id": token.id.hex,
        "prefix": token.prefix,
        "name": token.name,
        "kind": token.kind,
        "scopes": in_order(token.scopes),
        "agent_id": hex_of(token.canvas_id),
        "may_share": token.may_share or TokenScope.ADMIN in token.scopes,
        "created_at": iso(token.created_at),
        "created_by": hex_of(token.created_by),
        "expires_at": iso(token.expires_at),
        "last_used_at": iso(token.last_used_at),
        "revoked_at": iso(token.revoked_at),
        "is_over": is_over,
    }


def _create(
    context: ApiContext, principal: RequestPrincipal, token_id: UUID, fields: TokenBody, once: IdempotentRequest
) -> Response:
    scopes, expires_at = parse_scopes(fields.scopes), fields.parse_end()
    canvas_id = _parse_agent(fields.agent_id)
    with once.transaction(context.database) as tx:
        _refuse_more_rights(tx, principal, token_id, scopes, canvas_id, expires_at, may_share=fields.may_share)
        made_id, plain = tenants.create_token(
            tx,
            principal.tenant_id,
            fields.name,
            scopes=scopes,
            canvas_id=canvas_id,
            expires_at=expires_at,
            may_share=fields.may_share,
            created_by=token_id,
        )
        made = tenants.find_token(tx, principal.tenant_id, made_id)
        assert made is not None  # since it was stored in this transaction
        shown = token_json(made, made.created_at)
        principal.record(
            tx, Action.TOKEN_CREATED, made_id, name=made.name, scopes=shown["scopes"], agent_id=shown["agent_id"]
        )
        sealed = seal(context.encryption_key, plain, _binding(principal, shown["id"]))
        stored = {**shown, SEALED: b64encode(sealed).decode()}
        once.store_reply(tx, json_reply(stored, 201))
    return _with_text(context, principal, stored)


def _with_text(context: ApiContext, principal: RequestPrincipal, stored: Mapping[str, Any]) -> Response:
    """Return the reply about a new token. For a repeat of the request it is stored, with the text encrypted."""
    plain = unseal(context.encryption_key, b64decode(stored[SEALED]), _binding(principal, stored["id"]))
    shown = {name: value for name, value in stored.items() if name != SEALED}
    return json_reply({**shown, "token": plain}, 201, {"Cache-Control": "no-store"})


def _binding(principal: RequestPrincipal, token_id: str) -> str:
    return f"tokens/{principal.tenant_id}/{token_id}"


def _refuse_more_rights(
    tx: Transaction,
    principal: RequestPrincipal,
    token_id: UUID,
    scopes: frozenset[TokenScope],
    canvas_id: CanvasId | None,
    expires_at: datetime | None,
    *,
    may_share: bool,
) -> None:
    """Raise NotAllowed for a token with more rights than that of the caller. `edit` gives away share links."""
    if missing := in_order(scopes - principal.scopes - {TokenScope.SHARE}):
        raise NotAllowed(f"The caller's token does not have these scopes itself: {', '.join(missing)}.", field="scopes")
    if principal.agent is not None and canvas_id != principal.agent:
        raise NotAllowed(f"The caller's token opens the agent {principal.agent.hex} only. Name it.", field="agent_id")
    if may_share and not principal.may_share:
        raise NotAllowed("The caller's token does not have the right to share runs itself.", field="may_share")
    own = tenants.find_token(tx, principal.tenant_id, token_id)
    assert own is not None  # since it made the request
    if own.expires_at is not None and (expires_at is None or expires_at > own.expires_at):
        raise NotAllowed(
            f"The caller's token expires at {iso(own.expires_at)}. Let the new one expire by then.", field="expires_at"
        )


def _parse_agent(written: str | None) -> CanvasId | None:
    if written is None:
        return None
    canvas_id = parse_canvas_id(written)
    if canvas_id is None:
        raise NotFound(f"There is no agent {written[:64]}.", field="agent_id")
    return canvas_id


def _may_revoke(principal: RequestPrincipal, token: Token) -> bool:
    return principal.has(TokenScope.ADMIN) or principal.token_id in (token.id, token.created_by)
