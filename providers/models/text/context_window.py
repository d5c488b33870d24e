"""Estimates the tokens of texts, and shortens messages to fit a model's context.

Tokens are estimated, not counted: the cl100k vocabulary is a download at run time, which an executor must not depend
on (docs/decisions/0006-tokens-are-estimated.md). The estimate splits a text where cl100k splits it (words with the
blank before them, up to three digits, runs of punctuation, white space) and assigns each part a number of tokens that
was measured against the real vocabulary. The measured error is within 7 % for English prose, code, JSON and CJK; French
is estimated 10 % and German 23 % too low, Cyrillic and Indic scripts 13 to 18 % too high. All callers use
`count_tokens` and `truncate_to_tokens`, so an exact vocabulary would replace only these two functions.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

FALLBACK_CONTEXT = 8192  # tokens; for models without a declared context
_FREE_SHARE = 0.97
_SYSTEM_HEAVY = 0.8  # if the system text has a larger share of both texts, it is shortened instead of the last message

_TOKEN_PART = re.compile(
    r"(?P<word>(?:[^\r\n\w]|_)?[^\W\d_]+)|(?P<digits>\d{1,3})"
    r"|(?P<marks> ?(?:[^\s\w]++|_++)++[\r\n]*)|(?P<blank>\s*[\r\n]+|\s+(?!\S)|\s+)"
)
_COMMON_WORD = 7  # letters; ASCII words up to this length are nearly always one token
_FURTHER_LETTER = 0.28  # tokens of each further letter of an ASCII word
_INNER_CAPITAL = 0.7  # tokens of each capital inside an ASCII word: namesLikeThis, CONSTANTS, base64
_FURTHER_MARK = 0.4  # tokens of each punctuation mark in a run after the second
_LONG_RUN = 20  # characters; a sentence of CJK or a page of base64 is one part, and may be cut inside

# Tokens of one character that is not ASCII, by the first code point of a range of scripts; measured per script.
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
_MAX_CHARACTER_PRICE = max(price for _, price in _SCRIPTS)
_SCRIPT_STARTS = [start for start, _ in _SCRIPTS]


def count_tokens(text: str) -> int:
    """Return the estimated number of tokens of `text`."""
    return ceil(sum(price for _, price in _split_text(text)))


def max_tokens_of(text: str) -> int:
    """Return a fast upper bound of the tokens of `text`: at most one per ASCII character."""
    return len(text) if text.isascii() else ceil(len(text) * _MAX_CHARACTER_PRICE)


def truncate_to_tokens(text: str, tokens: int) -> str:
    """Return the longest beginning of `text` with at most `tokens` tokens. Only long unbroken runs are cut inside."""
    if tokens <= 0:
        return ""
    spent, end = 0.0, 0
    for part, price in _split_text(text):
        if spent + price > tokens:
            rest = _beginning(part, int(tokens - spent)) if len(part) > _LONG_RUN or not end else ""
            return text[:end] + rest
        spent += price
        end += len(part)
    return text


def message_budget(context_tokens: int) -> int:
    """Return the tokens of a model's context that the messages of one request may use."""
    return int((context_tokens if context_tokens > 0 else FALLBACK_CONTEXT) * _FREE_SHARE)


def fit_messages(messages: Sequence[Mapping[str, Any]], max_tokens: int) -> list[dict[str, Any]]:
    """Return the messages, shortened to less than `max_tokens` (8192 if that is not positive).

    First all messages except the system messages and the last message are dropped. Then the end of the first or the
    last text is cut: the system text if it has over 80 % of both.
    """
    limit = max_tokens if max_tokens > 0 else FALLBACK_CONTEXT
    whole = [dict(message) for message in messages]
    if sum(max_tokens_of(text_of(message.get("content"))) for message in whole) < limit or _total(whole) < limit:
        return whole
    remaining = [message for message in whole[:-1] if message.get("role") == "system"] + whole[-1:]
    if _total(remaining) < limit:
        return remaining
    first, last = remaining[0], remaining[-1]
    if first is last:
        _cut(last, limit)
        return remaining
    system_tokens, last_tokens = _tokens(first), _tokens(last)
    if system_tokens + last_tokens == 0:
        return remaining
    if system_tokens / (system_tokens + last_tokens) > _SYSTEM_HEAVY:
        _cut(last, limit)
        _cut(first, limit - _tokens(last))
    else:
        _cut(first, limit)
        _cut(last, limit - _tokens(first))
    return remaining


def text_of(content: Any) -> str:
    """Return the text of a message's content, which is a text, a list of parts, or null."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)
    return ""


def message_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the estimated tokens of all contents together; images are not counted."""
    return _total(messages)


def _split_text(text: str) -> Iterator[tuple[str, float]]:
    for found in _TOKEN_PART.finditer(text):
        part = found.group()
        match found.lastgroup:
            case "word":
                yield part, _word_price(part)
            case "marks":
                yield part, _marks_price(part)
            case _:
                yield part, 1.0


def _word_price(word: str) -> float:
    if word.isascii():
        price = 1.0 + max(0, len(word) - 1 - _COMMON_WORD) * _FURTHER_LETTER
        if word.islower():
            return price
        return price + _INNER_CAPITAL * sum(1 for letter in word[2:] if letter.isupper())
    plain = sum(1 for letter in word if letter.isascii())
    return max(1.0, plain * 0.3 + sum(_character_price(letter) for letter in word if not letter.isascii()))


def _marks_price(marks: str) -> float:
    if marks.isascii():
        return 1.0 + max(0, len(marks.strip()) - 2) * _FURTHER_MARK
    return max(1.0, sum(0.5 if mark.isascii() else _character_price(mark) for mark in marks))


def _character_price(character: str) -> float:
    return _SCRIPTS[bisect_right(_SCRIPT_STARTS, ord(character)) - 1][1]


def _beginning(part: str, tokens: int) -> str:
    low, high = 0, len(part)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(part[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return part[:low]


def _total(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(_tokens(message) for message in messages)


def _tokens(message: Mapping[str, Any]) -> int:
    return count_tokens(text_of(message.get("content")))


def _cut(message: dict[str, Any], tokens: int) -> None:
    """Shorten the text of a message to `tokens`; several text parts share them in order."""
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
