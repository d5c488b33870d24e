"""Checks of the arguments of the two querit.ai tools.

A check returns the value to send, or raises ValueError. Values written by the author are checked when the canvas is
loaded (`canvas_check`); values from references and models are checked when the tool is called (`check_argument`).
"""

import re
from collections.abc import Callable
from datetime import date
from typing import Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from canvas.errors import ToolError
from components.tools.framework.parameters import may_have_references, parse_list, text_list, whole_number

FORMATS = ("text", "markdown", "html")
MAX_CHUNKS = 3  # of a page
MAX_URLS = 10
MAX_CRAWL_SECONDS = 60

_RELATIVE_RANGE = re.compile(r"[dwmy][1-9]\d{0,5}")
_DATE_RANGE = re.compile(r"(\d{4}-\d\d-\d\d)to(\d{4}-\d\d-\d\d)")

Check = Callable[[Any], Any]


def canvas_check(check: Check, *, may_be_empty: bool = False) -> BeforeValidator:
    """Return the check of a stored value. Null, values with references and, if `may_be_empty`, empty ones pass."""

    def check_value(value: Any) -> Any:
        items = value if isinstance(value, list | tuple) else [value]
        is_open = value is None or any(map(may_have_references, items)) or (may_be_empty and not value)
        return value if is_open else check(value)

    return BeforeValidator(check_value)


def check_argument(check: Check, value: Any) -> Any:
    """Check an argument's value and return it. Raises ToolError."""
    try:
        return check(value)
    except ValueError as error:
        raise ToolError(str(error)) from None


def query(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("Querit query must be a string.")
    return value


def count(value: Any) -> int:
    number = whole_number(value)
    if number is None or number <= 0:
        raise ValueError(f"Querit count {value} not supported, should be positive integer")
    return number


def chunks(value: Any) -> int:
    number = whole_number(value)
    if number is None or not 1 <= number <= MAX_CHUNKS:
        raise ValueError(f"Querit chunks_per_doc must be an integer from 1 to {MAX_CHUNKS}.")
    return number


def strings(name: str) -> Callable[[Any], list[str]]:
    """Return the check of a list of texts, for the argument of this name."""

    def check(value: Any) -> list[str]:
        items = [] if value == "" else parse_list(value)
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
            raise ValueError(f"Querit {name} must be a list of strings.")
        return text_list(items)

    return check


def time_range(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else "?"
    if text and not (_RELATIVE_RANGE.fullmatch(text) or _is_date_range(text)):
        raise ValueError("Querit time_range must be dN, wN, mN or yN with N from 1, or YYYY-MM-DDtoYYYY-MM-DD.")
    return text


def urls(value: Any) -> list[str]:
    """Check a list of addresses, or a comma-separated text of them."""
    items = text_list(value) if isinstance(value, str) else value
    are_few = isinstance(items, list | tuple) and 1 <= len(items) <= MAX_URLS
    if not are_few or not all(isinstance(item, str) and item.strip() for item in items):
        raise ValueError(f"Querit urls must contain between 1 and {MAX_URLS} non-empty strings.")
    addresses = [str(item).strip() for item in items]
    if not all(map(_is_web_address, addresses)):
        raise ValueError("Querit urls must be absolute HTTP or HTTPS URLs.")
    return addresses


def page_format(value: Any) -> str:
    if value not in FORMATS:
        raise ValueError(f"Querit format {value} is not supported, it should be in [{', '.join(FORMATS)}]")
    return value


def crawl_timeout(value: Any) -> int:
    number = whole_number(value)
    if number is None or not 1 <= number <= MAX_CRAWL_SECONDS:
        raise ValueError(f"Querit crawl_timeout must be an integer from 1 to {MAX_CRAWL_SECONDS}.")
    return number


def extras_meta(value: Any) -> bool:
    spelled = {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(spelled, bool):
        raise ValueError("Querit extras_meta must be a boolean.")
    return spelled


def _is_date_range(text: str) -> bool:
    """Whether a text is two dates with `to` between them, the earlier one first."""
    days = _DATE_RANGE.fullmatch(text)
    try:
        return days is not None and date.fromisoformat(days[1]) <= date.fromisoformat(days[2])
    except ValueError:  # there is no such day
        return False


def _is_web_address(url: str) -> bool:
    try:
        split = urlsplit(url)
        return split.scheme.lower() in ("http", "https") and bool(split.hostname)
    except ValueError:
        return False
