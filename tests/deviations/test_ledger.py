"""Every row of the difference tables has a test, and so has every recorded case with an intended difference."""

import importlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.deviations.observed_run import RECORDINGS

E_ROWS = {f"E{number}" for number in range(1, 28)}
QUIRKS = {f"Q{number}" for number in range(1, 16)}
TOOL_ROWS = {f"T{number}" for number in range(1, 21)}
NAMED_ROWS = {
    "accepts_more",
    "append_in_place",
    "cancel_end",
    "empty_json",
    "empty_resume",
    "exit_loop_finish",
    "lazy_stream",
    "no_reset",
    "pending_branch",
    "refused_earlier",
    "stale_error",
    "third_turn",
    "tool_error_text",
}


def covered() -> Iterator[tuple[set[str], set[str]]]:
    """Yield (rows, cases) of every test in this folder; a case that does not run is one of the rows."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.deviations.{file.stem}")
        for name, test in vars(module).items():
            if name.startswith("test_"):
                yield _named(test)


def _named(test: Any) -> tuple[set[str], set[str]]:
    rows, cases = set[str](), set[str]()
    for mark in getattr(test, "pytestmark", ()):
        match mark.args:
            case ["row", [param]]:
                rows.update(param.values[0])
            case [("row", "result"), [param]]:
                rows.update(param.values[0])
                cases.add(param.values[1])
            case ["result", names]:
                cases.update(names)
            case [["result", *_] | ("result", *_), params]:
                cases.update(values[0] for values in params)
            case _:
                pass
    return rows, cases


def recorded_deviations() -> dict[str, set[str]]:
    """Return the rows of each recorded case that names any."""
    cases = (json.loads(file.read_text()) for file in (RECORDINGS / "cases").glob("*.json"))
    return {case["name"]: set(case["deviations"]) for case in cases if case["deviations"]}


def test_every_table_row_has_a_test_and_every_named_row_exists():
    rows = {row for covered_rows, _ in covered() for row in covered_rows}

    assert rows >= E_ROWS | QUIRKS | NAMED_ROWS
    assert rows - recorded_deviations().keys() <= E_ROWS | QUIRKS | NAMED_ROWS | TOOL_ROWS


def test_every_recorded_deviation_has_a_test_for_its_case():
    tested = defaultdict[str, set[str]](set)
    for rows, cases in covered():
        for case in cases | rows:
            tested[case] |= rows

    deviations = recorded_deviations()
    assert len(deviations) > 80
    assert {case: rows - tested[case] for case, rows in deviations.items() if rows - tested[case]} == {}
