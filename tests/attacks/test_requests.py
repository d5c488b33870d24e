"""Injection into protocols: request heads, queries, email headers and file names."""

import asyncio
from datetime import UTC, datetime
from email import message_from_bytes
from typing import Any

import httpx2
import pytest

from api.agents.files import _disposition_name
from canvas.errors import ToolError
from components.nodes.data.invoke import InvokeParams, invoke
from components.tools.email.message import OutgoingEmail, encode_message, parse_address, parse_addresses
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import Services
from providers.models.chat.catalogue import AccountModel, VendorAccount, open_chat, resolve
from providers.models.transport.clients import close_connections
from providers.models.transport.transport import checked_headers
from providers.models.types.chat import ChatRequest
from tests.attacks.entry_points import _as_context
from tests.attacks.wire import LOCALHOST, LocalServer, local_server, reply, tls
from tests.fakes import FakeContext

ADMITTED = Guard(allowed=(LOCALHOST,))
SMUGGLED = "X-Smuggled"
LINE_BREAKS = (
    f"a\r\n{SMUGGLED}: 1", f"a\n{SMUGGLED}: 1", f"a\r{SMUGGLED}: 1", f"a\r\n\r\nGET /{SMUGGLED} HTTP/1.1\r\n\r\n",
    f"a\x00{SMUGGLED}", f"a\x0b{SMUGGLED}: 1", f"a\x0c{SMUGGLED}: 1", f"a\u2028{SMUGGLED}: 1", f"a\u010a{SMUGGLED}: 1",
    f"a\u560d\u560a{SMUGGLED}: 1", f"a%0d%0a{SMUGGLED}: 1", f"a\\r\\n{SMUGGLED}: 1", f"a\x85{SMUGGLED}: 1",
)  # fmt: skip


def send_invoke(**params: Any) -> tuple[str, list[bytes]]:
    """Run Invoke; return its outcome, and the request heads that the server received."""

    async def work() -> tuple[str, LocalServer]:
        async with local_server(reply(b"ok")) as server:
            http = HttpClient(ADMITTED, tls=tls())
            stored = {"url": server.url(), **params}
            stored["url"] = stored["url"].replace("http://here", server.url()[:-1])
            ctx = FakeContext(services=Services(http), globals={"sys.query": "q"})
            try:
                outcome: Any = await invoke.run(InvokeParams.model_validate(stored), _as_context(ctx))  # type: ignore[misc]  # async
                return str(outcome.outputs), server
            except ToolError as error:
                return f"refused: {error.message}", server
            finally:
                await http.aclose()

    outcome_text, server = asyncio.run(work())
    return outcome_text, [requests.head for requests in server.requests]


@pytest.mark.parametrize("text", LINE_BREAKS, ids=ascii)
@pytest.mark.parametrize(
    "position", ["value", "name", "cookie", "query", "key", "path", "fragment", "host", "user", "agent"]
)
def test_line_breaks_in_parameters_add_no_request_header(text: str, position: str):
    variables = {"query": {"key": "k", "value": text}, "key": {"key": text, "value": "v"}}
    headers = {"value": {"X-A": text}, "name": {text: "v"}, "cookie": {"Cookie": text}, "host": {"Host": text},
               "agent": {"User-Agent": text}}  # fmt: skip
    urls = {"path": f"http://here/{text}", "fragment": f"http://here/#{text}", "user": f"http://{text}@{LOCALHOST}:1/"}

    _, heads = send_invoke(
        url=urls.get(position, "http://here/"),
        headers=headers.get(position, {}),
        variables=[variables[position]] if position in variables else [],
    )

    assert len(heads) <= 1
    for head in heads:
        lines = head.decode("latin-1").split("\r\n")
        assert not [line for line in lines[1:] if line.lower().startswith(SMUGGLED.lower())]
        assert not {"\r", "\n", "\0"} & set("".join(lines))
        assert len(lines[0].split(" ")) == 3


@pytest.mark.parametrize(
    "name", ["Content-Length", "transfer-encoding", "Connection", "Upgrade", "TE", "Expect", " Content-Length"]
)
def test_framing_headers_of_the_author_are_ignored(name: str):
    _, heads = send_invoke(method="post", headers={name: "chunked" if "transfer" in name else "1"}, body="hello")

    (head,) = heads
    assert head.lower().count(b"content-length:") == 1
    assert b"content-length: 5" in head.lower()
    assert b"transfer-encoding" not in head.lower()
    assert b"upgrade" not in head.lower()


@pytest.mark.parametrize(
    "header", [(b"a", b"b\r\nc: d"), (b"a\r\nb", b"c"), (b"a b", b"c"), (b"", b"c"), (b"a", b"\x00"), (b"a:", b"b")]
)
def test_malformed_header_of_a_model_request_is_refused(header: tuple[bytes, bytes]):
    with pytest.raises(httpx2.LocalProtocolError, match="one line"):
        checked_headers("POST", b"/", [header])


def test_header_that_is_not_utf8_is_refused_and_not_altered():
    with pytest.raises(httpx2.LocalProtocolError, match="UTF-8"):
        checked_headers("POST", b"/", [(b"Authorization", b"Bearer \xe9")])


# -- models -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_of_a_model_server_is_not_followed(status: int):
    """The operator chose the host, which may be private; nothing has checked the target of a redirect."""

    async def work() -> tuple[str, int, int]:
        async with (
            local_server(reply(b"{}")) as target,
            local_server(reply(status=status, Location=target.url("/x"))) as first,
        ):
            account = VendorAccount(
                "OpenAI-API-Compatible",
                base_url=first.url("/v1"),
                api_key="sk-s3cret-key",
                models={"m": AccountModel()},
            )
            model = open_chat(resolve("m@OpenAI-API-Compatible", [account]))
            completion = await model.complete(ChatRequest([{"role": "user", "content": "the prompt"}], retries=0))
            await close_connections()
            return completion.text, len(first.requests), len(target.requests)

    text, requests, target = asyncio.run(work())

    assert target == 0
    assert requests == 1
    assert "redirects are not followed" in text
    assert "s3cret" not in text


# -- email ------------------------------------------------------------------------------------------------------------
def email(**more: Any) -> OutgoingEmail:
    fields = {"sender": "a@x.test", "sender_name": "A", "subject": "S", "html": "H", "key": "k", **more}
    return OutgoingEmail(to=["b@x.test"], cc=[], **fields)


@pytest.mark.parametrize(
    "text",
    [*LINE_BREAKS, "a\r\nBcc: evil@x.test", "=?utf-8?q?a=0D=0ABcc:_evil@x.test?=", "a\n.\nMAIL FROM:<x>"],
    ids=ascii,
)
@pytest.mark.parametrize("field", ["subject", "sender_name"])
def test_line_breaks_in_email_fields_add_no_header(text: str, field: str):
    whole = encode_message(email(**{field: text}), datetime(2026, 1, 1, tzinfo=UTC))

    head = message_from_bytes(whole)
    assert set(head.keys()) == {"Content-Type", "MIME-Version", "From", "To", "Subject", "Date", "Message-ID"}
    assert not {b"\r", b"\n"} & {bytes([byte]) for line in whole.split(b"\r\n") for byte in line}


@pytest.mark.parametrize(
    "address",
    [
        "a@x.test>\r\nDATA", "a\n@x.test", "<a@x.test> ORCPT=x", "a@x.test SIZE=1",
        "a@[127.0.0.1]", "a@localhost\x00", '"a\r\nb"@x.test', "a@x..test", "@x.test", "a@", "a b@x.test", "a@x.test,",
        "-oQ/tmp @x.test", "a@-x.test", "a@" + "x" * 64 + ".test", "a" * 65 + "@x.test", "\u202ea@x.test", "a<b@x.test",
        "xn--@x.te st", "a;b@x.test",
    ],
    ids=ascii,
)  # fmt: skip
def test_invalid_email_address_is_refused(address: str):
    with pytest.raises(ToolError, match="Invalid email address"):
        parse_address(address)


def test_email_address_list_with_an_invalid_entry_is_refused():
    with pytest.raises(ToolError):
        parse_addresses("a@x.test, b@x.test\r\nBcc evil")
    assert parse_addresses('"x, y" <a@x.test>; b@x.test\n c@x.test') == ["a@x.test", "b@x.test", "c@x.test"]


# -- downloads --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", [*LINE_BREAKS, 'a"; filename="b.exe', "a; x=y", "a\\", "../../a", "é\r\n", "%0d%0a"], ids=ascii
)
def test_download_file_name_cannot_leave_its_quotes(name: str):
    disposition = _disposition_name(name)

    assert disposition.startswith('; filename="')
    plain = disposition.removeprefix('; filename="').partition('"')[0]
    assert not set(plain) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
    assert not {"\r", "\n", "\0"} & set(disposition)
