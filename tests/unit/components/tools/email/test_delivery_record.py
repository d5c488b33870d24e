"""What is on record of deliveries."""

import asyncio
from typing import Any, cast

import pytest

from canvas.errors import ToolError
from components.tools.email.delivery_record import DeliveryRecord
from providers.interfaces import MailSession
from tests.fakes import FakeContext


class Server:
    """A mail server's session that counts what it is given."""

    def __init__(self) -> None:
        self.given: list[bytes] = []

    async def deliver(self, message: bytes) -> None:
        self.given.append(message)


def test_message_begun_by_another_attempt_meanwhile_is_not_delivered():
    ctx, server = FakeContext(), Server()
    deliveries = DeliveryRecord(ctx)

    async def deliver() -> Any:
        assert await deliveries.check_previous() is None
        await ctx.journal_put("mail:begun:0", True)
        await deliveries.deliver(cast("MailSession", server), b"letter", {})

    with pytest.raises(ToolError, match="delivery state unknown"):
        asyncio.run(deliver())

    assert server.given == []
    assert "mail:ended:0" not in ctx.journal
