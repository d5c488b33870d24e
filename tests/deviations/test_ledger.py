"""Every row of the difference tables has a test, and so has every recorded case from which we mean to differ."""

import importlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.deviations.told import RECORDINGS

E_ROWS = {f"E{number}" for number in range(1, 28)}
QUIRKS = {f"Q{number}" for number in range(1, 16)}
TOOL_ROWS = {f"T{number}" for number in range(1, 21)}
NAMED = {
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


def stated() -> Iterator[tuple[set[str], set[str]]]:
    """(rows, cases) of every test in this folder; a case that is not played stands among the rows."""
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
            case [("row", "told"), [param]]:
                rows.update(param.values[0])
                cases.add(param.values[1])
            case ["told", names]:
                cases.update(names)
            case [["told", *_] | ("told", *_), params]:
                cases.update(values[0] for values in params)
            case _:
                pass
    return rows, cases


def recorded_deviations() -> dict[str, set[str]]:
    """The rows that each recorded case names, for those that name any."""
    cases = (json.loads(file.read_text()) for file in (RECORDINGS / "cases").glob("*.json"))
    return {case["name"]: set(case["deviations"]) for case in cases if case["deviations"]}


def test_every_row_has_a_test_and_no_test_names_a_row_that_is_none():
    rows = {row for named, _ in stated() for row in named}

    assert rows >= E_ROWS | QUIRKS | NAMED
    assert rows - recorded_deviations().keys() <= E_ROWS | QUIRKS | NAMED | TOOL_ROWS


def test_every_recorded_case_that_names_deviations_is_judged_by_them():
    judged = defaultdict[str, set[str]](set)
    for rows, cases in stated():
        for case in cases | rows:
            judged[case] |= rows

    recorded = recorded_deviations()
    assert len(recorded) > 80
    assert {case: rows - judged[case] for case, rows in recorded.items() if rows - judged[case]} == {}
