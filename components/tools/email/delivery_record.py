"""The record of an activation's e-mail deliveries, so that no message is sent twice (docs/tools.md, row T15).

The beginning of a delivery is recorded before the message is handed to the server, and its end before the result is
used. A delivery with a beginning and no end may have happened. It is not repeated, unless the node's `on_unknown` is
`retry`, or is `ask` and a person decides so (docs/decisions/0022).
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from canvas.errors import ToolError
from canvas.outcome import UNKNOWN_OUTCOME
from components.context import NodeContext
from providers.interfaces import DeliveryUnknown, MailSession

ADVICE = "The message may have been sent. Do not send it again unless the user asks for it."


class DeliveryToResolve(ToolError):
    """Raised for a delivery with an unknown outcome if the node's `on_unknown` is `ask`."""

    code = UNKNOWN_OUTCOME


class DeliveryRecord:
    """The deliveries of one message. `_number` counts those that have begun, also in earlier attempts."""

    def __init__(self, ctx: NodeContext) -> None:
        self._ctx = ctx
        self._number = 0
        self._ended: Mapping[str, Any] | None = None

    async def check_previous(self) -> Mapping[str, str] | None:
        """Read the record of earlier attempts; return the refused recipients if the message was sent, else None.

        None means that it may be sent now. Raises ToolError if it was refused for good or the outcome is unknown.
        """
        while await self._ctx.journal_get(f"mail:begun:{self._number}") is not None:
            self._ended = await self._ctx.journal_get(f"mail:ended:{self._number}")
            self._number += 1
        if not self._number:
            return None
        if self._ended is None or self._ended.get("unknown"):
            if self._ctx.on_unknown == "fail":
                raise _unknown_outcome_error(self._ctx)
            return None  # the author, or the person who was asked, wants it sent once more
        if "refused" in self._ended:
            return self._ended["refused"]
        if not self._ended.get("retryable"):
            raise ToolError(self._ended["error"])
        return None

    async def deliver(self, session: MailSession, message: bytes, refused: Mapping[str, str]) -> None:
        """Deliver the message and record its beginning and end. Raises ToolError, also if the outcome is unknown.

        If another attempt has recorded the beginning already, nothing is delivered.
        """
        guarded = nullcontext() if self._ctx.on_unknown == "fail" else self._ctx.non_repeatable()
        async with guarded:
            if not await self._ctx.journal_put(f"mail:begun:{self._number}", True):
                raise _unknown_outcome_error(self._ctx)  # another attempt has begun it since `check_previous`
            ended, error = await _try_delivery(session, message, refused)
            await self._ctx.journal_put(f"mail:ended:{self._number}", ended)
        self._number += 1
        if isinstance(error, DeliveryUnknown):
            raise _unknown_outcome_error(self._ctx) from error
        if error is not None:
            raise error


async def _try_delivery(
    session: MailSession, message: bytes, refused: Mapping[str, str]
) -> tuple[Mapping[str, Any], ToolError | None]:
    """Deliver the message; return the record of its end, and the error if there was one."""
    try:
        await session.deliver(message)
    except DeliveryUnknown as error:
        return {"unknown": True}, error
    except ToolError as error:
        return {"error": error.message, "retryable": error.retryable}, error
    return {"refused": dict(refused)}, None


def _unknown_outcome_error(ctx: NodeContext) -> ToolError:
    """Return the error for a delivery with an unknown outcome, as the node's `on_unknown` says."""
    message = DeliveryUnknown().message
    if ctx.on_unknown == "ask":
        return DeliveryToResolve(message)
    return ToolError(message, retryable=ctx.on_unknown == "retry", answer=f"Email error: {message}. {ADVICE}")
