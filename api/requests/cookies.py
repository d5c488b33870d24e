"""The cookie of a sign-in, and the rules against requests that other sites send with it.

The cookie is `__Host-easel` where the request came by https, directly or by the X-Forwarded-Proto of a proxy that the
server trusts, else `easel`. Below a base path it is `__Secure-easel`, since browsers refuse `__Host-` with another path
than `/`.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import Response

from api.http.errors import CrossSiteRequest
from store.tenants.viewer_sessions import LIFETIME

READING_METHODS = frozenset({"GET", "HEAD"})
PAGE_HEADER = "x-easel-viewer"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class SignInPolicy:
    """Whether browsers may sign in, whether runs may be shared, and the base path, which is empty or `/path`."""

    is_on: bool = True
    has_shares: bool = True
    base_path: str = ""

    @property
    def may_share(self) -> bool:
        """Whether anybody may share runs: visitors sign in."""
        return self.is_on and self.has_shares


def cookie_name(request: Request, policy: SignInPolicy) -> str:
    """Return the name of the cookie for a request."""
    if request.url.scheme != "https":
        return "easel"
    return "__Secure-easel" if policy.base_path else "__Host-easel"


def read_cookie(request: Request, policy: SignInPolicy) -> str | None:
    """Return the value of the cookie; None if there is none, or browsers may not sign in."""
    return (request.cookies.get(cookie_name(request, policy)) or None) if policy.is_on else None


def set_cookie(response: Response, request: Request, policy: SignInPolicy, value: str) -> None:
    """Add the cookie to a reply. The server ends the sign-in earlier if it is idle."""
    _write(response, request, policy, value, int(LIFETIME.total_seconds()))


def clear_cookie(response: Response, request: Request, policy: SignInPolicy) -> None:
    """Remove the cookie with a reply."""
    _write(response, request, policy, "", 0)


def _write(response: Response, request: Request, policy: SignInPolicy, value: str, max_age: int) -> None:
    response.set_cookie(
        cookie_name(request, policy),
        value,
        max_age=max_age,
        path=f"{policy.base_path}/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def refuse_cross_site(request: Request) -> None:
    """Raise CrossSiteRequest for a request with the cookie that changes something and is not sent by our own pages."""
    if request.method in READING_METHODS:
        return
    if not _is_same_origin(request, or_absent=False):
        raise CrossSiteRequest("This request with a cookie does not come from a page of this API.")
    if request.headers.get(PAGE_HEADER) != "1":
        raise CrossSiteRequest("A request with a cookie that changes something needs the header `X-Easel-Viewer: 1`.")


def refuse_cross_site_sign_in(request: Request) -> None:
    """Raise CrossSiteRequest for a sign-in that another site sends. Programs that are no browsers send no origin."""
    if not _is_same_origin(request, or_absent=True):
        raise CrossSiteRequest("This sign-in does not come from a page of this API.")


def _is_same_origin(request: Request, *, or_absent: bool) -> bool:
    """Return whether a page of this origin sent the request. `or_absent`: or nothing says who sent it."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    if origin is None:
        return or_absent
    expected = _origin(f"{request.url.scheme}://{request.headers.get('host', '')}")
    return expected is not None and _origin(origin) == expected


def _origin(written: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port; None for what has none, such as `null`."""
    try:
        parts = urlsplit(written)
        port = parts.port
    except ValueError:
        return None
    if parts.hostname is None or parts.scheme not in _DEFAULT_PORTS or parts.path or parts.query or parts.fragment:
        return None
    return parts.scheme, parts.hostname, port or _DEFAULT_PORTS[parts.scheme]
