"""The results of a comparison, as Markdown for people and as JSON for programs."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from typing import Any

from bench.compare.side import CONTROL, EASEL
from bench.compare.workloads import Played, Row

COSTS = {"cpu_ms": "CPU ms", "transactions": "PG write tx", "wal": "WAL bytes", "commands": "Redis commands"}
"""Figures per node, each with its column title."""


def markdown(played: Sequence[Played]) -> str:
    """Return two tables: results with their targets, and costs per node."""
    return "\n\n".join([_machine(), _found(played), _costs(played)])


def told(played: Sequence[Played]) -> str:
    """Return all results as one JSON object."""
    return json.dumps({"machine": _machine(), "workloads": [_workload(one) for one in played]}, indent=1)


def _found(played: Sequence[Played]) -> str:
    lines = ["| | | control | Easel | ratio | target | |", "|---|---|---:|---:|---:|---:|---|"]
    for one in played:
        if not one.is_complete:
            lines.append(f"| {one.workload.name} | {one.workload.title} | | | | | {one.problem or 'not measured'} |")
            continue
        for number, row in enumerate(one.workload.rows):
            name, title = (one.workload.name, f"{one.workload.title}: ") if number == 0 else ("", "")
            facts = _row(one, row)
            verdict = {True: "met", False: "missed", None: ""}[facts["holds"]]
            lines.append(
                f"| {name} | {title}{row.title} | {_spread(one, CONTROL, row.figure)} | "
                f"{_spread(one, EASEL, row.figure)} | {_ratio(facts['ratio'])} | {row.wanted or ''} | {verdict} |"
            )
    return "\n".join(lines)


def _costs(played: Sequence[Played]) -> str:
    titles = " | ".join(COSTS.values())
    lines = [f"| per node: control → Easel | {titles} |", "|---|" + "---:|" * len(COSTS)]
    for one in played:
        if one.is_complete:
            cells = [f"{_shown(_median(one, CONTROL, f))} → {_shown(_median(one, EASEL, f))}" for f in COSTS]
            ratio = _ratio(_ratio_of(one, "cpu_ms"))
            cells[0] += f" ({ratio})" if ratio else ""
            lines.append(f"| {one.workload.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _workload(one: Played) -> dict[str, Any]:
    return {
        "name": one.workload.name,
        "title": one.workload.title,
        "problem": one.problem,
        "rows": [_row(one, row) for row in one.workload.rows] if one.is_complete else [],
        "costs": {
            figure: {side: _median(one, side, figure) for side in (CONTROL, EASEL)} for figure in COSTS
        } if one.is_complete else {},
        "repetitions": one.figures,
    }  # fmt: skip


def _row(one: Played, row: Row) -> dict[str, Any]:
    control, easel = _median(one, CONTROL, row.figure), _median(one, EASEL, row.figure)
    ratio = _ratio_of(one, row.figure)
    judged = ratio if row.wanted is not None and row.wanted.is_ratio else easel
    holds = row.wanted.holds(judged) if row.wanted is not None and judged is not None else None
    return {
        "figure": row.figure,
        "title": row.title,
        "control": control,
        "easel": easel,
        "ratio": ratio,
        "target": str(row.wanted) if row.wanted is not None else None,
        "holds": holds,
    }


def _values(one: Played, side: str, figure: str) -> list[float]:
    return [figures[figure] for figures in one.figures[side]]


def _median(one: Played, side: str, figure: str) -> float:
    return statistics.median(_values(one, side, figure))


def _ratio_of(one: Played, figure: str) -> float | None:
    """Return the median of the repetitions' ratios, because a slow machine slows both sides of a repetition."""
    pairs = list(zip(_values(one, EASEL, figure), _values(one, CONTROL, figure), strict=True))
    return statistics.median(easel / control for easel, control in pairs) if all(c for _, c in pairs) else None


def _spread(one: Played, side: str, figure: str) -> str:
    values = _values(one, side, figure)
    middle = _shown(statistics.median(values))
    low, high = _shown(min(values)), _shown(max(values))
    return f"{middle} ({low}–{high})" if low != high else middle


def _ratio(value: float | None) -> str:
    return f"{value:.2f} ×" if value is not None else ""


def _shown(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _machine() -> str:
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
