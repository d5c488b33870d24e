"""Split an answer into sentences that can be read aloud.

A text is cut where sentences end, in any language: after a full stop followed by whitespace, and after every East Asian
end mark, semicolon or line end, together with the closing quotes and brackets behind it. Characters without a sound are
removed, and a sentence with nothing left is skipped.
"""

import re
from collections.abc import Iterator

MAX_SENTENCE_CHARS = 500  # code points of one sentence
MAX_TEXT_CHARS = 100_000  # code points of an answer that are read aloud: more than an hour of speech

_END = re.compile(r"[。！？!?；;\n][”’\"』」】》）)]*|(?<=[.!?])(?=\s|$)")
_THOUGHT = re.compile("<think>.*?(?:</think>|$)", re.DOTALL)
_INAUDIBLE = re.compile(
    "["
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control characters but tab, line feed and carriage return
    "\ud800-\udfff\ufdd0-\ufdef\ufffd-\uffff"  # replacement characters and noncharacters
    "\u20e3\u231a\u231b\u23e9-\u23fa\u2600-\u27bf\u2b1b\u2b1c\u2b50\u2b55"  # emoji of the Basic Multilingual Plane
    "\u200d\ufe0e\ufe0f\U000e0020-\U000e007f"  # joiners and variation selectors
    "\U0001f000-\U0001faff"  # emoji and pictographs
    "]"
)
_TAG = re.compile("<[^<>]+>")
_BLANKS = re.compile(r"\s+")


def spoken_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of an answer as they are read aloud, without its reasoning."""
    for part in split_sentences(_THOUGHT.sub("", text)[:MAX_TEXT_CHARS]):
        sentence = clean_sentence(part)
        if any(map(str.isalnum, sentence)):
            yield sentence


def split_sentences(text: str) -> Iterator[str]:
    """Yield the text in parts that end where a sentence ends; joined, they are the text again."""
    start = 0
    for end in _END.finditer(text):
        if end.end() > start:
            yield text[start : end.end()]
            start = end.end()
    if start < len(text):
        yield text[start:]


def clean_sentence(sentence: str) -> str:
    """Return a sentence without tags, emoji and control characters, with single spaces, cut to MAX_SENTENCE_CHARS."""
    audible = _TAG.sub("", _INAUDIBLE.sub("", sentence))
    return _BLANKS.sub(" ", audible).strip()[:MAX_SENTENCE_CHARS].rstrip()
