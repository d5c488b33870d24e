"""How the sandbox finds and weighs the processes of a program, on processes of this test."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from providers.sandboxes.inside import child as sandbox_child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
SLEEPING = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"


@pytest.fixture
def processes() -> Iterator[int]:
    opened = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    yield opened
    os.close(opened)


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """A child of this process, and a child of that one."""
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPING], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        yield child.pid, int(child.stdout.readline())
        os.killpg(child.pid, 9)


@pytest.mark.parametrize("has_lists", [True, False])
def test_all_that_a_process_has_started_is_found_with_and_without_lists_of_children(
    processes: int, family: tuple[int, int], monkeypatch: pytest.MonkeyPatch, has_lists: bool
):
    child, grandchild = family
    if not has_lists:
        monkeypatch.setattr(sandbox_child, "_exists", lambda *_: False)
    below: Any = sandbox_child._descendants  # pyright: ignore[reportPrivateUsage]

    assert {child, grandchild} <= set(below(processes, os.getpid()))
    assert list(below(processes, child)) == [grandchild]
    assert list(below(processes, grandchild)) == []


def test_a_process_that_has_ended_holds_nothing(processes: int):
    with subprocess.Popen(["true"]) as ended:
        ended.wait()

    assert sandbox_child._measure_memory(processes, [ended.pid], 1) == 0  # pyright: ignore[reportPrivateUsage]
    assert sandbox_child._measure_memory(processes, [os.getpid()], 1) > 1_000_000  # pyright: ignore[reportPrivateUsage]
