"""Stack samples as tables.

A sample is a stack, outermost frame first, as py-spy writes it: "run (celery/app.py);execute (worker/tasks.py) 17".
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

Stacks: TypeAlias = Mapping[tuple[str, ...], int]

OUR_PACKAGES = ("api", "bench", "canvas", "cli", "components", "providers", "scheduler", "store", "worker")

_FRAME = re.compile(r"^(?P<name>.*) \((?P<path>[^()]*?)(?::\d+)?\)$")
_IN_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_IN_PYTHON = re.compile(r".*/lib/python3\.\d+/")


def parse_stacks(lines: Iterable[str], root: Path) -> Stacks:
    """Parse collapsed stacks; paths are relative to `root` or to their package. Frames of threads are left out."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        stack, _, count = line.strip().rpartition(" ")
        frames = tuple(_shorten_path(frame, root) for frame in stack.split(";") if _FRAME.match(frame))
        if frames and count.isdigit():
            stacks[frames] += int(count)
    return stacks


def package_of(frame: str) -> str:
    """Return the package of a frame: one of Easel's packages, a library, or "python"."""
    match = _FRAME.match(frame)
    path = match["path"] if match else ""
    return path.split("/")[0].removesuffix(".py") if "/" in path and not path.startswith("python/") else "python"


def shares_by_package(stacks: Stacks) -> Sequence[tuple[str, float]]:
    """Return the packages of the running frames with their shares of all samples, the largest first."""
    own: Counter[str] = Counter()
    for stack, count in stacks.items():
        own[package_of(stack[-1])] += count
    return _shares(own, stacks)


def shares_by_function(stacks: Stacks, among: Sequence[str] = OUR_PACKAGES) -> Sequence[tuple[str, float]]:
    """Return functions with their shares of all samples, including the functions that they call."""
    inclusive: Counter[str] = Counter()
    for stack, count in stacks.items():
        for frame in {frame for frame in stack if package_of(frame) in among}:
            inclusive[frame] += count
    return _shares(inclusive, stacks)


def _shorten_path(frame: str, root: Path) -> str:
    match = _FRAME.match(frame)
    assert match is not None
    path = match["path"].removeprefix(f"{root}/")
    if _IN_PACKAGES.match(path):
        path = _IN_PACKAGES.sub("", path)
    elif _IN_PYTHON.match(path):
        path = _IN_PYTHON.sub("python/", path)
    return f"{match['name']} ({path})"


def _shares(counted: Counter[str], stacks: Stacks) -> Sequence[tuple[str, float]]:
    total = sum(stacks.values())
    return [(name, count / total) for name, count in counted.most_common()]
