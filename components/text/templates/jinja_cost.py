"""What the calls of a template cost beyond reading what they are given, in characters that they read or write.

    more_for("center", ["a", 10**9], [1, 9])   ->  10**9 and more

Most calls do work that grows with what they are given, and pay for that alone. These here multiply: they repeat a text,
go through one for every character of another, or copy the rest of it at each step. A price is what the worst of values
would take, so that honest ones stay far below any bound.
"""

import re
from collections.abc import Sequence
from typing import Any

MULTIPLYING = {
    "center", "expandtabs", "indent", "ljust", "replace", "rjust", "wordwrap", "zfill", "batch", "slice", "tojson",
    "to_bytes",
}  # fmt: skip
BY_ATTRIBUTE = {
    "map", "select", "reject", "selectattr", "rejectattr", "sort", "groupby", "sum", "unique", "min", "max", "join",
}  # fmt: skip
STRIPPING = {"strip", "lstrip", "rstrip", "trim"}
FROM_THE_END = {"rfind", "rindex", "rsplit", "rpartition"}  # forwards, Python needs no second look
PLAIN_CODECS = {"utf8", "ascii", "latin1", "iso88591", "cp1252", "utf16", "utf32"}

A_DIGIT = 10  # of a number that `round` moves the point of
A_SEARCH = 8  # characters of a text that are looked through as fast as one is read otherwise
A_COPY = 2500  # bytes that are copied in the time of one character
A_LOOK = 4  # characters that `pprint` looks at again for one, and once more on each level
A_NAME = 100  # characters that an error handler of a codec may write for one

_WIDTH = re.compile(r"\d+")
_WRAPPED_AT = re.compile("[\t\n\x0b\x0c\r ]+")  # the blanks at which textwrap parts words; there are others
_BEYOND = 10**9  # for widths of very many digits


def more_for(name: str, values: Sequence[Any], weights: Sequence[int], levels: int = 0) -> int:
    """What a call costs beside its values' weights; the first value is the one it is called on, or filters.

    `levels`: how deep the values are at most.
    """
    if not values:
        return 0
    texts = [len(value) for value in values if isinstance(value, str | bytes)]
    price = 0
    if name in MULTIPLYING:
        numbers = [abs(value) for value in values[1:] if isinstance(value, int)]
        price += sum(weights) * max([0, *sorted(texts)[:-1], *numbers])
    if name in BY_ATTRIBUTE:
        price += _size(values[0]) * each_costs(name, values)
    match name:
        case "round":
            price += A_DIGIT * max([0, *(abs(value) for value in values[1:] if isinstance(value, int))])
        case "format" if isinstance(values[0], str):
            price += widest(values[0], values[1:])
        case "translate":
            tables = [table for table in values[1:] if isinstance(table, dict)]
            price += (
                texts[0] * max([0, *(_size(entry) for table in tables for entry in table.values())]) if texts else 0
            )
        case "join":
            price += _size(values[0]) * _size(values[1]) if len(values) > 1 else 0
        case "striptags" if isinstance(values[0], str):
            price += len(values[0]) * values[0].count("<") * 2 // A_COPY
        case "wordwrap" if isinstance(values[0], str):
            price += sum(map(_wrapping, _WRAPPED_AT.split(values[0])))
        case "pprint":
            price += weights[0] * (A_LOOK + levels)
        case "encode" | "decode":
            price += _coding(values)
        case _ if name in STRIPPING | FROM_THE_END and len(texts) > 1:
            price += texts[0] * texts[1] // A_SEARCH
        case _:
            pass
    return price


def each_costs(name: str, values: Sequence[Any]) -> int:
    """What each item of a series costs a filter that looks into it, or writes something between two of them."""
    if name not in BY_ATTRIBUTE:
        return 0
    texts = [value for value in values[1:] if isinstance(value, str)]
    if name == "join":
        return sum(map(len, texts))
    return sum(1 + text.count(".") + text.count(",") for text in texts)


def widest(pattern: str, arguments: Any) -> int:
    """The largest width that a text of the form `%5d` may ask for; only a star takes it from the arguments."""
    asked = [_BEYOND if len(digits) > 9 else int(digits) for digits in _WIDTH.findall(pattern)]
    given = arguments if isinstance(arguments, list | tuple) else [arguments]
    return max([0, *asked, *(abs(value) for value in given if isinstance(value, int) and "*" in pattern)])


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple | dict | set | range) else 1


def _wrapping(word: str) -> int:
    """A word is copied for each line that it is cut into, and looked through if it may be nothing but blanks."""
    has_blanks = word[:1].isspace() or word[-1:].isspace() or len(word.split(maxsplit=1)) > 1
    return len(word) ** 2 // (A_SEARCH if has_blanks else A_COPY)


def _coding(values: Sequence[Any]) -> int:
    """Some codecs look through a text for every character of it, and some handlers write long names for one."""
    codec = values[1] if len(values) > 1 and isinstance(values[1], str) else "utf8"
    is_plain = codec.lower().replace("-", "").replace("_", "") in PLAIN_CODECS
    size = _size(values[0])
    return size * A_NAME * (len(values) > 2) + (0 if is_plain else size * size // A_SEARCH)
