"""A Message with auto-play writes audio after its text, in order; a failure of speech does not fail the answer."""

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
    """Synthesizes a sentence as its bytes, later ones faster; records how many run in parallel."""

    failing: frozenset[str] = frozenset()
    requests: list[str] = field(default_factory=list)
    running: int = 0
    most: int = 0

    async def synthesize(self, text: str) -> bytes:
        self.requests.append(text)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for _ in range(20 - len(self.requests)):
                await asyncio.sleep(0)
        finally:
            self.running -= 1
        if text in self.failing:
            raise ModelError("**Error**: 500, out of breath")
        return text.encode()


@dataclass
class Log:
    """Records logged events."""

    warnings: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def warning(self, event: str, **fields: Any) -> None:
        self.warnings.append((event, fields))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.warnings]


def speech_context(voice: Any, **fields: Any) -> FakeContext:
    return FakeContext(services=Services(FakeHttp(no_network), speech=voice), log=Log(), **fields)


def play(ctx: FakeContext, text: str, **params: Any) -> Mapping[str, Any]:
    outcome = run(message, {"content": [text], "auto_play": True, **params}, ctx)
    assert isinstance(outcome, Finished)
    return outcome.outputs


def written_audio(ctx: FakeContext) -> list[bytes]:
    """Return the audio of the written markers, in order."""
    markers = [text for text in ctx.text_deltas if text.startswith(AUDIO_START)]
    assert all(marker.endswith(AUDIO_END) and len(marker) == 34 for marker in markers)
    return [ctx.saved[marker[1:-1]][1] for marker in markers]


def test_audio_is_written_in_order_after_the_text_and_not_stored():
    ctx = speech_context(Voice(), globals={"sys.query": "Ann"})

    outputs = play(ctx, "Hello {sys.query}. How are you? Fine!")

    assert outputs["content"] == "Hello Ann. How are you? Fine!"
    assert "".join(ctx.text_deltas[:3]) == outputs["content"]
    assert written_audio(ctx) == [b"Hello Ann.", b"How are you?", b"Fine!"]
    assert [(name, mime) for name, _, mime in ctx.saved.values()] == [
        (f"speech-{number}.mp3", "audio/mpeg") for number in (1, 2, 3)
    ]


def test_two_sentences_are_synthesized_in_parallel():
    voice = Voice()

    play(speech_context(voice), "a. b. c. d. e. f. g. h. i. j")

    assert voice.most == read_aloud.PARALLEL_SENTENCES == 2
    assert len(voice.requests) == 10


def test_reasoning_is_not_read_aloud():
    ctx = speech_context(
        Voice(), values={"LLM:A": {"content": "<think>Hm. Yes.</think>Good."}}, streaming_nodes={"LLM:A"}
    )

    play(ctx, "{LLM:A@content}")

    assert ctx.text_deltas[0] == f"{THINK_START}Hm. Yes.{THINK_END}Good."
    assert written_audio(ctx) == [b"Good."]


def test_sentence_that_cannot_be_synthesised_is_skipped_with_a_warning():
    ctx = speech_context(Voice(failing=frozenset({"Two."})))

    play(ctx, "One. Two. Three.")

    assert written_audio(ctx) == [b"One.", b"Three."]
    assert [name for name, _, _ in ctx.saved.values()] == ["speech-1.mp3", "speech-3.mp3"]
    assert ctx.log.names == ["sentence_not_spoken"]


def test_unexpected_error_of_the_speech_vendor_does_not_fail_the_answer():
    class Broken:
        async def synthesize(self, text: str) -> bytes:
            raise RuntimeError("surprise")

    ctx = speech_context(Broken())

    assert play(ctx, "One. Two.")["content"] == "One. Two."
    assert ctx.log.names == ["sentence_not_spoken"] * 2


def test_audio_that_cannot_be_stored_is_not_written():
    class Full(FakeContext):
        async def save_file(self, name: str, data: bytes, mime_type: str) -> Mapping[str, Any]:
            raise NodeFailure("This worker has no file storage.")

    ctx = Full(services=Services(FakeHttp(no_network), speech=Voice()), log=Log())

    play(ctx, "One. Two.")

    assert written_audio(ctx) == []
    assert ctx.log.names == ["sentence_not_spoken"] * 2


def test_without_a_speech_model_there_is_one_warning_and_no_audio():
    ctx = speech_context(None)

    assert play(ctx, "One. Two.")["content"] == "One. Two."
    assert ctx.text_deltas == ["One. Two."]
    assert ctx.log.names == ["answer_not_spoken"]


@pytest.mark.parametrize("params", [{"auto_play": False}, {"stream": False}])
def test_only_a_streamed_message_with_auto_play_is_read_aloud(params: dict[str, Any]):
    voice = Voice()

    play(speech_context(voice), "One.", **params)

    assert voice.requests == []


def test_audio_of_an_answer_is_limited():
    class Loud:
        def __init__(self) -> None:
            self.calls = 0

        async def synthesize(self, text: str) -> bytes:
            self.calls += 1
            return b"x" * (2 * 1024 * 1024)

    loud = Loud()
    ctx = speech_context(loud)

    play(ctx, "a. " * 50)

    assert len(written_audio(ctx)) == 2
    assert loud.calls <= 2 + read_aloud.MAX_PENDING_SENTENCES
    assert ctx.log.names == ["speech_ends_early"]


def test_slow_speech_does_not_fail_the_answer():
    class Slow:
        def __init__(self) -> None:
            self.requests: list[str] = []
            self.cancelled: list[str] = []

        async def synthesize(self, text: str) -> bytes:
            self.requests.append(text)
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.append(text)
            return b""

    slow = Slow()
    ctx = speech_context(slow, limits={"Message": 0.02})

    assert play(ctx, "One. Two. Three.")["content"] == "One. Two. Three."
    assert ctx.log.names == ["speech_ends_early"]
    assert sorted(slow.cancelled) == sorted(slow.requests)


def test_second_attempt_writes_the_same_audio():
    first, second = speech_context(Voice()), speech_context(Voice())

    play(first, "One. Two.")
    play(second, "One. Two.")

    assert first.streamed_text == second.streamed_text
