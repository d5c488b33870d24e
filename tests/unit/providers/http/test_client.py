"""The outgoing HTTP client without a network: which requests it builds, and how it follows redirects."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from canvas.errors import AddressRefused, HttpFailed
from providers.address_policy import Guard
from providers.http.client import HttpClient, default_user_agent
from providers.http.redirects import HttpRequest, first_request, follow_redirect, mask_secrets, mask_url, secrets_of_url
from providers.interfaces import HttpCall

HEADERS = {"Authorization": "Bearer s", "Cookie": "c=1", "X-Api-Key": "k", "Accept": "text/html", "Content-Type": "a/b"}


def initial_request(method: str = "GET", url: str = "https://a.example/x/y?q=1", **call: Any) -> HttpRequest:
    return first_request(HttpCall(method, url, **call), "easel/test")


def redirected_request(status: int, location: str, method: str = "POST", **call: Any) -> HttpRequest:
    return follow_redirect(initial_request(method, headers=HEADERS, **call), status, location)


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://a.example", "http://a.example/"),
        ("HTTP://A.example:80/p#f", "http://a.example/p"),
        (" https://a.example/a b?q=ä\n ", "https://a.example/a%20b?q=%C3%A4"),
        ("http://a.example/?q=one\ntwo\tthree", "http://a.example/?q=one%0Atwo%09three"),
        ("http://[2606:4700::1]:8080/", "http://[2606:4700::1]:8080/"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://good.example\\@evil.example/", "http://evil.example/"),
    ],
)
def test_url_is_normalised_before_it_is_sent(url: str, sent: str):
    assert str(initial_request(url=url).url.copy_with(path=initial_request(url=url).url.path or "/")) == sent


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ftp://a.example/", "Disallowed URL scheme: 'ftp'. Only ['http', 'https'] are allowed."),
        ("a.example/x", "Disallowed URL scheme: ''. Only ['http', 'https'] are allowed."),
        ("file:///etc/passwd", "Disallowed URL scheme: 'file'. Only ['http', 'https'] are allowed."),
        ("http:///x", "URL is missing a host."),
        ("http://", "URL is missing a host."),
        ("http://a.example:99999/", "Invalid URL: 99999 is not a valid port."),
        ("http://a.example:0/", "Invalid URL: 0 is not a valid port."),
        ("http://a.example:x/", "Invalid URL: "),
        ("http://exa\nmple.com:x/", "Invalid URL: "),
        ("http://[::1", "Invalid URL: "),
        ("http://999.1.1.1/", "Invalid URL: "),
        ("http://a.example/" + "x" * 70_000, "Invalid URL: "),
    ],
)
def test_url_that_is_not_http_is_refused(url: str, text: str):
    with pytest.raises(AddressRefused) as refused:
        initial_request(url=url)

    assert refused.value.message.startswith(text)


@pytest.mark.parametrize(
    ("params", "query"),
    [
        (None, b"q=1"),
        ({}, b"q=1"),
        ({"a": "x y&z", "b": [1, None, True], "c": None}, b"q=1&a=x+y%26z&b=1&b=true"),
        ([("a", "1"), ("a", 2.5), ("", "\ud800")], b"q=1&a=1&a=2.5&=%3F"),
    ],
)
def test_arguments_are_encoded_and_added_to_the_query(params: Any, query: bytes):
    assert initial_request(params=params).url.query == query


@pytest.mark.parametrize(
    ("call", "body", "kind"),
    [
        ({"json": {"ä": [1, None]}}, b'{"\\u00e4": [1, null]}', "application/json"),
        ({"json": None, "has_json": True}, b"null", "application/json"),
        ({"json": {}}, b"{}", "application/json"),
        ({"form": {"a": "x y", "b": ["1", "2"]}}, b"a=x+y&b=1&b=2", "application/x-www-form-urlencoded"),
        ({"form": {}}, b"", None),
        ({"content": b"raw"}, b"raw", None),
        ({"json": 1, "headers": {"content-type": "application/ld+json"}}, b"1", "application/ld+json"),
        ({}, b"", None),
    ],
)
def test_body_has_content_type_and_length(call: Mapping[str, Any], body: bytes, kind: str | None):
    sent = initial_request("post", **call)

    assert (sent.method, sent.body, sent.headers.get("content-type")) == ("POST", body, kind)
    assert sent.header_bytes()[-1] == (b"content-length", str(len(body)).encode())


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, [float("inf")]])
def test_body_that_json_cannot_represent_is_an_error(value: Any):
    with pytest.raises(HttpFailed, match="cannot be written as JSON"):
        initial_request("POST", json=value)


def test_callers_cannot_set_connection_headers():
    headers = {"Transfer-Encoding": "chunked", "content-length": "5", "Upgrade": "h2c", "Host": "b.example", "X": " é "}

    sent = dict(initial_request(headers=headers).header_bytes())

    assert sent == {
        b"host": b"b.example", b"x": "é".encode("latin-1"), b"accept": b"*/*", b"accept-encoding": b"gzip, deflate",
        b"user-agent": b"easel/test",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"), [("X", "a\r\nEvil: 1"), ("X", "a\x00"), ("X Y", "1"), ("", "1"), ("Ä", "1")]
)
def test_headers_that_would_break_the_request_are_refused(name: str, value: str):
    with pytest.raises(HttpFailed, match="cannot be sent"):
        initial_request(headers={name: value})


def test_password_in_a_url_becomes_a_header_and_is_never_shown():
    sent = initial_request(url="https://ann:p%40ss@a.example:444/x")

    assert sent.headers["authorization"] == "Basic YW5uOnBAc3M="
    assert str(sent.url) == "https://a.example:444/x"
    assert "YW5u" not in repr(sent)
    assert sent.origin == "https://a.example:444"


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "POST", "GET"), (302, "POST", "GET"), (303, "POST", "GET"), (307, "POST", "POST"), (308, "POST", "POST"),
        (301, "PUT", "PUT"), (302, "PUT", "GET"), (303, "DELETE", "GET"), (303, "HEAD", "HEAD"), (302, "GET", "GET"),
    ],
)  # fmt: skip
def test_redirect_status_decides_the_method_of_the_next_request(status: int, method: str, then: str):
    body = {"content": b"b"} if method in ("POST", "PUT") else {}

    sent = redirected_request(status, "/z", method, **body)

    assert sent.method == then
    assert sent.body == (b"b" if then in ("POST", "PUT") else b"")
    assert ("content-type" in sent.headers) == (then == method)
    assert str(sent.url) == "https://a.example/z"


def test_redirect_to_another_origin_drops_secret_headers():
    near = redirected_request(303, "z")

    assert {"authorization", "cookie", "x-api-key", "accept"} <= near.headers.keys()
    for elsewhere in ("https://b.example/", "http://a.example/", "https://a.example:444/", "//sub.a.example/"):
        assert redirected_request(303, elsewhere).headers.keys() == {"accept", "accept-encoding", "user-agent"}


def test_redirect_of_a_body_to_another_origin_is_refused():
    with pytest.raises(HttpFailed, match=r"redirects a request with a body to https://b\.example") as failed:
        redirected_request(307, "https://b.example/?token=s", content=b"secret")

    assert not failed.value.retryable
    assert "token" not in failed.value.message


@pytest.mark.parametrize("location", ["ftp://a.example/", "http://", "http://a.example:x/", "javascript:alert(1)"])
def test_redirect_to_a_url_that_is_not_http_is_refused(location: str):
    with pytest.raises(AddressRefused):
        redirected_request(302, location)


def test_password_in_a_redirect_url_is_not_used():
    sent = redirected_request(303, "https://eve:x@b.example/#f")

    assert str(sent.url) == "https://b.example/"
    assert "authorization" not in sent.headers


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET http://a.example/?q=1&api_key=abc&x=2", "GET http://a.example/?q=1&api_key=***&x=2"),
        ("http://a.example/?TOKEN=abc#f", "http://a.example/?TOKEN=***#f"),
        ("http://ann:pw@a.example/", "http://***@a.example/"),
        ("?key=1&apikey=2&access_token=3&auth=4", "?key=***&apikey=***&access_token=***&auth=***"),
        ("http://a.example/?monkey=1", "http://a.example/?monkey=1"),
    ],
)
def test_texts_are_shown_without_keys_and_passwords(text: str, shown: str):
    assert mask_secrets(text) == shown


def test_target_behind_a_proxy_is_checked_before_any_connection_is_opened():
    async def resolve(name: str, port: int) -> Sequence[str]:
        return {"proxy.example": ["93.184.216.34"], "inside.example": ["10.0.0.1"]}[name]

    http = HttpClient(Guard(), resolve=resolve)

    with pytest.raises(AddressRefused, match=r"^URL resolves to a non-public address \(10\.0\.0\.1\)"):
        asyncio.run(http.send(HttpCall("GET", "http://inside.example/", proxy="http://proxy.example:3128")))


@pytest.mark.parametrize(
    ("proxy", "text"),
    [
        ("http://10.0.0.1:3128", "Proxy resolves to a non-public address"),
        ("http://localhost:3128", "Proxy leads to 'localhost'"),
        ("socks5://8.8.8.8:1080", "Disallowed URL scheme: 'socks5'"),
    ],
)
def test_address_of_the_proxy_is_checked_too(proxy: str, text: str):
    http = HttpClient(Guard())

    with pytest.raises(AddressRefused, match=text):
        asyncio.run(http.send(HttpCall("GET", "http://8.8.8.8/", proxy=proxy)))


def test_host_name_behind_a_proxy_is_refused_if_the_deployment_forbids_it():
    http = HttpClient(Guard(), names_behind_proxy=False)

    with pytest.raises(AddressRefused, match="by IP address"):
        asyncio.run(http.send(HttpCall("GET", "http://a.example/", proxy="http://8.8.8.8:3128")))


def test_failed_name_lookup_of_a_vendor_is_retryable():
    async def fail_lookup(name: str, port: int) -> Sequence[str]:
        raise OSError("name server away")

    http = HttpClient(Guard(), resolve=fail_lookup)

    with pytest.raises(HttpFailed, match="name server away") as failed:
        asyncio.run(http.send(HttpCall("GET", "http://vendor.example/", trusted=True)))
    with pytest.raises(HttpFailed, match="name server away") as by_an_author:
        asyncio.run(http.send(HttpCall("GET", "http://vendor.example/")))

    assert (failed.value.retryable, by_an_author.value.retryable) == (True, True)


def test_user_agent_names_product_version_and_contact_unless_configured():
    assert default_user_agent().startswith("easel/")
    assert default_user_agent("https://ops.example").endswith(" (+https://ops.example)")


def test_proxy_that_is_down_is_named_and_not_the_target():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        proxy = f"http://user:secret@127.0.0.1:{closed.getsockname()[1]}"

    http = HttpClient(Guard(allow_any=True))
    with pytest.raises(HttpFailed, match=r"^The proxy http://127\.0\.0\.1:\d+: cannot connect: ") as failed:
        asyncio.run(http.send(HttpCall("GET", "http://target.example/", proxy=proxy)))

    assert failed.value.retryable
    assert "secret" not in failed.value.message


@pytest.mark.parametrize(
    ("url", "shown", "secrets"),
    [
        ("https://a.example/mcp?session=abc&x=%2Fd", "https://a.example/mcp?session=***&x=***", {"abc", "%2Fd", "/d"}),
        ("https://ann:pw@a.example:8443/mcp#f", "https://***@a.example:8443/mcp", {"ann", "pw"}),
        ("https://a.example/mcp?bare", "https://a.example/mcp?***", {"bare"}),
        ("https://a.example/mcp", "https://a.example/mcp", set[str]()),
    ],
)
def test_url_is_shown_without_user_password_and_query_values(url: str, shown: str, secrets: set[str]):
    assert mask_url(url) == shown
    assert set(secrets_of_url(url)) == secrets
