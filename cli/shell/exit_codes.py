"""How a command ends: exit codes that scripts may rely on."""

from enum import IntEnum

from canvas.errors import ExecutorError, InvalidRequest
from canvas.state.run_state import RunStatus


class Exit(IntEnum):
    """0 to 4; anything else is not ours, but for processes that end with 75 to be started again (operations.md)."""

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


def exit_of(error: ExecutorError) -> Exit:
    """What the caller can mend is bad input, everything else a failure."""
    return Exit.BAD_INPUT if isinstance(error, InvalidRequest) else Exit.FAILED
