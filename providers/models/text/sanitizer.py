"""Cleans the text of models for storage and speech: no NUL, lone surrogates or markers of ours, reasoning separated.

Both classes work on streams that may be split anywhere: what is held back at the end of one part is returned with the
next part, or by `flush()`. The joined output does not depend on how the input was split.
"""

from providers.models.types.chat import ContentDelta, ReasoningDelta

_OPEN, _CLOSE = "<think>", "</think>"
# NUL (cannot be stored), and our speech markers
_REMOVED_CHARACTERS = dict.fromkeys(map(ord, "\0\ufdd0\ufdd1\ufdd2\ufdd3"))

SpokenDelta = ContentDelta | ReasoningDelta


class TextCleaner:
    """Removes characters that PostgreSQL, UTF-8 or the readers of a message stream cannot handle.

    A character beyond the basic plane may arrive as two surrogates in two parts; they are joined.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, part: str) -> str:
        """Return the clean text so far; a high surrogate at the end is held back."""
        text, self._held = (self._held + part).translate(_REMOVED_CHARACTERS), ""
        if text and _is_high_surrogate(text[-1]):
            text, self._held = text[:-1], text[-1]
        return _remove_invalid(text)

    def flush(self) -> str:
        """Return what is held back."""
        text, self._held = self._held, ""
        return _remove_invalid(text)


class ReasoningSplitter:
    """Separates reasoning in `<think>...</think>` at the beginning of an answer from the answer.

    Providers without a separate field for reasoning send it in this form. Later tags are part of the answer.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_open = False
        self._is_over = False

    def feed(self, part: str) -> list[SpokenDelta]:
        """Return the deltas of the next part; text that may be a tag is held back."""
        if self._is_over:
            return _text_deltas(part)
        self._held += part
        if not self._is_open:
            start = self._held.lstrip()
            if start.startswith(_OPEN):
                self._is_open, self._held = True, start[len(_OPEN) :]
            elif _OPEN.startswith(start):
                return []  # the text may still become the opening tag
            else:
                self._is_over = True
                return self.flush()
        return self._split_reasoning()

    def flush(self) -> list[SpokenDelta]:
        """Return what is held back."""
        text, self._held = self._held, ""
        return _reasoning_deltas(text) if self._is_open and not self._is_over else _text_deltas(text)

    def _split_reasoning(self) -> list[SpokenDelta]:
        thought, tag, answer = self._held.partition(_CLOSE)
        if tag:
            self._is_over, self._held = True, ""
            return [*_reasoning_deltas(thought), *_text_deltas(answer)]
        end = len(thought) - _partial_tag_length(_CLOSE, thought)
        self._held = thought[end:]
        return _reasoning_deltas(thought[:end])


def clean(text: str) -> str:
    """Return a whole text without the characters that `TextCleaner` removes."""
    return _remove_invalid(text)


def without_reasoning(text: str) -> str:
    """Return the part of a whole answer after the last `</think>`, or the whole answer if there is no such tag."""
    _, tag, answer = text.rpartition(_CLOSE)
    return answer.lstrip() if tag else text


def _remove_invalid(text: str) -> str:
    text = text.translate(_REMOVED_CHARACTERS)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _is_high_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udbff"


def _partial_tag_length(tag: str, text: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of `tag`."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-size:])), 0)


def _text_deltas(text: str) -> list[SpokenDelta]:
    return [ContentDelta(text)] if text else []


def _reasoning_deltas(text: str) -> list[SpokenDelta]:
    return [ReasoningDelta(text)] if text else []
