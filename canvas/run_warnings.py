"""Warnings of a run that did not fail: notices of its steps, and model errors that were used as an answer.

A warning is a code and a text, stored beside the outcome of its step. Warnings are counted in the usage of the run,
which the worker sends with every report; so counting costs no statement, and the run's row has the count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WARNINGS = "warnings"
"""In stored usage: the number of warnings of all steps. In a stored outcome: the warnings."""
MODEL_ERRORS = "model_errors"
"""In stored usage: the number of steps whose answer is the error of their model."""
COUNTED = frozenset({WARNINGS, MODEL_ERRORS})
MAX_WARNINGS = 20  # warnings of a step
MAX_WARNING_LENGTH = 500  # characters of a warning


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning of a step. `code` is stable; the text may change between releases."""

    code: str
    message: str


def to_column(warnings: Sequence[Notice]) -> list[dict[str, str]]:
    """Return warnings in the form of a stored outcome, without duplicates."""
    found = dict.fromkeys(Notice(each.code, each.message[:MAX_WARNING_LENGTH]) for each in warnings)
    return [{"code": each.code, "message": each.message} for each in list(found)[:MAX_WARNINGS]]


def warnings_in(outcome: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Return the warnings of a stored outcome."""
    return list((outcome or {}).get(WARNINGS, ()))


def has_model_error(usage: Mapping[str, int]) -> bool:
    """Return whether the answer of a step of the run is the error of its model."""
    return usage.get(MODEL_ERRORS, 0) > 0
