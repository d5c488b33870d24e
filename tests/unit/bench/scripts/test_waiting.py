"""The resources that the measurement of waiting calls needs."""

import pytest

from bench.scripts.waiting import missing_resource


def test_worker_with_enough_threads_and_files_lacks_nothing():
    assert missing_resource(calls=1000, threads=1024, files=4096) is None


@pytest.mark.parametrize("threads", [64, 1000])
def test_too_few_threads_are_refused_with_a_remedy(threads: int):
    problem = missing_resource(calls=1000, threads=threads, files=100_000)

    assert problem is not None
    assert f"it has {threads}" in problem
    assert "--threads 1024" in problem


def test_too_few_files_are_refused_with_a_remedy():
    problem = missing_resource(calls=1000, threads=1024, files=1024)

    assert problem is not None
    assert "may have 1024. Run: ulimit -n 2256" in problem
