"""Nodes that run until a test releases them."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from canvas.outcome import Finished
from components.context import NodeContext
from tests.integration.engine import Bench, Run, until


@dataclass
class PausedNodes:
    """Nodes `work` and `work2` that wait until they are released or stopped."""

    bench: Bench
    started: set[str] = field(default_factory=set)
    stopped: list[str] = field(default_factory=list)
    _may_end: threading.Event = field(default_factory=threading.Event)

    def start(self, *parts: str, **options: Any) -> Run:
        self.bench.does(work=self._work, work2=self._work)
        return self.bench.start(*parts, **options)

    async def _work(self, ctx: NodeContext) -> Finished:
        self.started.add(ctx.node_id)
        try:
            while not self._may_end.is_set():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.stopped.append(ctx.node_id)
            raise
        return Finished(outputs={"result": "done"})

    def wait_for(self, *nodes: str) -> None:
        until(lambda: self.started >= set(nodes))

    def release(self) -> None:
        self._may_end.set()


@pytest.fixture
def local_continuation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers continue locally, which is off by default."""
    monkeypatch.setenv("EASEL_CONTINUE_LOCALLY_FOR", "5s")


@pytest.fixture
def paused_nodes(bench: Bench) -> Iterator[PausedNodes]:
    paused_nodes = PausedNodes(bench)
    yield paused_nodes
    paused_nodes.release()
