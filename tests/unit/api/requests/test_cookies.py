"""The rules against requests of other sites, and the name of the cookie."""

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st

from api.http.errors import CrossSiteRequest
from api.requests.cookies import (
    SignInPolicy,
    cookie_name,
    read_cookie,
    refuse_cross_site,
    refuse_cross_site_sign_in,
)

PAGE = {"x-easel-viewer": "1"}
OWN = "easel.example"
HOSTS = st.sampled_from([OWN, "evil.example", "easel.example.evil.example", "sub.easel.example", "127.0.0.1", "[::1]"])


def request(method: str = "POST", scheme: str = "https", host: str = OWN, **headers: str) -> Request:
    """Build a request with these headers; `_` stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(
        {
            "type": "http",
            "method": method,
            "scheme": scheme,
            "path": "/",
            "query_string": b"",
            "server": (host, 443),
            "headers": [(name.encode(), value.encode()) for name, value in {"host": host, **named}.items()],
        }
    )


def is_refused(made: Request) -> bool:
    try:
        refuse_cross_site(made)
    except CrossSiteRequest:
        return True
    return False


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_request_that_reads_is_never_refused(method: str) -> None:
    assert not is_refused(request(method, sec_fetch_site="cross-site", origin="https://evil.example"))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"])
def test_request_that_may_change_something_needs_the_origin_and_the_header(method: str) -> None:
    assert not is_refused(request(method, sec_fetch_site="same-origin", x_easel_viewer="1"))
    assert is_refused(request(method, sec_fetch_site="same-origin"))
    assert is_refused(request(method, x_easel_viewer="1"))


@given(site=st.text(alphabet="acegimnorst-", max_size=12), origin=st.sampled_from([f"https://{OWN}", "null"]))
def test_fetch_metadata_decides_where_a_browser_sends_it(site: str, origin: str) -> None:
    made = request(sec_fetch_site=site, origin=origin, x_easel_viewer="1")

    assert is_refused(made) == (site != "same-origin")


@given(
    scheme=st.sampled_from(["http", "https"]), host=HOSTS, origin_scheme=st.sampled_from(["http", "https"]),
    origin_host=HOSTS, port=st.sampled_from(["", ":80", ":443", ":8000"]),
)  # fmt: skip
def test_origin_must_be_that_of_the_request(
    scheme: str, host: str, origin_scheme: str, origin_host: str, port: str
) -> None:
    default = {"http": ":80", "https": ":443"}
    made = request(scheme=scheme, host=host, origin=f"{origin_scheme}://{origin_host}{port}", x_easel_viewer="1")

    is_same = (scheme, host, default[scheme]) == (origin_scheme, origin_host, port or default[origin_scheme])
    assert is_refused(made) == (not is_same)


@pytest.mark.parametrize(
    "origin",
    ["", "null", OWN, f"//{OWN}", f"https://{OWN}/", f"https://{OWN}:x", f"ftp://{OWN}", f"https://{OWN}@evil.example", "https://["],
)  # fmt: skip
def test_text_that_is_no_origin_of_the_request_is_refused(origin: str) -> None:
    assert is_refused(request(origin=origin, x_easel_viewer="1"))


def test_host_may_name_the_default_port_in_any_case() -> None:
    assert not is_refused(request(host="Easel.Example:443", origin=f"https://{OWN}", x_easel_viewer="1"))


def test_sign_in_of_a_program_has_no_origin_and_is_accepted() -> None:
    refuse_cross_site_sign_in(request())
    refuse_cross_site_sign_in(request(sec_fetch_site="same-origin"))
    for headers in (
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "https://evil.example"},
    ):
        with pytest.raises(CrossSiteRequest):
            refuse_cross_site_sign_in(request(**headers))


@pytest.mark.parametrize(
    ("scheme", "base", "name"),
    [
        ("http", "", "easel"),
        ("http", "/easel", "easel"),
        ("https", "", "__Host-easel"),
        ("https", "/easel", "__Secure-easel"),
    ],
)
def test_cookie_is_named_after_its_protocol_and_path(scheme: str, base: str, name: str) -> None:
    policy = SignInPolicy(base_path=base)
    every = "; ".join(f"{each}=of {each}" for each in ("easel", "__Host-easel", "__Secure-easel"))

    assert cookie_name(request(scheme=scheme), policy) == name
    assert read_cookie(request(scheme=scheme, cookie=every), policy) == f"of {name}"


def test_no_cookie_is_read_where_browsers_cannot_sign_in() -> None:
    assert read_cookie(request(cookie="__Host-easel=x"), SignInPolicy(is_on=False)) is None
    assert read_cookie(request(cookie="__Host-easel="), SignInPolicy()) is None
