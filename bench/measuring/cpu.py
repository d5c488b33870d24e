"""Processor time of processes, as the kernel counts it (Linux: /proc)."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
TICK = 1000 / os.sysconf("SC_CLK_TCK")  # milliseconds


def cpu_ms_of(pids: Iterable[int]) -> float:
    """Return the milliseconds of processor time of these processes and of their children, running or ended."""
    found = {pid: stat for path in PROC.glob("[0-9]*") if (stat := _stat(pid := int(path.name))) is not None}
    family = {pid for pid in pids if pid in found}
    while more := {pid for pid, (parent, _, _) in found.items() if parent in family} - family:
        family |= more
    return TICK * sum(found[pid][1] + found[pid][2] for pid in family)


def _stat(pid: int) -> tuple[int, int, int] | None:
    """Return parent, own ticks and ticks of ended children; None if the process has ended."""
    with suppress(OSError, ValueError):
        values = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return int(values[1]), int(values[11]) + int(values[12]), int(values[13]) + int(values[14])
    return None
