"""Chunking: a text is split into whole paragraphs where they fit, else whole sentences, up to a number of tokens.

A chunk begins with the end of the previous one (the overlap), so that a sentence at the border is found with its
context. The new parts of all chunks together are the text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from components.nodes.llm import sentences
from providers.models.text.context_window import count_tokens, truncate_to_tokens

MIN_TOKENS, MAX_TOKENS = 1, 8192  # tokens of a chunk: the limits of the setting
DEFAULTS: Mapping[str, int] = {"chunk_token_num": 512, "overlapped_percent": 10}

_PARAGRAPH = re.compile(r"(?<=\n)[ \t]*\n\s*|(?<=\n)(?=#{1,6} )")  # blank lines, and before a heading of Markdown
_MAX_TOKEN_LENGTH = 64  # letters, except runs of blanks; sizes the window over a text without sentence ends


@dataclass(frozen=True, slots=True)
class OverlappingChunk:
    """A chunk: the overlap with the previous one, and the new text."""

    overlap: str
    new: str

    @property
    def text(self) -> str:
        """The whole chunk."""
        return self.overlap + self.new


def split_text(text: str, tokens: int, overlap: int = 0) -> Iterator[OverlappingChunk]:
    """Yield the chunks of a text, each of at most `tokens`, with up to `overlap` tokens repeated of the previous one.

    Chunks of white space only are left out.
    """
    room = tokens - overlap
    repeated, new = "", list[tuple[str, int]]()
    for part in _text_parts(text, room):
        if new and sum(size for _, size in new) + part[1] > room:
            yield from _build_chunks(repeated, new, tokens)
            repeated = _last_parts(new, overlap)
            new = []
        new.append(part)
    yield from _build_chunks(repeated, new, tokens)


def chunk_texts(text: str, parser: Mapping[str, Any]) -> list[str]:
    """Return the texts of all chunks, with the sizes of a base's parser settings."""
    return [cut.text.strip() for cut in split_text(text, *chunk_sizes(parser))]


def chunk_sizes(parser: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens of a chunk and of its overlap, from a base's parser settings."""
    tokens = _bounded_int(parser.get("chunk_token_num"), DEFAULTS["chunk_token_num"], MIN_TOKENS, MAX_TOKENS)
    percent = _bounded_int(parser.get("overlapped_percent"), DEFAULTS["overlapped_percent"], 0, 50)
    return tokens, tokens * percent // 100


def _bounded_int(value: Any, default: int, least: int, most: int) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(max(int(value), least), most) if is_number else default


def _build_chunks(repeated: str, new: Sequence[tuple[str, int]], tokens: int) -> Iterator[OverlappingChunk]:
    """Yield the parts as one chunk, or as several if joining them results in more tokens than allowed."""
    text = "".join(part for part, _ in new)
    if not text.strip():
        return
    if count_tokens(repeated + text) <= tokens:
        yield OverlappingChunk(repeated, text)
    elif repeated or len(new) == 1:
        yield from _build_chunks("", new, tokens) if repeated else [OverlappingChunk("", text)]
    else:
        yield from _build_chunks("", new[: len(new) // 2], tokens)
        yield from _build_chunks("", new[len(new) // 2 :], tokens)


def _last_parts(parts: Sequence[tuple[str, int]], tokens: int) -> str:
    """Return the last whole parts that fit into a number of tokens."""
    last = list[str]()
    for part, size in reversed(parts):
        tokens -= size
        if tokens < 0:
            break
        last.append(part)
    return "".join(reversed(last))


def _text_parts(text: str, most: int) -> Iterator[tuple[str, int]]:
    """Yield the parts of a text, each with its tokens.

    Parts are paragraphs, the sentences of paragraphs that are too long, and parts of sentences that are too long.
    """
    for paragraph in _paragraphs(text):
        size = count_tokens(paragraph)
        if size <= most:
            yield paragraph, size
            continue
        for sentence in sentences.split_sentences(paragraph):
            yield from _sentence_parts(sentence, most)


def _paragraphs(text: str) -> Iterator[str]:
    start = 0
    for end in chain((found.end() for found in _PARAGRAPH.finditer(text)), [len(text)]):
        if end > start:
            yield text[start:end]
            start = end


def _sentence_parts(sentence: str, most: int) -> Iterator[tuple[str, int]]:
    start = 0
    while start < len(sentence):
        ahead = sentence[start : start + most * _MAX_TOKEN_LENGTH]
        part = truncate_to_tokens(ahead, most) or ahead[:1]
        if start + len(part) < len(sentence):
            part = part[: part.rfind(" ", len(part) // 2) + 1] or part
        yield part, count_tokens(part)
        start += len(part)
