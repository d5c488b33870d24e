"""The journal entries of email deliveries."""

import asyncio
from typing import Any, cast

import pytest

from canvas.errors import ToolError
from components.tools.email.delivery_record import DeliveryRecord
from providers.interfaces import MailSession
from tests.fakes import FakeContext


class Server:
    """A session with a mail server that records delivered messages."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    async def deliver(self, message: bytes) -> None:
        self.messages.append(message)


def test_message_begun_by_another_attempt_meanwhile_is_not_delivered():
    ctx, server = FakeContext(), Server()
    deliveries = DeliveryRecord(ctx)

    async def deliver() -> Any:
        assert await deliveries.check_previous() is None
        await ctx.journal_put("mail:begun:0", True)
        await deliveries.deliver(cast("MailSession", server), b"message", {})

    with pytest.raises(ToolError, match="delivery state unknown"):
        asyncio.run(deliver())

    assert server.messages == []
    assert "mail:ended:0" not in ctx.journal
