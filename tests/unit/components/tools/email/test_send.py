"""Email: when a message is sent, and when it is not sent again. The protocol is tested with a real server."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from canvas.errors import AddressRefused, AttemptStopped, ToolError
from canvas.outcome import UNKNOWN_OUTCOME, Failed, Finished
from components.tools.email.send import EMAIL, EmailParams
from components.tools.framework.base import ToolRun
from components.tools.framework.tool_node import tool_component
from providers.interfaces import DeliveryUnknown, MailAccount, Services
from tests.fakes import FakeContext, FakeHttp, no_network, run

SENT = {"success": True}
NOT_SENT = {"success": False}


@dataclass
class FakeMailServer:
    """A mail server in memory. `answers` are used in order; an error among them is raised by `deliver`."""

    answers: list[BaseException | None] = field(default_factory=list[BaseException | None])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    accounts: list[MailAccount] = field(default_factory=list[MailAccount])
    messages: list[bytes] = field(default_factory=list[bytes])
    recipients: list[str] = field(default_factory=list[str])

    @asynccontextmanager
    async def connect(self, account: MailAccount) -> AsyncGenerator["FakeMailServer"]:
        self.accounts.append(account)
        yield self

    async def set_envelope(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        self.recipients = list(recipients)
        return self.refused

    async def deliver(self, message: bytes) -> None:
        self.messages.append(message)
        error = self.answers.pop(0) if self.answers else None
        if error is not None:
            raise error


def node(**params: Any) -> dict[str, Any]:
    return {
        "smtp_server": "smtp.example.com",
        "email": "me@example.com",
        "password": "pass-1234",
        "sender_name": "Ann",
        "to_email": "you@example.com",
        "delay_after_error": 0,
        **params,
    }


def context(server: FakeMailServer, **known: Any) -> FakeContext:
    return FakeContext(services=Services(FakeHttp(no_network), mail=server), **known)


def send(server: FakeMailServer, ctx: FakeContext | None = None, **params: Any) -> Finished | Failed:
    outcome = run(tool_component(EMAIL), node(**params), ctx or context(server))
    assert isinstance(outcome, Finished | Failed)
    return outcome


def by_model(server: FakeMailServer, arguments: Mapping[str, Any], **params: Any) -> ToolRun:
    stored = EMAIL.params.model_validate(node(**params))
    return asyncio.run(EMAIL.run(stored, arguments, context(server)))


def test_message_is_sent_from_the_nodes_account():
    server = FakeMailServer()

    assert send(server, smtp_port="587", smtp_username="login").outputs == SENT

    [account] = server.accounts
    assert (account.host, account.port, account.tls, account.trusted) == ("smtp.example.com", 587, False, False)
    assert (account.username, account.password) == ("login", "pass-1234")
    assert "pass-1234" not in repr(account) + repr(EmailParams(**node()))


def test_port_465_uses_implicit_tls_and_login():
    server = FakeMailServer()

    send(server)

    assert (server.accounts[0].port, server.accounts[0].tls) == (465, True)
    assert server.accounts[0].username == "me@example.com"


@pytest.mark.parametrize("to", ["", " ", None, " , ;", []])
def test_message_without_recipients_is_not_sent(to: Any):
    server = FakeMailServer()

    outcome = send(server, context(server, globals={"sys.query": ""}), to_email=to, cc_email="c@x.test")

    assert outcome == Finished(outputs=NOT_SENT)
    assert server.accounts == []


def test_model_gets_true_or_the_error():
    refusing = FakeMailServer([ToolError("SMTP error occurred: 550 no")])

    assert by_model(FakeMailServer(), {"to_email": "you@example.com"}).answer is True
    assert by_model(refusing, {"to_email": "y@x.test"}).answer == "Email error: SMTP error occurred: 550 no"
    assert by_model(FakeMailServer(), {"to_email": "nobody"}).answer == "Email error: Invalid email address: nobody"
    assert by_model(FakeMailServer(), {"to_email": ""}).answer == ""


def test_refused_recipients_are_an_output():
    assert send(FakeMailServer(refused={"b@x.test": "550 no"})).outputs == {"success": True, "refused": ["b@x.test"]}


@pytest.mark.parametrize(
    ("error", "tries", "text"),
    [
        (ToolError("busy", retryable=True), 3, "busy"),
        (ToolError("no"), 1, "no"),
        (AddressRefused("private"), 1, "private"),
        (RuntimeError("pass-1234 broke"), 1, "Unexpected error: [REDACTED] broke"),
    ],
)
def test_transient_error_is_retried_and_others_are_not(error: Exception, tries: int, text: str):
    server = FakeMailServer([error] * 9)

    outcome = send(server, max_retries="2")

    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.outputs, len(server.messages)) == (text, NOT_SENT, tries)


def test_default_value_is_set_beside_success_false():
    outcome = send(
        FakeMailServer([ToolError("no")]), exception_method="comment", exception_default_value="not sent", max_retries=0
    )

    assert isinstance(outcome, Finished)
    assert outcome.outputs == {"success": False, "result": "not sent", "_SUPPRESSED_ERROR": "no"}


# -- sent once -------------------------------------------------------------------------------------------------------
def stopped_attempt(server: FakeMailServer, stop: BaseException, **known: Any) -> FakeContext:
    """Return the context of an attempt that was stopped during its delivery."""
    server.answers = [stop]
    ctx = context(server, **known)
    with pytest.raises(type(stop)):
        run(tool_component(EMAIL), node(), ctx)
    return ctx


def test_sent_message_is_not_sent_again_by_another_attempt():
    server = FakeMailServer()
    ctx = context(server)

    assert send(server, ctx).outputs == send(server, ctx).outputs == SENT
    assert len(server.messages) == 1


def test_delivery_begun_by_an_earlier_attempt_is_not_repeated():
    server = FakeMailServer()
    ctx = stopped_attempt(server, AttemptStopped("lease"))

    outcome = send(server, ctx, max_retries=3)

    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.outputs) == ("delivery state unknown", NOT_SENT)
    assert len(server.messages) == 1
    assert ctx.non_repeatable_work == []


def test_unknown_delivery_after_refused_tries_is_not_repeated():
    server = FakeMailServer([ToolError("busy", retryable=True), AttemptStopped("lease")])
    ctx = context(server)
    with pytest.raises(AttemptStopped):
        run(tool_component(EMAIL), node(max_retries=1), ctx)

    outcome = send(server, ctx)

    assert isinstance(outcome, Failed)
    assert (outcome.error, len(server.messages)) == ("delivery state unknown", 2)


def test_temporarily_refused_message_is_sent_by_another_attempt():
    server = FakeMailServer([ToolError("busy", retryable=True)])
    ctx = context(server)
    send(server, ctx)

    assert send(server, ctx).outputs == SENT


def test_permanently_refused_message_is_not_sent_again():
    server = FakeMailServer([ToolError("spam")])
    ctx = context(server)
    send(server, ctx)

    outcome = send(server, ctx)

    assert isinstance(outcome, Failed)
    assert (outcome.error, len(server.messages)) == ("spam", 1)


@pytest.mark.parametrize("choice", ["ask", "retry"])
def test_unknown_delivery_is_repeated_with_on_unknown_ask_or_retry(choice: Any):
    server = FakeMailServer()
    ctx = stopped_attempt(server, AttemptStopped("lease"), on_unknown=choice)

    assert ctx.non_repeatable_work == ["begun"]
    assert send(server, ctx).outputs == SENT
    assert ctx.non_repeatable_work == ["begun", "done"]
    first, second = (message.split(b"Message-ID: ")[1].split(b"\r\n")[0] for message in server.messages)
    assert first == second


@pytest.mark.parametrize(("choice", "code", "tries"), [("fail", "tool_error", 1), ("ask", UNKNOWN_OUTCOME, 1)])
def test_connection_lost_during_delivery_is_an_unknown_outcome(choice: Any, code: str, tries: int):
    server = FakeMailServer([DeliveryUnknown()] * 9)

    outcome = send(server, context(server, on_unknown=choice), max_retries=5)

    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.code, len(server.messages)) == ("delivery state unknown", code, tries)


def test_on_unknown_retry_sends_the_message_again():
    server = FakeMailServer([DeliveryUnknown()])

    assert send(server, context(server, on_unknown="retry"), max_retries=1).outputs == SENT
    assert len(server.messages) == 2


def test_error_of_an_unknown_delivery_forbids_the_model_to_send_again():
    answer = by_model(FakeMailServer([DeliveryUnknown()]), {"to_email": "you@example.com"}).answer

    assert answer.startswith("Email error: delivery state unknown. ")
    assert "Do not send it again" in answer


# -- parameters ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["smtp_server", "email", "password", "sender_name"])
def test_incomplete_account_is_refused(name: str):
    with pytest.raises(ValidationError, match="does not support empty value"):
        EmailParams(**node(**{name: " "}))


@pytest.mark.parametrize("port", [0, -1, 65536, "x", True])
def test_port_out_of_range_is_refused(port: Any):
    with pytest.raises(ValidationError, match=r"SMTP Port .* not supported"):
        EmailParams(**node(smtp_port=port))


def test_too_many_recipients_are_refused():
    recipients = [f"a{number}@x.test" for number in range(101)]
    outcome = send(FakeMailServer(), to_email=recipients)

    assert isinstance(outcome, Failed)
    assert outcome.error == "A message can have 100 recipients at most. Send several messages."


def test_missing_mail_service_fails_the_node():
    ctx = FakeContext(services=Services(FakeHttp(no_network)))

    outcome = send(FakeMailServer(), ctx)

    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("Email is not available")


def test_time_limit_includes_all_tries():
    class Slow(FakeMailServer):
        async def deliver(self, message: bytes) -> None:
            self.messages.append(message)
            raise ToolError("slow", retryable=True)

    server = Slow()

    outcome = send(server, context(server, limits={"Email": 1.0}), max_retries=5, delay_after_error=30)

    assert isinstance(outcome, Failed)
    assert (outcome.error, len(server.messages)) == ("slow", 1)
