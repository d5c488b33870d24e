"""The results of a comparison, as Markdown for people and as JSON for programs."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from typing import Any

from bench.compare.side import CONTROL, EASEL, MODE_TITLES, MODES
from bench.compare.workloads import FigureRow, WorkloadResult

COSTS = {"cpu_ms": "CPU ms", "transactions": "PG write tx", "wal": "WAL bytes", "commands": "Redis commands"}
"""Figures per node, each with its column title."""


def results_markdown(played: Sequence[WorkloadResult]) -> str:
    """Return two tables: results with their targets, and costs per node."""
    return "\n\n".join([_describe_machine(), _results_table(played), _costs_table(played)])


def results_json(played: Sequence[WorkloadResult]) -> str:
    """Return all results as one JSON object."""
    return json.dumps({"machine": _describe_machine(), "workloads": [_workload_json(one) for one in played]}, indent=1)


def _results_table(played: Sequence[WorkloadResult]) -> str:
    modes = _modes_of(played)
    titles = "".join(f" {MODE_TITLES[mode]} | ratio |" for mode in modes)
    lines = [f"| | | control |{titles} target | |", f"|---|---|---:|{'---:|---:|' * len(modes)}---:|---|"]
    for one in played:
        if not one.is_complete:
            empty = " |" * (2 * len(modes) + 2)
            lines.append(f"| {one.workload.name} | {one.workload.title} |{empty} {one.problem or 'not measured'} |")
            continue
        for number, row in enumerate(one.workload.rows):
            name, title = (one.workload.name, f"{one.workload.title}: ") if number == 0 else ("", "")
            facts = _row_json(one, row)
            verdict = {True: "met", False: "missed", None: ""}[facts["holds"]]
            cells = "".join(
                f" {_format_spread(one, mode, row.figure)} | {_format_ratio(_ratio_of(one, row.figure, mode))} |"
                for mode in modes
            )
            lines.append(
                f"| {name} | {title}{row.title} | {_format_spread(one, CONTROL, row.figure)} |{cells} "
                f"{row.target or ''} | {verdict} |"
            )
    return "\n".join(lines)


def _costs_table(played: Sequence[WorkloadResult]) -> str:
    titles = " | ".join(COSTS.values())
    sides = " → ".join(["control", *(MODE_TITLES[mode] for mode in _modes_of(played))])
    lines = [f"| per node: {sides} | {titles} |", "|---|" + "---:|" * len(COSTS)]
    for one in played:
        if one.is_complete:
            cells = [" → ".join(_format_number(_median(one, side, f)) for side in (CONTROL, *one.modes)) for f in COSTS]
            ratios = [_format_ratio(_ratio_of(one, "cpu_ms", mode)) for mode in one.modes]
            cells[0] += f" ({', '.join(ratios)})" if all(ratios) else ""
            lines.append(f"| {one.workload.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _workload_json(one: WorkloadResult) -> dict[str, Any]:
    return {
        "name": one.workload.name,
        "title": one.workload.title,
        "problem": one.problem,
        "rows": [_row_json(one, row) for row in one.workload.rows] if one.is_complete else [],
        "costs": {
            figure: {side: _median(one, side, figure) for side in (CONTROL, *one.modes)} for figure in COSTS
        } if one.is_complete else {},
        "repetitions": one.figures,
    }  # fmt: skip


def _row_json(one: WorkloadResult, row: FigureRow) -> dict[str, Any]:
    first = one.modes[0]  # the target is for the first column
    control, easel = _median(one, CONTROL, row.figure), _median(one, first, row.figure)
    ratio = _ratio_of(one, row.figure, first)
    judged = ratio if row.target is not None and row.target.is_ratio else easel
    holds = row.target.is_met(judged) if row.target is not None and judged is not None else None
    return {
        "figure": row.figure,
        "title": row.title,
        "control": control,
        "easel": easel,
        "ratio": ratio,
        "modes": {
            mode: {"median": _median(one, mode, row.figure), "ratio": _ratio_of(one, row.figure, mode)}
            for mode in one.modes
        },
        "target": str(row.target) if row.target is not None else None,
        "holds": holds,
    }


def _values(one: WorkloadResult, side: str, figure: str) -> list[float]:
    return [figures[figure] for figures in one.figures[side]]


def _median(one: WorkloadResult, side: str, figure: str) -> float:
    return statistics.median(_values(one, side, figure))


def _modes_of(played: Sequence[WorkloadResult]) -> Sequence[str]:
    """Return the modes that were measured; of nothing measured, Easel as it is by default."""
    return [mode for mode in MODES if any(mode in one.figures for one in played)] or [EASEL]


def _ratio_of(one: WorkloadResult, figure: str, mode: str) -> float | None:
    """Return the median of the repetitions' ratios, because a slow machine slows both sides of a repetition."""
    pairs = list(zip(_values(one, mode, figure), _values(one, CONTROL, figure), strict=True))
    return statistics.median(easel / control for easel, control in pairs) if all(c for _, c in pairs) else None


def _format_spread(one: WorkloadResult, side: str, figure: str) -> str:
    values = _values(one, side, figure)
    middle = _format_number(statistics.median(values))
    low, high = _format_number(min(values)), _format_number(max(values))
    return f"{middle} ({low}–{high})" if low != high else middle


def _format_ratio(value: float | None) -> str:
    return f"{value:.2f} ×" if value is not None else ""


def _format_number(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _describe_machine() -> str:
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
