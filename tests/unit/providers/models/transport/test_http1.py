"""HTTP/1.1: parsing of responses that are split at any byte, and building of requests."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.models.transport.http1 import MAX_HEAD_BYTES, MalformedResponse, ResponseParser, request_bytes

COUNTED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\nhello world"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6;note=x\r\nhello \r\n5\r\nworld\r\n0\r\nDigest: x\r\n\r\n"
)
INFORMATIONAL = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + COUNTED
LEGACY = b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 11\r\n\r\nhello world"
UPGRADE_OFFER = COUNTED.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: h2\r\n\r\n")
ODD = COUNTED.replace(b"\r\nContent-Type", b"\r\nX-A:  one \t\r\nX-B:\r\nX-C: caf\xe9\r\nContent-Type")
COMPLETE = [COUNTED, CHUNKED, INFORMATIONAL, LEGACY, UPGRADE_OFFER, ODD]


def parse(*chunks: bytes, method: str = "POST") -> tuple[ResponseParser, bytes]:
    answer = ResponseParser(method)
    body = b"".join(part for chunk in chunks for part in answer.feed(chunk))
    return answer, body


@given(st.sampled_from(COMPLETE), st.sets(st.integers(1, 200)))
def test_response_is_parsed_the_same_in_parts_of_any_size(answer: bytes, cuts: set[int]):
    offsets = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    chunks = [answer[start:end] for start, end in pairwise(offsets)]

    read, body = parse(*chunks)

    assert (read.status, read.is_over, read.is_reusable, body) == (200, True, True, b"hello world")
    assert read.headers == parse(answer)[0].headers


def test_headers_keep_their_order_and_surrounding_blanks_are_stripped():
    answer, _ = parse(b"HTTP/1.1 404 Not Found\r\nX-A:  one \r\nX-B:\r\nX-C: two\r\nContent-Length: 0\r\n\r\n")

    assert answer.headers == [(b"X-A", b"one"), (b"X-B", b""), (b"X-C", b"two"), (b"Content-Length", b"0")]
    assert (answer.status, answer.is_over) == (404, True)


def test_response_headers_exclude_informational_headers_and_trailers():
    assert [name for name, _ in parse(INFORMATIONAL)[0].headers] == [b"Content-Type", b"Content-Length"]
    assert [name for name, _ in parse(CHUNKED)[0].headers] == [b"Transfer-Encoding"]


def test_informational_response_is_not_the_final_response():
    answer, _ = parse(INFORMATIONAL[: -len(COUNTED)])

    assert (answer.status, answer.is_over) == (0, False)


def test_body_without_a_length_ends_with_its_connection():
    answer, body = parse(b"HTTP/1.1 200 OK\r\n\r\nhello", b" world")
    before = answer.is_over

    answer.end()

    assert (before, answer.is_over, answer.is_reusable, body) == (False, True, False, b"hello world")


@pytest.mark.parametrize("start", [COUNTED[:-1], CHUNKED[:-4], b"HTTP/1.1 200 OK\r\n", b""])
def test_connection_that_ends_early_is_an_error(start: bytes):
    answer, _ = parse(start)

    with pytest.raises(MalformedResponse, match="before its answer was complete"):
        answer.end()


@pytest.mark.parametrize(
    "head", ["204 No Content", "204 X\r\nTransfer-Encoding: chunked", "304 X\r\nContent-Length: 5"]
)
def test_response_with_status_204_or_304_has_no_body(head: str):
    answer, body = parse(f"HTTP/1.1 {head}\r\n\r\n".encode())

    assert (answer.is_over, answer.is_reusable, body) == (True, True, b"")


@pytest.mark.parametrize("answer", [COUNTED, CHUNKED, b"HTTP/1.1 200 OK\r\n\r\n"])
def test_response_to_head_has_no_body_and_its_connection_is_not_reused(answer: bytes):
    read, body = parse(answer, method="HEAD")

    assert (read.status, read.is_over, read.is_reusable, body) == (200, True, False, b"")


@pytest.mark.parametrize(
    "answer",
    [
        COUNTED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        LEGACY.replace(b"Keep-Alive", b"x"),
        COUNTED + b"HTTP/1.1 200 OK\r\n",
        COUNTED + b"that is no answer",
        CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"\r\n", b"\r\nConnection: keep-alive\r\n", 1),
        CHUNKED.replace(b"Digest: x", b"Connection: close"),
    ],
    ids=["close", "HTTP/1.0", "another response", "garbage", "chunks of HTTP/1.0", "close in a trailer"],
)
def test_connection_is_not_reused_after_an_ambiguous_end(answer: bytes):
    read, body = parse(answer)

    assert (read.is_over, read.is_reusable, body) == (True, False, b"hello world")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nabc",
        b"HTTP/1.1 100 Continue\r\nConnection: close\r\n\r\n" + COUNTED,
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: folded\r\n over\r\n\r\n",
        COUNTED.replace(b"\r\n", b"\n"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        CHUNKED.replace(b"Transfer-Encoding", b"Content-Length: 11\r\nTransfer-Encoding"),
        CHUNKED.replace(b"chunked", b"chunked\r\nContent-Length: 11"),
        CHUNKED.replace(b"chunked", b"gzip, chunked"),
        CHUNKED.replace(b"chunked", b"chunked, gzip"),
        CHUNKED.replace(b"chunked", b"gzip"),
        CHUNKED.replace(b"chunked", b"xchunked"),
        CHUNKED.replace(b"chunked", b"chunked\r\nTransfer-Encoding: chunked"),
        CHUNKED.replace(b"Digest: x", b"Content-Length: 5"),
        CHUNKED.replace(b"\r\n6;note=x\r\n", b"\r\n6\n"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 40,
    ],
)
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "byte by byte"])
def test_invalid_response_is_refused(answer: bytes, at_once: bool):
    chunks = [answer] if at_once else [bytes([byte]) for byte in answer]

    with pytest.raises(MalformedResponse):
        parse(*chunks)


@given(st.integers(-2, 2), st.integers(1, MAX_HEAD_BYTES))
def test_response_head_above_the_size_limit_is_refused_for_any_split(beyond: int, cut: int):
    frame = b"HTTP/1.1 200 OK\r\nX: %s\r\nContent-Length: 0\r\n\r\n"
    head = frame % (b"x" * (MAX_HEAD_BYTES + beyond - len(frame) + len(b"%s")))

    for chunks in ([head], [head[:cut], head[cut:]]):
        if beyond <= 0:
            assert parse(*chunks)[0].is_over
        else:
            with pytest.raises(MalformedResponse, match="longer than"):
                parse(*chunks)


IN_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"\r\n"),
        (IN_CHUNKS + b"2\r\nhi\r\n0\r\n", b"X: y\r\n"),
        (IN_CHUNKS + b"2\r\nhi\r\n0\r\nX:", b"y" * 100),
        (IN_CHUNKS, b"0" * 100),
        (IN_CHUNKS + b"2;note=", b"x" * 100),
    ],
    ids=["informational responses", "blank lines", "trailers", "one trailer", "chunk size", "chunk extension"],
)
def test_endless_response_without_content_is_refused(start: bytes, more: bytes):
    chunks = [start, *[more] * (MAX_HEAD_BYTES // len(more) + 2)]

    with pytest.raises(MalformedResponse, match=r"longer than|without content"):
        parse(*chunks)


def test_request_bytes_contain_line_headers_length_and_body():
    sent = request_bytes("POST", b"/v1/x?a=b", [(b"Host", b"h"), (b"A", b"caf\xe9")], b"{}")

    assert sent == b"POST /v1/x?a=b HTTP/1.1\r\nHost: h\r\nA: caf\xe9\r\nContent-Length: 2\r\n\r\n{}"


def test_framing_headers_of_the_caller_are_replaced():
    framing = [(b"content-length", b"7"), (b"Transfer-Encoding", b"chunked")]

    assert request_bytes("POST", b"/", framing, b"{}") == b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    assert request_bytes("POST", b"/", framing, b"") == b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    assert request_bytes("GET", b"/", framing, b"") == b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("smuggled", [b"\r\nB: y", b"\nB: y", b"\rB", b"\0"])
@pytest.mark.parametrize("in_name", [True, False], ids=["name", "value"])
def test_header_that_smuggles_another_header_is_refused(smuggled: bytes, in_name: bool):
    header = (b"A" + smuggled, b"x") if in_name else (b"A", b"x" + smuggled)

    with pytest.raises(ValueError, match="one line"):
        request_bytes("POST", b"/", [header], b"")


@pytest.mark.parametrize("name", [b"", b"A B", b"A:", b" A", "\u00c4".encode()])
def test_header_name_that_is_not_one_token_is_refused(name: bytes):
    with pytest.raises(ValueError, match="one line"):
        request_bytes("POST", b"/", [(name, b"x")], b"")


@pytest.mark.parametrize("target", [b"", b"/ HTTP/1.1\r\nA: b", b"/a b", b"/a\nb", b"/\xe9"])
def test_request_target_with_blanks_or_line_breaks_is_refused(target: bytes):
    with pytest.raises(ValueError, match="address"):
        request_bytes("POST", target, [], b"")
