"""What a page knows from the frames of a live stream equals the rows: random canvases, slow and returning clients."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from api.events import live_snapshots, live_stream
from canvas.outcome import Failed, Outcome, WaitingForInput
from components import registry
from components.base import Component, Params
from tests.builders import NodeAttempt
from tests.canvases_at_random import CanvasCase, random_case
from tests.integration.api.live_frames import LivePage
from tests.integration.api.live_streams import LiveProcess, live_process, next_frame, parse, stored_rows
from tests.integration.engine import Bench, Run
from tests.integration.worker.test_output_cache import KINDS, create_version, items_of
from worker.context.node_context import WorkerContext

CANVASES = 2
SECRET = "value-of-a-node"


class Story:
    """Components that follow a script: they fail, lose their workers and stream, and their outputs have a secret."""

    def __init__(self, bench: Bench, case: CanvasCase, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.case = bench, case
        monkeypatch.setattr(registry, "COMPONENTS", {name: Component(name, Params, self.act) for name in KINDS})

    async def act(self, params: Params, ctx: WorkerContext) -> Outcome:
        claim = ctx.claim
        count = items_of(self.bench, claim.run_id, claim.scope) if ctx.node.kind.is_item else None
        at = NodeAttempt(ctx.compiled.canvas, ctx.node_id, claim.scope, claim.ordinal, claim.attempt, False, count)
        await ctx.write(f"{ctx.node_id} writes. ")
        outcome = self.case.script(at)
        if isinstance(outcome, Failed | WaitingForInput):
            return outcome
        return replace(outcome, outputs={"result": SECRET, "content": f"{ctx.node_id} writes. "})


def play(bench: Bench, rng: random.Random) -> None:
    """Process all messages of a run in random order."""
    while bench.outbox.sent:
        rng.shuffle(bench.outbox.sent)
        left = len(bench.outbox.sent)
        bench.play(until=lambda left=left: len(bench.outbox.sent) != left)


@pytest.mark.parametrize(("seed", "max_rows"), [(0, 2_000), (1, 3), (2, 2_000), (3, 1)])
def test_fold_of_the_frames_equals_the_rows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int, max_rows: int
) -> None:  # T041
    for module in (live_snapshots, live_stream):
        monkeypatch.setattr(module, "MAX_ROWS", max_rows)
    monkeypatch.setattr(live_snapshots, "MIN_PAUSE", 0.02)
    monkeypatch.setattr(live_snapshots, "PAUSE_FACTOR", 0.0)
    rng = random.Random(seed)
    for _ in range(CANVASES):
        case = random_case(rng, forms=False)
        Story(bench, case, monkeypatch)
        run = bench.start("", drawn=create_version(bench, case, rng))

        pages, snapshots = asyncio.run(watch(bench, run, rng))

        assert snapshots > 1, "the run was seen while it ran"

        for page in pages:
            assert page.rows == stored_rows(bench.database, bench.tenant_id, run.id), case
            assert page.texts == {stream.id.hex: stream.text for stream in run.streams if stream.text}, case
            assert [event["seq"] for event in page.events] == numbers_of(run), case
            assert page.bye["reason"] == "over"
            assert page.bye["status"] == page.state["status"] == run.status
            assert page.disagreements() == {}


def numbers_of(run: Run) -> list[int]:
    """Return the numbers of the events that have a frame `event`: those that withdraw text are `reset`."""
    return [event.number for event in run.events if event.name != "message_reset"]


class CheckedPage(LivePage):
    """A page that compares its rows with the counts of every `state`.

    The rows of a client that has missed a snapshot may be newer than the next state, and not than the one after it,
    unless it has missed another one: then nothing is compared. `snapshots` grows with each snapshot.
    """

    snapshots: Sequence[Any] = ()
    differing = frozenset[str]()
    compared_at = 0

    def apply(self, frame: Any) -> None:
        super().apply(frame)
        if frame.name == "state":
            has_missed = len(self.snapshots) > self.compared_at + 1
            differing = frozenset(self.disagreements())
            assert has_missed or not differing & self.differing, "the counts of a state agree with the rows"
            self.differing, self.compared_at = differing, len(self.snapshots)


async def watch(bench: Bench, run: Run, rng: random.Random) -> tuple[list[LivePage], int]:
    """Play a run while an attentive and a slow client follow it, and a third comes back after each frame."""
    async with live_process(bench.database, bench.redis_url) as process:
        pages = CheckedPage(), LivePage(), LivePage()
        pages[0].snapshots = process.snapshots
        played = asyncio.to_thread(play, bench, rng)
        results = await asyncio.gather(
            played,
            read(process.follow(bench.tenant_id, run.id), pages[0]),
            read(process.follow(bench.tenant_id, run.id), pages[1], pause=0.05),
            come_back(process, bench, run, pages[2], rng),
        )
        assert len(process.streams.readers) == 0
        assert results
        return list(pages), len(process.snapshots)


async def read(stream: AsyncGenerator[bytes], page: LivePage, pause: float = 0.0) -> None:
    """Apply all frames of a stream, with a pause after each if the client is slow."""
    async for sent in stream:
        assert SECRET.encode() not in sent
        for frame in parse(sent):
            page.apply(frame)
        if pause:
            await asyncio.sleep(pause)


async def come_back(process: LiveProcess, bench: Bench, run: Run, page: LivePage, rng: random.Random) -> None:
    """Follow a run in parts: every connection ends after some frames, and the next one continues from there.

    Connections become longer, since rows of several frames begin again if the last frame has not come.
    """
    connections = 0
    while not page.bye:
        connections += 1
        stream = process.follow(bench.tenant_id, run.id, after=page.position or "0", rev=page.revision)
        for _ in range(rng.randint(1, 5 + connections)):
            frame = await next_frame(stream)
            page.apply(frame)
            if page.bye:
                break
        await stream.aclose()
