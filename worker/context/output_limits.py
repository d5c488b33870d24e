"""How much one attempt may leave behind: so much harms its neighbours before it helps anybody."""

from dataclasses import dataclass
from typing import Any, cast

from canvas.errors import NodeFailure


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """What a node may store and say at most, in code points. What goes beyond is the node's failure."""

    output: int = 64 * 1024 * 1024  # of everything that one report stores: outputs, inputs and variables together
    speech: int = 2 * 1024 * 1024  # of all that one attempt says
    depth: int = 200  # levels of objects and lists in each other

    def check_output(self, value: Any, before: int = 0) -> int:
        """Raise NodeFailure for a JSON value that is too large or too deep; else its size, and what was there `before`.

        Texts are summed without making a copy.
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

    def check_speech(self, length: int) -> None:
        """Raise NodeFailure for a text that goes on and on."""
        if length > self.speech:
            raise NodeFailure(
                f"The node has said more than {self.speech} characters. "
                "Limit the length of its answer (max_tokens), or raise EASEL_MAX_STREAM_CHARS."
            )
