"""Email: when a letter is sent, when it is not sent again, and who decides; the wire is tested with a real server."""

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
class Office:
    """A mail server in memory; `answers` come one by one, an error is raised in place of a delivery."""

    answers: list[BaseException | None] = field(default_factory=list[BaseException | None])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    accounts: list[MailAccount] = field(default_factory=list[MailAccount])
    letters: list[bytes] = field(default_factory=list[bytes])
    recipients: list[str] = field(default_factory=list[str])

    @asynccontextmanager
    async def connect(self, account: MailAccount) -> AsyncGenerator["Office"]:
        self.accounts.append(account)
        yield self

    async def set_envelope(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        self.recipients = list(recipients)
        return self.refused

    async def deliver(self, message: bytes) -> None:
        self.letters.append(message)
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


def context(office: Office, **known: Any) -> FakeContext:
    return FakeContext(services=Services(FakeHttp(no_network), mail=office), **known)


def sent(office: Office, ctx: FakeContext | None = None, **params: Any) -> Finished | Failed:
    outcome = run(tool_component(EMAIL), node(**params), ctx or context(office))
    assert isinstance(outcome, Finished | Failed)
    return outcome


def by_model(office: Office, arguments: Mapping[str, Any], **params: Any) -> ToolRun:
    given = EMAIL.params.model_validate(node(**params))
    return asyncio.run(EMAIL.run(given, arguments, context(office)))


def test_message_is_sent_from_the_nodes_account():
    office = Office()

    assert sent(office, smtp_port="587", smtp_username="login").outputs == SENT

    [account] = office.accounts
    assert (account.host, account.port, account.tls, account.trusted) == ("smtp.example.com", 587, False, False)
    assert (account.username, account.password) == ("login", "pass-1234")
    assert "pass-1234" not in repr(account) + repr(EmailParams(**node()))


def test_port_465_uses_implicit_tls_and_login():
    office = Office()

    sent(office)

    assert (office.accounts[0].port, office.accounts[0].tls) == (465, True)
    assert office.accounts[0].username == "me@example.com"


@pytest.mark.parametrize("to", ["", " ", None, " , ;", []])
def test_message_without_recipients_is_not_sent(to: Any):
    office = Office()

    outcome = sent(office, context(office, globals={"sys.query": ""}), to_email=to, cc_email="c@x.test")

    assert outcome == Finished(outputs=NOT_SENT)
    assert office.accounts == []


def test_model_gets_true_or_the_error():
    refusing = Office([ToolError("SMTP error occurred: 550 no")])

    assert by_model(Office(), {"to_email": "you@example.com"}).answer is True
    assert by_model(refusing, {"to_email": "y@x.test"}).answer == "Email error: SMTP error occurred: 550 no"
    assert by_model(Office(), {"to_email": "nobody"}).answer == "Email error: Invalid email address: nobody"
    assert by_model(Office(), {"to_email": ""}).answer == ""


def test_refused_recipients_are_an_output():
    assert sent(Office(refused={"b@x.test": "550 no"})).outputs == {"success": True, "refused": ["b@x.test"]}


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
    office = Office([error] * 9)

    outcome = sent(office, max_retries="2")

    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.outputs, len(office.letters)) == (text, NOT_SENT, tries)


def test_default_value_is_set_beside_success_false():
    outcome = sent(
        Office([ToolError("no")]), exception_method="comment", exception_default_value="not sent", max_retries=0
    )

    assert isinstance(outcome, Finished)
    assert outcome.outputs == {"success": False, "result": "not sent", "_SUPPRESSED_ERROR": "no"}


# -- once ------------------------------------------------------------------------------------------------------------
def lost_after(office: Office, stop: BaseException, **known: Any) -> FakeContext:
    """What an attempt has left that was stopped while the server had its letter."""
    office.answers = [stop]
    ctx = context(office, **known)
    with pytest.raises(type(stop)):
        run(tool_component(EMAIL), node(), ctx)
    return ctx


def test_sent_message_is_not_sent_again_by_another_attempt():
    office = Office()
    ctx = context(office)

    assert sent(office, ctx).outputs == sent(office, ctx).outputs == SENT
    assert len(office.letters) == 1


def test_a_delivery_that_an_attempt_has_begun_and_not_ended_is_not_repeated():
    office = Office()
    ctx = lost_after(office, AttemptStopped("lease"))

    outcome = sent(office, ctx, max_retries=3)

    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.outputs) == ("delivery state unknown", NOT_SENT)
    assert len(office.letters) == 1
    assert ctx.unrepeated == []


def test_unknown_delivery_after_refused_tries_is_not_repeated():
    office = Office([ToolError("busy", retryable=True), AttemptStopped("lease")])
    ctx = context(office)
    with pytest.raises(AttemptStopped):
        run(tool_component(EMAIL), node(max_retries=1), ctx)

    outcome = sent(office, ctx)

    assert isinstance(outcome, Failed)
    assert (outcome.error, len(office.letters)) == ("delivery state unknown", 2)


def test_temporarily_refused_message_is_sent_by_another_attempt():
    office = Office([ToolError("busy", retryable=True)])
    ctx = context(office)
    sent(office, ctx)

    assert sent(office, ctx).outputs == SENT


def test_permanently_refused_message_is_not_sent_again():
    office = Office([ToolError("spam")])
    ctx = context(office)
    sent(office, ctx)

    outcome = sent(office, ctx)

    assert isinstance(outcome, Failed)
    assert (outcome.error, len(office.letters)) == ("spam", 1)


@pytest.mark.parametrize("choice", ["ask", "retry"])
def test_on_unknown_of_the_author_decides_about_an_unknown_delivery(choice: Any):
    office = Office()
    ctx = lost_after(office, AttemptStopped("lease"), on_unknown=choice)

    assert ctx.unrepeated == ["begun"]
    assert sent(office, ctx).outputs == SENT
    assert ctx.unrepeated == ["begun", "done"]
    first, second = (letter.split(b"Message-ID: ")[1].split(b"\r\n")[0] for letter in office.letters)
    assert first == second


@pytest.mark.parametrize(("choice", "code", "tries"), [("fail", "tool_error", 1), ("ask", UNKNOWN_OUTCOME, 1)])
def test_connection_lost_during_delivery_is_an_unknown_outcome(choice: Any, code: str, tries: int):
    office = Office([DeliveryUnknown()] * 9)

    outcome = sent(office, context(office, on_unknown=choice), max_retries=5)

    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.code, len(office.letters)) == ("delivery state unknown", code, tries)


def test_on_unknown_retry_sends_the_message_again():
    office = Office([DeliveryUnknown()])

    assert sent(office, context(office, on_unknown="retry"), max_retries=1).outputs == SENT
    assert len(office.letters) == 2


def test_a_model_is_told_not_to_send_again_what_may_have_been_sent():
    answer = by_model(Office([DeliveryUnknown()]), {"to_email": "you@example.com"}).answer

    assert answer.startswith("Email error: delivery state unknown. ")
    assert "Do not send it again" in answer


# -- parameters ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["smtp_server", "email", "password", "sender_name"])
def test_an_account_is_complete(name: str):
    with pytest.raises(ValidationError, match="does not support empty value"):
        EmailParams(**node(**{name: " "}))


@pytest.mark.parametrize("port", [0, -1, 65536, "x", True])
def test_port_out_of_range_is_refused(port: Any):
    with pytest.raises(ValidationError, match=r"SMTP Port .* not supported"):
        EmailParams(**node(smtp_port=port))


def test_too_many_recipients_are_refused():
    everybody = [f"a{number}@x.test" for number in range(101)]
    outcome = sent(Office(), to_email=everybody)

    assert isinstance(outcome, Failed)
    assert outcome.error == "A message can have 100 recipients at most. Send several messages."


def test_missing_mail_service_fails_the_node():
    ctx = FakeContext(services=Services(FakeHttp(no_network)))

    outcome = sent(Office(), ctx)

    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("Email is not available")


def test_time_limit_includes_all_tries():
    class Slow(Office):
        async def deliver(self, message: bytes) -> None:
            self.letters.append(message)
            raise ToolError("slow", retryable=True)

    office = Slow()

    outcome = sent(office, context(office, limits={"Email": 1.0}), max_retries=5, delay_after_error=30)

    assert isinstance(outcome, Failed)
    assert (outcome.error, len(office.letters)) == ("slow", 1)
