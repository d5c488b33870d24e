"""Model text made fit to store and to speak: no NUL, no lone surrogates, no markers of ours, reasoning set apart.

Both cleaners work on a stream whose pieces are cut anywhere: what a cleaner holds back at the end of one piece comes
out with the next, or at `rest()`. However a text is cut, the pieces put together are the same.
"""

from providers.models.types.chat import ReasoningDelta, TextDelta

_OPEN, _CLOSE = "<think>", "</think>"
_UNSPEAKABLE = dict.fromkeys(map(ord, "\0\ufdd0\ufdd1\ufdd2\ufdd3"))  # NUL cannot be stored; then our markers in speech

SpokenDelta = TextDelta | ReasoningDelta


class Cleaner:
    """Takes out what PostgreSQL, UTF-8 or the listeners could not bear.

    A character beyond the first plane may arrive as two surrogates in two pieces; they are joined.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        text, self._held = (self._held + piece).translate(_UNSPEAKABLE), ""
        if text and _is_high(text[-1]):
            text, self._held = text[:-1], text[-1]
        return _clean(text)

    def rest(self) -> str:
        text, self._held = self._held, ""
        return _clean(text)


class ReasoningSplitter:
    """Tells reasoning written as `<think>...</think>` at the beginning of an answer from the answer itself.

    Providers without a field of its own for reasoning send it so. Tags further on are part of the answer.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_open = False
        self._is_over = False

    def feed(self, piece: str) -> list[SpokenDelta]:
        if self._is_over:
            return _spoken(piece)
        self._held += piece
        if not self._is_open:
            start = self._held.lstrip()
            if start.startswith(_OPEN):
                self._is_open, self._held = True, start[len(_OPEN) :]
            elif _OPEN.startswith(start):
                return []  # all of it may still become the opening tag
            else:
                self._is_over = True
                return self.rest()
        return self._thinking()

    def rest(self) -> list[SpokenDelta]:
        text, self._held = self._held, ""
        return _thought(text) if self._is_open and not self._is_over else _spoken(text)

    def _thinking(self) -> list[SpokenDelta]:
        thought, tag, answer = self._held.partition(_CLOSE)
        if tag:
            self._is_over, self._held = True, ""
            return [*_thought(thought), *_spoken(answer)]
        kept = _tail_that_may_be(_CLOSE, thought)
        self._held = thought[len(thought) - kept :]
        return _thought(thought[: len(thought) - kept])


def clean(text: str) -> str:
    """A whole text, cleaned."""
    return _clean(text)


def without_reasoning(text: str) -> str:
    """What follows the last `</think>`; all of it if there is none (a whole answer, tools 10.5)."""
    _, tag, answer = text.rpartition(_CLOSE)
    return answer.lstrip() if tag else text


def _clean(text: str) -> str:
    text = text.translate(_UNSPEAKABLE)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _is_high(letter: str) -> bool:
    return "\ud800" <= letter <= "\udbff"


def _tail_that_may_be(tag: str, text: str) -> int:
    """How many letters at the end of `text` may be the beginning of `tag`."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-size:])), 0)


def _spoken(text: str) -> list[SpokenDelta]:
    return [TextDelta(text)] if text else []


def _thought(text: str) -> list[SpokenDelta]:
    return [ReasoningDelta(text)] if text else []
