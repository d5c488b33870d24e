"""DeepResearch: search, determine what is missing, search again, and answer from all the evidence.

DSL: the fields of LLM, and `tools` (tools of an Agent that bring sources: Retrieval and web searches), `query` (the
question), `depth` (1 to 4), `answers` (false: output only the evidence), `empty_response` (the answer if nothing was
found).

Lines of progress are written as reasoning: into the message stream if the node streams, else into `thinking`. An Agent
with `deep_research` does the same before it answers (components/nodes/agent/answering.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from canvas.errors import NodeFailure
from canvas.outcome import Finished, Outcome
from components.base import component
from components.context import NodeContext
from components.nodes.agent import research_prompts
from components.nodes.agent.research import BREAK, END, START, Chunk, Research, ResearchLimits, cite_evidence
from components.nodes.agent.tool_set import Function, ToolEntry, parse_entry, tool_function
from components.nodes.llm.answer_stream import AnswerListener, BufferedAnswer, StreamedAnswer, optional_output
from components.nodes.llm.model_call import (
    NoAnswer,
    PromptParams,
    assemble_prompt,
    base_delay,
    build_request,
    default_answer,
)
from components.text.templates import templates
from components.text.templates.templates import value_text
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.text.context_window import truncate_to_tokens
from providers.models.types.chat import ChatModel, Completion

DEFAULT_DEPTH, MAX_DEPTH = 3, 4

_PROGRESS_TAGS: Mapping[str, str] = {START + BREAK: "<retrieving>", END + BREAK: "</retrieving>"}


class DeepResearchParams(PromptParams):
    """Validated when the canvas is loaded, with its tools. Afterwards `tools` is a list of `ToolEntry`."""

    model_config = ConfigDict(hide_input_in_errors=True)  # tools hold keys
    default_outputs = ("content", "formalized_content", "json")
    later_outputs = ("thinking",)

    query: Any = "{sys.query}"
    tools: list[Any] = Field(default=[], repr=False, validate_default=True)
    depth: Any = DEFAULT_DEPTH
    answers: Any = True
    empty_response: Any = ""

    @field_validator("tools", mode="before")
    @classmethod
    def _sources(cls, stored: Any) -> list[Any]:
        if not isinstance(stored, list):
            raise ValueError("[DeepResearch] Tools must be a list")
        entries = [parse_entry(tool, _refuse_agent) for tool in stored]
        for number, entry in enumerate(entries):
            if not tool_function(entry, number).brings_sources:
                raise ValueError(f"[DeepResearch] Tools: {entry.component} brings no sources that could be cited")
        if not entries:
            raise ValueError("[DeepResearch] Tools are empty; add a tool that searches")
        return entries

    @field_validator("depth")
    @classmethod
    def _is_a_depth(cls, value: Any) -> int:
        return parse_depth(value, "DeepResearch")

    @field_validator("answers")
    @classmethod
    def _answers_or_not(cls, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"[DeepResearch] Answers {value} must be true or false")
        return value


@component("DeepResearch", DeepResearchParams, effect="keyed")
async def deep_research(params: DeepResearchParams, ctx: NodeContext) -> Outcome:
    question = templates.format_text(value_text(params.query), ctx.lookup).strip()
    ctx.note_input("query", question)
    model = await ctx.model(params.llm_id)
    # without an answer `content` stays empty, so no progress is streamed
    is_aloud = params.answers and ctx.is_streaming and ctx.has_reader
    listener = StreamedAnswer(ctx, model) if is_aloud else BufferedAnswer(ctx, model)
    try:
        outputs = await _research_and_answer(question, params, ctx, model, listener)
    except NodeFailure as failure:
        return await _end_failed(failure, params, listener)
    if isinstance(listener, StreamedAnswer):
        return replace(ended := await listener.end(params), outputs={**outputs, **ended.outputs})
    return Finished(outputs={**outputs, **optional_output(ctx, "thinking", listener.reasoning)})


async def gather_evidence(
    question: str, depth: int, ctx: NodeContext, model: ChatModel, sources: Sequence[Function], listener: AnswerListener
) -> tuple[list[Chunk], str]:
    """Return all evidence for a question, and its text. Progress goes to the listener as reasoning."""

    async def report_progress(line: str) -> None:
        await listener.replay(Completion("", _PROGRESS_TAGS.get(line, line)))

    found = await Research(ctx, model, sources, report_progress, ResearchLimits(depth=depth)).run(question)
    return found, await cite_evidence(found, ctx)


def evidence_prompt(text: str, model: ChatModel) -> str:
    """Return the text that tells a model to answer from the evidence; it takes at most half of the context window."""
    return research_prompts.answer_prompt(truncate_to_tokens(text, model.spec.context_tokens // 2))


def parse_depth(value: Any, component: str) -> int:
    """Return the depth of a research. Raises ValueError unless it is an integer from 1 to MAX_DEPTH."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_DEPTH:
        raise ValueError(f"[{component}] Depth {value} not supported, should be from 1 to {MAX_DEPTH}")
    return value


async def _research_and_answer(
    question: str,
    params: DeepResearchParams,
    ctx: NodeContext,
    model: ChatModel,
    listener: StreamedAnswer | BufferedAnswer,
) -> dict[str, Any]:
    """Research and answer; return the outputs."""
    empty = value_text(params.empty_response)
    found, text = list[Chunk](), ""
    if question:
        entries: list[ToolEntry] = params.tools
        sources = [tool_function(entry, number) for number, entry in enumerate(entries)]
        found, text = await gather_evidence(question, params.depth, ctx, model, sources, listener)
    outputs = {"formalized_content": text or empty, "json": [dict(chunk) for chunk in found]}
    if not question or (empty and not found):
        await listener.write(empty)
        return {**outputs, "content": empty}
    if not params.answers or not ctx.has_reader:
        return {**outputs, "content": ""}
    prompt = await assemble_prompt(params, ctx, question=question)
    system = await in_untrusted_thread(evidence_prompt, text, model)
    retries, delay = params.max_retries, base_delay(params)
    call = await build_request(prompt.with_system(system), params, model.spec, retries=retries, retry_delay=delay)
    answer = await listener.ask(call)
    if answer.error and isinstance(listener, BufferedAnswer):
        raise NoAnswer(answer.text, kind=answer.error.code)
    return {**outputs, "content": answer.text}


async def _end_failed(
    failure: NodeFailure, params: DeepResearchParams, listener: StreamedAnswer | BufferedAnswer
) -> Outcome:
    """End a failed research: write the error or the author's default value to a stream, else output the default.

    Without a default value, a node that does not stream fails.
    """
    if isinstance(listener, StreamedAnswer):
        listener.error = listener.error or failure.message
        return await listener.end(params)
    default = default_answer(params)
    if default is None:
        raise failure
    return Finished(outputs={"content": default})


def _refuse_agent(_: Any) -> Any:
    raise ValueError("a sub-agent cannot be a source")
