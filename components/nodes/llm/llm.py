"""LLM (alias Generate): one question to a model.

DSL: `llm_id`, `sys_prompt`, `prompts`, the generation parameters and their switches, `thinking`, `cite`,
`visual_files_var`, `outputs.structured` (a JSON schema), `max_retries`, `delay_after_error`,
`message_history_window_size`, and the exception policy.

There are three ways to ask, and the first that fits is taken: for a structured answer, aloud in the turn of a Message
(the node `speaks`), or plainly. Aloud, the provider layer does the authored retries, and an error is said as if it were
the answer, for its beginning may have been heard already (components E10). Otherwise the loop here asks again (E12).
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from canvas.errors import ModelError
from canvas.graph.canvas import structured_schema
from canvas.outcome import Failed, Finished, Outcome
from components.base import component
from components.context import NodeContext
from components.nodes.llm.answer_stream import Aloud, unless_empty
from components.nodes.llm.json_in_text import read_json
from components.nodes.llm.model_call import (
    NoAnswer,
    Prompt,
    PromptParams,
    assemble,
    base_delay,
    fallback,
    is_error,
    pause,
    request,
)
from components.nodes.llm.prompts import structured_output_guide
from providers.models.text.sanitizer import without_reasoning
from providers.models.types.chat import ChatModel, ChatRequest, Completion


class LLMParams(PromptParams):
    """Checked at load; `outputs` declares the answer's schema."""

    default_outputs = ("content",)
    later_outputs = ("thinking",)


@component("LLM", LLMParams, effect="idempotent")
async def llm(params: LLMParams, ctx: NodeContext) -> Outcome:
    if not ctx.heard:
        return Finished()
    return await answer_to(params, ctx, await assemble(params, ctx))


async def answer_to(params: PromptParams, ctx: NodeContext, prompt: Prompt) -> Outcome:
    """Ask in the way that fits the node. An Agent without tools asks like this too."""
    model = await ctx.model(params.llm_id)
    schema = answer_schema(params.outputs)
    if schema is not None:
        return await _ask_for_json(params, ctx, model, prompt, schema)
    if ctx.speaks:
        return await _ask_aloud(params, ctx, model, prompt)
    return await _ask_plainly(params, ctx, model, prompt)


def answer_schema(outputs: Any) -> Mapping[str, Any] | None:
    """The JSON schema an answer must fit: `outputs.structured`, or the `schema` or `structured` in it, with properties.

    A stored document also keeps the last answer in there, under `value`; it is no part of the schema.
    """
    schema = structured_schema({"outputs": outputs})
    if schema is None or not isinstance(schema.get("properties"), Mapping):
        return None
    return {key: part for key, part in schema.items() if key != "value"}


async def _ask_for_json(
    params: PromptParams, ctx: NodeContext, model: ChatModel, prompt: Prompt, schema: Mapping[str, Any]
) -> Outcome:
    """Until an answer holds an object or array. The default value has no part in this (components 3.4)."""
    guided = prompt.with_system(structured_output_guide(schema))
    error = ""
    try:
        call = await request(guided, params, model.spec)
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
            return Finished(outputs={"structured": structured, **unless_empty(ctx, "thinking", answer.reasoning)})
        error = "The model's answer cannot be parsed as JSON; ask for it more plainly or choose another model."
    return _failed(error)


async def _ask_plainly(params: PromptParams, ctx: NodeContext, model: ChatModel, prompt: Prompt) -> Outcome:
    """Until an answer is no error; after that the author's default value, if there is one."""
    try:
        answer = await _answer(params, ctx, model, await request(prompt, params, model.spec))
    except NoAnswer:
        default = fallback(params)
        if default is None:
            raise
        return Finished(outputs={"content": default})
    text = without_reasoning(answer.text)
    return Finished(outputs={"content": text, **unless_empty(ctx, "thinking", answer.reasoning)})


async def _answer(params: PromptParams, ctx: NodeContext, model: ChatModel, call: ChatRequest) -> Completion:
    answer = await _complete(ctx, model, call)
    for attempt in range(params.max_retries):
        if not is_error(answer.text):
            break
        await asyncio.sleep(pause(params, attempt))
        answer = await _complete(ctx, model, call)
    if is_error(answer.text):
        raise NoAnswer(answer.text, kind=answer.error.code if answer.error else None)
    return answer


async def _ask_aloud(params: PromptParams, ctx: NodeContext, model: ChatModel, prompt: Prompt) -> Outcome:
    """Every piece is said as it comes. An error, or the default value in its place, is the last piece."""
    speech = Aloud(ctx, model)
    try:
        call = await request(prompt, params, model.spec, retries=params.max_retries, retry_delay=base_delay(params))
        await speech.ask(call)
    except NoAnswer as unfit:
        speech.error = unfit.message
    return await speech.end(params)


async def _complete(ctx: NodeContext, model: ChatModel, call: ChatRequest) -> Completion:
    answer = await model.complete(call)
    ctx.spent(answer.usage)
    return answer


def _failed(error: str) -> Failed:
    """Reported, not raised: of what is raised, `comment` would make a result, and here the default is only spoken."""
    return Failed(error=error, code=ModelError.code)
