"""The outgoing HTTP client, against small local servers with scripted answers."""

import asyncio
import gzip
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest

from canvas.errors import AddressRefused, HttpFailed
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import HttpCall, HttpResponse
from tests.certificates import create_self_signed

T = TypeVar("T")
LOOPBACK = Guard(allowed=("127.0.0.1", "127.0.0.2"))
DEADLINE_S = 5.0  # seconds


@dataclass
class ReceivedRequest:
    """A request that a server received."""

    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[["Server", ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """Passes every request to `answer`, records it, and notices when the client disconnects."""

    answer: Answer
    tls: ssl.SSLContext | None = None
    requests: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    has_request: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0
    port: int = 0
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> "Server":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.requests.append(ReceivedRequest(lines[0], headers, body))
                self.has_request.set()
                await self.answer(self, self.requests[-1], writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()


def reply(body: bytes = b"", status: int = 200, **headers: str) -> bytes:
    lines = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode("latin-1") + body


def answers(by_path: Mapping[str, bytes]) -> Answer:
    """Return an answer by path; any other path gets the text `ok`."""

    async def answer(server: Server, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(by_path.get(request.line.split()[1], reply(b"ok")))

    return answer


def resolver(*answers: Sequence[str]) -> tuple[Callable[[str, int], Coroutine[Any, Any, Sequence[str]]], list[str]]:
    """Return a resolver of these answers, the last one repeated, and the list of names that it resolved."""
    names: list[str] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        names.append(name)
        return answers[min(len(names), len(answers)) - 1]

    return resolve, names


def run_within_deadline(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await work()

    return asyncio.run(bounded())


def send_call(
    answer: Answer, path: str = "/", *, guard: Guard = LOOPBACK, **call: Any
) -> tuple[HttpResponse | Exception, list[ReceivedRequest]]:
    """Send one call to a server; return its response or error, and the requests of the server."""

    async def work() -> tuple[HttpResponse | Exception, list[ReceivedRequest]]:
        http = HttpClient(guard, user_agent="easel/test")
        async with Server(answer) as server:
            try:
                return await http.send(HttpCall(call.pop("method", "GET"), server.url(path), **call)), server.requests
            except (AddressRefused, HttpFailed) as error:
                return error, server.requests
            finally:
                await http.aclose()

    return run_within_deadline(work)


def failure_of(answer: Answer, path: str = "/", **call: Any) -> HttpFailed:
    failed, _ = send_call(answer, path, **call)
    assert isinstance(failed, HttpFailed)
    return failed


def test_response_of_any_status_is_read_completely():
    response, [request] = send_call(
        answers({"/x?a=1": reply(gzip.compress(b"gone"), 410, Content_Encoding="gzip", X_Y="1")}),
        "/x",
        method="POST",
        params={"a": 1},
        json={"b": 2},
    )

    assert isinstance(response, HttpResponse)
    assert (response.status, response.content, response.headers["x-y"], response.is_success) == (
        410,
        b"gone",
        "1",
        False,
    )
    assert (request.line, request.body) == ("POST /x?a=1 HTTP/1.1", b'{"b": 2}')
    assert request.headers["user-agent"] == "easel/test"


@pytest.mark.parametrize(
    ("user_agent", "contact", "as_browser", "expected"),
    [
        (None, None, False, "easel/"),
        (None, "https://ops.example", False, "(+https://ops.example)"),
        (None, "https://ops.example", True, "Mozilla/5.0"),
        ("mine/1", "https://ops.example", True, "mine/1"),
    ],
)
def test_user_agent_follows_the_settings_and_the_call(
    user_agent: str | None, contact: str | None, as_browser: bool, expected: str
):
    async def work() -> ReceivedRequest:
        http = HttpClient(LOOPBACK, user_agent=user_agent, contact=contact)
        async with Server(answers({"/": reply(b"")})) as server:
            await http.send(HttpCall("GET", server.url(), as_browser=as_browser))
            await http.aclose()
            return server.requests[0]

    assert expected in run_within_deadline(work).headers["user-agent"]


def test_the_connection_goes_to_the_address_that_was_checked():
    resolve, names = resolver(["127.0.0.1"], ["10.255.255.1"])

    async def work() -> ReceivedRequest:
        http = HttpClient(LOOPBACK, resolve=resolve)
        async with Server(answers({})) as server:
            await http.send(HttpCall("GET", server.url(host="rebinding.example")))
            await http.aclose()
            assert server.requests[0].headers["host"] == f"rebinding.example:{server.port}"
            return server.requests[0]

    run_within_deadline(work)

    assert names == ["rebinding.example"]


def test_a_host_is_reached_at_the_first_address_that_answers():
    resolve, _ = resolver(["127.0.0.2", "127.0.0.1"])

    async def work() -> HttpResponse:
        http = HttpClient(LOOPBACK, resolve=resolve)
        async with Server(answers({})) as server:
            response = await http.send(HttpCall("GET", server.url(host="two.example")))
            await http.aclose()
            return response

    assert run_within_deadline(work).content == b"ok"


def test_connection_of_a_trusted_call_is_reused_by_trusted_calls_only():
    async def work() -> tuple[int, int]:
        http = HttpClient(Guard())
        async with Server(answers({"/c": reply(b"", Set_Cookie="c=1")})) as server:
            for path in ("/c", "/d"):
                await http.send(HttpCall("GET", server.url(path), trusted=True))
            with pytest.raises(AddressRefused):
                await http.send(HttpCall("GET", server.url("/e")))
            await http.aclose()
            assert "cookie" not in server.requests[1].headers
            return server.connections, len(server.requests)

    assert run_within_deadline(work) == (1, 2)


def test_redirects_are_followed_as_far_as_the_caller_allows():
    chain = answers(
        {
            "/1": reply(b"moved", 302, Location="/2"),
            "/2": reply(b"", 307, Location="3?x"),
            "/4": reply(b"", 301, Location="4"),
        }
    )

    stayed, _ = send_call(chain, "/1")
    followed, requests = send_call(chain, "/1", method="POST", content=b"b", redirects=2)
    looping = failure_of(chain, "/4", redirects=5)

    assert isinstance(stayed, HttpResponse)
    assert isinstance(followed, HttpResponse)
    assert (stayed.status, stayed.content, stayed.headers["location"]) == (302, b"moved", "/2")
    assert (followed.content, followed.url.rpartition("/")[2]) == (b"ok", "3?x")
    assert [each.line.split()[0] for each in requests] == ["POST", "GET", "GET"]
    assert "more than 5 redirects" in looping.message
    assert not looping.retryable


def test_redirect_into_a_private_network_is_refused_also_for_a_trusted_call():
    refused, requests = send_call(
        answers({"/": reply(b"", 302, Location="http://127.0.0.3/latest")}), guard=LOOPBACK, redirects=5
    )
    back, _ = send_call(answers({"/": reply(b"", 302, Location="/next")}), guard=Guard(), trusted=True, redirects=5)

    assert isinstance(refused, AddressRefused)
    assert refused.message == "URL resolves to a non-public address (127.0.0.3), which is not allowed."
    assert len(requests) == 1
    assert isinstance(back, AddressRefused)


@pytest.mark.parametrize("headers", [{}, {"Content_Encoding": "gzip"}])
def test_response_of_exactly_the_size_limit_is_read(headers: Any):
    body = bytes(5000)

    response, _ = send_call(
        answers({"/": reply(gzip.compress(body) if headers else body, **headers)}), "/", max_bytes=5000
    )

    assert not isinstance(response, HttpFailed)
    assert response.content == body


def test_response_above_the_size_limit_is_an_error():
    bomb = reply(gzip.compress(bytes(8 * 1024 * 1024)), Content_Encoding="gzip")
    nested = reply(b"x", Content_Encoding="gzip, gzip, gzip")

    large = failure_of(answers({"/": bomb}), max_bytes=100_000)
    declared = failure_of(answers({"/": reply(bytes(5000))}), max_bytes=4999)

    assert "larger than 100,000 bytes" in large.message
    assert "larger than 4,999 bytes" in declared.message
    assert "compressed more than 2 times" in failure_of(answers({"/": nested})).message
    assert not large.retryable


@pytest.mark.parametrize(("length", "is_read"), [(5, True), (6, False)])
def test_body_of_a_library_transport_is_limited_to_exactly_its_size_limit(length: int, is_read: bool):
    async def work() -> bytes:
        http = HttpClient(LOOPBACK)
        try:
            async with (
                Server(answers({"/": reply(bytes(length))})) as server,
                httpx2.AsyncClient(transport=http.transport(5)) as client,
            ):
                return (await client.get(server.url())).content
        finally:
            await http.aclose()

    if is_read:
        assert run_within_deadline(work) == bytes(length)
    else:
        with pytest.raises(HttpFailed, match="larger than 5 bytes"):
            run_within_deadline(work)


def test_response_that_cannot_be_decompressed_is_an_error():
    failed = failure_of(answers({"/": reply(b"no gzip", Content_Encoding="gzip")}))

    assert "cannot be decompressed" in failed.message
    assert not failed.retryable


def test_slow_response_times_out_at_the_deadline():
    async def answer_slowly(server: Server, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(1000):
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    failed = failure_of(answer_slowly, "/?token=s3cret", timeout=0.1)

    assert "no complete answer within 0.1 seconds" in failed.message
    assert "s3cret" not in failed.message
    assert failed.retryable


def test_call_without_a_timeout_uses_that_of_the_client():
    async def never_answer(server: Server, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await server.left.wait()

    async def work() -> HttpFailed:
        http = HttpClient(LOOPBACK, timeout=0.05)
        async with Server(never_answer) as server:
            with pytest.raises(HttpFailed) as failed:
                await http.send(HttpCall("GET", server.url()))
            await http.aclose()
            server.left.set()
            return failed.value

    assert "within 0.05 seconds" in run_within_deadline(work).message


def test_errors_of_broken_and_refused_connections_are_retryable():
    async def hang_up(server: Server, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def call_closed_port() -> HttpFailed:
        async with Server(hang_up) as server:
            url = server.url()
        http = HttpClient(LOOPBACK)
        with pytest.raises(HttpFailed) as failed:
            await http.send(HttpCall("GET", url))
        return failed.value

    hung_up, away = failure_of(hang_up), run_within_deadline(call_closed_port)

    assert "the connection broke" in hung_up.message
    assert "cannot connect" in away.message
    assert hung_up.retryable
    assert away.retryable


def test_cancelling_a_call_closes_its_connection():
    async def never_answer(server: Server, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 10\r\n\r\n.")

    async def work() -> bool:
        http = HttpClient(LOOPBACK)
        async with Server(never_answer) as server:
            sending = asyncio.create_task(http.send(HttpCall("GET", server.url())))
            await server.has_request.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await server.left.wait()
            await http.aclose()
            return server.left.is_set()

    assert run_within_deadline(work)


def test_proxy_is_used_only_for_calls_that_name_it(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def work() -> tuple[bytes, ReceivedRequest, bytes]:
        resolve, _ = resolver(["93.184.216.34"])
        http = HttpClient(LOOPBACK, resolve=resolve)
        async with Server(answers({})) as server:
            direct = await http.send(HttpCall("GET", server.url()))
            proxy = f"http://ann:pw@127.0.0.1:{server.port}"
            through = await http.send(HttpCall("GET", "http://far.example/x?y=1", proxy=proxy))
            await http.aclose()
            return direct.content, server.requests[-1], through.content

    direct, request, through = run_within_deadline(work)

    assert (direct, through) == (b"ok", b"ok")
    assert request.line == "GET http://far.example/x?y=1 HTTP/1.1"
    assert request.headers["host"] == "far.example"
    assert request.headers["proxy-authorization"] == "Basic YW5uOnB3"


def test_proxy_resolves_the_target_name_if_the_guard_allows_any_address():
    resolve, names = resolver(["127.0.0.1"])

    async def work() -> HttpResponse:
        http = HttpClient(Guard(allow_any=True), resolve=resolve)
        async with Server(answers({})) as server:
            return await http.send(HttpCall("GET", "http://inside/", proxy=server.url(host="proxy.example")))

    assert run_within_deadline(work).content == b"ok"
    assert names == ["proxy.example"]


def test_call_fails_if_the_proxy_opens_no_tunnel():
    async def work() -> tuple[HttpFailed, ReceivedRequest]:
        resolve, _ = resolver(["93.184.216.34"])
        http = HttpClient(LOOPBACK, resolve=resolve)
        async with Server(answers({"far.example:443": reply(b"", 403)})) as server:
            with pytest.raises(HttpFailed) as failed:
                await http.send(HttpCall("GET", "https://far.example/x", proxy=server.url()))
            return failed.value, server.requests[0]

    failed, request = run_within_deadline(work)

    assert "the proxy refuses the request: 403" in failed.message
    assert request.line == "CONNECT far.example:443 HTTP/1.1"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a key and a self-signed certificate for `vendor.example`."""
    return create_self_signed(tmp_path_factory.mktemp("tls") / "vendor.pem", "vendor.example")


def test_certificate_is_verified_for_the_host_name_and_not_the_address(certificate: Path):
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(certificate)
    sni_names: list[str | None] = []
    server_tls.sni_callback = lambda _, name, __: sni_names.append(name)
    resolve, _ = resolver(["127.0.0.1"])

    async def work() -> tuple[HttpResponse, HttpFailed]:
        http = HttpClient(LOOPBACK, resolve=resolve, tls=ssl.create_default_context(cafile=str(certificate)))
        async with Server(answers({}), tls=server_tls) as server:
            response = await http.send(HttpCall("GET", server.url(host="vendor.example")))
            with pytest.raises(HttpFailed) as failed:
                await http.send(HttpCall("GET", server.url(host="other.example")))
            await http.aclose()
            return response, failed.value

    response, failed = run_within_deadline(work)

    assert response.content == b"ok"
    assert sni_names == ["vendor.example", "other.example"]
    assert "its certificate is not trusted" in failed.message
    assert not failed.retryable
