"""Reading an answer aloud: sentence by sentence, some at once, heard in their order (engine 5.5, tools 11).

A sentence's audio is kept as a file, and what is said is a marker that names it, so that no audio goes through the
turn's text, the bus or the rows of the run. An answer stands whatever becomes of its audio: a sentence that cannot be
spoken is passed over, and too much audio, or too slow, ends early. Nothing here fails the node.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from components.context import AUDIO_END, AUDIO_START, NodeContext
from components.nodes.llm.sentences import sentences
from providers.interfaces import Speech

AT_ONCE = 2  # sentences that are synthesised at the same time
AHEAD = AT_ONCE + 4  # sentences taken up before the next one is heard
MOST_BYTES = 5 * 1024 * 1024  # of audio in one answer
PART_OF_THE_LIMIT = 0.5  # of the node's time: speech that takes longer must not cost the answer
COMPONENT = "Message"
MIME_TYPE = "audio/mpeg"


async def read_aloud(ctx: NodeContext, text: str) -> None:
    """Say a text's audio, as far as there is a model for it."""
    speech = ctx.services.speech
    if speech is None:
        ctx.log.warning("answer_not_spoken", reason="the tenant has no text-to-speech model")
        return
    limit = asyncio.timeout(ctx.time_limit(COMPONENT) * PART_OF_THE_LIMIT)
    number = size = 0
    try:
        async with limit, aclosing(_in_order(ctx, speech, text)) as audios:
            async for audio in audios:
                number += 1
                size += len(audio)
                if size > MOST_BYTES:
                    ctx.log.warning("speech_ends_early", reason="too much audio", sentence=number)
                    return
                if audio:
                    await _say(ctx, number, audio)
    except TimeoutError:
        if not limit.expired():
            raise
        ctx.log.warning("speech_ends_early", reason="too slow")


async def _say(ctx: NodeContext, number: int, audio: bytes) -> None:
    try:
        file = await ctx.save_file(f"speech-{number}.mp3", audio, MIME_TYPE)
    except Exception as error:  # noqa: BLE001 (storage fails in its own ways, and the answer stands without its audio)
        _passed_over(ctx, error)
    else:
        await ctx.say(f"{AUDIO_START}{file['doc_id']}{AUDIO_END}")


async def _in_order(ctx: NodeContext, speech: Speech, text: str) -> AsyncGenerator[bytes]:
    """The audio of every sentence, in order; nothing for one that failed. Leaving it stops what is under way."""
    places = asyncio.Semaphore(AT_ONCE)
    ahead: deque[asyncio.Task[bytes]] = deque()
    try:
        for sentence in sentences(text):
            ahead.append(asyncio.create_task(_audio(ctx, speech, sentence, places)))
            if len(ahead) == AHEAD:
                yield await ahead.popleft()
        while ahead:
            yield await ahead.popleft()
    finally:
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)


async def _audio(ctx: NodeContext, speech: Speech, sentence: str, places: asyncio.Semaphore) -> bytes:
    async with places:
        try:
            return await speech.synthesize(sentence)
        except Exception as error:  # noqa: BLE001 (whatever a vendor does, the sentence is passed over, engine 5.5)
            _passed_over(ctx, error)
            return b""


def _passed_over(ctx: NodeContext, error: Exception) -> None:
    ctx.log.warning("sentence_not_spoken", error_type=type(error).__name__, error=str(error).partition("\n")[0][:200])
