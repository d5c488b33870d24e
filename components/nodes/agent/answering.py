"""The answer of an Agent with tools: streamed into a Message (`stream`), or as a whole (`complete`).

The rounds of tool calls are in `components/nodes/agent/rounds.py`. When streaming, a question in an ongoing
conversation is first completed from the conversation, and the run's sources are cited: by a guide in the prompt, or, in
a long conversation, by a second request that adds the citations to the answer. As a whole, the answer may have to be
JSON.

Rounds, tool results, and the answers that later requests build on are recorded in the attempt's journal, so that the
next attempt of the activation neither asks nor acts again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from canvas.errors import ModelError, NodeFailure
from canvas.outcome import Failed, Finished, Outcome
from components.context import NodeContext
from components.nodes.agent import prompts
from components.nodes.agent.artifacts import artifact_links
from components.nodes.agent.deep_research import evidence_prompt, gather_evidence
from components.nodes.agent.rounds import (
    PARALLEL_CALLS_IN_PROMPTS,
    RoundsInPrompts,
    ToolRounds,
    load_reply,
    record_reply,
)
from components.nodes.agent.tool_calls import PARALLEL_CALLS, ToolCalls
from components.nodes.agent.tool_set import AGENT, Function
from components.nodes.llm.answer_stream import AnswerListener, BufferedAnswer, StreamedAnswer, optional_output
from components.nodes.llm.model_call import NoAnswer, Prompt, PromptParams, base_delay, build_request, default_answer
from components.nodes.llm.prompts import citation_guide, structured_output_guide
from components.text.json_in_text import read_json
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.recording.model_calls import journal_place
from providers.models.text.sanitizer import without_reasoning
from providers.models.types.chat import ChatModel, ChatRequest, Completion, ModelSpec

_MIN_MESSAGES_TO_COMPLETE = 4  # messages; in a conversation of this length the last question is completed
# messages with the system message; from this length on, a second request adds citations
_MIN_MESSAGES_TO_CITE_AFTERWARDS = 7


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """The author's settings for the answer. With a `schema` the answer is JSON and never streamed."""

    params: PromptParams
    max_rounds: int
    in_prompts: bool = False
    research_depth: int = 0  # 0: no research before the answer
    schema: Mapping[str, Any] | None = None


class _NotJson(NoAnswer):
    """Raised when no answer could be read as JSON, even after repetitions."""


class AgentAnswer:
    """One answer of an Agent with tools."""

    def __init__(
        self,
        settings: AnswerSettings,
        ctx: NodeContext,
        model: ChatModel,
        prompt: Prompt,
        functions: Mapping[str, Function],
    ) -> None:
        self._settings = settings
        self._params = settings.params
        self._ctx = ctx
        self._model = model
        self._prompt = prompt
        self._sources = [function for function in functions.values() if function.brings_sources]
        self._calls = self._create_tool_calls(functions)
        self._rounds = self._create_rounds(settings)

    # -- streamed -----------------------------------------------------------------------------------------------
    async def stream(self) -> Outcome:
        """Stream the answer. An error, or the default value in its place, is written last."""
        stream = StreamedAnswer(self._ctx, self._model)
        try:
            await self._stream_answer(stream)
            await stream.write(artifact_links(stream.content, self._calls.artifacts))
        except NoAnswer as failure:
            stream.error = stream.error or failure.message
        outcome = await stream.end(self._params)
        return replace(outcome, outputs={**outcome.outputs, **self._used_tools()})

    async def _stream_answer(self, stream: StreamedAnswer) -> None:
        prompt = await self._add_evidence(await self._complete_last_question(), stream)
        call = await self._request(prompt)
        if not await self._may_cite():
            await self._run_rounds(call, stream)
        elif _count_messages(call.messages) < _MIN_MESSAGES_TO_CITE_AFTERWARDS:
            await self._run_rounds(await self._request(prompt.with_system(self._citation_guide())), stream)
        else:
            uncited = await self._run_rounds(call, self._buffered_answer(), is_final=False)
            await self._write_with_citations(without_reasoning(uncited), stream)

    async def _write_with_citations(self, text: str, stream: StreamedAnswer) -> None:
        """Add citations to a finished answer and write it; write it unchanged if there is nothing to cite."""
        chunks = (await self._ctx.references()).get("chunks")
        cited = ""
        if chunks:
            sources = await in_untrusted_thread(prompts.source_blocks, chunks, self._model.spec.context_tokens)
            citing = Prompt(prompts.cite_afterwards(self._citation_guide(), sources), _user_messages(text))
            cited = (await self._ask_outside_rounds(await self._request(citing), stream)).text
        if not cited:
            await stream.write(text)

    async def _complete_last_question(self) -> Prompt:
        """Return the prompt; in a conversation, its last question is completed so that it can be read on its own."""
        messages = self._prompt.messages
        if len(messages) < _MIN_MESSAGES_TO_COMPLETE:
            return self._prompt
        question = await load_reply(self._ctx, "question")
        if question is None:
            with journal_place("question"):
                question = await self._ask_for_full_question()
            await record_reply(self._ctx, "question", question)
        return replace(self._prompt, messages=[*messages[:-1], *_user_messages(question.text)])

    async def _ask_for_full_question(self) -> Completion:
        messages = self._prompt.messages
        clock = asyncio.get_running_loop()
        began = clock.time()
        completing = Prompt(
            prompts.full_question(messages, run_date(self._ctx)), _user_messages(prompts.FULL_QUESTION_TURN)
        )
        answer = await self._ask_outside_rounds(
            replace(await self._request(completing), params={}), self._buffered_answer()
        )
        completed = without_reasoning(answer.text).strip()
        is_useless = not completed or answer.error or completed == prompts.FULL_QUESTION_TURN.strip()
        question = messages[-1]["content"] if is_useless else completed
        await self._ctx.trace(
            {
                "path": self._ctx.name or self._ctx.node_id,
                "tool_name": "full_question",
                "arguments": {},
                "result": question,
                "elapsed_time": clock.time() - began,
            }
        )
        return Completion(question, usage=answer.usage)

    async def _add_evidence(self, prompt: Prompt, listener: AnswerListener) -> Prompt:
        """Return the prompt with the evidence for its question, if the author set `deep_research`."""
        depth, question = self._settings.research_depth, str(prompt.messages[-1]["content"]) if prompt.messages else ""
        if not depth or not question.strip():
            return prompt
        try:
            _, text = await gather_evidence(question, depth, self._ctx, self._model, self._sources, listener)
        except NodeFailure as failure:
            raise NoAnswer(failure.message) from failure
        return prompt.with_system(await in_untrusted_thread(evidence_prompt, text, self._model))

    async def _may_cite(self) -> bool:
        """Return whether there are sources to cite, or a tool that may bring some."""
        if not self._params.cite:
            return False
        if any(function.brings_sources for function in self._calls.functions.values()):
            return True
        return bool((await self._ctx.references()).get("chunks"))

    def _citation_guide(self) -> str:
        return citation_guide(self._prompt.guides.get("citation_guidelines", ""))

    # -- as a whole ---------------------------------------------------------------------------------------------
    async def complete(self) -> Outcome:
        """Return the answer as a whole. A failed request is not repeated here; the provider layer has done that."""
        listener = self._buffered_answer()
        schema = self._settings.schema
        try:
            prompt = await self._add_evidence(self._prompt, listener)
            prompt = prompt.with_system(structured_output_guide(schema)) if schema else prompt
            answer = await self._run_rounds(await self._request(prompt), listener)
            outputs = await self._as_json(answer, schema, listener) if schema else self._as_text(answer)
        except NoAnswer as failure:
            default = default_answer(self._params)
            if default is None or isinstance(failure, _NotJson):
                return Failed(failure.message, ModelError.code)
            return Finished(outputs={"content": default, **self._used_tools()})
        return Finished(
            outputs={**outputs, **self._used_tools(), **optional_output(self._ctx, "thinking", listener.reasoning)}
        )

    def _as_text(self, answer: str) -> dict[str, Any]:
        text = without_reasoning(answer)
        return {"content": text + artifact_links(text, self._calls.artifacts)}

    async def _as_json(self, answer: str, schema: Mapping[str, Any], listener: AnswerListener) -> dict[str, Any]:
        """Read the answer as JSON; ask the model to rewrite an unreadable one, at most max_retries + 1 times."""
        structured = read_json(answer)
        for _ in range(self._params.max_retries + 1):
            if structured is not None:
                break
            rewriting = Prompt(prompts.reformat(schema), _user_messages(answer))
            reply = await self._ask_outside_rounds(await self._request(rewriting), listener)
            answer = answer if reply.error else reply.text or answer
            structured = read_json(answer)
        if structured is None:
            raise _NotJson(
                "The model's answer cannot be parsed as JSON; ask for it more plainly or choose another model."
            )
        return {"structured": structured}

    # -- both ---------------------------------------------------------------------------------------------------
    async def _run_rounds(self, call: ChatRequest, listener: AnswerListener, *, is_final: bool = True) -> str:
        """Run the rounds and return the answer's text. Raises NoAnswer with the error of a failed request."""
        answer = await self._rounds.answer(call, listener, is_final=is_final)
        if answer.error:
            raise NoAnswer(answer.text, kind=answer.error.code)
        return answer.text

    async def _ask_outside_rounds(self, call: ChatRequest, listener: AnswerListener) -> Completion:
        """Send a request outside the rounds. Like upstream, it offers the tools, but calls are not carried out."""
        schemas: Sequence[Mapping[str, Any]] = () if self._settings.in_prompts else self._calls.schemas
        return await listener.ask(replace(call, tools=schemas))

    async def _request(self, prompt: Prompt) -> ChatRequest:
        params = self._params
        return await build_request(
            prompt, params, self._model.spec, retries=params.max_retries, retry_delay=base_delay(params)
        )

    def _buffered_answer(self) -> BufferedAnswer:
        return BufferedAnswer(self._ctx, self._model)

    def _used_tools(self) -> dict[str, Any]:
        used = [{"name": one.name, "arguments": one.arguments, "results": one.result} for one in self._calls.finished]
        return optional_output(self._ctx, "use_tools", used)

    def _create_tool_calls(self, functions: Mapping[str, Function]) -> ToolCalls:
        spec, in_prompts = self._model.spec, self._settings.in_prompts
        if not in_prompts and not spec.is_tools:
            names = ", ".join(functions)
            self._ctx.warn(
                "tools_not_offered", f"The Agent works without its tools ({names}). {explain_missing_tools(spec)}."
            )
            functions = {}
        ends_at = asyncio.get_running_loop().time() + self._ctx.time_limit(AGENT)
        return ToolCalls(self._ctx, functions, ends_at, PARALLEL_CALLS_IN_PROMPTS if in_prompts else PARALLEL_CALLS)

    def _create_rounds(self, settings: AnswerSettings) -> ToolRounds | RoundsInPrompts:
        if not settings.in_prompts:
            return ToolRounds(self._ctx, self._model.spec, self._calls, settings.max_rounds)
        guides = self._prompt.guides
        return RoundsInPrompts(self._ctx, self._model, self._calls, settings.max_rounds, guides, run_date(self._ctx))


def explain_missing_tools(spec: ModelSpec) -> str:
    """Return why a model is not offered any tools, and what to do about it."""
    if spec.is_builtin:
        return f'The built-in model "{spec.id}" calls no tools. Choose a model that does'
    return (
        f'The account of model "{spec.id}" declares that the model calls no tools. If it does call tools, declare that '
        '(`easel models add ... --tools`, or `"is_tools": true`). If it does not, choose another model, or let the '
        'Agent ask for tools in its prompt (`"tool_mode": "prompt"`)'
    )


def run_date(ctx: NodeContext) -> date:
    """Return the run's date from `sys.date`, the same for every attempt; today's date if the run has none."""
    value = ctx.lookup("sys.date") if ctx.exists("sys.date") else None
    try:
        return date.fromisoformat(str(value)[:10])
    except ValueError:
        return date.today()


def _user_messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _count_messages(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of messages, counting a system message even if there is none."""
    return 1 + sum(1 for message in messages if message.get("role") != "system")
