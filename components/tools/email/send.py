"""Email: send a message through the author's mail server.

DSL: `to_email`, `cc_email`, `subject`, `content` (HTML), `smtp_server`, `smtp_port`, `smtp_username`, `email`,
`password`, `sender_name`. Port 465 uses TLS from the start, every other port STARTTLS. The tool never sends a message
twice by itself (`delivery_record.py`; docs/tools.md, row T15), and the Message-ID is the same in every attempt.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.email import message
from components.tools.email.delivery_record import DeliveryRecord
from components.tools.email.message import OutgoingEmail
from components.tools.framework import http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult, max_retries_of, retry_delay
from components.tools.framework.parameters import not_empty, positive
from providers.interfaces import Mail, MailAccount

IMPLICIT_TLS_PORT = 465  # the port with TLS from the start
MAX_PORT = 65535
_SHARE_OF_LIMIT = 0.9  # leaves time to record whether the message was handed over
_NOT_SENT: Mapping[str, Any] = {"success": False}


class EmailParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("password",)

    smtp_server: Annotated[Any, not_empty("SMTP Server")] = Field("", validate_default=True)
    smtp_port: Annotated[int, positive("SMTP Port")] = IMPLICIT_TLS_PORT
    smtp_username: Any = ""
    email: Annotated[Any, not_empty("Sender Email")] = Field("", validate_default=True)
    password: Annotated[Any, not_empty("Password")] = Field("", validate_default=True, repr=False)
    sender_name: Annotated[Any, not_empty("Sender Name")] = Field("", validate_default=True)

    @field_validator("smtp_port")
    @classmethod
    def _is_a_port(cls, port: int) -> int:
        if port > MAX_PORT:
            raise ValueError(f"SMTP Port {port} not supported, should be 1 to {MAX_PORT}")
        return port


async def send(params: EmailParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    """Send the message. Every error sets the output `success` to false: nothing is known to have been sent."""
    try:
        return await _send(params, arguments, ctx)
    except ToolError as error:
        error.details = {**error.details, "outputs": _NOT_SENT}
        raise
    except Exception as error:
        raise ToolError(f"Unexpected error: {error}", outputs=_NOT_SENT) from error


async def _send(params: EmailParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    to_send = _build_email(params, arguments, ctx)
    if not to_send.recipients:
        return ToolResult(_NOT_SENT, answer="")
    mail = ctx.services.mail
    if mail is None:
        raise ToolError("Email is not available: this deployment does not allow its canvases to send mail.")
    deliveries = DeliveryRecord(ctx)
    refused = await deliveries.check_previous()
    if refused is None:
        refused = await _hand_over(to_send, mail, params, deliveries, ctx)
    return ToolResult({"success": True, **({"refused": list(refused)} if refused else {})}, answer=True)


async def _hand_over(
    to_send: OutgoingEmail, mail: Mail, params: EmailParams, deliveries: DeliveryRecord, ctx: NodeContext
) -> Mapping[str, str]:
    """Hand the message to the server, with the author's number of retries; return the refused recipients by address.

    Raises ToolError.
    """
    clock = asyncio.get_running_loop()
    ends_at = clock.time() + ctx.time_limit(EMAIL.name) * _SHARE_OF_LIMIT
    left = max_retries_of(params)
    while True:
        try:
            async with mail.connect(_account(params, ends_at - clock.time(), ctx)) as session:
                refused = await session.set_envelope(to_send.sender, to_send.recipients)
                await deliveries.deliver(session, message.encode_message(to_send, datetime.now(UTC)), refused)
                return refused
        except ToolError as error:
            wait = retry_delay(error, params)
            if not left or not error.retryable or clock.time() + wait >= ends_at:
                raise
        left -= 1
        await asyncio.sleep(wait)


def _build_email(params: EmailParams, arguments: Mapping[str, Any], ctx: NodeContext) -> OutgoingEmail:
    to = message.parse_addresses(arguments["to_email"])
    cc = message.parse_addresses(arguments.get("cc_email"), exclude=to) if to else []
    if len(to) + len(cc) > message.MAX_RECIPIENTS:
        raise ToolError(f"A message can have {message.MAX_RECIPIENTS} recipients at most. Send several messages.")
    return OutgoingEmail(
        sender=message.parse_address(value_text(params.email)),
        sender_name=value_text(params.sender_name),
        to=to,
        cc=cc,
        subject=value_text(arguments.get("subject")),
        html=value_text(arguments.get("content")),
        key=ctx.activation_id,
        names=message.parse_names(arguments.get("cc_email")) | message.parse_names(arguments["to_email"]),
    )


def _account(params: EmailParams, seconds: float, ctx: NodeContext) -> MailAccount:
    """Return the author's mail account, on the deployment's server if it sets one:

    `smtp://relay:587`, `smtps://relay`.
    """
    host, port = value_text(params.smtp_server).strip(), params.smtp_port
    named = http.configured_address(ctx.services.base_urls, EMAIL.name, host)
    scheme = ""
    if named:
        split = urlsplit(named if "://" in named else f"//{named}")
        scheme, host, port = split.scheme, split.hostname or "", split.port or port
    return MailAccount(
        host=host,
        port=port,
        username=value_text(params.smtp_username).strip() or value_text(params.email).strip(),
        password=value_text(params.password),
        tls=scheme == "smtps" or (scheme != "smtp" and port == IMPLICIT_TLS_PORT),
        timeout=max(0.0, seconds),
        trusted=bool(named),
    )


EMAIL = Tool(
    "Email",
    "email",
    EmailParams,
    description="Sends an e-mail from the account that was set up. Use it only when the user wants a message sent.",
    arguments={
        "to_email": Argument(
            "string", "Addresses of the recipients, with commas between them.", required=True, default="{sys.query}"
        ),
        "cc_email": Argument("string", "Addresses of those who get a copy, with commas between them.", default=""),
        "subject": Argument("string", "The subject, one line.", default=""),
        "content": Argument("string", "The message, as HTML.", default=""),
    },
    call=send,
    effect="keyed",
    empty_outputs=_NOT_SENT,
    main_output="result",
    owns_retries=True,
    outputs=("success", "refused", "result"),
)
