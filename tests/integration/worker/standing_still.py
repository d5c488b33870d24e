"""Starts a program of ours in which something stands still as soon as a file is there.

python -m tests.integration.worker.standing_still FILE worker|scheduler|sweeper [arguments of celery]

`worker` and `scheduler` then receive nothing any more, as with a broken connection that nobody notices; a `sweeper`
waits in the middle of a tick for an answer that does not come. Nodes of a worker do what their ids begin with:
`wait_N` waits N seconds, `block` holds up the event loop, `compute` a thread, `compute_c` all threads, and all others
end at once.
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
    """What a node on the event loop does."""
    if ctx.node_id.startswith("wait_"):
        await asyncio.sleep(float(ctx.node_id.split("_")[1]))
    if ctx.node_id.startswith("block"):
        time.sleep(LONG)
    return Finished()


def compute(params: Params, ctx: NodeContext) -> Outcome:
    """What a node on a thread does."""
    if ctx.node_id.startswith("compute_c"):
        re.match(r"(a+)+$", "a" * 64 + "b")  # one call in C that keeps the interpreter's lock for years
    time.sleep(LONG)
    return Finished()


def deaf_from(file: Path) -> None:
    """Ask the broker for nothing as soon as the file is there."""
    ask = MultiChannelPoller.on_poll_start

    def asked(self: MultiChannelPoller) -> None:
        if not file.exists():
            ask(self)

    MultiChannelPoller.on_poll_start = asked


def stuck_from(file: Path) -> None:
    """Wait for the database in the middle of a tick as soon as the file is there."""
    find = sweep_queries.runs_with_unapplied_reports

    def found(*given: object) -> set[object]:
        if file.exists():
            time.sleep(LONG)
        return find(*given)  # pyright: ignore[reportArgumentType, reportReturnType]

    sweep_queries.runs_with_unapplied_reports = found  # pyright: ignore[reportAttributeAccessIssue]


if __name__ == "__main__":
    still, program, *arguments = sys.argv[1:]
    if program == "sweeper":
        stuck_from(Path(still))
        sweeper.main()
    else:
        deaf_from(Path(still))
        kinds = {"act": Component("Act", Params, act), "compute": Component("Compute", Params, compute)}
        registry.COMPONENTS = {**registry.COMPONENTS, **kinds}
        queue = {"worker": "nodes", "scheduler": "runs"}[program]
        sys.argv = ["celery", "-A", f"{program}.tasks", "worker", "-Q", queue, "-P", "threads", *arguments]
        main()
