"""A single report is stored at once; reports that arrive meanwhile are stored together."""

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
TIMEOUT = 10.0  # seconds for what another thread does


class ObservedReport(PendingReport):
    """A report that shows when it waits."""

    def __init__(self, run_id: UUID = ONE, *, size: int = 0) -> None:
        row = cast(Any, SimpleNamespace(size=size))
        super().__init__(InlineReport(cast(Any, SimpleNamespace(run_id=run_id)), row), frozenset({""}))
        self.waits = threading.Event()

    def wait(self) -> None:
        self.waits.set()
        assert self._woken.wait(TIMEOUT), "it was not woken"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(MAX_BATCH + 8) as threads:
        yield threads


def report(
    batcher: ReportBatcher,
    pending: ObservedReport,
    *,
    fails: bool = False,
    stored: list[Sequence[PendingReport]] | None = None,
) -> bool:
    """Store a report like a worker, and return whether it had to be stored alone."""
    with batcher.join(pending) as batch:
        if len(batch.reports) > 1 and not fails:
            for each in batch.reports:
                each.is_stored = True
        if batch.reports and stored is not None:
            stored.append(batch.reports)
    return not pending.is_stored


def submit_reports(
    batcher: ReportBatcher, threads: ThreadPoolExecutor, *reports: ObservedReport, **options: Any
) -> list["Future[bool]"]:
    """Submit reports one after the other, while another report of their run is being stored."""
    futures: list[Future[bool]] = []
    for pending in reports:
        futures.append(threads.submit(report, batcher, pending, **options))
        assert pending.waits.wait(TIMEOUT)
    return futures


def test_first_report_is_stored_alone_and_at_once():
    batcher, first = ReportBatcher(), ObservedReport()

    with batcher.join(first) as batch:
        reports = batch.reports

    assert reports == (first,)
    assert not first.waits.is_set()


def test_reports_that_arrive_meanwhile_are_stored_by_one_of_them(threads: ThreadPoolExecutor):
    batcher, reports, stored = (
        ReportBatcher(),
        [ObservedReport(), ObservedReport(), ObservedReport()],
        list[Sequence[PendingReport]](),
    )

    with batcher.join(ObservedReport()):
        futures = submit_reports(batcher, threads, *reports, stored=stored)
        assert not any(pending.is_stored for pending in reports)

    assert [each.result(TIMEOUT) for each in futures] == [False, False, False]
    assert stored == [reports]


def test_large_report_is_stored_alone(threads: ThreadPoolExecutor):
    batcher, stored = ReportBatcher(), list[Sequence[PendingReport]]()
    first, second, large, last = reports = [
        ObservedReport(),
        ObservedReport(),
        ObservedReport(size=10_000_000),
        ObservedReport(),
    ]

    with batcher.join(ObservedReport()):
        futures = submit_reports(batcher, threads, *reports, stored=stored)

    for each in futures:
        each.result(TIMEOUT)
    assert stored == [[first, second], [large], [last]]


def test_next_reporter_begins_right_after_the_commit(threads: ThreadPoolExecutor):
    batcher, pending = ReportBatcher(), ObservedReport()

    with batcher.join(ObservedReport()) as batch:
        (futures,) = submit_reports(batcher, threads, pending)
        batch.end()
        is_alone = futures.result(TIMEOUT)

    assert is_alone


def test_each_report_of_a_failed_batch_is_stored_alone(threads: ThreadPoolExecutor):
    batcher, reports = ReportBatcher(), [ObservedReport(), ObservedReport(), ObservedReport()]

    with batcher.join(ObservedReport()):
        futures = submit_reports(batcher, threads, *reports, fails=True)

    assert [each.result(TIMEOUT) for each in futures] == [True, True, True]
    assert not report_waits(batcher)


def test_reporter_that_fails_with_a_batch_wakes_the_others(threads: ThreadPoolExecutor):
    batcher, failing, others = ReportBatcher(), ObservedReport(), [ObservedReport(), ObservedReport()]

    def report_and_fail() -> None:
        with batcher.join(failing):
            raise KeyboardInterrupt

    with batcher.join(ObservedReport()):
        failed = threads.submit(report_and_fail)
        assert failing.waits.wait(TIMEOUT)
        futures = submit_reports(batcher, threads, *others)

    assert isinstance(failed.exception(TIMEOUT), KeyboardInterrupt)
    assert [each.result(TIMEOUT) for each in futures] == [True, True]
    assert not report_waits(batcher)


def test_batch_is_limited_in_size(threads: ThreadPoolExecutor):
    batcher, reports, stored = (
        ReportBatcher(),
        [ObservedReport() for _ in range(MAX_BATCH + 3)],
        list[Sequence[PendingReport]](),
    )

    with batcher.join(ObservedReport()):
        futures = submit_reports(batcher, threads, *reports, stored=stored)

    assert [each.result(TIMEOUT) for each in futures] == [False] * len(reports)
    assert stored == [reports[:MAX_BATCH], reports[MAX_BATCH:]]


def test_reports_of_different_runs_do_not_wait_for_each_other():
    batcher, other = ReportBatcher(), ObservedReport(TWO)

    with batcher.join(ObservedReport(ONE)), batcher.join(other) as batch:
        reports = batch.reports

    assert reports == (other,)
    assert not other.waits.is_set()


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_every_report_is_stored_once_whenever_it_arrives(arrivals: list[tuple[bool, bool]]):
    batcher, begin = ReportBatcher(), threading.Barrier(len(arrivals))
    reports = [ObservedReport(TWO if is_other else ONE) for is_other, _ in arrivals]
    stored = list[Sequence[PendingReport]]()

    def report_at_the_barrier(pending: ObservedReport, fails: bool) -> bool:
        begin.wait(TIMEOUT)
        return report(batcher, pending, fails=fails, stored=stored)

    with ThreadPoolExecutor(len(arrivals)) as threads:
        futures = [
            threads.submit(report_at_the_barrier, pending, fails)
            for pending, (_, fails) in zip(reports, arrivals, strict=True)
        ]
        alone = [each.result(TIMEOUT) for each in futures]

    together = [pending for batch in stored for pending in batch if pending.is_stored]
    assert [pending.is_stored for pending in reports] == [not is_alone for is_alone in alone]
    assert len(together) == len(set(together)) == alone.count(False)
    assert not report_waits(batcher, ONE)
    assert not report_waits(batcher, TWO)


def report_waits(batcher: ReportBatcher, run_id: UUID = ONE) -> bool:
    """Return whether a report that arrives now has to wait."""
    pending = ObservedReport(run_id)
    report(batcher, pending)
    return pending.waits.is_set()
