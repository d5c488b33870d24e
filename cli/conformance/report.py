"""The report of `easel conformance`: a line for each case that fails, then totals; and JSON."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cli.conformance.compare.compare import Difference
from cli.shell.value_pairs import NOTHING, shown_pair


@dataclass(frozen=True, slots=True)
class PassedCase:
    """The case agrees with its recording."""

    case: str


@dataclass(frozen=True, slots=True)
class FailedCase:
    """The case differs, or could not be run to its end (`difference` is then the reason as text)."""

    case: str
    difference: Difference | str


@dataclass(frozen=True, slots=True)
class SkippedCase:
    """The case was not run."""

    case: str
    reason: str


Verdict: TypeAlias = PassedCase | FailedCase | SkippedCase


def failure_line(verdict: FailedCase) -> str:
    """Return one line about a failure: case, position, expected and actual value."""
    reason = verdict.difference
    return f"{verdict.case}: {_one_line(reason) if isinstance(reason, str) else difference_line(reason)}"


def difference_line(difference: Difference) -> str:
    """Return one line about a difference; of two long texts, the part where they begin to differ."""
    run = f"run {difference.run}, " if difference.run is not None else ""
    expected, got = shown_pair(difference.expected, difference.got)
    return f"{run}{difference.where}: expected {expected}, got {got}"


def totals_line(verdicts: Sequence[Verdict]) -> str:
    """Return `N passed, M failed, K skipped`."""
    count = Counter(type(verdict) for verdict in verdicts)
    return f"{count[PassedCase]} passed, {count[FailedCase]} failed, {count[SkippedCase]} skipped"


def report_json(verdicts: Iterable[Verdict]) -> str:
    """Return the verdicts as JSON: a list of {case, verdict, and the difference or reason}."""
    return json.dumps([_as_json(verdict) for verdict in verdicts], ensure_ascii=False, indent=1, default=str)


def has_failures(verdicts: Iterable[Verdict]) -> bool:
    """Return whether a case failed, so that the command exits with 1."""
    return any(isinstance(verdict, FailedCase) for verdict in verdicts)


def _as_json(verdict: Verdict) -> dict[str, Any]:
    match verdict:
        case PassedCase(case=name):
            return {"case": name, "verdict": "passed"}
        case SkippedCase(case=name, reason=reason):
            return {"case": name, "verdict": "skipped", "reason": reason}
        case FailedCase(case=name, difference=found):
            return {"case": name, "verdict": "failed", **_why(found)}


def _why(found: Difference | str) -> dict[str, Any]:
    if isinstance(found, str):
        return {"reason": found}
    sides = {"expected": found.expected, "got": found.got}
    return {"run": found.run, "where": found.where} | {
        side: value for side, value in sides.items() if value is not NOTHING
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())
