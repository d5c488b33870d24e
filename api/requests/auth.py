"""Authentication: turn a bearer token, or the cookie of a sign-in, into a RequestPrincipal.

RAGFlow's API has users and no tenants, so the caller's tenant id is also the user id. A token has scopes
(store/tenants/scopes.py), and may be limited to one agent. Each route names the scope that it needs
(api/requests/scopes.py); the functions here check it, and that what the path names belongs to the agent of the token.
A token with the scope `share` is a share link: it is accepted on the routes that depend on `AnyTokenCaller`,
`FileViewer` or `FileUploader`, for one agent's published version, and for sessions, files and logs that were created by
the link (`RequestPrincipal.link`).

Pages sign in with a token, or with a share of one run, and then have a cookie. It counts on the routes that depend on
`Viewer`, `RunViewer`, `FileViewer` or `FileUploader`, and on no others, so that no other route is open to requests that
other sites send. A share opens the routes that depend on `RunViewer` and `FileUploader`, for its run.
"""

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.http.edge import request_id_of
from api.http.errors import MissingScope, NotOfAgent, NotShared, ReadOnly, RefusedAccess, Unauthorized
from api.http.query_parameters import refuse_unknown_parameters
from api.http.replies import parse_canvas_id, parse_id
from api.requests.cookies import READING_METHODS, read_cookie, refuse_cross_site
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.scopes import confines_callers, scope_of_request
from canvas.ids import CanvasId, TenantId
from store.db.transaction import Transaction
from store.primitives.ids import NO_ID
from store.runs import external_ids
from store.tenants import audit, scopes, tenants, viewer_sessions
from store.tenants.audit import Action, Actor
from store.tenants.run_shares import SharedRun
from store.tenants.scopes import TokenScope
from store.tenants.viewer_sessions import Credential, EndReason, SignIn

_bearer = HTTPBearer(auto_error=False, description="An API token: `easel tokens create`")

NO_AGENT = "This share link names no agent. Request a new link. (Operators: `easel tokens bind TOKEN --agent AGENT`)"


Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
"""The dependency that marks a route in OpenAPI as needing a token."""


@dataclass(frozen=True, slots=True)
class ShareLink:
    """A share link: it opens the published version of one agent, and everything that was created by the link."""

    token_id: UUID
    canvas_id: CanvasId


@dataclass(frozen=True, slots=True)
class RequestPrincipal:
    """The caller. `kind`: `api`, `admin`, `viewer`, `beta` for share links, `share` for shares of one run.

    Only share links have a `link`; only visitors of a share have a `share`, and they have no token. `session_id`: the
    sign-in, for a caller with a cookie. `agent`: the only agent that the token opens, for tokens that are limited to
    one and are no share links. `request_id`: the X-Request-Id of the request.
    """

    tenant_id: TenantId
    user_id: str
    kind: str
    token_id: UUID | None
    link: ShareLink | None = None
    share: SharedRun | None = None
    session_id: UUID | None = None
    has_share_right: bool = False
    scopes: frozenset[TokenScope] = frozenset()
    agent: CanvasId | None = None
    request_id: str | None = None

    def may_use(self, canvas_id: CanvasId) -> bool:
        """Return whether the caller may use an agent of the tenant."""
        if self.share is not None:
            return self.share.canvas_id == canvas_id
        if self.link is not None:
            return self.link.canvas_id == canvas_id
        return self.agent in (None, canvas_id)

    def chosen_agent(self, canvas_id: CanvasId | None) -> CanvasId | None:
        """Return the agent by which a list is filtered, from that of the query.

        With a token of one agent it is this one, or an id that no agent has if the query names another.
        """
        if self.agent is None or canvas_id == self.agent:
            return canvas_id
        return self.agent if canvas_id is None else CanvasId(NO_ID)

    def has(self, scope: TokenScope) -> bool:
        """Return whether the caller has a scope."""
        return scope in self.scopes

    @property
    def may_share(self) -> bool:
        """Whether the caller may share runs of the tenant: administrators, and tokens with this right."""
        return self.has(TokenScope.ADMIN) or (self.has(TokenScope.EDIT) and self.has_share_right)

    @property
    def own_conversations(self) -> UUID | None:
        """The token whose id the caller's new conversations get, so that their runs read only files of this token.

        None for callers who may use all of the tenant.
        """
        return self.token_id if self.link is not None or self.agent is not None else None

    def key_route(self, route: str) -> str:
        """Return the route for idempotency keys of this caller.

        Keys of links, of shares and of tokens of one agent are kept apart from those of other callers.
        """
        if self.share is not None:
            return f"{route} share {self.share.id.hex}"
        if self.link is not None:
            return f"{route} link {self.link.token_id.hex}"
        return f"{route} token {self.token_id.hex}" if self.agent is not None and self.token_id is not None else route

    @property
    def actor(self) -> Actor:
        """The caller as the audit log names it."""
        if self.share is not None:
            return Actor("share", self.share.id, name="visitor", request_id=self.request_id)
        kind = "sign_in" if self.session_id is not None else "share_link" if self.link is not None else "token"
        return Actor(kind, self.session_id or self.token_id, self.token_id, request_id=self.request_id)

    def record(self, tx: Transaction, action: Action, object_id: UUID | str | None, **details: Any) -> None:
        """Add a row of the audit log with the commit of the transaction (store/tenants/audit.py)."""
        audit.record(tx, self.tenant_id, self.actor, action, object_id, details)

    def record_save(self, tx: Transaction, canvas_id: CanvasId) -> None:
        """Count a save of a draft in the audit log. The transaction has locked the draft."""
        audit.record_save(tx, self.tenant_id, self.actor, canvas_id)

    @property
    def uploader_id(self) -> UUID | None:
        """The token or the share by which the caller's files are kept apart; None for callers of the whole tenant."""
        return self.share.id if self.share is not None else self.own_conversations

    @property
    def stream_owner(self) -> UUID | None:
        """What open streams are counted by: the token, or the sign-in, of a visitor too."""
        return self.token_id or self.session_id

    @property
    def credential(self) -> Credential:
        """What streams check again while they are open."""
        return Credential(None if self.session_id is not None else self.token_id, self.session_id)


# -- with a token -----------------------------------------------------------------------------------------------------
async def authenticate(request: Request, context: ApiContextDep, _for_openapi: Bearer) -> RequestPrincipal:
    """Return the caller, with a token that has the scope of the route, or a share link.

    Raises Unauthorized; MissingScope; NotOfAgent for what is not of the only agent of the token; UnknownParameter for
    an invalid query.
    """
    principal = await _principal_of_token(request, context, _written_token(request))
    refuse_unknown_parameters(request)  # here, since every route that returns data depends on the caller
    if principal.link is None:
        await _check_rights(request, context, principal)
    return principal


async def authenticate_api_token(principal: Annotated[RequestPrincipal, Depends(authenticate)]) -> RequestPrincipal:
    """Return the caller, with an API token. Raises Unauthorized, also for share links."""
    if principal.link is not None:
        raise Unauthorized
    return principal


async def authenticate_for(request: Request, context: ApiContext, scope: TokenScope) -> RequestPrincipal:
    """Return the caller of a route without a mark, with an API token. Raises Unauthorized and MissingScope."""
    principal = await _principal_of_token(request, context, _written_token(request))
    if principal.link is not None:
        raise Unauthorized
    _require_scope(principal, scope)
    return principal


async def _check_rights(request: Request, context: ApiContext, principal: RequestPrincipal) -> None:
    """Raise MissingScope without the scope of the route, NotOfAgent for what is not of the token's only agent."""
    _require_scope(principal, scope_of_request(request))
    if principal.agent is not None:
        await _confine(request, context, principal, principal.agent)


def _require_scope(principal: RequestPrincipal, needed: TokenScope) -> None:
    if needed in principal.scopes:
        return
    if principal.scopes == frozenset((TokenScope.READ,)):
        raise ReadOnly(
            f"This token only reads, and the route needs the scope `{needed}`. Use a token that has it.",
            needed=needed.value,
        )
    listed = ", ".join(scopes.in_order(principal.scopes))
    raise MissingScope(
        f"This route needs the scope `{needed}`, and the token has: {listed}. Use a token that has it.",
        needed=needed.value,
    )


async def _confine(request: Request, context: ApiContext, principal: RequestPrincipal, agent: CanvasId) -> None:
    """Raise NotOfAgent unless the path names the agent or its runs, or the route confines its callers itself."""
    path = request.path_params
    written = path.get("agent_id")
    if written is not None and parse_canvas_id(str(written)) != agent:
        raise NotOfAgent(f"There is no agent {str(written)[:64]}.")
    named = [str(path[name]) for name in ("run_id", "other_run_id") if name in path]
    for run in named:
        if not await run_in_thread(lambda run=run: _is_run_of(context, principal.tenant_id, run, agent)):
            raise NotOfAgent(f"There is no run {run[:64]}.")
    if written is None and not named and not confines_callers(request.scope.get("route")):
        raise NotOfAgent("This token opens one agent, and this route is not about one. Use a token of the tenant.")


def _is_run_of(context: ApiContext, tenant_id: TenantId, written: str, agent: CanvasId) -> bool:
    with context.database.statements() as tx:
        return external_ids.is_run_of(tx, tenant_id, written, agent)


def _written_token(request: Request) -> str:
    """Return the token of a request, with or without `Bearer`; "" if there is none."""
    written = request.headers.get("authorization", "").strip()
    scheme, _, rest = written.partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else written  # a bare token is accepted too


async def _principal_of_token(request: Request, context: ApiContext, token: str) -> RequestPrincipal:
    if not token:
        raise Unauthorized
    found = await run_in_thread(lambda: _find_and_count(request, context, token))
    if found is None:
        raise Unauthorized
    if found.is_use_unrecorded:  # at most once a minute, and no request waits for it
        context.background.start(_record_use(context, found.token_id))
    link = _link(found)
    return RequestPrincipal(
        found.tenant_id,
        found.tenant_id.hex,
        found.kind,
        found.token_id,
        link,
        has_share_right=found.may_share,
        scopes=found.scopes,
        agent=found.canvas_id if link is None else None,
        request_id=request_id_of(request),
    )


def _find_and_count(request: Request, context: ApiContext, token: str) -> tenants.Principal | None:
    """Return what a token is, and count the request against its limit. Raises TooManyRequests."""
    found = find_principal(context, token)
    if found is not None:
        context.rate_limits.count_request(request, found.token_id)
    return found


async def _record_use(context: ApiContext, token_id: UUID) -> None:
    def record() -> None:
        with context.database.statements() as tx:
            tenants.record_use(tx, token_id)

    await run_in_thread(record)


def _link(found: tenants.Principal) -> ShareLink | None:
    if found.kind != tenants.SHARE_LINK:
        return None
    if found.canvas_id is None:  # created by a release whose links named no agent
        raise Unauthorized(NO_AGENT)
    return ShareLink(found.token_id, found.canvas_id)


def find_principal(context: ApiContext, token: str) -> tenants.Principal | None:
    """Return the tenant and rights of a token; None if it is unknown, revoked or expired."""
    # one statement and one round trip
    with context.database.statements() as tx:
        return tenants.find_principal(tx, token)


AnyTokenCaller = Annotated[RequestPrincipal, Depends(authenticate)]
ApiTokenCaller = Annotated[RequestPrincipal, Depends(authenticate_api_token)]


# -- with a token or a cookie -----------------------------------------------------------------------------------------
async def identify(request: Request, context: ApiContextDep, _for_openapi: Bearer) -> RequestPrincipal:
    """Return the caller of a route that pages use: with a token of any kind, else with the cookie of a sign-in.

    It does not say whether the caller may use the route. Raises Unauthorized; CrossSiteRequest for a request with the
    cookie that another site sends; UnknownParameter for an invalid query.
    """
    principal = await find_caller(request, context)
    if principal is None:
        raise Unauthorized
    refuse_unknown_parameters(request)
    return principal


Identified = Annotated[RequestPrincipal, Depends(identify)]


async def find_caller(request: Request, context: ApiContext) -> RequestPrincipal | None:
    """Return the caller with a token or the cookie; None without one of them. Raises Unauthorized and CrossSiteRequest.

    A proxy may have a login of its own, so with an Authorization of another scheme the cookie counts.
    """
    written = request.headers.get("authorization", "").strip()
    cookie = read_cookie(request, context.sign_ins)
    scheme, has_rest, _ = written.partition(" ")
    if written and (cookie is None or not has_rest or scheme.lower() == "bearer"):
        return await _principal_of_token(request, context, _written_token(request))
    if cookie is None:
        return None
    refuse_cross_site(request)
    found = await run_in_thread(lambda: _find_sign_in(request, context, cookie))
    if found is None or (found.share is not None and not context.sign_ins.has_shares):
        raise Unauthorized
    return RequestPrincipal(
        found.tenant_id,
        found.tenant_id.hex,
        found.kind,
        found.token_id,
        share=found.share,
        session_id=found.id,
        has_share_right=found.may_share,
        scopes=found.scopes,
        agent=found.canvas_id,
        request_id=request_id_of(request),
    )


def _find_sign_in(request: Request, context: ApiContext, cookie: str) -> SignIn | None:
    """Return a sign-in, and count the request against the limit of its token, or of a share."""
    # as for tokens: one statement, unless the use must be recorded
    with context.database.statements() as tx:
        found = viewer_sessions.find(tx, cookie)
    if found is not None:
        context.rate_limits.count_request(request, found.token_id or found.id)
    return found


async def authenticate_viewer(request: Request, context: ApiContextDep, principal: Identified) -> RequestPrincipal:
    """Return a caller of the tenant who has the scope of the route. Raises MissingScope and NotOfAgent.

    Raises Unauthorized for share links, and NotShared for visitors of a share.
    """
    if principal.share is not None:
        raise NotShared("A share opens one run only. Sign in with a token to see more.")
    if principal.link is not None:
        raise Unauthorized
    await _check_rights(request, context, principal)
    return principal


async def authenticate_run_viewer(request: Request, context: ApiContextDep, principal: Identified) -> RequestPrincipal:
    """Return a caller who may use the run of the path: one of the tenant with the scope, or a visitor of its share.

    Raises NotShared for another run than that of the share; RefusedAccess for an answer that the share does not allow.
    """
    if principal.share is None:
        return await authenticate_viewer(request, context, principal)
    written = str(request.path_params["run_id"])
    if parse_id(written) != principal.share.run_id:
        raise NotShared(f"There is no run {written[:64]}.")
    _refuse_answer(request, principal.share)
    return principal


async def authenticate_uploader(request: Request, context: ApiContextDep, principal: Identified) -> RequestPrincipal:
    """Return a caller who may upload files for an agent, share links and visitors who may answer included."""
    if principal.share is not None:
        _refuse_answer(request, principal.share)
    elif principal.link is None:
        await _check_rights(request, context, principal)
    return principal


async def authenticate_file_viewer(request: Request, context: ApiContextDep, principal: Identified) -> RequestPrincipal:
    """Return a caller who may read files, share links included. Raises NotShared for visitors of a share."""
    return principal if principal.link is not None else await authenticate_viewer(request, context, principal)


def _refuse_answer(request: Request, share: SharedRun) -> None:
    if request.method not in READING_METHODS and not share.may_answer:
        raise RefusedAccess("This share does not allow to answer forms. Ask its owner for one that does.")


Viewer = Annotated[RequestPrincipal, Depends(authenticate_viewer)]
RunViewer = Annotated[RequestPrincipal, Depends(authenticate_run_viewer)]
FileViewer = Annotated[RequestPrincipal, Depends(authenticate_file_viewer)]
FileUploader = Annotated[RequestPrincipal, Depends(authenticate_uploader)]


# -- later ------------------------------------------------------------------------------------------------------------
async def find_end(context: ApiContext, principal: RequestPrincipal) -> EndReason | None:
    """Return why a caller whose stream is open must be sent away: `signed_out` or `share_revoked`; None if not.

    The callers of a process that ask at about the same moment share one statement.
    """
    if principal.share is not None and not context.sign_ins.has_shares:
        return "share_revoked"
    return await context.credential_checks.find_end(context.database, principal.credential)
