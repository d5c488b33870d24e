"""JSON in a model's answer: find it, repair it if it is damaged, and make it storable.

The repair library searches ahead again and again, so that some texts would take hours. Its steps are counted, and a
text that takes too many steps counts as not repairable.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from json_repair.json_parser import JSONParser

from providers.models.text.sanitizer import clean, without_reasoning

MAX_STEPS = 4_000_000  # about a second; a repairable text of 100 KB takes a quarter of that
STEPS_PER_CALL = 5  # steps that a method call counts, on top of one for each character it passes


class _TooManySteps(ValueError):
    """Raised when repairing a text takes more than MAX_STEPS steps."""


class _LimitedParser(JSONParser):
    """The library's parser with a limit on its steps."""

    left = MAX_STEPS

    def get_char_at(self, count: int = 0) -> str | None:
        self._spend(STEPS_PER_CALL)
        return super().get_char_at(count)

    def scroll_whitespaces(self, idx: int = 0, *, backwards: bool = False) -> int:
        found = super().scroll_whitespaces(idx, backwards=backwards)
        self._spend(2 * STEPS_PER_CALL + abs(found - idx))
        return found

    def skip_to_character(self, character: str | list[str], idx: int = 0) -> int:
        found = super().skip_to_character(character, idx)
        self._spend(2 * STEPS_PER_CALL + abs(found - idx))
        return found

    def parenthesized_is_explicit_tuple(self) -> bool:
        self._spend((len(self.json_str) - self.index) // 2)  # it may search the whole rest
        return super().parenthesized_is_explicit_tuple()

    def top_level_parenthesized_can_start_value(self) -> bool:
        self._spend((len(self.json_str) - self.index) // 2)
        return super().top_level_parenthesized_can_start_value()

    def _spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise _TooManySteps("it cannot be repaired in time")


def read_json(answer: str) -> dict[str, Any] | list[Any] | None:
    """Return the object or array in an answer, repaired if it is damaged; None if there is none.

    Reasoning and a fence around the JSON are ignored. The result can be stored: no NaN, no infinity, no NUL.
    """
    found = parse_repaired(without_reasoning(answer).rpartition("```json")[2].rstrip().removesuffix("```"))
    return found if isinstance(found, dict | list) else None


def parse_repaired(text: str) -> Any:
    """Return the JSON value that a text contains, made storable by `to_storable_json`.

    Return None if the text cannot be repaired in time, or is nested too deeply.
    """
    try:
        return to_storable_json(_parse(text))
    except (ValueError, RecursionError):
        return None


def to_storable_json(value: Any) -> Any:
    """Return the value as JSON that every encoder and the database accept; a value of another type becomes text."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return clean(value)
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return [to_storable_json(item) for item in value]
        case Mapping():
            return {clean(str(key)): to_storable_json(item) for key, item in value.items()}
        case _:
            return clean(str(value))


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return _LimitedParser(text, None, False, try_valid_json_suffix=True).parse()
