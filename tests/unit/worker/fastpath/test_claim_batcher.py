"""Who finds a place claims alone and at once; who does not is claimed for with the others who stand in line."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from store.runs.activations import Claim
from worker.fastpath.claim_batcher import ClaimBatcher
from worker.leases.attempt_handle import Attempt

PATIENCE = 10.0  # seconds for what another thread does
RUN = UUID(int=1)


class Rows:
    """What there is to be had, and who asked for it how."""

    def __init__(self) -> None:
        self.alone: list[Attempt] = []
        self.together: list[Sequence[Attempt]] = []
        self.had_together: Callable[[Attempt], bool] = lambda _: True
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def claim(self, attempt: Attempt) -> Claim | None:
        self.alone.append(attempt)
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        return claim_of(attempt)

    def claim_together(self, attempts: Sequence[Attempt]) -> Mapping[UUID, Claim]:
        self.together.append(attempts)
        return {each.lease_id: claim_of(each) for each in attempts if self.had_together(each)}


def claim_of(attempt: Attempt) -> Claim:
    """What stands for a claim: it is recognised by its attempt."""
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


def in_line(
    claims: ClaimBatcher, rows: Rows, threads: ThreadPoolExecutor, number: int
) -> tuple["Future[Any]", list[Attempt], list["Future[Any]"]]:
    """One who has the only place and does not let go of it, and others, who stand in line behind him."""
    rows.go_on.clear()
    (first,), others = attempts(1), attempts(number)
    holder = threads.submit(claims.claim, first, rows.claim, rows.claim_together)
    assert rows.begun.wait(PATIENCE)
    came: list[Future[Any]] = []
    for other in others:
        stood = len(claims._line)
        came.append(threads.submit(claims.claim, other, rows.claim, rows.claim_together))
        while len(claims._line) == stood:
            assert not came[-1].done()
    return holder, others, came


def test_claim_with_a_free_place_is_made_alone(claims: ClaimBatcher, rows: Rows):
    (attempt,) = attempts(1)

    found = claims.claim(attempt, rows.claim, rows.claim_together)

    assert (found, rows.alone, rows.together) == (claim_of(attempt), [attempt], [])


def test_waiting_claims_are_made_in_one_statement(claims: ClaimBatcher, rows: Rows, threads: ThreadPoolExecutor):
    holder, others, came = in_line(claims, rows, threads, 5)

    rows.go_on.set()

    assert [each.result(PATIENCE) for each in came] == [claim_of(other) for other in others]
    assert [list(each) for each in rows.together] == [others]
    assert (holder.result(PATIENCE), len(rows.alone)) == (claim_of(rows.alone[0]), 1)


def test_single_waiting_claim_is_made_alone(claims: ClaimBatcher, rows: Rows, threads: ThreadPoolExecutor):
    _, (other,), (came,) = in_line(claims, rows, threads, 1)

    rows.go_on.set()

    assert came.result(PATIENCE) == claim_of(other)
    assert (rows.together, rows.alone[1:]) == ([], [other])


def test_claim_that_the_batch_did_not_get_is_made_alone(claims: ClaimBatcher, rows: Rows, threads: ThreadPoolExecutor):
    _, others, came = in_line(claims, rows, threads, 4)
    rows.had_together = lambda attempt: attempt is not others[2]

    rows.go_on.set()

    assert [each.result(PATIENCE) for each in came] == [claim_of(other) for other in others]
    assert rows.alone[1:] == [others[2]]


def test_failed_batch_leaves_no_claim_waiting(claims: ClaimBatcher, rows: Rows, threads: ThreadPoolExecutor):
    _, others, came = in_line(claims, rows, threads, 3)

    def breaks(_: Attempt) -> bool:
        raise RuntimeError("no memory")

    rows.had_together = breaks
    rows.go_on.set()

    with pytest.raises(RuntimeError, match="no memory"):
        came[0].result(PATIENCE)
    assert [each.result(PATIENCE) for each in came[1:]] == [claim_of(other) for other in others[1:]]
    (after,) = attempts(1)
    assert claims.claim(after, rows.claim, rows.claim_together) == claim_of(after)
