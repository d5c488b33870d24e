"""Why no server can run here, and what to do instead."""

from canvas.errors import ExecutorError

ADVICE = "Set DATABASE_URL and REDIS_URL to servers of your own instead."


def refusal(reason: str) -> ExecutorError:
    """The error to raise where a server cannot run, for a reason that ends with its own full stop."""
    return ExecutorError(f"{reason} {ADVICE}")
