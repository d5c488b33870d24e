"""Shares from samples."""

from pathlib import Path

from bench.hops import stack_samples

ROOT = Path("/srv/easel")
LINES = (
    "run (threading.py);execute (/srv/easel/worker/tasks.py);send (/v/lib/python3.11/site-packages/redis/client.py) 6",
    "run (threading.py);execute (/srv/easel/worker/tasks.py);fold (/srv/easel/scheduler/coordinator/coordinator.py) 3",
    "run (threading.py);execute (/srv/easel/worker/tasks.py);dumps (/usr/lib/python3.11/json/__init__.py) 1",
    "process 7:celery",
)


def test_files_are_named_relative_to_the_root_or_their_package():
    stacks = stack_samples.parse_stacks(LINES, ROOT)

    assert {stack[-1] for stack in stacks} == {
        "send (redis/client.py)",
        "fold (scheduler/coordinator/coordinator.py)",
        "dumps (python/json/__init__.py)",
    }
    assert sum(stacks.values()) == 10


def test_shares_by_package_use_the_running_frame():
    stacks = stack_samples.parse_stacks(LINES, ROOT)

    assert stack_samples.shares_by_package(stacks) == [("redis", 0.6), ("scheduler", 0.3), ("python", 0.1)]


def test_share_of_a_function_includes_its_callees():
    stacks = stack_samples.parse_stacks(LINES, ROOT)

    assert dict(stack_samples.shares_by_function(stacks)) == {
        "execute (worker/tasks.py)": 1.0,
        "fold (scheduler/coordinator/coordinator.py)": 0.3,
    }


def test_a_function_that_calls_itself_is_counted_once():
    stacks = stack_samples.parse_stacks(
        ["walk (/srv/easel/canvas/graph/canvas.py);walk (/srv/easel/canvas/graph/canvas.py) 4"], ROOT
    )

    assert stack_samples.shares_by_function(stacks) == [("walk (canvas/graph/canvas.py)", 1.0)]
