"""What a run should tell although it did not fail: warnings of its steps, and models whose error stood for an answer.

A warning is a code and a text, stored beside the outcome of its step. How many there are is counted with the usage of a
run, which the worker sends with every report; so counting costs no statement, and the run's row has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WARNINGS = "warnings"
"""In stored usage: how many warnings the steps have. In a stored outcome: the warnings."""
MODEL_ERRORS = "model_errors"
"""In stored usage: how many steps gave the error of their model as their answer."""
COUNTED = frozenset({WARNINGS, MODEL_ERRORS})
MOST = 20  # warnings of a step
LONGEST = 500  # characters of a warning


@dataclass(frozen=True, slots=True)
class Notice:
    """What a step should tell. `code` stays the same when the words change."""

    code: str
    message: str


def to_column(warnings: Sequence[Notice]) -> list[dict[str, str]]:
    """Return warnings as a stored outcome has them, each once."""
    found = dict.fromkeys(Notice(each.code, each.message[:LONGEST]) for each in warnings)
    return [{"code": each.code, "message": each.message} for each in list(found)[:MOST]]


def warnings_in(outcome: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Return the warnings of a stored outcome."""
    return list((outcome or {}).get(WARNINGS, ()))


def has_model_error(usage: Mapping[str, int]) -> bool:
    """Return whether a step of the run gave the error of its model as its answer."""
    return usage.get(MODEL_ERRORS, 0) > 0
