"""A claim with a free slot is made alone and at once; claims that wait for a slot are made together."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from store.runs.activations import Claim
from worker.fastpath.claim_batcher import ClaimBatcher
from worker.leases.attempt_handle import Attempt

TIMEOUT = 10.0  # seconds for what another thread does
RUN = UUID(int=1)


class Rows:
    """Make claims, and record which were made alone and which together."""

    def __init__(self) -> None:
        self.alone: list[Attempt] = []
        self.together: list[Sequence[Attempt]] = []
        self.is_claimed_together: Callable[[Attempt], bool] = lambda _: True
        self.has_begun, self.may_finish = threading.Event(), threading.Event()
        self.may_finish.set()

    def claim(self, attempt: Attempt) -> Claim | None:
        self.alone.append(attempt)
        self.has_begun.set()
        assert self.may_finish.wait(TIMEOUT)
        return claim_of(attempt)

    def claim_together(self, attempts: Sequence[Attempt]) -> Mapping[UUID, Claim]:
        self.together.append(attempts)
        return {each.lease_id: claim_of(each) for each in attempts if self.is_claimed_together(each)}


def claim_of(attempt: Attempt) -> Claim:
    """Return a placeholder for a claim, which is recognised by its attempt."""
    return cast(Any, ("claim", attempt.lease_id))


def attempts(number: int) -> list[Attempt]:
    return [Attempt(RUN, uuid4(), uuid4()) for _ in range(number)]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def claims() -> ClaimBatcher:
    return ClaimBatcher(1)


def occupy_and_wait(
    claims: ClaimBatcher, rows: Rows, threads: ThreadPoolExecutor, number: int
) -> tuple["Future[Any]", list[Attempt], list["Future[Any]"]]:
    """Occupy the only slot with one claim, and let `number` others wait for it."""
    rows.may_finish.clear()
    (first,), others = attempts(1), attempts(number)
    holder = threads.submit(claims.claim, first, rows.claim, rows.claim_together)
    assert rows.has_begun.wait(TIMEOUT)
    futures: list[Future[Any]] = []
    for other in others:
        waiting = len(claims._line)
        futures.append(threads.submit(claims.claim, other, rows.claim, rows.claim_together))
        while len(claims._line) == waiting:
            assert not futures[-1].done()
    return holder, others, futures


def test_claim_with_a_free_slot_is_made_alone(claims: ClaimBatcher, rows: Rows):
    (attempt,) = attempts(1)

    claim = claims.claim(attempt, rows.claim, rows.claim_together)

    assert (claim, rows.alone, rows.together) == (claim_of(attempt), [attempt], [])


def test_waiting_claims_are_made_in_one_statement(claims: ClaimBatcher, rows: Rows, threads: ThreadPoolExecutor):
    holder, others, futures = occupy_and_wait(claims, rows, threads, 5)

    rows.may_finish.set()

    assert [each.result(TIMEOUT) for each in futures] == [claim_of(other) for other in others]
    assert [list(each) for each in rows.together] == [others]
    assert (holder.result(TIMEOUT), len(rows.alone)) == (claim_of(rows.alone[0]), 1)


def test_single_waiting_claim_is_made_alone(claims: ClaimBatcher, rows: Rows, threads: ThreadPoolExecutor):
    _, (other,), (futures,) = occupy_and_wait(claims, rows, threads, 1)

    rows.may_finish.set()

    assert futures.result(TIMEOUT) == claim_of(other)
    assert (rows.together, rows.alone[1:]) == ([], [other])


def test_claim_missing_from_the_batch_result_is_made_alone(
    claims: ClaimBatcher, rows: Rows, threads: ThreadPoolExecutor
):
    _, others, futures = occupy_and_wait(claims, rows, threads, 4)
    rows.is_claimed_together = lambda attempt: attempt is not others[2]

    rows.may_finish.set()

    assert [each.result(TIMEOUT) for each in futures] == [claim_of(other) for other in others]
    assert rows.alone[1:] == [others[2]]


def test_failed_batch_leaves_no_claim_waiting(claims: ClaimBatcher, rows: Rows, threads: ThreadPoolExecutor):
    _, others, futures = occupy_and_wait(claims, rows, threads, 3)

    def fail(_: Attempt) -> bool:
        raise RuntimeError("no memory")

    rows.is_claimed_together = fail
    rows.may_finish.set()

    with pytest.raises(RuntimeError, match="no memory"):
        futures[0].result(TIMEOUT)
    assert [each.result(TIMEOUT) for each in futures[1:]] == [claim_of(other) for other in others[1:]]
    (after,) = attempts(1)
    assert claims.claim(after, rows.claim, rows.claim_together) == claim_of(after)
