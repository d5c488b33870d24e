"""LLM (alias Generate): one question to a model.

DSL: `llm_id`, `sys_prompt`, `prompts`, the generation parameters and their switches, `thinking`, `cite`,
`visual_files_var`, `outputs.structured` (a JSON schema), `max_retries`, `delay_after_error`,
`message_history_window_size`, and the exception policy.

There are three ways to ask, and the first that fits is taken: for a structured answer, aloud in the turn of a Message
(the node `speaks`), or plainly. Aloud, the provider layer does the authored retries, and an error is said as if it were
the answer, for its beginning may have been heard already (components E10). Otherwise the loop here asks again (E12).
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import json_repair

from canvas.errors import ModelError
from canvas.outcome import Failed, Finished, Outcome
from components.base import component
from components.context import THINK_END, THINK_START, NodeContext
from components.model_call import (
    NoAnswer,
    Prompt,
    PromptParams,
    assemble,
    base_delay,
    fallback,
    is_error,
    join_sections,
    pause,
    request,
)
from components.prompts import structured_output_guide
from components.templates import value_text
from providers.chat import (
    CallsDelta,
    ChatModel,
    ChatRequest,
    Completion,
    ErrorDelta,
    ReasoningDelta,
    TextDelta,
    UsageDelta,
)
from providers.cleaning import clean, without_reasoning


class LLMParams(PromptParams):
    """Checked at load; `outputs` declares the answer's schema."""

    default_outputs = ("content",)


@component("LLM", LLMParams, effect="idempotent")
async def llm(params: LLMParams, ctx: NodeContext) -> Outcome:
    if not ctx.heard:
        return Finished()
    prompt = await assemble(params, ctx)
    model = await ctx.model(params.llm_id)
    schema = answer_schema(params.outputs)
    if schema is not None:
        return await _ask_for_json(params, ctx, model, prompt, schema)
    if ctx.speaks:
        return await _ask_aloud(params, ctx, model, prompt)
    return await _ask_plainly(params, ctx, model, prompt)


def answer_schema(outputs: Any) -> Mapping[str, Any] | None:
    """The JSON schema an answer must fit: `outputs.structured`, if it names properties.

    A stored document also keeps the last answer in there, under `value`; it is no part of the schema.
    """
    schema = outputs.get("structured") if isinstance(outputs, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping) or not schema["properties"]:
        return None
    return {key: part for key, part in schema.items() if key != "value"}


def read_json(answer: str) -> dict[str, Any] | list[Any] | None:
    """The object or array in an answer, repaired where it is damaged; None if there is none.

    Reasoning and a fence around it do not count. What comes out can be stored: no NaN, no infinity, no NUL.
    """
    body = without_reasoning(answer).rpartition("```json")[2].rstrip().removesuffix("```")
    try:
        plain = _plain(json_repair.loads(body))
    except (ValueError, RecursionError):  # nested deeper than anyone asked for
        return None
    return plain if isinstance(plain, dict | list) else None


async def _ask_for_json(
    params: LLMParams, ctx: NodeContext, model: ChatModel, prompt: Prompt, schema: Mapping[str, Any]
) -> Outcome:
    """Until an answer holds an object or array. The default value has no part in this (components 3.4)."""
    guided = replace(prompt, system=join_sections(prompt.system, structured_output_guide(schema)))
    error = ""
    try:
        call = request(guided, params, model.spec)
    except NoAnswer as unfit:
        return _failed(unfit.message)
    for attempt in range(params.max_retries + 1):
        if attempt:
            await asyncio.sleep(pause(params, attempt - 1))
        answer = await _complete(ctx, model, call)
        if is_error(answer.text):
            error = answer.text
            continue
        structured = read_json(answer.text)
        if structured is not None:
            return Finished(outputs={"structured": structured, **_thinking(ctx, answer.reasoning)})
        error = "The model's answer cannot be parsed as JSON; ask for it more plainly or choose another model."
    return _failed(error)


async def _ask_plainly(params: LLMParams, ctx: NodeContext, model: ChatModel, prompt: Prompt) -> Outcome:
    """Until an answer is no error; after that the author's default value, if there is one."""
    try:
        answer = await _answer(params, ctx, model, request(prompt, params, model.spec))
    except NoAnswer:
        default = fallback(params)
        if default is None:
            raise
        return Finished(outputs={"content": default})
    return Finished(outputs={"content": without_reasoning(answer.text), **_thinking(ctx, answer.reasoning)})


async def _answer(params: LLMParams, ctx: NodeContext, model: ChatModel, call: ChatRequest) -> Completion:
    answer = await _complete(ctx, model, call)
    for attempt in range(params.max_retries):
        if not is_error(answer.text):
            break
        await asyncio.sleep(pause(params, attempt))
        answer = await _complete(ctx, model, call)
    if is_error(answer.text):
        raise NoAnswer(answer.text, kind=answer.error.code if answer.error else None)
    return answer


async def _ask_aloud(params: LLMParams, ctx: NodeContext, model: ChatModel, prompt: Prompt) -> Outcome:
    """Every piece is said as it comes. An error, or the default value in its place, is the last piece."""
    speech = _Speech(ctx)
    try:
        call = request(prompt, params, model.spec, retries=params.max_retries, retry_delay=base_delay(params))
        await speech.relay(model, call)
    except NoAnswer as unfit:
        speech.error = unfit.message
    if not speech.error:
        return Finished(outputs={"content": speech.content, **_thinking(ctx, speech.reasoning)})
    default = fallback(params)
    if default is not None:
        await ctx.say(value_text(default))
        return Finished(outputs={"content": default})
    await ctx.say(speech.error)
    return Finished(outputs={"content": speech.error, "_ERROR": speech.error})


class _Speech:
    """An answer on its way to the listener, and as it will be stored: reasoning inside `<think>..</think>`."""

    def __init__(self, ctx: NodeContext) -> None:
        self._ctx = ctx
        self._stored: list[str] = []
        self._reasoning: list[str] = []
        self._thinks = False
        self.error = ""

    @property
    def content(self) -> str:
        return "".join(self._stored)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    async def relay(self, model: ChatModel, call: ChatRequest) -> None:
        """Say the whole answer. After an error nothing more is said, but the call is still paid for."""
        stream = model.stream(call)
        try:
            async for delta in stream:
                match delta:
                    case TextDelta(text):
                        await self._speak(text)
                    case ReasoningDelta(text):
                        await self._think(text)
                    case ErrorDelta():
                        self.error = self.error or str(delta)
                    case UsageDelta(usage):
                        self._ctx.spent(usage)
                    case CallsDelta():  # no tool was offered
                        pass
        finally:
            if isinstance(stream, AsyncGenerator):  # a listener that fails leaves no open connection behind
                await stream.aclose()
        await self._end_thinking()

    async def _speak(self, text: str) -> None:
        if is_error(text):
            self.error = self.error or text
        if not text or self.error:
            return
        await self._end_thinking()
        self._stored.append(text)
        await self._ctx.say(text)

    async def _think(self, text: str) -> None:
        if not text or self.error:
            return
        self._stored.append(text if self._thinks else f"<think>{text}")
        self._reasoning.append(text)
        await self._ctx.say(text if self._thinks else THINK_START + text)
        self._thinks = True

    async def _end_thinking(self) -> None:
        if self._thinks:
            self._thinks = False
            self._stored.append("</think>")
            await self._ctx.say(THINK_END)


def _plain(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case float():
            return value if math.isfinite(value) else None
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {clean(str(key)): _plain(item) for key, item in value.items()}
        case _:
            return value


async def _complete(ctx: NodeContext, model: ChatModel, call: ChatRequest) -> Completion:
    answer = await model.complete(call)
    ctx.spent(answer.usage)
    return answer


def _thinking(ctx: NodeContext, reasoning: str) -> dict[str, str | None]:
    """The output `thinking`, where the model reported its reasoning; an earlier pass leaves none behind."""
    if reasoning or ctx.previous_output("thinking") is not None:
        return {"thinking": reasoning or None}
    return {}


def _failed(error: str) -> Failed:
    """Reported, not raised: of what is raised, `comment` would make a result, and here the default is only spoken."""
    return Failed(error=error, code=ModelError.code)
