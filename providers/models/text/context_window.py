"""How many tokens a text has, and how messages are made to fit a model's context (components 7, tools 10.3).

Tokens are estimated, not counted: the cl100k vocabulary is a download at run time, which an executor must not depend
on. The estimate cuts a text where cl100k cuts it (words with the blank before them, up to three digits, runs of
punctuation, white space) and prices each piece with rates measured against the real vocabulary. Measured that way,
English prose, code, JSON and CJK come out within 7 %, French 10 % and German 23 % too low, Cyrillic and Indic scripts
13 to 18 % too high. Everything that counts calls `count_tokens` and `cut_to`, so an exact vocabulary would replace
these two functions and nothing else.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

FALLBACK_CONTEXT = 8192  # tokens; for models whose context nobody has declared
_FREE_SHARE = 0.97
_SYSTEM_HEAVY = 0.8  # above this share of the two together, the system text is what gives way

_PIECE = re.compile(
    r"(?P<word>(?:[^\r\n\w]|_)?[^\W\d_]+)|(?P<digits>\d{1,3})"
    r"|(?P<marks> ?(?:[^\s\w]++|_++)++[\r\n]*)|(?P<blank>\s*[\r\n]+|\s+(?!\S)|\s+)"
)
_COMMON_WORD = 7  # letters; ASCII words up to here are nearly always one token
_FURTHER_LETTER = 0.28  # each letter of an ASCII word beyond
_INNER_CAPITAL = 0.7  # each capital inside an ASCII word: namesLikeThis, CONSTANTS, base64
_FURTHER_MARK = 0.4  # each mark in a run beyond the second
_LONG_RUN = 20  # letters; a sentence of CJK or a page of base64 is one piece, and is cut inside

# Price of one letter that is not ASCII, by the code point at which a range of scripts begins; measured per script.
_SCRIPTS: tuple[tuple[int, float], ...] = (
    (0x0080, 0.7),  # Latin with accents
    (0x0370, 1.1),  # Greek
    (0x0400, 0.55),  # Cyrillic
    (0x0530, 1.1),  # Armenian, Hebrew
    (0x0600, 0.9),  # Arabic
    (0x0700, 1.3),  # Indic, Thai, Georgian, ...
    (0x1E00, 0.9),  # Latin and Greek extended
    (0x2000, 1.1),  # marks, symbols, CJK punctuation, kana
    (0x3400, 1.15),  # CJK ideographs
    (0xAC00, 1.2),  # Hangul
    (0xD7B0, 1.2),  # wide forms and the rest of the first plane
    (0x10000, 2.6),  # emoji and rare ideographs
)
_DEAREST_LETTER = max(price for _, price in _SCRIPTS)
_SCRIPT_STARTS = [start for start, _ in _SCRIPTS]


def count_tokens(text: str) -> int:
    """About how many tokens a model reads in `text`."""
    return ceil(sum(price for _, price in _pieces(text)))


def most_tokens(text: str) -> int:
    """As many tokens as `text` could have, without a look at its words: at most one for a letter of ASCII."""
    return len(text) if text.isascii() else ceil(len(text) * _DEAREST_LETTER)


def truncate_to_tokens(text: str, tokens: int) -> str:
    """The longest beginning of `text` that has at most `tokens` tokens. Words stay whole; long unbroken runs do not."""
    if tokens <= 0:
        return ""
    spent, end = 0.0, 0
    for piece, price in _pieces(text):
        if spent + price > tokens:
            rest = _beginning(piece, int(tokens - spent)) if len(piece) > _LONG_RUN or not end else ""
            return text[:end] + rest
        spent += price
        end += len(piece)
    return text


def message_budget(context_tokens: int) -> int:
    """The tokens that the messages of one request may take of a model's context."""
    return int((context_tokens if context_tokens > 0 else FALLBACK_CONTEXT) * _FREE_SHARE)


def fit_messages(messages: Sequence[Mapping[str, Any]], max_tokens: int) -> list[dict[str, Any]]:
    """The messages, shortened when they do not stay under `max_tokens` (8192 if that is not positive).

    What gives way, in this order: everything but the system messages and the last message; then the end of the first
    or of the last text, the system's when it has over 80 % of the two.
    """
    limit = max_tokens if max_tokens > 0 else FALLBACK_CONTEXT
    whole = [dict(message) for message in messages]
    if sum(most_tokens(text_of(message.get("content"))) for message in whole) < limit or _total(whole) < limit:
        return whole
    kept = [message for message in whole[:-1] if message.get("role") == "system"] + whole[-1:]
    if _total(kept) < limit:
        return kept
    first, last = kept[0], kept[-1]
    if first is last:
        _cut(last, limit)
        return kept
    system_tokens, last_tokens = _tokens(first), _tokens(last)
    if system_tokens + last_tokens == 0:
        return kept
    if system_tokens / (system_tokens + last_tokens) > _SYSTEM_HEAVY:
        _cut(last, limit)
        _cut(first, limit - _tokens(last))
    else:
        _cut(first, limit)
        _cut(last, limit - _tokens(first))
    return kept


def text_of(content: Any) -> str:
    """The text of a message's content, which is text, a list of parts, or null."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)
    return ""


def message_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """The tokens of all contents together; images are not counted."""
    return _total(messages)


def _pieces(text: str) -> Iterator[tuple[str, float]]:
    for found in _PIECE.finditer(text):
        piece = found.group()
        match found.lastgroup:
            case "word":
                yield piece, _word_price(piece)
            case "marks":
                yield piece, _marks_price(piece)
            case _:
                yield piece, 1.0


def _word_price(piece: str) -> float:
    if piece.isascii():
        price = 1.0 + max(0, len(piece) - 1 - _COMMON_WORD) * _FURTHER_LETTER
        if piece.islower():
            return price
        return price + _INNER_CAPITAL * sum(1 for letter in piece[2:] if letter.isupper())
    plain = sum(1 for letter in piece if letter.isascii())
    return max(1.0, plain * 0.3 + sum(_letter_price(letter) for letter in piece if not letter.isascii()))


def _marks_price(piece: str) -> float:
    if piece.isascii():
        return 1.0 + max(0, len(piece.strip()) - 2) * _FURTHER_MARK
    return max(1.0, sum(0.5 if mark.isascii() else _letter_price(mark) for mark in piece))


def _letter_price(letter: str) -> float:
    return _SCRIPTS[bisect_right(_SCRIPT_STARTS, ord(letter)) - 1][1]


def _beginning(piece: str, tokens: int) -> str:
    low, high = 0, len(piece)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(piece[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return piece[:low]


def _total(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(_tokens(message) for message in messages)


def _tokens(message: Mapping[str, Any]) -> int:
    return count_tokens(text_of(message.get("content")))


def _cut(message: dict[str, Any], tokens: int) -> None:
    """Shorten a message's text; of several parts the text parts share what is allowed, in order."""
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = truncate_to_tokens(content, tokens)
    elif isinstance(content, list):
        parts: list[Any] = []
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                text = truncate_to_tokens(part["text"], tokens)
                tokens -= count_tokens(text)
                parts.append({**part, "text": text})
            else:
                parts.append(part)
        message["content"] = parts
