"""How the sandbox finds the processes of a program and measures their memory."""

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
    """Start a child process that has a child of its own, and yield both process ids."""
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPING], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        yield child.pid, int(child.stdout.readline())
        os.killpg(child.pid, 9)


@pytest.mark.parametrize("has_lists", [True, False])
def test_all_descendants_of_a_process_are_found_with_and_without_kernel_lists(
    processes: int, family: tuple[int, int], monkeypatch: pytest.MonkeyPatch, has_lists: bool
):
    child, grandchild = family
    if not has_lists:
        monkeypatch.setattr(sandbox_child, "_exists", lambda *_: False)
    descendants: Any = sandbox_child._descendants  # pyright: ignore[reportPrivateUsage]

    assert {child, grandchild} <= set(descendants(processes, os.getpid()))
    assert list(descendants(processes, child)) == [grandchild]
    assert list(descendants(processes, grandchild)) == []


def test_ended_process_uses_no_memory(processes: int):
    with subprocess.Popen(["true"]) as ended:
        ended.wait()

    assert sandbox_child._measure_memory(processes, [ended.pid], 1) == 0  # pyright: ignore[reportPrivateUsage]
    assert sandbox_child._measure_memory(processes, [os.getpid()], 1) > 1_000_000  # pyright: ignore[reportPrivateUsage]
