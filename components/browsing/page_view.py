"""The text that shows a page to a model: its address, its usable elements, and its text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from providers.models.text.sanitizer import clean

MOST_ELEMENTS = 150
LONGEST_NAME = 120  # characters
LONGEST_VALUE = 200


@dataclass(frozen=True, slots=True)
class Element:
    """A usable element of a page: a link, a button, a field."""

    role: str
    name: str
    value: str = ""
    states: Sequence[str] = ()  # checked, disabled, ...
    options: Sequence[str] = ()  # of a list to select from

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> "Element":
        """Build an element from the description that page.js returns."""
        return cls(
            _line(found.get("role"), 40),
            _line(found.get("name"), LONGEST_NAME),
            _line(found.get("value"), LONGEST_VALUE),
            tuple(_line(state, 40) for state in found.get("states") or ()),
            tuple(_line(option, 60) for option in found.get("options") or ()),
        )

    def shown(self) -> str:
        parts = [self.role, f'"{self.name}"']
        if self.value:
            parts.append(f'value="{self.value}"')
        parts += self.states
        if self.options:
            parts.append("options: " + " | ".join(self.options))
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class View:
    """The visible part of a page. `above` and `below` count the screens that scrolling would show."""

    url: str
    title: str = ""
    elements: Sequence[Element] = ()
    text: str = ""
    above: float = 0.0
    below: float = 0.0
    remarks: Sequence[str] = ()  # open tabs, dialogs, downloaded files, problems of the page

    def shown(self) -> str:
        lines = ["# The page now", f"Address: {_line(self.url, 500)}", f"Title: {_line(self.title, 200)}"]
        lines.append(f"Screens above: {self.above:.1f}, below: {self.below:.1f}")
        lines += [_line(remark, 500) for remark in self.remarks]
        listed = [f"[{number}] {element.shown()}" for number, element in enumerate(self.elements, 1)]
        lines += ["", "## Elements", *(listed or ["(none)"]), "", "## Text", clean(self.text) or "(none)"]
        return "\n".join(lines)


def _line(value: Any, longest: int) -> str:
    """Return a text from a page on one line, cut to `longest` characters."""
    text = " ".join(clean(str(value or "")).split())
    return text if len(text) <= longest else text[: longest - 3] + "..."
