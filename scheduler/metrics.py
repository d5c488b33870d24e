"""Metrics of a process. Entry points pass the counting functions; by default nothing is counted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _nothing(*_: Any) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Metrics:
    """The counting functions: run(status) · activation(component, outcome) · model_error(component) · lost(attempts)
    · advance(seconds) · probe(seconds) · refusal(scope, measure) · callback(result) · and for
    model calls under a rate limit: count_rate_limit_wait() · postponed() · count_rate_limit_refusal()
    """

    run: Callable[[str], None] = _nothing
    activation: Callable[[str, str], None] = _nothing
    model_error: Callable[[str], None] = _nothing
    lost: Callable[[int], None] = _nothing
    advance: Callable[[float], None] = _nothing
    probe: Callable[[float], None] = _nothing
    refusal: Callable[[str, str], None] = _nothing
    callback: Callable[[str], None] = _nothing
    count_rate_limit_wait: Callable[[], None] = _nothing
    postponed: Callable[[], None] = _nothing
    count_rate_limit_refusal: Callable[[], None] = _nothing
