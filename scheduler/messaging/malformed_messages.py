"""What is told of a message that nobody can carry out. Its body is not: it holds what people have said."""

from typing import Any

import structlog

log = structlog.get_logger()

FIRST_BYTES = 12  # of a message that could not be read; too few for a value


def is_of_broker(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether an error is one of those that a transport raises about its connection, rather than about a message.

    kombu counts KeyError among them, which a malformed message raises.
    """
    return isinstance(error, kinds) and not isinstance(error, KeyError)


def not_understood(queue: str, error: BaseException | None, **fields: Any) -> None:
    """Tell of a message that is dropped; of the error only its kind, since its text may repeat the message."""
    log.error("message_malformed", queue=queue, error=type(error).__name__ if error else "no task", **fields)
