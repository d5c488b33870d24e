from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.http.browser_proxy import InvalidHttp, ProxyRequest, parse_request, parse_response


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [("e.com:443", "e.com", 443), ("E.com:8443", "e.com", 8443), ("[2001:db8::1]:443", "2001:db8::1", 443)],
)
def test_connect_request_is_parsed_into_host_and_port(target: str, host: str, port: int):
    assert parse_request(head(f"CONNECT {target} HTTP/1.1", "Host: x")) == ProxyRequest(host, port, b"")


@pytest.mark.parametrize(
    ("target", "host_and_port", "path"),
    [
        ("http://e.com/a?b=c", ("e.com", 80), "/a?b=c"),
        ("http://e.com", ("e.com", 80), "/"),
        ("http://e.com:8080?q", ("e.com", 8080), "/?q"),
        ("http://user:pass@e.com/x", ("e.com", 80), "/x"),
        ("HTTP://E.com/x#part", ("e.com", 80), "/x"),
        ("http://[::1]:81/", ("::1", 81), "/"),
    ],
)
def test_request_to_the_proxy_is_rewritten_for_the_target_host(target: str, host_and_port: tuple[str, int], path: str):
    request = parse_request(head(f"GET {target} HTTP/1.1", "Host: e.com"))

    assert (request.host, request.port) == host_and_port
    assert request.head == head(f"GET {path} HTTP/1.1", "Host: e.com", "Connection: close")


def test_proxy_and_hop_by_hop_headers_are_not_forwarded():
    request = parse_request(
        head(
            "POST http://e.com/ HTTP/1.1",
            "Host: e.com",
            "Proxy-Connection: keep-alive",
            "Proxy-Authorization: Basic x",
            "Connection: keep-alive, X-Hop",
            "X-Hop: 1",
            "Upgrade: h2c",
            "Content-Length: 3",
            "Cookie: a=b",
        )
    )

    assert request.head == head(
        "POST / HTTP/1.1", "Host: e.com", "Content-Length: 3", "Cookie: a=b", "Connection: close"
    )


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/1.1", "GET https://e.com/ HTTP/1.1", "GET ftp://e.com/ HTTP/1.1", "GET http:///x HTTP/1.1",
        "GET http://e.com:99999/ HTTP/1.1", "GET http://[::1/ HTTP/1.1", "CONNECT e.com:0 HTTP/1.1",
        "CONNECT :443 HTTP/1.1", "GET http://e.com/", "", "GET http://e.com/ FTP/1.1",
    ],
)  # fmt: skip
def test_invalid_request_line_is_refused(line: str):
    with pytest.raises(InvalidHttp):
        parse_request(head(line))


@settings(max_examples=50)
@given(st.binary(max_size=80))
def test_heads_of_arbitrary_bytes_are_parsed_or_refused(noise: bytes):
    for read in (parse_request, parse_response):
        with suppress(InvalidHttp):
            assert read(b"GET " + noise + b" HTTP/1.1\r\n\r\n")


def test_response_head_closes_the_connection():
    status, answer = parse_response(head("HTTP/1.1 404 Not Found", "Content-Length: 0", "Connection: keep-alive"))

    assert status == 404
    assert answer == head("HTTP/1.1 404 Not Found", "Content-Length: 0", "Connection: close")


def test_informational_response_is_forwarded_unchanged():
    early = head("HTTP/1.1 103 Early Hints", "Link: </a>")

    assert parse_response(early) == (103, early)


@pytest.mark.parametrize("line", ["ICY 200 OK", "HTTP/1.1 101 Switching Protocols", "HTTP/1.1 20 OK", "HTTP/3 200 OK"])
def test_invalid_response_is_refused(line: str):
    with pytest.raises(InvalidHttp):
        parse_response(head(line))
