"""Exit codes of commands, which scripts may rely on."""

from enum import IntEnum

from canvas.errors import ExecutorError, InvalidRequest
from canvas.state.run_state import RunStatus


class Exit(IntEnum):
    """Exit codes 0 to 4. Processes that want to be restarted exit with 75 instead (docs/operations.md)."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2  # or a canvas that cannot run
    CANCELLED = 3
    WAITING = 4  # for a person's input


OF_STATUS = {
    RunStatus.SUCCEEDED: Exit.DONE,
    RunStatus.FAILED: Exit.FAILED,
    RunStatus.CANCELLED: Exit.CANCELLED,
    RunStatus.WAITING: Exit.WAITING,
    RunStatus.REFUSED: Exit.BAD_INPUT,
}


def exit_code_of(error: ExecutorError) -> Exit:
    """Return BAD_INPUT for an error that the caller can correct, and FAILED for any other."""
    return Exit.BAD_INPUT if isinstance(error, InvalidRequest) else Exit.FAILED
