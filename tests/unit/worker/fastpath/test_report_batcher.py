"""Whoever reports when nobody else does goes at once; who comes meanwhile is stored with the others who wait."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.runs.new_activations import InlineReport
from worker.fastpath.report_batcher import MAX_BATCH, PendingReport, ReportBatcher

ONE, TWO = UUID(int=1), UUID(int=2)
PATIENCE = 10.0  # seconds for what another thread does


class Comer(PendingReport):
    """A report that shows when it waits."""

    def __init__(self, run_id: UUID = ONE, *, size: int = 0) -> None:
        written = cast(Any, SimpleNamespace(size=size))
        super().__init__(InlineReport(cast(Any, SimpleNamespace(run_id=run_id)), written), frozenset({""}))
        self.waits = threading.Event()

    def wait(self) -> None:
        self.waits.set()
        assert self._woken.wait(PATIENCE), "nobody has called it"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(MAX_BATCH + 8) as threads:
        yield threads


def report(
    joint: ReportBatcher, part: Comer, *, fails: bool = False, stored: list[Sequence[PendingReport]] | None = None
) -> bool:
    """Report as a worker does; whether it had to go alone."""
    with joint.join(part) as turn:
        if len(turn.reports) > 1 and not fails:
            for each in turn.reports:
                each.is_stored = True
        if turn.reports and stored is not None:
            stored.append(turn.reports)
    return not part.is_stored


def come(joint: ReportBatcher, threads: ThreadPoolExecutor, *parts: Comer, **how: Any) -> list["Future[bool]"]:
    """They come one after the other, while somebody else reports for their run."""
    came: list[Future[bool]] = []
    for part in parts:
        came.append(threads.submit(report, joint, part, **how))
        assert part.waits.wait(PATIENCE)
    return came


def test_first_report_is_stored_alone_and_at_once():
    joint, first = ReportBatcher(), Comer()

    with joint.join(first) as turn:
        batch = turn.reports

    assert batch == (first,)
    assert not first.waits.is_set()


def test_reports_that_arrive_meanwhile_are_stored_by_one_of_them(threads: ThreadPoolExecutor):
    joint, parts, stored = ReportBatcher(), [Comer(), Comer(), Comer()], list[Sequence[PendingReport]]()

    with joint.join(Comer()):
        came = come(joint, threads, *parts, stored=stored)
        assert not any(part.is_stored for part in parts)

    assert [each.result(PATIENCE) for each in came] == [False, False, False]
    assert stored == [parts]


def test_large_report_is_stored_alone(threads: ThreadPoolExecutor):
    joint, stored = ReportBatcher(), list[Sequence[PendingReport]]()
    first, second, large, last = parts = [Comer(), Comer(), Comer(size=10_000_000), Comer()]

    with joint.join(Comer()):
        came = come(joint, threads, *parts, stored=stored)

    for each in came:
        each.result(PATIENCE)
    assert stored == [[first, second], [large], [last]]


def test_next_reporter_begins_right_after_the_commit(threads: ThreadPoolExecutor):
    joint, part = ReportBatcher(), Comer()

    with joint.join(Comer()) as turn:
        (came,) = come(joint, threads, part)
        turn.end()
        is_alone = came.result(PATIENCE)

    assert is_alone


def test_each_report_of_a_failed_batch_is_stored_alone(threads: ThreadPoolExecutor):
    joint, parts = ReportBatcher(), [Comer(), Comer(), Comer()]

    with joint.join(Comer()):
        came = come(joint, threads, *parts, fails=True)

    assert [each.result(PATIENCE) for each in came] == [True, True, True]
    assert not report_waits(joint)


def test_reporter_that_fails_with_a_batch_wakes_the_others(threads: ThreadPoolExecutor):
    joint, breaks, others = ReportBatcher(), Comer(), [Comer(), Comer()]

    def break_off() -> None:
        with joint.join(breaks):
            raise KeyboardInterrupt

    with joint.join(Comer()):
        broken = threads.submit(break_off)
        assert breaks.waits.wait(PATIENCE)
        came = come(joint, threads, *others)

    assert isinstance(broken.exception(PATIENCE), KeyboardInterrupt)
    assert [each.result(PATIENCE) for each in came] == [True, True]
    assert not report_waits(joint)


def test_batch_is_limited_in_size(threads: ThreadPoolExecutor):
    joint, parts, stored = ReportBatcher(), [Comer() for _ in range(MAX_BATCH + 3)], list[Sequence[PendingReport]]()

    with joint.join(Comer()):
        came = come(joint, threads, *parts, stored=stored)

    assert [each.result(PATIENCE) for each in came] == [False] * len(parts)
    assert stored == [parts[:MAX_BATCH], parts[MAX_BATCH:]]


def test_reports_of_different_runs_do_not_wait_for_each_other():
    joint, other = ReportBatcher(), Comer(TWO)

    with joint.join(Comer(ONE)), joint.join(other) as turn:
        batch = turn.reports

    assert batch == (other,)
    assert not other.waits.is_set()


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_every_report_is_stored_once_whenever_it_arrives(comers: list[tuple[bool, bool]]):
    joint, begin = ReportBatcher(), threading.Barrier(len(comers))
    parts = [Comer(TWO if is_other else ONE) for is_other, _ in comers]
    stored = list[Sequence[PendingReport]]()

    def go(part: Comer, fails: bool) -> bool:
        begin.wait(PATIENCE)
        return report(joint, part, fails=fails, stored=stored)

    with ThreadPoolExecutor(len(comers)) as threads:
        came = [threads.submit(go, part, fails) for part, (_, fails) in zip(parts, comers, strict=True)]
        alone = [each.result(PATIENCE) for each in came]

    together = [part for batch in stored for part in batch if part.is_stored]
    assert [part.is_stored for part in parts] == [not is_alone for is_alone in alone]
    assert len(together) == len(set(together)) == alone.count(False)
    assert not report_waits(joint, ONE)
    assert not report_waits(joint, TWO)


def report_waits(joint: ReportBatcher, run_id: UUID = ONE) -> bool:
    """Whether somebody who comes now has to wait for others."""
    part = Comer(run_id)
    report(joint, part)
    return part.waits.is_set()
