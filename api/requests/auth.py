"""Authentication: turn a bearer token, or the cookie of a sign-in, into a RequestPrincipal.

RAGFlow's API has users and no tenants, so the caller's tenant id is also the user id. A token of kind `beta` is a share
link. It is accepted on the routes that declare so, for one agent's published version, and for sessions, files and logs
that were created by the link (`RequestPrincipal.link`). Tokens of kind `admin` may do everything that `api` tokens may,
and set the budgets of a tenant. Tokens of kind `viewer` read, on the routes that pages use, and change nothing.

Pages sign in with a token, or with a share of one run, and then have a cookie. It counts on the routes that depend on
`Viewer`, `RunViewer`, `FileViewer` or `FileUploader`, and on no others, so that no other route is open to requests that
other sites send. A share opens the routes that depend on `RunViewer` and `FileUploader`, for its run.
"""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.http.errors import NotShared, ReadOnly, RefusedAccess, Unauthorized
from api.http.query_parameters import refuse_unknown_parameters
from api.http.replies import parse_id
from api.requests.cookies import READING_METHODS, read_cookie, refuse_cross_site
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from canvas.ids import CanvasId, TenantId
from store.tenants import tenants, viewer_sessions
from store.tenants.run_shares import SharedRun
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

    def key_route(self, route: str) -> str:
        """Return the route for idempotency keys of this link, which keeps them apart from keys of other callers."""
        return f"{route} link {self.token_id.hex}"


@dataclass(frozen=True, slots=True)
class RequestPrincipal:
    """The caller. `kind`: `api`, `admin`, `viewer`, `beta` for share links, `share` for shares of one run.

    Only share links have a `link`; only visitors of a share have a `share`, and they have no token. `session_id`: the
    sign-in, for a caller with a cookie.
    """

    tenant_id: TenantId
    user_id: str
    kind: str
    token_id: UUID | None
    link: ShareLink | None = None
    share: SharedRun | None = None
    session_id: UUID | None = None
    has_share_right: bool = False

    def may_use(self, canvas_id: CanvasId) -> bool:
        """Return whether the caller may use an agent of the tenant."""
        if self.share is not None:
            return self.share.canvas_id == canvas_id
        return self.link is None or self.link.canvas_id == canvas_id

    @property
    def may_change(self) -> bool:
        """Whether the caller may change runs and agents of the tenant."""
        return self.kind in ("api", "admin")

    @property
    def may_share(self) -> bool:
        """Whether the caller may share runs of the tenant: administrators, and tokens with this right."""
        return self.kind == "admin" or (self.kind == "api" and self.has_share_right)

    @property
    def uploader_id(self) -> UUID | None:
        """The share link or the share by which the caller's files are kept apart; None for callers of the tenant."""
        if self.share is not None:
            return self.share.id
        return self.link.token_id if self.link is not None else None

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
    """Return the caller, with a token of any kind but `viewer`.

    Raises Unauthorized; ReadOnly for that kind; UnknownParameter for an invalid query.
    """
    principal = await _principal_of_token(request, context, _written_token(request))
    if principal.kind == tenants.READ_ONLY:
        raise ReadOnly(
            "A token of kind viewer reads runs and agents on Easel's own routes (/runs, /viewer, ...). Use a token of "
            "kind api for this one."
        )
    refuse_unknown_parameters(request)  # here, since every route that returns data depends on the caller
    return principal


async def authenticate_api_token(principal: Annotated[RequestPrincipal, Depends(authenticate)]) -> RequestPrincipal:
    """Return the caller, with an API token. Raises Unauthorized, also for share links."""
    if not principal.may_change:
        raise Unauthorized
    return principal


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
    return RequestPrincipal(
        found.tenant_id,
        found.tenant_id.hex,
        found.kind,
        found.token_id,
        _link(found),
        has_share_right=found.may_share,
    )


def _find_and_count(request: Request, context: ApiContext, token: str) -> tenants.Principal | None:
    """Return what a token is, and count the request against its limit. Raises TooManyRequests."""
    found = find_principal(context, token)
    if found is not None:
        context.rate_limits.count_request(request, found.token_id)
    return found


def _link(found: tenants.Principal) -> ShareLink | None:
    if found.kind != tenants.SHARE_LINK:
        return None
    if found.canvas_id is None:  # created by a release whose links named no agent
        raise Unauthorized(NO_AGENT)
    return ShareLink(found.token_id, found.canvas_id)


def find_principal(context: ApiContext, token: str) -> tenants.Principal | None:
    """Return the tenant and kind of a token; None if it is unknown, revoked or expired."""
    # one statement and one round trip, unless the use of the token must be recorded
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
    )


def _find_sign_in(request: Request, context: ApiContext, cookie: str) -> SignIn | None:
    """Return a sign-in, and count the request against the limit of its token, or of a share."""
    # as for tokens: one statement, unless the use must be recorded
    with context.database.statements() as tx:
        found = viewer_sessions.find(tx, cookie)
    if found is not None:
        context.rate_limits.count_request(request, found.token_id or found.id)
    return found


async def authenticate_viewer(request: Request, principal: Identified) -> RequestPrincipal:
    """Return a caller who may read all of the tenant. Raises ReadOnly for one who may change nothing, and does.

    Raises Unauthorized for share links, and NotShared for visitors of a share.
    """
    if principal.share is not None:
        raise NotShared("A share opens one run only. Sign in with a token to see more.")
    if principal.link is not None:
        raise Unauthorized
    return _refuse_change(request, principal)


async def authenticate_run_viewer(request: Request, principal: Identified) -> RequestPrincipal:
    """Return a caller who may read the run of the path: one who may read all of the tenant, or a visitor of its share.

    Raises NotShared for another run than that of the share; RefusedAccess for an answer that the share does not allow.
    """
    if principal.share is None:
        return await authenticate_viewer(request, principal)
    written = str(request.path_params["run_id"])
    if parse_id(written) != principal.share.run_id:
        raise NotShared(f"There is no run {written[:64]}.")
    _refuse_answer(request, principal.share)
    return principal


async def authenticate_uploader(request: Request, principal: Identified) -> RequestPrincipal:
    """Return a caller who may upload files for an agent, share links and visitors who may answer included."""
    if principal.share is not None:
        _refuse_answer(request, principal.share)
        return principal
    return _refuse_change(request, principal)


async def authenticate_file_viewer(request: Request, principal: Identified) -> RequestPrincipal:
    """Return a caller who may read files, share links included. Raises NotShared for visitors of a share."""
    return principal if principal.link is not None else await authenticate_viewer(request, principal)


def _refuse_change(request: Request, principal: RequestPrincipal) -> RequestPrincipal:
    if principal.kind == tenants.READ_ONLY and request.method not in READING_METHODS:
        raise ReadOnly("A token of kind viewer changes nothing. Use a token of kind api.")
    return principal


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
