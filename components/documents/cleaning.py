"""Cleaning of texts for documents: remove a model's reasoning, and characters that files cannot contain."""

import re

_OPEN, _CLOSE = "<think>", "</think>"
_GAPS = re.compile(r"\n{3,}")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]")


def without_reasoning(text: str) -> str:
    """Return a model's text without reasoning, stray think tags, more than one blank line, and outer whitespace."""
    parts: list[str] = []
    position = 0
    while (start := text.find(_OPEN, position)) >= 0:
        parts.append(text[position:start])
        end = text.find(_CLOSE, start)
        position = end + len(_CLOSE) if end >= 0 else len(text)  # reasoning without an end tag includes the rest
    parts.append(text[position:])
    answer = "".join(parts).replace(_OPEN, "").replace(_CLOSE, "")
    return _GAPS.sub("\n\n", answer).strip()


def strip_unprintable(text: str) -> str:
    """Return the text with `\\n` as line end and without control characters, which XML and fonts do not support."""
    return _UNPRINTABLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str) -> str:
    """Return a text on one line, with single spaces, for a header or footer."""
    return " ".join(strip_unprintable(text).split())
