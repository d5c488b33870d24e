"""The outgoing client against small servers on this machine that answer as they are told."""

import asyncio
import gzip
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from canvas.errors import AddressRefused, HttpFailed
from providers.http.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import HttpCall, HttpResponse
from tests.certificates import self_signed

T = TypeVar("T")
HERE = Guard(allowed=("127.0.0.1", "127.0.0.2"))
PATIENCE = 5.0  # seconds; nothing here takes that long unless it is broken


@dataclass
class Asked:
    """One request as the server saw it."""

    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[["Server", Asked, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """Gives every request to `answer`, remembers it, and knows when a client has gone."""

    answer: Answer
    tls: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list[Asked])
    has_asked: asyncio.Event = field(default_factory=asyncio.Event)
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
                self.asked.append(Asked(lines[0], headers, body))
                self.has_asked.set()
                await self.answer(self, self.asked[-1], writer)
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
    """Answers by path; anything else is the text `ok`."""

    async def answer(server: Server, asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(by_path.get(asked.line.split()[1], reply(b"ok")))

    return answer


def resolver(*answers: Sequence[str]) -> tuple[Callable[[str, int], Coroutine[Any, Any, Sequence[str]]], list[str]]:
    """A resolver that gives one answer after the other, the last one for ever, and the names it was asked for."""
    names: list[str] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        names.append(name)
        return answers[min(len(names), len(answers)) - 1]

    return resolve, names


def carried_out(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await work()

    return asyncio.run(bounded())


def asked_of(
    answer: Answer, path: str = "/", *, guard: Guard = HERE, **call: Any
) -> tuple[HttpResponse | Exception, list[Asked]]:
    """What becomes of one call to a server, and what the server saw."""

    async def work() -> tuple[HttpResponse | Exception, list[Asked]]:
        http = HttpClient(guard, user_agent="easel/test")
        async with Server(answer) as server:
            try:
                return await http.send(HttpCall(call.pop("method", "GET"), server.url(path), **call)), server.asked
            except (AddressRefused, HttpFailed) as error:
                return error, server.asked
            finally:
                await http.aclose()

    return carried_out(work)


def failure_of(answer: Answer, path: str = "/", **call: Any) -> HttpFailed:
    failed, _ = asked_of(answer, path, **call)
    assert isinstance(failed, HttpFailed)
    return failed


def test_an_answer_of_any_status_is_read_whole():
    got, [asked] = asked_of(
        answers({"/x?a=1": reply(gzip.compress(b"gone"), 410, Content_Encoding="gzip", X_Y="1")}),
        "/x",
        method="POST",
        params={"a": 1},
        json={"b": 2},
    )

    assert isinstance(got, HttpResponse)
    assert (got.status, got.content, got.headers["x-y"], got.is_success) == (410, b"gone", "1", False)
    assert (asked.line, asked.body) == ("POST /x?a=1 HTTP/1.1", b'{"b": 2}')
    assert asked.headers["user-agent"] == "easel/test"


@pytest.mark.parametrize(
    ("said", "contact", "as_browser", "sent"),
    [
        (None, None, False, "easel/"),
        (None, "https://ops.example", False, "(+https://ops.example)"),
        (None, "https://ops.example", True, "Mozilla/5.0"),
        ("mine/1", "https://ops.example", True, "mine/1"),
    ],
)
def test_request_says_who_sends_it(said: str | None, contact: str | None, as_browser: bool, sent: str):
    async def work() -> Asked:
        http = HttpClient(HERE, user_agent=said, contact=contact)
        async with Server(answers({"/": reply(b"")})) as server:
            await http.send(HttpCall("GET", server.url(), as_browser=as_browser))
            await http.aclose()
            return server.asked[0]

    assert sent in carried_out(work).headers["user-agent"]


def test_the_connection_goes_to_the_address_that_was_checked():
    resolve, names = resolver(["127.0.0.1"], ["10.255.255.1"])

    async def work() -> Asked:
        http = HttpClient(HERE, resolve=resolve)
        async with Server(answers({})) as server:
            await http.send(HttpCall("GET", server.url(host="rebinding.example")))
            await http.aclose()
            assert server.asked[0].headers["host"] == f"rebinding.example:{server.port}"
            return server.asked[0]

    carried_out(work)

    assert names == ["rebinding.example"]


def test_a_host_is_reached_at_the_first_address_that_answers():
    resolve, _ = resolver(["127.0.0.2", "127.0.0.1"])

    async def work() -> HttpResponse:
        http = HttpClient(HERE, resolve=resolve)
        async with Server(answers({})) as server:
            got = await http.send(HttpCall("GET", server.url(host="two.example")))
            await http.aclose()
            return got

    assert carried_out(work).content == b"ok"


def test_a_connection_is_used_again_but_never_one_of_a_trusted_call():
    async def work() -> tuple[int, int]:
        http = HttpClient(Guard())
        async with Server(answers({"/c": reply(b"", Set_Cookie="c=1")})) as server:
            for path in ("/c", "/d"):
                await http.send(HttpCall("GET", server.url(path), trusted=True))
            with pytest.raises(AddressRefused):
                await http.send(HttpCall("GET", server.url("/e")))
            await http.aclose()
            assert "cookie" not in server.asked[1].headers
            return server.connections, len(server.asked)

    assert carried_out(work) == (1, 2)


def test_redirects_are_followed_as_far_as_the_caller_allows():
    chain = answers(
        {
            "/1": reply(b"moved", 302, Location="/2"),
            "/2": reply(b"", 307, Location="3?x"),
            "/4": reply(b"", 301, Location="4"),
        }
    )

    stayed, _ = asked_of(chain, "/1")
    followed, asked = asked_of(chain, "/1", method="POST", content=b"b", redirects=2)
    looping = failure_of(chain, "/4", redirects=5)

    assert isinstance(stayed, HttpResponse)
    assert isinstance(followed, HttpResponse)
    assert (stayed.status, stayed.content, stayed.headers["location"]) == (302, b"moved", "/2")
    assert (followed.content, followed.url.rpartition("/")[2]) == (b"ok", "3?x")
    assert [each.line.split()[0] for each in asked] == ["POST", "GET", "GET"]
    assert "more than 5 redirects" in looping.message
    assert not looping.retryable


def test_a_redirect_into_the_private_network_is_refused_also_for_a_trusted_call():
    refused, asked = asked_of(
        answers({"/": reply(b"", 302, Location="http://127.0.0.3/latest")}), guard=HERE, redirects=5
    )
    back, _ = asked_of(answers({"/": reply(b"", 302, Location="/next")}), guard=Guard(), trusted=True, redirects=5)

    assert isinstance(refused, AddressRefused)
    assert refused.message == "URL resolves to a non-public address (127.0.0.3), which is not allowed."
    assert len(asked) == 1
    assert isinstance(back, AddressRefused)


def test_a_body_that_unpacks_to_too_much_is_given_up():
    bomb = reply(gzip.compress(bytes(8 * 1024 * 1024)), Content_Encoding="gzip")
    nested = reply(b"x", Content_Encoding="gzip, gzip, gzip")

    large = failure_of(answers({"/": bomb}), max_bytes=100_000)
    declared = failure_of(answers({"/": reply(bytes(5000))}), max_bytes=4999)

    assert "larger than 100,000 bytes" in large.message
    assert "larger than 4,999 bytes" in declared.message
    assert "compressed more than 2 times" in failure_of(answers({"/": nested})).message
    assert not large.retryable


def test_a_body_that_cannot_be_unpacked_fails():
    failed = failure_of(answers({"/": reply(b"no gzip", Content_Encoding="gzip")}))

    assert "cannot be decompressed" in failed.message
    assert not failed.retryable


def test_an_answer_that_dribbles_meets_the_deadline():
    async def dribble(server: Server, asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(1000):
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    failed = failure_of(dribble, "/?token=s3cret", timeout=0.1)

    assert "no complete answer within 0.1 seconds" in failed.message
    assert "s3cret" not in failed.message
    assert failed.retryable


def test_a_call_that_says_no_time_takes_the_clients():
    async def never(server: Server, asked: Asked, writer: asyncio.StreamWriter) -> None:
        await server.left.wait()

    async def work() -> HttpFailed:
        http = HttpClient(HERE, timeout=0.05)
        async with Server(never) as server:
            with pytest.raises(HttpFailed) as failed:
                await http.send(HttpCall("GET", server.url()))
            await http.aclose()
            server.left.set()
            return failed.value

    assert "within 0.05 seconds" in carried_out(work).message


def test_a_server_that_hangs_up_or_is_not_there_may_be_asked_again():
    async def hang_up(server: Server, asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def nobody() -> HttpFailed:
        async with Server(hang_up) as server:
            url = server.url()
        http = HttpClient(HERE)
        with pytest.raises(HttpFailed) as failed:
            await http.send(HttpCall("GET", url))
        return failed.value

    hung_up, away = failure_of(hang_up), carried_out(nobody)

    assert "the connection broke" in hung_up.message
    assert "cannot connect" in away.message
    assert hung_up.retryable
    assert away.retryable


def test_cancelling_a_call_closes_its_connection():
    async def never(server: Server, asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 10\r\n\r\n.")

    async def work() -> bool:
        http = HttpClient(HERE)
        async with Server(never) as server:
            sending = asyncio.create_task(http.send(HttpCall("GET", server.url())))
            await server.has_asked.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await server.left.wait()
            await http.aclose()
            return server.left.is_set()

    assert carried_out(work)


def test_a_proxy_is_used_where_it_is_asked_for_and_nowhere_else(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def work() -> tuple[bytes, Asked, bytes]:
        resolve, _ = resolver(["93.184.216.34"])
        http = HttpClient(HERE, resolve=resolve)
        async with Server(answers({})) as server:
            direct = await http.send(HttpCall("GET", server.url()))
            proxy = f"http://ann:pw@127.0.0.1:{server.port}"
            through = await http.send(HttpCall("GET", "http://far.example/x?y=1", proxy=proxy))
            await http.aclose()
            return direct.content, server.asked[-1], through.content

    direct, asked, through = carried_out(work)

    assert (direct, through) == (b"ok", b"ok")
    assert asked.line == "GET http://far.example/x?y=1 HTTP/1.1"
    assert asked.headers["host"] == "far.example"
    assert asked.headers["proxy-authorization"] == "Basic YW5uOnB3"


def test_without_a_guard_only_the_proxy_needs_to_know_the_name():
    resolve, names = resolver(["127.0.0.1"])

    async def work() -> HttpResponse:
        http = HttpClient(Guard(allow_any=True), resolve=resolve)
        async with Server(answers({})) as server:
            return await http.send(HttpCall("GET", "http://inside/", proxy=server.url(host="proxy.example")))

    assert carried_out(work).content == b"ok"
    assert names == ["proxy.example"]


def test_a_proxy_that_opens_no_tunnel_fails_the_call():
    async def work() -> tuple[HttpFailed, Asked]:
        resolve, _ = resolver(["93.184.216.34"])
        http = HttpClient(HERE, resolve=resolve)
        async with Server(answers({"far.example:443": reply(b"", 403)})) as server:
            with pytest.raises(HttpFailed) as failed:
                await http.send(HttpCall("GET", "https://far.example/x", proxy=server.url()))
            return failed.value, server.asked[0]

    failed, asked = carried_out(work)

    assert "the proxy refuses the request: 403" in failed.message
    assert asked.line == "CONNECT far.example:443 HTTP/1.1"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for `vendor.example` that vouches for itself."""
    return self_signed(tmp_path_factory.mktemp("tls") / "vendor.pem", "vendor.example")


def test_the_certificate_is_held_against_the_name_and_not_the_address(certificate: Path):
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    asked_for: list[str | None] = []
    serving.sni_callback = lambda _, name, __: asked_for.append(name)
    resolve, _ = resolver(["127.0.0.1"])

    async def work() -> tuple[HttpResponse, HttpFailed]:
        http = HttpClient(HERE, resolve=resolve, tls=ssl.create_default_context(cafile=str(certificate)))
        async with Server(answers({}), tls=serving) as server:
            got = await http.send(HttpCall("GET", server.url(host="vendor.example")))
            with pytest.raises(HttpFailed) as failed:
                await http.send(HttpCall("GET", server.url(host="other.example")))
            await http.aclose()
            return got, failed.value

    got, failed = carried_out(work)

    assert got.content == b"ok"
    assert asked_for == ["vendor.example", "other.example"]
    assert "its certificate is not trusted" in failed.message
    assert not failed.retryable
