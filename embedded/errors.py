"""The error for a server that cannot run here, with what to do instead."""

from canvas.errors import ExecutorError

ADVICE = "Set DATABASE_URL and REDIS_URL to servers of your own instead."


def cannot_run(reason: str) -> ExecutorError:
    """Return the error for a server that cannot run. `reason` is a sentence with its full stop."""
    return ExecutorError(f"{reason} {ADVICE}")
