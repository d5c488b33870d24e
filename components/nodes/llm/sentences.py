"""An answer as sentences that can be read aloud (engine 5.5, tools 11).

A text is cut where sentences end, in whatever language: after a full stop that something blank follows, and after
every mark of East Asian writing, semicolon or line end, together with the quotes and brackets that close behind it.
What is left of a sentence once everything is gone that has no sound may be nothing at all; such ones are passed over.
"""

import re
from collections.abc import Iterator

LONGEST = 500  # code points of one sentence
MOST_TEXT = 100_000  # code points of an answer that are read aloud: over an hour of speech

_END = re.compile(r"[。！？!?；;\n][”’\"』」】》）)]*|(?<=[.!?])(?=\s|$)")
_THOUGHT = re.compile("<think>.*?(?:</think>|$)", re.DOTALL)
_SILENT = re.compile(
    "["
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control characters but tab, line feed and carriage return
    "\ud800-\udfff\ufdd0-\ufdef\ufffd-\uffff"  # what could not be decoded, and what no text has
    "\u20e3\u231a\u231b\u23e9-\u23fa\u2600-\u27bf\u2b1b\u2b1c\u2b50\u2b55"  # pictures of the first plane
    "\u200d\ufe0e\ufe0f\U000e0020-\U000e007f"  # what joins and varies them
    "\U0001f000-\U0001faff"  # pictures
    "]"
)
_TAG = re.compile("<[^<>]+>")
_BLANKS = re.compile(r"\s+")


def sentences(text: str) -> Iterator[str]:
    """The sentences of an answer, each as it is to be read; reasoning is no part of it."""
    for piece in cut(_THOUGHT.sub("", text)[:MOST_TEXT]):
        sentence = cleaned(piece)
        if any(map(str.isalnum, sentence)):
            yield sentence


def cut(text: str) -> Iterator[str]:
    """The text in pieces that end where a sentence does; put together they are the text."""
    start = 0
    for end in _END.finditer(text):
        if end.end() > start:
            yield text[start : end.end()]
            start = end.end()
    if start < len(text):
        yield text[start:]


def cleaned(sentence: str) -> str:
    """A sentence without tags, pictures and what cannot be shown, its blanks collapsed, cut to LONGEST."""
    audible = _TAG.sub("", _SILENT.sub("", sentence))
    return _BLANKS.sub(" ", audible).strip()[:LONGEST].rstrip()
