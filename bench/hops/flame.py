"""Stack samples as tables and as a flame graph.

A sample is a stack, outermost frame first, as py-spy writes it: "run (celery/app.py);execute (worker/tasks.py) 17".
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TypeAlias

Stacks: TypeAlias = Mapping[tuple[str, ...], int]

WIDTH, ROW, LETTER_WIDTH = 1200, 16, 6.6  # pixels
MIN_SHARE = 0.006  # share of all samples; narrower frames are not drawn
OUR_PACKAGES = ("api", "bench", "canvas", "cli", "components", "providers", "scheduler", "store", "worker")
COLOURS = {"ours": "#e4794f", "sqlalchemy": "#6c9bd2", "psycopg": "#4f77b0", "celery": "#7dbb6a", "kombu": "#9acb7a",
           "redis": "#c8687a", "python": "#c9c2b4"}  # fmt: skip
OTHER = "#e3d37a"

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


def flame_graph(stacks: Stacks, title: str) -> str:
    """Return a flame graph: a frame is as wide as its share of samples and is drawn above its caller."""
    top = _FlameFrame("all")
    for stack, count in sorted(stacks.items()):
        top.add(stack, count)
    depth = top.depth(MIN_SHARE * top.count)
    height = (depth + 2) * ROW
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace"',
        ' font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/><text x="4" y="12">{escape(title)}</text>',
        *top.draw(0.0, height - ROW, WIDTH / max(1, top.count), MIN_SHARE * top.count, top.count),
        "</svg>",
    ]
    return "\n".join(drawn) + "\n"


@dataclass
class _FlameFrame:
    name: str
    count: int = 0
    callees: dict[str, "_FlameFrame"] = field(default_factory=dict[str, "_FlameFrame"])

    def add(self, stack: Sequence[str], count: int) -> None:
        frame = self
        frame.count += count
        for name in stack:
            frame = frame.callees.setdefault(name, _FlameFrame(name))
            frame.count += count

    def depth(self, least: float) -> int:
        return 1 + max((callee.depth(least) for callee in self.callees.values() if callee.count >= least), default=0)

    def draw(self, x: float, y: float, scale: float, least: float, total: int) -> Iterable[str]:
        wide = self.count * scale
        tooltip = f"{self.name}: {100 * self.count / max(1, total):.1f} %"
        words = self.name if len(self.name) * LETTER_WIDTH < wide else self.name[: max(0, int(wide / LETTER_WIDTH) - 1)]
        text = f'<text x="{x + 2:.1f}" y="{y + 11}">{escape(words)}</text>' if len(words) > 2 else ""
        yield (
            f'<g><title>{escape(tooltip)}</title><rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{ROW - 1}"'
            f' fill="{_colour(self.name)}"/>{text}</g>'
        )
        for callee in self.callees.values():
            if callee.count >= least:
                yield from callee.draw(x, y - ROW, scale, least, total)
                x += callee.count * scale


def _colour(frame: str) -> str:
    found = package_of(frame)
    return COLOURS["ours"] if found in OUR_PACKAGES else COLOURS.get(found.removesuffix("_binary"), OTHER)


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
