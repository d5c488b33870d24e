"""Nodes that work until a test lets them go."""

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
class Patient:
    """Nodes `work...` that wait until they are let go, or stopped."""

    bench: Bench
    begun: set[str] = field(default_factory=set)
    stopped: list[str] = field(default_factory=list)
    _free: threading.Event = field(default_factory=threading.Event)

    def start(self, *parts: str, **options: Any) -> Run:
        self.bench.does(work=self._work, work2=self._work)
        return self.bench.start(*parts, **options)

    async def _work(self, ctx: NodeContext) -> Finished:
        self.begun.add(ctx.node_id)
        try:
            while not self._free.is_set():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.stopped.append(ctx.node_id)
            raise
        return Finished(outputs={"result": "done"})

    def wait_for(self, *nodes: str) -> None:
        until(lambda: self.begun >= set(nodes))

    def let_go(self) -> None:
        self._free.set()


@pytest.fixture
def patient(bench: Bench) -> Iterator[Patient]:
    patient = Patient(bench)
    yield patient
    patient.let_go()
