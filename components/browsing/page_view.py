"""A page as a model sees it: where it is, what can be used, what there is to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from providers.models.text.sanitizer import clean

MOST_ELEMENTS = 150
LONGEST_NAME = 120  # characters
LONGEST_VALUE = 200


@dataclass(frozen=True, slots=True)
class Element:
    """Something on a page that can be used."""

    role: str
    name: str
    value: str = ""
    states: Sequence[str] = ()  # checked, disabled, ...
    options: Sequence[str] = ()  # of a list to select from

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> "Element":
        """An element as page.js describes it."""
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
    """What there is to see. `above` and `below` count screens that scrolling would show."""

    url: str
    title: str = ""
    elements: Sequence[Element] = ()
    text: str = ""
    above: float = 0.0
    below: float = 0.0
    remarks: Sequence[str] = ()  # open tabs, dialogs, files downloaded, what went wrong with the page

    def shown(self) -> str:
        lines = ["# The page now", f"Address: {_line(self.url, 500)}", f"Title: {_line(self.title, 200)}"]
        lines.append(f"Screens above: {self.above:.1f}, below: {self.below:.1f}")
        lines += [_line(remark, 500) for remark in self.remarks]
        listed = [f"[{number}] {element.shown()}" for number, element in enumerate(self.elements, 1)]
        lines += ["", "## Elements", *(listed or ["(none)"]), "", "## Text", clean(self.text) or "(none)"]
        return "\n".join(lines)


def _line(value: Any, longest: int) -> str:
    """A text from a page, on one line."""
    text = " ".join(clean(str(value or "")).split())
    return text if len(text) <= longest else text[: longest - 3] + "..."
