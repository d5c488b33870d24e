"""A Message that plays its answer says it aloud, after the text and in order; the answer never suffers."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from canvas.errors import ModelError, NodeFailure
from canvas.outcome import Finished
from components.context import AUDIO_END, AUDIO_START, THINK_END, THINK_START
from components.nodes.flow.message import message
from components.nodes.llm import read_aloud
from providers.interfaces import Services
from tests.fakes import FakeContext, FakeHttp, no_network, run


@dataclass
class Voice:
    """Speaks a sentence as its letters, later sentences sooner; notes how many were spoken at a time."""

    mute: frozenset[str] = frozenset()
    asked: list[str] = field(default_factory=list)
    under_way: int = 0
    most: int = 0

    async def synthesize(self, text: str) -> bytes:
        self.asked.append(text)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            for _ in range(20 - len(self.asked)):
                await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        if text in self.mute:
            raise ModelError("**Error**: 500, out of breath")
        return text.encode()


@dataclass
class Log:
    """Remembers what was logged."""

    warnings: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def warning(self, event: str, **about: Any) -> None:
        self.warnings.append((event, about))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.warnings]


def room(voice: Any, **world: Any) -> FakeContext:
    return FakeContext(services=Services(FakeHttp(no_network), speech=voice), log=Log(), **world)


def played(ctx: FakeContext, text: str, **params: Any) -> Mapping[str, Any]:
    outcome = run(message, {"content": [text], "auto_play": True, **params}, ctx)
    assert isinstance(outcome, Finished)
    return outcome.outputs


def heard(ctx: FakeContext) -> list[bytes]:
    """The audio that was said, in order."""
    markers = [piece for piece in ctx.pieces if piece.startswith(AUDIO_START)]
    assert all(marker.endswith(AUDIO_END) and len(marker) == 34 for marker in markers)
    return [ctx.saved[marker[1:-1]][1] for marker in markers]


def test_audio_is_written_in_order_after_the_text_and_not_stored():
    ctx = room(Voice(), globals={"sys.query": "Ann"})

    outputs = played(ctx, "Hello {sys.query}. How are you? Fine!")

    assert outputs["content"] == "Hello Ann. How are you? Fine!"
    assert "".join(ctx.pieces[:3]) == outputs["content"]
    assert heard(ctx) == [b"Hello Ann.", b"How are you?", b"Fine!"]
    assert [(name, mime) for name, _, mime in ctx.saved.values()] == [
        (f"speech-{number}.mp3", "audio/mpeg") for number in (1, 2, 3)
    ]


def test_two_sentences_are_spoken_at_a_time():
    voice = Voice()

    played(room(voice), "a. b. c. d. e. f. g. h. i. j")

    assert voice.most == read_aloud.PARALLEL_SENTENCES == 2
    assert len(voice.asked) == 10


def test_reasoning_is_not_read_aloud():
    ctx = room(Voice(), values={"LLM:A": {"content": "<think>Hm. Yes.</think>Good."}}, listened={"LLM:A"})

    played(ctx, "{LLM:A@content}")

    assert ctx.pieces[0] == f"{THINK_START}Hm. Yes.{THINK_END}Good."
    assert heard(ctx) == [b"Good."]


def test_sentence_that_cannot_be_synthesised_is_skipped_with_a_warning():
    ctx = room(Voice(mute=frozenset({"Two."})))

    played(ctx, "One. Two. Three.")

    assert heard(ctx) == [b"One.", b"Three."]
    assert [name for name, _, _ in ctx.saved.values()] == ["speech-1.mp3", "speech-3.mp3"]
    assert ctx.log.names == ["sentence_not_spoken"]


def test_unexpected_error_of_the_speech_vendor_does_not_fail_the_answer():
    class Broken:
        async def synthesize(self, text: str) -> bytes:
            raise RuntimeError("surprise")

    ctx = room(Broken())

    assert played(ctx, "One. Two.")["content"] == "One. Two."
    assert ctx.log.names == ["sentence_not_spoken"] * 2


def test_audio_that_cannot_be_stored_is_not_written():
    class Full(FakeContext):
        async def save_file(self, name: str, data: bytes, mime_type: str) -> Mapping[str, Any]:
            raise NodeFailure("This worker has no file storage.")

    ctx = Full(services=Services(FakeHttp(no_network), speech=Voice()), log=Log())

    played(ctx, "One. Two.")

    assert heard(ctx) == []
    assert ctx.log.names == ["sentence_not_spoken"] * 2


def test_without_a_speech_model_there_is_one_warning_and_no_audio():
    ctx = room(None)

    assert played(ctx, "One. Two.")["content"] == "One. Two."
    assert ctx.pieces == ["One. Two."]
    assert ctx.log.names == ["answer_not_spoken"]


@pytest.mark.parametrize("params", [{"auto_play": False}, {"stream": False}])
def test_only_a_streamed_message_with_auto_play_is_read_aloud(params: dict[str, Any]):
    voice = Voice()

    played(room(voice), "One.", **params)

    assert voice.asked == []


def test_audio_of_an_answer_is_limited():
    class Loud:
        def __init__(self) -> None:
            self.asked = 0

        async def synthesize(self, text: str) -> bytes:
            self.asked += 1
            return b"x" * (2 * 1024 * 1024)

    loud = Loud()
    ctx = room(loud)

    played(ctx, "a. " * 50)

    assert len(heard(ctx)) == 2
    assert loud.asked <= 2 + read_aloud.MAX_PENDING_SENTENCES
    assert ctx.log.names == ["speech_ends_early"]


def test_slow_speech_does_not_fail_the_answer():
    class Slow:
        def __init__(self) -> None:
            self.asked: list[str] = []
            self.left: list[str] = []

        async def synthesize(self, text: str) -> bytes:
            self.asked.append(text)
            try:
                await asyncio.Event().wait()
            finally:
                self.left.append(text)
            return b""

    slow = Slow()
    ctx = room(slow, limits={"Message": 0.02})

    assert played(ctx, "One. Two. Three.")["content"] == "One. Two. Three."
    assert ctx.log.names == ["speech_ends_early"]
    assert sorted(slow.left) == sorted(slow.asked)


def test_a_second_attempt_says_the_same():
    first, second = room(Voice()), room(Voice())

    played(first, "One. Two.")
    played(second, "One. Two.")

    assert first.said == second.said
