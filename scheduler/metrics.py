"""What a process counts. The entry points hand in counters; without them nothing is counted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _nothing(*_: Any) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Metrics:
    """run(status) · activation(component, outcome) · model_error(component) · lost(attempts) · fold(seconds)
    · canary(seconds) · refusal(scope, measure) · and of calls to models with a limit: waited() · postponed()
    · refused()
    """

    run: Callable[[str], None] = _nothing
    activation: Callable[[str, str], None] = _nothing
    model_error: Callable[[str], None] = _nothing
    lost: Callable[[int], None] = _nothing
    fold: Callable[[float], None] = _nothing
    canary: Callable[[float], None] = _nothing
    refusal: Callable[[str, str], None] = _nothing
    waited: Callable[[], None] = _nothing
    postponed: Callable[[], None] = _nothing
    refused: Callable[[], None] = _nothing
