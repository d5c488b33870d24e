"""Log line of a task message that cannot be executed. It never contains the message's body, which has users' texts."""

from typing import Any

import structlog

log = structlog.get_logger()

FIRST_BYTES = 12  # of a message that could not be read; too few for a value


def is_of_broker(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether an error concerns a transport's connection, and not a single message.

    kombu lists KeyError among connection errors; a malformed message raises it, too.
    """
    return isinstance(error, kinds) and not isinstance(error, KeyError)


def log_malformed(queue: str, error: BaseException | None, **fields: Any) -> None:
    """Log a message that is dropped; of the error only its class, since its text may repeat the message."""
    log.error("message_malformed", queue=queue, error=type(error).__name__ if error else "no task", **fields)
