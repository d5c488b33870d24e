"""Query parameters of lists: page, order, comma lists and flags."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends

from api.http.errors import ARGUMENT, RequestRefused

MAX_ENTRIES = 100


@dataclass(frozen=True, slots=True)
class ListPage:
    """The requested part of a list."""

    number: int
    size: int

    @property
    def offset(self) -> int:
        """The number of entries before the page."""
        return (self.number - 1) * self.size


def parse_page(page: str = "1", page_size: str = "30") -> ListPage:
    """Return the page of a query, with defaults for values that are not numbers.

    Raises RequestRefused for too long pages.
    """
    size = _number(page_size, 30)
    if size > MAX_ENTRIES:
        raise RequestRefused(ARGUMENT, f"`page_size` must not be greater than {MAX_ENTRIES}.")
    return ListPage(min(_number(page, 1), 10**9), size)


def parse_list(text: str) -> list[str]:
    """Return the entries of a comma list. Raises RequestRefused for more than 100."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if len(entries) > MAX_ENTRIES:
        raise RequestRefused(ARGUMENT, f"A list may name at most {MAX_ENTRIES} entries.")
    return entries


def parse_order(name: str, known: Collection[str]) -> str:
    """Return the order of a query. Raises RequestRefused for an unknown one."""
    if name not in known:
        raise RequestRefused(ARGUMENT, f"`orderby` is {name[:64]!r}. Use one of: {', '.join(known)}.")
    return name


def is_true(text: str) -> bool:
    """Return a flag of a query: every value except `false` is true."""
    return text.strip().lower() != "false"


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 and int(text) > 0 else default


ListPageDep = Annotated[ListPage, Depends(parse_page)]
