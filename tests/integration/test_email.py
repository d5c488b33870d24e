"""The Email tool, against a local SMTP server with scripted errors."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from canvas.errors import AddressRefused, ToolError
from canvas.outcome import Failed, Finished
from components.tools.email.send import EMAIL
from components.tools.framework.tool_node import tool_component
from providers.address_policy import Guard
from providers.interfaces import DeliveryUnknown, MailAccount, Services
from providers.mail import LOGIN_REFUSED, MailServers
from tests.certificates import create_self_signed
from tests.fakes import FakeContext, FakeHttp, no_network
from tests.smtp import SmtpServer

HOST = "mail.test"
DEADLINE_S = 10.0  # seconds
LOOPBACK = Guard(allowed=("127.0.0.1",))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_self_signed(tmp_path_factory.mktemp("tls") / "mail.pem", HOST)


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    """Return the TLS context of the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def servers(certificate: Path) -> Callable[..., MailServers]:
    """Return a factory of clients that resolve every host name to loopback."""

    async def resolve(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    def make(guard: Guard = LOOPBACK, *, ports: Any = None, cafile: Path | None = certificate) -> MailServers:
        context = ssl.create_default_context(cafile=cafile)
        return MailServers(guard, ports=ports or range(65536), tls=context, resolve=resolve)

    return make


def run_within_deadline(work: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await work

    return asyncio.run(bounded())


def node(server: SmtpServer, **params: Any) -> dict[str, Any]:
    return {
        "smtp_server": HOST,
        "smtp_port": str(server.port),
        "email": "me@example.com",
        "password": "pass-1234",
        "sender_name": "Ann",
        "to_email": "you@example.com",
        "subject": "Grüße",
        "content": "<p>Hi</p>\n.\nDone",
        "delay_after_error": 0,
        **params,
    }


async def send_email(mail: MailServers, server: SmtpServer, ctx: FakeContext | None = None, **params: Any) -> Any:
    """Run the Email node; return its outcome."""
    ctx = ctx or FakeContext()
    scheme = "smtps" if server.implicit else "smtp"
    base_urls = {"EMAIL": f"{scheme}://{HOST}:{server.port}"} if server.implicit else {}
    ctx.services = Services(FakeHttp(no_network), mail=mail, base_urls=base_urls)
    ctx.params = node(server, **params)
    ctx.component = "Email"
    outcome = tool_component(EMAIL).run(EMAIL.params.model_validate(ctx.params), ctx)
    return await outcome  # type: ignore[misc]  # a tool's component is async


Servers = Callable[..., MailServers]


@pytest.mark.parametrize("implicit", [False, True])
def test_message_is_sent_over_tls_after_login(servers: Servers, tls: ssl.SSLContext, implicit: bool):
    async def work() -> None:
        async with SmtpServer(tls, implicit=implicit) as server:
            outcome = await send_email(servers(), server, to_email="a@x.test; b@x.test", cc_email="c@x.test, a@x.test")

            assert outcome == Finished(outputs={"success": True})
            [message] = server.messages
            assert (message.sender, message.recipients) == ("me@example.com", ["a@x.test", "b@x.test", "c@x.test"])
            assert server.logins == [("me@example.com", "pass-1234")]
            is_encrypted = dict(
                zip((each.split(" ")[0].upper() for each in server.commands), server.encrypted, strict=True)
            )
            assert all(is_encrypted[name] for name in ("AUTH", "MAIL", "RCPT", "DATA"))
            assert message.html.splitlines() == ["<p>Hi</p>", ".", "Done"]

    run_within_deadline(work())


def test_wrong_login_is_an_error_and_not_retried(servers: Servers, tls: ssl.SSLContext):
    async def work() -> None:
        async with SmtpServer(tls, users={}) as server:
            outcome = await send_email(servers(), server, max_retries=3)

            assert (outcome.error, outcome.outputs) == (LOGIN_REFUSED, {"success": False})
            assert server.connections == 1

    run_within_deadline(work())


@pytest.mark.parametrize(
    ("refuse", "error", "connections"),
    [
        ({"RCPT": ["450 later"]}, None, 2),
        ({"BODY": ["451 greylisted"]}, None, 2),
        ({"CONNECT": ["421 busy"]}, None, 2),
        ({"MAIL": ["452 full"] * 9}, "SMTP error occurred: 452 full", 3),
        ({"RCPT": ["550 unknown"]}, "SMTP error occurred: you@example.com: 550 unknown", 1),
        ({"BODY": ["554 spam"]}, "SMTP error occurred: 554 spam", 1),
        ({"STARTTLS": ["454 no"] * 9}, "SMTP error occurred: 454 no", 3),
    ],
)
def test_transient_error_is_retried_and_others_are_not(
    servers: Servers, tls: ssl.SSLContext, refuse: Any, error: str | None, connections: int
):
    async def work() -> None:
        async with SmtpServer(tls, refuse=refuse) as server:
            outcome = await send_email(servers(), server, max_retries="2")

            assert server.connections == connections
            assert len(server.messages) == (error is None)
            assert getattr(outcome, "error", None) == error
            assert outcome.outputs == {"success": error is None}

    run_within_deadline(work())


def test_message_is_sent_to_the_accepted_recipients(servers: Servers, tls: ssl.SSLContext):
    async def work() -> None:
        async with SmtpServer(tls, refuse={"RCPT": ["", "550 no"]}) as server:
            outcome = await send_email(servers(), server, to_email="a@x.test, b@x.test")

            assert outcome == Finished(outputs={"success": True, "refused": ["b@x.test"]})

    run_within_deadline(work())


@pytest.mark.parametrize("stop", [{"drop_at": "BODY"}, {"stall_at": "BODY"}, {"refuse": {"BODY": ["hello?"]}}])
def test_message_with_unknown_outcome_is_not_sent_again(servers: Servers, tls: ssl.SSLContext, stop: Any):
    async def work() -> None:
        async with SmtpServer(tls, **stop) as server:
            ctx = FakeContext(limits={"Email": 3.0 if "stall_at" in stop else 60.0})
            first = await send_email(servers(), server, ctx, max_retries=3)
            second = await send_email(servers(), server, ctx, max_retries=3)

            assert isinstance(first, Failed)
            assert isinstance(second, Failed)
            assert (first.error, first.outputs) == ("delivery state unknown", {"success": False})
            assert (second.error, second.outputs) == (first.error, first.outputs)
            assert server.connections == 1

    run_within_deadline(work())


@pytest.mark.parametrize("stop", ["EHLO", "MAIL", "DATA"])
def test_connection_lost_before_data_is_retried(servers: Servers, tls: ssl.SSLContext, stop: str):
    async def work() -> None:
        async with SmtpServer(tls, drop_at=stop) as server:
            outcome = await send_email(servers(), server, max_retries=1)

            assert outcome.error.startswith(("SMTP error occurred: ", "Failed to connect to SMTP server mail.test:"))
            assert server.connections == 2

    run_within_deadline(work())


def test_cancel_closes_the_connection(servers: Servers, tls: ssl.SSLContext):
    async def work() -> None:
        async with SmtpServer(tls, stall_at="DATA") as server:
            sending = asyncio.create_task(send_email(servers(), server))
            await server.stalled.wait()
            sending.cancel()

            with pytest.raises(asyncio.CancelledError):
                await sending
            assert server.messages == []

    run_within_deadline(work())


@pytest.mark.parametrize(
    ("greeting", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "SMTP error occurred: -1"),
        (b"\xff\xfe\x00\r\n", "SMTP error occurred: -1"),
        (b"220-" + b"x" * 4000 + b"\r\n", "SMTP error occurred: -1 Response too long"),
        (b"554 go away\r\n", "SMTP error occurred: 554 go away"),
    ],
)
def test_invalid_server_reply_is_a_clear_error(servers: Servers, tls: ssl.SSLContext, greeting: bytes, error: str):
    async def work() -> None:
        async with SmtpServer(tls, greeting=greeting * (100 if greeting.startswith(b"220") else 1)) as server:
            outcome = await send_email(servers(), server)

            assert error in outcome.error
            assert outcome.outputs == {"success": False}

    run_within_deadline(work())


def test_password_is_not_sent_without_tls(servers: Servers):
    async def work() -> None:
        async with SmtpServer(None) as server:
            outcome = await send_email(servers(), server, max_retries=2)

            assert outcome.error == "SMTP error occurred: SMTP STARTTLS extension not supported by server."
            assert (server.connections, server.logins) == (1, [])

    run_within_deadline(work())


@pytest.mark.parametrize("implicit", [False, True])
def test_password_is_not_sent_to_a_server_with_another_name_in_its_certificate(
    servers: Servers, tls: ssl.SSLContext, implicit: bool
):
    async def work() -> None:
        async with SmtpServer(tls, implicit=implicit) as server:
            account = MailAccount("other.test", server.port, "me", "pass-1234", implicit, 5.0)
            with pytest.raises(ToolError, match="certificate is not trusted") as refused:
                async with servers().connect(account):
                    raise AssertionError("the connection was accepted")

            assert not refused.value.retryable
            assert server.logins == []

    run_within_deadline(work())


@pytest.mark.parametrize(
    ("guard", "ports", "error"),
    [
        (Guard(), None, "non-public address (127.0.0.1)"),
        (LOOPBACK, {25, 465}, "is not allowed for mail. Use one of 25, 465."),
    ],
)
def test_only_public_hosts_and_mail_ports_are_connected(
    servers: Servers, tls: ssl.SSLContext, guard: Guard, ports: Any, error: str
):
    async def work() -> None:
        async with SmtpServer(tls) as server:
            account = MailAccount(HOST, server.port, "me", "p", False, 5.0)
            with pytest.raises(AddressRefused) as refused:
                async with servers(guard, ports=ports).connect(account):
                    raise AssertionError("the connection was accepted")

            assert error in refused.value.message
            assert server.connections == 0

    run_within_deadline(work())


def test_configured_relay_gets_all_mail(servers: Servers, tls: ssl.SSLContext):
    async def work() -> None:
        async with SmtpServer(tls) as server:
            ctx = FakeContext(
                services=Services(
                    FakeHttp(no_network),
                    mail=servers(Guard(), ports={25}),
                    base_urls={"EMAIL": f"smtp://{HOST}:{server.port}"},
                )
            )
            params = node(server, smtp_server="smtp.elsewhere.test", smtp_port=465)
            result = await EMAIL.run(EMAIL.params.model_validate(params), {"to_email": "you@example.com"}, ctx)

            assert (result.error, result.answer, len(server.messages)) == (None, True, 1)

    run_within_deadline(work())


def test_error_for_a_closed_port_names_the_server(servers: Servers):
    async def work() -> Mapping[str, Any]:
        account = MailAccount(HOST, 1, "me", "p", False, 5.0)
        with pytest.raises(ToolError) as failed:
            async with servers().connect(account):
                raise AssertionError("the connection was accepted")
        return {"message": failed.value.message, "retryable": failed.value.retryable}

    assert run_within_deadline(work()) == {"message": "Failed to connect to SMTP server mail.test:1", "retryable": True}


def test_unknown_delivery_error_has_its_own_message():
    assert DeliveryUnknown().message == "delivery state unknown"
