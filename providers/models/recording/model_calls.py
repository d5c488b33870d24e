"""A model call as it is recorded, and the journal key under which its result is, or would be, recorded.

A call may take several requests (`tries`). The layers below the recording model add to the call's `CallProgress`; it
travels in the request, because four modules between both have nothing to do with records.

    with journal_place("round:0"):            # an Agent's round: its calls have the key "round:0"
        await model.complete(request)
    with journal_place("call:0:1", inside="0:1", component="Retrieval"):
        await tool(...)                       # "call:0:1"; of a sub-agent in it: "0:1/round:0"
"""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from providers.models.types.chat import CallProgress, ChatRequest, ModelSpec, Usage

CallStatus = Literal["ok", "failed", "cancelled", "cut"]
"""`cut`: the answer ended with an error after a part of it had arrived."""


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """Where a call is made. `components` are the tools around it, the outermost first."""

    prefix: str = ""
    key: str | None = None
    components: tuple[str, ...] = ()


_OUTSIDE = JournalPlace()
_place: ContextVar[JournalPlace] = ContextVar("journal_place", default=_OUTSIDE)


@contextmanager
def journal_place(key: str, *, inside: str = "", component: str = "") -> Generator[None]:
    """Give the calls in the block a journal key; `inside` is the prefix of the keys that the block itself uses."""
    around = _place.get()
    prefix = f"{around.prefix}{inside}/" if inside else around.prefix
    components = (*around.components, component) if component else around.components
    token = _place.set(JournalPlace(prefix, around.prefix + key, components))
    try:
        yield
    finally:
        _place.reset(token)


def current_key() -> str | None:
    """Return the journal key of calls that are made here; None outside of any."""
    return _place.get().key


@dataclass(slots=True, eq=False)
class ModelCall:
    """One call of a model. Times are those of the monotonic clock, in seconds.

    A call of a chat model has a `request`; any other has the `texts` that were sent, or the `content` of a recording.
    `response` is JSON. `status` is None until the call ends.
    """

    kind: str  # chat | embedding | rerank | speech | transcription
    spec: ModelSpec
    request: ChatRequest | None = None
    texts: tuple[str, ...] = ()
    content: bytes = b""
    progress: CallProgress = field(default_factory=CallProgress)
    place: JournalPlace = field(default_factory=_place.get)
    began: float = field(default_factory=time.monotonic)
    first_token: float | None = None
    ended: float | None = None
    status: CallStatus | None = None
    error: str = ""
    usage: Usage = field(default_factory=Usage)
    response: Mapping[str, Any] | None = None

    def note_token(self) -> None:
        """Note that a part of the answer has arrived."""
        if self.first_token is None:
            self.first_token = time.monotonic()

    def end(self, status: CallStatus, error: str = "", response: Mapping[str, Any] | None = None) -> None:
        """End the call. A call that has ended does not change."""
        if self.status is None:
            self.ended, self.error, self.response = time.monotonic(), error, response
            self.status = status  # last: another thread reads the rest once it is set


class CallRecorder(Protocol):
    """Records the calls of one attempt."""

    def add(self, call: ModelCall) -> None:
        """Add a call that begins."""
        ...

    def discard(self, call: ModelCall) -> None:
        """Remove a call that was not sent, because the attempt is postponed or a budget refuses the call."""
        ...
