"""What the measurement of waiting calls needs before it begins."""

import pytest

from bench.scripts.waiting import lacks


def test_a_worker_with_a_thread_and_files_for_every_call_and_a_few_more_lacks_nothing():
    assert lacks(calls=1000, threads=1024, files=4096) is None


@pytest.mark.parametrize("threads", [64, 1000])
def test_calls_that_would_take_every_thread_are_refused_with_what_would_do(threads: int):
    told = lacks(calls=1000, threads=threads, files=100_000)

    assert told is not None
    assert f"it has {threads}" in told
    assert "--threads 1024" in told


def test_calls_that_would_take_every_file_are_refused_with_what_would_do():
    told = lacks(calls=1000, threads=1024, files=1024)

    assert told is not None
    assert "may have 1024. Run: ulimit -n 2256" in told
