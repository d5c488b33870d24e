"""The cost of template calls beyond reading their arguments, in characters read or written.

    extra_cost("center", ["a", 10**9], [1, 9])   ->  10**9 and more

Most calls take time in proportion to their arguments, and that is all they cost. The calls listed here multiply: they
repeat a text, search a text for every character of another, or copy the rest of it at each step. The cost assumes the
worst values of a size; usual values stay far below any limit.
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
FROM_THE_END = {"rfind", "rindex", "rsplit", "rpartition"}  # a forward search reads each character once
PLAIN_CODECS = {"utf8", "ascii", "latin1", "iso88591", "cp1252", "utf16", "utf32"}

DIGIT_COST = 10  # the cost of each digit of precision in `round`
CHARS_SEARCHED_PER_UNIT = 8  # characters that a search passes in the time of one cost unit
BYTES_COPIED_PER_UNIT = 2500  # bytes that are copied in the time of one cost unit
PPRINT_CHAR_COST = 4  # the cost of one character in `pprint`, plus 1 for each level
MAX_ESCAPE_CHARS = 100  # characters that a codec's error handler may write for one

_WIDTH = re.compile(r"\d+")
_WRAPPED_AT = re.compile("[\t\n\x0b\x0c\r ]+")  # the whitespace at which textwrap splits words; there is more
_HUGE_WIDTH = 10**9  # the width assumed for a number of very many digits


def extra_cost(name: str, values: Sequence[Any], weights: Sequence[int], levels: int = 0) -> int:
    """Return the cost of a call beyond its values' weights; the first value is the receiver or the filter's input.

    `levels` is the depth of the deepest value.
    """
    if not values:
        return 0
    texts = [len(value) for value in values if isinstance(value, str | bytes)]
    price = 0
    if name in MULTIPLYING:
        numbers = [abs(value) for value in values[1:] if isinstance(value, int)]
        price += sum(weights) * max([0, *sorted(texts)[:-1], *numbers])
    if name in BY_ATTRIBUTE:
        price += _size(values[0]) * cost_per_item(name, values)
    match name:
        case "round":
            price += DIGIT_COST * max([0, *(abs(value) for value in values[1:] if isinstance(value, int))])
        case "format" if isinstance(values[0], str):
            price += max_width(values[0], values[1:])
        case "translate":
            tables = [table for table in values[1:] if isinstance(table, dict)]
            price += (
                texts[0] * max([0, *(_size(entry) for table in tables for entry in table.values())]) if texts else 0
            )
        case "join":
            price += _size(values[0]) * _size(values[1]) if len(values) > 1 else 0
        case "striptags" if isinstance(values[0], str):
            price += len(values[0]) * values[0].count("<") * 2 // BYTES_COPIED_PER_UNIT
        case "wordwrap" if isinstance(values[0], str):
            price += sum(map(_wrap_cost, _WRAPPED_AT.split(values[0])))
        case "pprint":
            price += weights[0] * (PPRINT_CHAR_COST + levels)
        case "encode" | "decode":
            price += _codec_cost(values)
        case _ if name in STRIPPING | FROM_THE_END and len(texts) > 1:
            price += texts[0] * texts[1] // CHARS_SEARCHED_PER_UNIT
        case _:
            pass
    return price


def cost_per_item(name: str, values: Sequence[Any]) -> int:
    """Return the cost for each item of a series in a filter that reads its attributes, or writes between items."""
    if name not in BY_ATTRIBUTE:
        return 0
    texts = [value for value in values[1:] if isinstance(value, str)]
    if name == "join":
        return sum(map(len, texts))
    return sum(1 + text.count(".") + text.count(",") for text in texts)


def max_width(pattern: str, arguments: Any) -> int:
    """Return the largest width in a format such as `%5d`; a star takes the width from the arguments."""
    widths = [_HUGE_WIDTH if len(digits) > 9 else int(digits) for digits in _WIDTH.findall(pattern)]
    values = arguments if isinstance(arguments, list | tuple) else [arguments]
    return max([0, *widths, *(abs(value) for value in values if isinstance(value, int) and "*" in pattern)])


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple | dict | set | range) else 1


def _wrap_cost(word: str) -> int:
    """Return the cost of wrapping a word: a copy for each line, and a search if it contains whitespace."""
    has_blanks = word[:1].isspace() or word[-1:].isspace() or len(word.split(maxsplit=1)) > 1
    return len(word) ** 2 // (CHARS_SEARCHED_PER_UNIT if has_blanks else BYTES_COPIED_PER_UNIT)


def _codec_cost(values: Sequence[Any]) -> int:
    """Return the cost of a codec: some search the text for every character, some error handlers write long names."""
    codec = values[1] if len(values) > 1 and isinstance(values[1], str) else "utf8"
    is_plain = codec.lower().replace("-", "").replace("_", "") in PLAIN_CODECS
    size = _size(values[0])
    return size * MAX_ESCAPE_CHARS * (len(values) > 2) + (0 if is_plain else size * size // CHARS_SEARCHED_PER_UNIT)
