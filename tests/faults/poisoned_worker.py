"""A worker with one more component: `Poison` kills its process, as a crashing library does.

python -m tests.faults.poisoned_worker
"""

import os
import signal
from typing import NoReturn
from unittest.mock import patch

from components import registry
from components.base import Component, Params
from components.context import NodeContext


def kill(params: Params, ctx: NodeContext) -> NoReturn:
    """Kill the process."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable: the process is gone")


def main() -> None:
    """Run a worker until it is killed."""
    known = {**registry.COMPONENTS, "poison": Component("Poison", Params, kill)}
    patch.object(registry, "COMPONENTS", known).start()
    from worker.tasks import app  # reads the environment

    app.worker_main(["worker", "-Q", "nodes", "-P", "threads", "-c", "16", "--without-gossip", "-l", "WARNING"])


if __name__ == "__main__":
    main()
