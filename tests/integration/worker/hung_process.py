"""Start an Easel process of which a part hangs as soon as a file exists.

python -m tests.integration.worker.hung_process FILE worker|scheduler|sweeper [arguments of celery]

`worker` and `scheduler` then receive no more messages, as with a broken connection that is not detected; a `sweeper`
waits in the middle of a tick for the database. Nodes of a worker behave as their ids begin: `wait_N` waits N seconds,
`block` blocks the event loop, `compute` a thread, `compute_c` all threads, and all others end at once.
"""

import asyncio
import re
import sys
import time
from pathlib import Path

from celery.__main__ import main
from kombu.transport.redis import MultiChannelPoller

from canvas.outcome import Finished, Outcome
from components import registry
from components.base import Component, Params
from components.context import NodeContext
from scheduler.sweeper import sweeper
from store.monitoring import sweep_queries

LONG = 60.0  # seconds


async def act(params: Params, ctx: NodeContext) -> Outcome:
    """Run a node on the event loop."""
    if ctx.node_id.startswith("wait_"):
        await asyncio.sleep(float(ctx.node_id.split("_")[1]))
    if ctx.node_id.startswith("block"):
        time.sleep(LONG)
    return Finished()


def compute(params: Params, ctx: NodeContext) -> Outcome:
    """Run a node on a thread."""
    if ctx.node_id.startswith("compute_c"):
        re.match(r"(a+)+$", "a" * 64 + "b")  # one call in C that holds the interpreter lock for years
    time.sleep(LONG)
    return Finished()


def stop_receiving_from(file: Path) -> None:
    """Stop receiving messages from the broker as soon as the file exists."""
    poll = MultiChannelPoller.on_poll_start

    def poll_unless_hanging(self: MultiChannelPoller) -> None:
        if not file.exists():
            poll(self)

    MultiChannelPoller.on_poll_start = poll_unless_hanging


def hang_in_tick_from(file: Path) -> None:
    """Wait for the database in the middle of a tick as soon as the file exists."""
    find = sweep_queries.runs_with_unapplied_reports

    def find_slowly(*args: object) -> set[object]:
        if file.exists():
            time.sleep(LONG)
        return find(*args)  # pyright: ignore[reportArgumentType, reportReturnType]

    sweep_queries.runs_with_unapplied_reports = find_slowly  # pyright: ignore[reportAttributeAccessIssue]


if __name__ == "__main__":
    hang_file, program, *arguments = sys.argv[1:]
    if program == "sweeper":
        hang_in_tick_from(Path(hang_file))
        sweeper.main()
    else:
        stop_receiving_from(Path(hang_file))
        kinds = {"act": Component("Act", Params, act), "compute": Component("Compute", Params, compute)}
        registry.COMPONENTS = {**registry.COMPONENTS, **kinds}
        queue = {"worker": "nodes", "scheduler": "runs"}[program]
        sys.argv = ["celery", "-A", f"{program}.tasks", "worker", "-Q", queue, "-P", "threads", *arguments]
        main()
