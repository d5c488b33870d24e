"""What is on record of an activation's deliveries, so that no letter is sent twice (tools 5, row T15).

Before a server is given the letter stands that it begins; what came of it stands before anybody acts on it. A delivery
that began and has no end may have happened: nobody repeats it, unless the node's `on_unknown` says that its author
would rather have it done twice, or lets a person decide.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from canvas.errors import ToolError
from canvas.outcome import UNKNOWN_OUTCOME
from components.context import NodeContext
from providers.interfaces import DeliveryUnknown, MailSession

ADVICE = "The message may have been sent. Do not send it again unless the user asks for it."


class MayHaveHappened(ToolError):
    """A delivery of which nobody knows, of a node whose author wants a person to be asked."""

    code = UNKNOWN_OUTCOME


class Deliveries:
    """The deliveries of one letter. `number` is how many have begun, in earlier attempts as well."""

    def __init__(self, ctx: NodeContext) -> None:
        self._ctx = ctx
        self._number = 0
        self._ended: Mapping[str, Any] | None = None

    async def look(self) -> Mapping[str, str] | None:
        """What an earlier attempt has left: the refused recipients of a letter that was sent; None if it may be sent.

        Raises ToolError where it was refused for good, or where nobody knows.
        """
        while await self._ctx.recall(f"mail:begun:{self._number}") is not None:
            self._ended = await self._ctx.recall(f"mail:ended:{self._number}")
            self._number += 1
        if not self._number:
            return None
        if self._ended is None or self._ended.get("unknown"):
            if self._ctx.on_unknown == "fail":
                raise _unknown(self._ctx)
            return None  # the author, or somebody who was asked, wants it sent once more
        if "refused" in self._ended:
            return self._ended["refused"]
        if not self._ended.get("retryable"):
            raise ToolError(self._ended["error"])
        return None

    async def carry_out(self, session: MailSession, message: bytes, refused: Mapping[str, str]) -> None:
        """Deliver, between two lines of the record. Raises ToolError, also where nobody knows.

        Who finds the first line written already delivers nothing: only one attempt may have written it.
        """
        guarded = nullcontext() if self._ctx.on_unknown == "fail" else self._ctx.unrepeatable()
        async with guarded:
            if not await self._ctx.record(f"mail:begun:{self._number}", True):
                raise _unknown(self._ctx)  # another attempt has begun it since `look`
            ended, error = await _delivered(session, message, refused)
            await self._ctx.record(f"mail:ended:{self._number}", ended)
        self._number += 1
        if isinstance(error, DeliveryUnknown):
            raise _unknown(self._ctx) from error
        if error is not None:
            raise error


async def _delivered(
    session: MailSession, message: bytes, refused: Mapping[str, str]
) -> tuple[Mapping[str, Any], ToolError | None]:
    """What is recorded of a delivery, and what went wrong."""
    try:
        await session.deliver(message)
    except DeliveryUnknown as error:
        return {"unknown": True}, error
    except ToolError as error:
        return {"error": error.message, "retryable": error.retryable}, error
    return {"refused": dict(refused)}, None


def _unknown(ctx: NodeContext) -> ToolError:
    """The error of a delivery that nobody knows of, as the author wants to hear of it."""
    told = DeliveryUnknown().message
    if ctx.on_unknown == "ask":
        return MayHaveHappened(told)
    return ToolError(told, retryable=ctx.on_unknown == "retry", answer=f"Email error: {told}. {ADVICE}")
