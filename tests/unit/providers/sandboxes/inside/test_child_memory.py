"""The memory that the processes of a program use together, from a `/proc` folder."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.sandboxes.inside import child

PAGE = resource.getpagesize()


@pytest.fixture
def proc(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """An open folder like `/proc`, and its path."""
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield folder, tmp_path
    os.close(folder)


def add_process(path: Path, process: int, *, pages: int, proportional_kib: int | None) -> None:
    (path / str(process)).mkdir()
    (path / str(process) / "statm").write_text(f"{9 * pages} {pages} 1 1 0 1 0")
    if proportional_kib is not None:
        (path / str(process) / "smaps_rollup").write_text(f"Rss: 1 kB\nPss:  {proportional_kib} kB\n")


def test_shared_pages_count_once_if_the_resident_memory_exceeds_the_limit(proc: tuple[int, Path]):
    folder, path = proc
    for process in (7, 8):
        add_process(path, process, pages=100, proportional_kib=4)

    assert child._measure_memory(folder, [7, 8], 200 * PAGE) == 200 * PAGE
    assert child._measure_memory(folder, [7, 8], 199 * PAGE) == 8 * 1024


def test_process_counts_completely_if_the_kernel_does_not_report_its_share(proc: tuple[int, Path]):
    folder, path = proc
    add_process(path, 7, pages=100, proportional_kib=None)
    add_process(path, 8, pages=100, proportional_kib=4)

    assert child._measure_memory(folder, [7, 8], PAGE) == 100 * PAGE + 4 * 1024


def test_process_that_ends_during_the_measurement_does_not_count(
    proc: tuple[int, Path], monkeypatch: pytest.MonkeyPatch
):
    folder, path = proc
    for process in (7, 8):
        add_process(path, process, pages=100, proportional_kib=4)
    read = child._read_file

    def end_before_its_share_is_read(processes: int, name: str) -> str:
        if name == "8/smaps_rollup":
            (path / "8" / "smaps_rollup").unlink()
            (path / "8" / "statm").unlink()
        return read(processes, name)

    monkeypatch.setattr(child, "_read_file", end_before_its_share_is_read)

    assert child._measure_memory(folder, [7, 8], PAGE) == 4 * 1024
