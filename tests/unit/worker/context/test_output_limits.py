"""Limits of what a node may return."""

from typing import Any

import pytest

from canvas.errors import NodeFailure
from worker.context.output_limits import OutputLimits


def nested(levels: int, wrap: Any) -> Any:
    """Return a text inside of so many objects or lists."""
    value: Any = "x"
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda value: {"a": value}, lambda value: [value]], ids=["objects", "lists"])
def test_output_may_have_as_many_levels_as_the_limit_and_no_more(wrap: Any):
    limits = OutputLimits(depth=3)

    limits.check_output(nested(3, wrap))
    with pytest.raises(NodeFailure, match="deeper than 3 levels"):
        limits.check_output(nested(4, wrap))
