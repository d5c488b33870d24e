"""Text-to-speech for an answer: sentence by sentence, some at the same time, written in their order.

A sentence's audio is stored as a file, and only a marker with the file's id is written, so that no audio passes through
the message stream, Redis or the rows of the run. Audio never fails the node: a sentence that cannot be synthesised is
skipped, and audio that gets too large or too slow ends early.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from components.context import AUDIO_END, AUDIO_START, NodeContext
from components.nodes.llm.sentences import spoken_sentences
from providers.interfaces import Speech

PARALLEL_SENTENCES = 2  # sentences that are synthesised at the same time
MAX_PENDING_SENTENCES = PARALLEL_SENTENCES + 4  # sentences begun before the first of them is written
MAX_AUDIO_BYTES = 5 * 1024 * 1024  # of audio in one answer
TIME_LIMIT_SHARE = 0.5  # the share of the node's time limit for speech, so that slow speech does not fail the answer
COMPONENT = "Message"
MIME_TYPE = "audio/mpeg"


async def read_aloud(ctx: NodeContext, text: str) -> None:
    """Write the audio of a text, if the tenant has a text-to-speech model."""
    speech = ctx.services.speech
    if speech is None:
        ctx.log.warning("answer_not_spoken", reason="the tenant has no text-to-speech model")
        return
    limit = asyncio.timeout(ctx.time_limit(COMPONENT) * TIME_LIMIT_SHARE)
    number = size = 0
    try:
        async with limit, aclosing(_iter_audio(ctx, speech, text)) as audios:
            async for audio in audios:
                number += 1
                size += len(audio)
                if size > MAX_AUDIO_BYTES:
                    ctx.log.warning("speech_ends_early", reason="too much audio", sentence=number)
                    return
                if audio:
                    await _write_audio(ctx, number, audio)
    except TimeoutError:
        if not limit.expired():
            raise
        ctx.log.warning("speech_ends_early", reason="too slow")


async def _write_audio(ctx: NodeContext, number: int, audio: bytes) -> None:
    try:
        file = await ctx.save_file(f"speech-{number}.mp3", audio, MIME_TYPE)
    except Exception as error:  # noqa: BLE001 (storage may fail in any way; the answer stays without this audio)
        _log_skipped(ctx, error)
    else:
        await ctx.write(f"{AUDIO_START}{file['doc_id']}{AUDIO_END}")


async def _iter_audio(ctx: NodeContext, speech: Speech, text: str) -> AsyncGenerator[bytes]:
    """Yield the audio of every sentence in order, b"" for one that failed. Closing the generator cancels the rest."""
    places = asyncio.Semaphore(PARALLEL_SENTENCES)
    ahead: deque[asyncio.Task[bytes]] = deque()
    try:
        for sentence in spoken_sentences(text):
            ahead.append(asyncio.create_task(_synthesize(ctx, speech, sentence, places)))
            if len(ahead) == MAX_PENDING_SENTENCES:
                yield await ahead.popleft()
        while ahead:
            yield await ahead.popleft()
    finally:
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)


async def _synthesize(ctx: NodeContext, speech: Speech, sentence: str, slots: asyncio.Semaphore) -> bytes:
    async with slots:
        try:
            return await speech.synthesize(sentence)
        except Exception as error:  # noqa: BLE001 (whatever the vendor's error, only this sentence is skipped)
            _log_skipped(ctx, error)
            return b""


def _log_skipped(ctx: NodeContext, error: Exception) -> None:
    ctx.log.warning("sentence_not_spoken", error_type=type(error).__name__, error=str(error).partition("\n")[0][:200])
