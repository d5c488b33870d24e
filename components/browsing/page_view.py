"""The text that shows a page to a model: its address, its usable elements, and its text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from providers.models.text.sanitizer import clean

MAX_ELEMENTS = 150
MAX_NAME_CHARS = 120
MAX_VALUE_CHARS = 200


@dataclass(frozen=True, slots=True)
class PageElement:
    """A usable element of a page: a link, a button, a field."""

    role: str
    name: str
    value: str = ""
    states: Sequence[str] = ()  # checked, disabled, ...
    options: Sequence[str] = ()  # of a list to select from

    @classmethod
    def from_description(cls, found: Mapping[str, Any]) -> "PageElement":
        """Build an element from the description that page.js returns."""
        return cls(
            _one_line(found.get("role"), 40),
            _one_line(found.get("name"), MAX_NAME_CHARS),
            _one_line(found.get("value"), MAX_VALUE_CHARS),
            tuple(_one_line(state, 40) for state in found.get("states") or ()),
            tuple(_one_line(option, 60) for option in found.get("options") or ()),
        )

    def to_text(self) -> str:
        parts = [self.role, f'"{self.name}"']
        if self.value:
            parts.append(f'value="{self.value}"')
        parts += self.states
        if self.options:
            parts.append("options: " + " | ".join(self.options))
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class PageView:
    """The visible part of a page. `above` and `below` count the screens that scrolling would show."""

    url: str
    title: str = ""
    elements: Sequence[PageElement] = ()
    text: str = ""
    above: float = 0.0
    below: float = 0.0
    remarks: Sequence[str] = ()  # open tabs, dialogs, downloaded files, problems of the page

    def to_text(self) -> str:
        lines = ["# The page now", f"Address: {_one_line(self.url, 500)}", f"Title: {_one_line(self.title, 200)}"]
        lines.append(f"Screens above: {self.above:.1f}, below: {self.below:.1f}")
        lines += [_one_line(remark, 500) for remark in self.remarks]
        listed = [f"[{number}] {element.to_text()}" for number, element in enumerate(self.elements, 1)]
        lines += ["", "## Elements", *(listed or ["(none)"]), "", "## Text", clean(self.text) or "(none)"]
        return "\n".join(lines)


def _one_line(value: Any, longest: int) -> str:
    """Return a text from a page on one line, cut to `longest` characters."""
    text = " ".join(clean(str(value or "")).split())
    return text if len(text) <= longest else text[: longest - 3] + "..."
