"""The report of `easel bench`."""

import json

import pytest

from bench.compare.side import CONTROL, COORDINATOR, EASEL, LOCAL
from bench.compare.table import results_json, results_markdown
from bench.compare.workloads import QUICK, FigureTarget, WorkloadResult, build_workloads

COSTS = {"cpu_ms": 2.0, "transactions": 1.0, "wal": 1000.0, "commands": 10.0}


def result_of(
    name: str, control: list[dict[str, float]], easel: list[dict[str, float]], problem: str = ""
) -> WorkloadResult:
    return WorkloadResult(
        build_workloads(QUICK)[name],
        {CONTROL: [{**COSTS, **each} for each in control], EASEL: [{**COSTS, **each} for each in easel]},
        problem,
    )


def row(table: str, beginning: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.startswith(f"| {beginning} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratio_is_the_median_of_the_repetitions_ratios():
    hops = [(2.0, 2.2), (4.0, 4.4), (8.0, 8.8)]
    one = result_of(
        "W1",
        [{"hop_ms": control, "hop_ms_p99": 9} for control, _ in hops],
        [{"hop_ms": easel, "hop_ms_p99": 9} for _, easel in hops],
    )

    cells = row(results_markdown([one]), "W1")

    assert cells[2:] == ["4 (2–8)", "4.40 (2.20–8.80)", "1.10 ×", "≤ 1.3 ×", "met"]


@pytest.mark.parametrize(("nodes_per_s", "verdict"), [(100.0, "met"), (99.0, "missed")])
def test_a_target_is_met_up_to_its_limit(nodes_per_s: float, verdict: str):
    one = result_of("W2", [{"nodes_per_s": 100.0}], [{"nodes_per_s": nodes_per_s}])

    assert row(results_markdown([one]), "W2")[-1] == verdict


def test_target_for_an_absolute_figure_ignores_the_control():
    crash = {"stall_s": 1.0, "after_kill_s": 1.0}
    one = result_of("W6", [{**crash, "lost": 3, "twice": 5}], [{**crash, "lost": 0, "twice": 1}])

    facts = {each["figure"]: each for each in json.loads(results_json([one]))["workloads"][0]["rows"]}

    assert facts["lost"]["holds"] is True
    assert facts["twice"]["holds"] is False
    assert facts["stall_s"]["holds"] is None


def test_each_mode_of_easel_has_columns_of_its_own():
    one = result_of("W3", [{"nodes_per_s": 100.0}], [{"nodes_per_s": 130.0}])
    for mode, nodes_per_s in ((LOCAL, 150.0), (COORDINATOR, 60.0)):
        one.figures[mode] = [{**COSTS, "nodes_per_s": nodes_per_s}]

    table, facts = results_markdown([one]), json.loads(results_json([one]))["workloads"][0]

    assert row(table, "W3")[2:] == ["100", "130", "1.30 ×", "150", "1.50 ×", "60", "0.60 ×", "≥ 1.3 ×", "met"]
    assert facts["rows"][0]["modes"]["local"] == {"median": 150.0, "ratio": 1.5}


def test_incomplete_workload_shows_its_problem_and_no_figures():
    one = result_of("W3", [{"nodes_per_s": 100.0}], [], problem="easel has done 3 of 22 nodes.")

    table, facts = results_markdown([one]), json.loads(results_json([one]))["workloads"][0]

    assert row(table, "W3")[-1] == "easel has done 3 of 22 nodes."
    assert (facts["problem"], facts["rows"]) == ("easel has done 3 of 22 nodes.", [])


def test_target_is_printed_with_its_direction_and_unit():
    assert str(FigureTarget(0.85, is_minimum=True)) == "≥ 0.85 ×"
    assert str(FigureTarget(2560, is_ratio=False)) == "≤ 2560"
