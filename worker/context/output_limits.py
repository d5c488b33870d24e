"""Limits of what one attempt may store and stream, so that it does not harm other runs."""

from dataclasses import dataclass
from typing import Any, cast

from canvas.errors import NodeFailure


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """Limits in code points. A node that exceeds one fails."""

    output: int = 64 * 1024 * 1024  # of everything that one report stores: outputs, inputs and variables together
    streamed: int = 2 * 1024 * 1024  # of all that one attempt streams
    depth: int = 200  # levels of objects and lists in each other

    def check_output(self, value: Any, before: int = 0) -> int:
        """Return the size of a JSON value, plus `before`. Raises NodeFailure if it is too large or too deep.

        Nothing is copied.
        """
        left = self.output - before
        stack = [(value, 0)]
        while stack:
            top, level = stack.pop()
            if isinstance(top, str):
                left -= len(top)
            elif isinstance(top, dict):
                left -= 16 * len(top)
                stack.extend((item, level + 1) for item in cast("dict[str, Any]", top).values())
            elif isinstance(top, list):
                left -= 8 * len(top)
                stack.extend((item, level + 1) for item in cast("list[Any]", top))
            if level > self.depth:
                raise NodeFailure(
                    f"An output is nested deeper than {self.depth} levels. "
                    "Return it flat, or as a text, or raise EASEL_MAX_DEPTH."
                )
            if left < 0:
                raise NodeFailure(
                    f"The node's values are together larger than {self.output} characters. "
                    "Make them smaller, or raise EASEL_MAX_OUTPUT."
                )
        return self.output - left

    def check_streamed(self, length: int) -> None:
        """Raise NodeFailure if a streamed text is too long."""
        if length > self.streamed:
            raise NodeFailure(
                f"The node has streamed more than {self.streamed} characters. "
                "Limit the length of its answer (max_tokens), or raise EASEL_MAX_STREAM_CHARS."
            )
