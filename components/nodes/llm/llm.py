"""LLM (alias Generate): one request to a model.

DSL: `llm_id`, `sys_prompt`, `prompts`, the generation parameters and their switches, `thinking`, `cite`,
`visual_files_var`, `outputs.structured` (a JSON schema), `max_retries`, `delay_after_error`,
`message_history_window_size`, and the exception policy.

There are three ways to ask, and the first that applies is used: ask for a structured answer; stream the answer into a
Message; ask for a whole answer. When streaming, the provider layer does the author's retries, and an error is written
like an answer, because its beginning may already have been sent. Otherwise the loop in this module retries.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from canvas.errors import ModelError
from canvas.graph.canvas import structured_schema
from canvas.outcome import Failed, Finished, Outcome
from components.base import component
from components.context import NodeContext
from components.nodes.llm.answer_stream import StreamedAnswer, optional_output
from components.nodes.llm.model_call import (
    NoAnswer,
    Prompt,
    PromptParams,
    assemble_prompt,
    base_delay,
    build_request,
    default_answer,
    is_error,
    retry_wait,
)
from components.nodes.llm.prompts import structured_output_guide
from components.text.json_in_text import read_json
from providers.models.text.sanitizer import without_reasoning
from providers.models.types.chat import ChatModel, ChatRequest, Completion


class LLMParams(PromptParams):
    """Validated when the canvas is loaded; `outputs` declares the answer's schema."""

    default_outputs = ("content",)
    later_outputs = ("thinking",)


@component("LLM", LLMParams, effect="idempotent")
async def llm(params: LLMParams, ctx: NodeContext) -> Outcome:
    if not ctx.has_reader:
        return Finished()
    return await ask_model(params, ctx, await assemble_prompt(params, ctx))


async def ask_model(params: PromptParams, ctx: NodeContext, prompt: Prompt) -> Outcome:
    """Ask in the way that fits the node. An Agent without tools uses this as well."""
    model = await ctx.model(params.llm_id)
    schema = answer_schema(params.outputs)
    if schema is not None:
        return await _ask_for_json(params, ctx, model, prompt, schema)
    if ctx.is_streaming:
        return await _stream_answer(params, ctx, model, prompt)
    return await _ask_for_text(params, ctx, model, prompt)


def answer_schema(outputs: Any) -> Mapping[str, Any] | None:
    """Return the JSON schema of the answer: `outputs.structured`, or the `schema` or `structured` in it; None if none.

    A schema needs `properties`. A stored document also keeps the last answer there, under `value`, which is not part of
    the schema.
    """
    schema = structured_schema({"outputs": outputs})
    if schema is None or not isinstance(schema.get("properties"), Mapping):
        return None
    return {key: part for key, part in schema.items() if key != "value"}


async def _ask_for_json(
    params: PromptParams, ctx: NodeContext, model: ChatModel, prompt: Prompt, schema: Mapping[str, Any]
) -> Outcome:
    """Ask until an answer contains an object or array. The author's default value is not used here."""
    guided = prompt.with_system(structured_output_guide(schema))
    try:
        call = await build_request(guided, params, model.spec)
    except NoAnswer as error:
        return _failure(error.message)
    reason = ""
    for attempt in range(params.max_retries + 1):
        if attempt:
            await asyncio.sleep(retry_wait(params, attempt - 1))
        answer = await _complete(ctx, model, call)
        if is_error(answer.text):
            reason = answer.text
            continue
        structured = read_json(answer.text)
        if structured is not None:
            return Finished(outputs={"structured": structured, **optional_output(ctx, "thinking", answer.reasoning)})
        reason = "The model's answer cannot be parsed as JSON; ask for it more plainly or choose another model."
    return _failure(reason)


async def _ask_for_text(params: PromptParams, ctx: NodeContext, model: ChatModel, prompt: Prompt) -> Outcome:
    """Ask until an answer is not an error; if all fail, finish with the author's default value, if there is one."""
    try:
        answer = await _ask_with_retries(params, ctx, model, await build_request(prompt, params, model.spec))
    except NoAnswer:
        default = default_answer(params)
        if default is None:
            raise
        return Finished(outputs={"content": default})
    text = without_reasoning(answer.text)
    return Finished(outputs={"content": text, **optional_output(ctx, "thinking", answer.reasoning)})


async def _ask_with_retries(params: PromptParams, ctx: NodeContext, model: ChatModel, call: ChatRequest) -> Completion:
    answer = await _complete(ctx, model, call)
    for attempt in range(params.max_retries):
        if not is_error(answer.text):
            break
        await asyncio.sleep(retry_wait(params, attempt))
        answer = await _complete(ctx, model, call)
    if is_error(answer.text):
        raise NoAnswer(answer.text, kind=answer.error.code if answer.error else None)
    return answer


async def _stream_answer(params: PromptParams, ctx: NodeContext, model: ChatModel, prompt: Prompt) -> Outcome:
    """Stream the answer to the user. An error, or the default value in its place, is written last."""
    stream = StreamedAnswer(ctx, model)
    try:
        call = await build_request(
            prompt, params, model.spec, retries=params.max_retries, retry_delay=base_delay(params)
        )
        await stream.ask(call)
    except NoAnswer as error:
        stream.error = error.message
    return await stream.end(params)


async def _complete(ctx: NodeContext, model: ChatModel, call: ChatRequest) -> Completion:
    answer = await model.complete(call)
    ctx.add_usage(answer.usage)
    return answer


def _failure(error: str) -> Failed:
    """Return the failure instead of raising it: a raised error would get the default value as its result."""
    return Failed(error=error, code=ModelError.code)
