"""Text as documents can hold it: without a model's reasoning, and without characters that files cannot carry."""

import re

_OPEN, _CLOSE = "<think>", "</think>"
_GAPS = re.compile(r"\n{3,}")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]")


def without_reasoning(text: str) -> str:
    """What a reader is to see of a model's text: no thoughts, no stray think tags, no wide gaps, no blank rim."""
    seen: list[str] = []
    position = 0
    while (start := text.find(_OPEN, position)) >= 0:
        seen.append(text[position:start])
        end = text.find(_CLOSE, start)
        position = end + len(_CLOSE) if end >= 0 else len(text)  # a thought that never ends takes the rest along
    seen.append(text[position:])
    answer = "".join(seen).replace(_OPEN, "").replace(_CLOSE, "")
    return _GAPS.sub("\n\n", answer).strip()


def printable(text: str) -> str:
    """The text with one kind of line end and without control characters, which neither XML nor fonts know."""
    return _UNPRINTABLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str) -> str:
    """A text for the rim of a page, whatever blanks and line ends its author put in."""
    return " ".join(printable(text).split())
