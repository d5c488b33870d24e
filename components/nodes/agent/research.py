"""Deep research: search for evidence, ask a model whether it is sufficient, and search for what is missing.

A question is searched in every source. If the evidence is not sufficient, the model names up to three follow-up
questions, and each of them is researched in the same way, one level deeper. The questions of a level run in parallel,
and a level ends before the next one begins. So the questions, their order, and what is dropped when a limit is reached
depend only on the answers. Evidence is in the order of the questions: a question's own evidence, that of its
follow-ups, then the next question's.

Searches and answers are recorded in the journal, so that the next attempt of the activation neither searches nor asks
again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar

from canvas.errors import ToolError
from components.context import NodeContext, ToolCallPosition
from components.nodes.agent import research_prompts
from components.nodes.agent.research_prompts import FollowUp
from components.nodes.agent.rounds import load_reply, record_reply
from components.nodes.agent.tool_calls import usage_entry
from components.nodes.agent.tool_context import ToolContext
from components.nodes.agent.tool_set import Function
from components.nodes.llm.answer_stream import BufferedAnswer
from components.tools.framework import citations
from components.tools.framework.time_limits import timeout_text
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.billing.metering import count_usage
from providers.models.limits.pausable_timeout import PausableTimeout
from providers.models.recording.model_calls import journal_place
from providers.models.text.context_window import count_tokens
from providers.models.types.chat import ChatModel, ChatRequest, Completion, Usage

START, END = "<START_DEEP_RESEARCH>", "<END_DEEP_RESEARCH>"
BREAK = "<br/>"  # at the end of every line of progress
WEB_RESULTS = 6  # results of a web search; knowledge bases return as many as the author configured

Chunk: TypeAlias = Mapping[str, Any]  # in the form in which the run's references store it
ReportProgress = Callable[[str], Awaitable[None]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResearchLimits:
    """The limits of a research, whatever the model asks for. `depth` counts the levels of questions."""

    depth: int = 3
    searches: int = 24
    calls: int = 40
    concurrency: int = 8
    seconds: float = 600.0
    tokens: int = 60_000  # of evidence


@dataclass
class _ResearchQuestion:
    """A question and its follow-up questions. `path` is its position in the tree: 0, 0.2, 0.2.1."""

    question: str
    query: str
    path: str
    chunks: Sequence[Chunk] = ()
    calls: int = 0  # requests to the model
    follow_ups: Sequence[FollowUp] = ()
    children: "list[_ResearchQuestion]" = field(default_factory=list["_ResearchQuestion"])

    def evidence(self) -> Iterator[Chunk]:
        """Yield the question's own evidence, then that of its follow-ups, in their order."""
        yield from self.chunks
        for follower in self.children:
            yield from follower.evidence()


class Research:
    """One research of a node. `sources` are functions that bring sources; `report_progress` receives lines of text."""

    def __init__(
        self,
        ctx: NodeContext,
        model: ChatModel,
        sources: Sequence[Function],
        report_progress: ReportProgress,
        limits: ResearchLimits | None = None,
    ) -> None:
        self._ctx = ctx
        self._model = model
        self._sources = sources
        self._report_progress = report_progress
        self._limits = limits or ResearchLimits()
        self._searches = 0
        self._calls = 0
        self._queries = set[str]()
        self._errors: list[str] = []
        self._slots = asyncio.Semaphore(self._limits.concurrency)

    async def run(self, question: str) -> list[Chunk]:
        """Return all evidence for a question, each chunk once. Raises ToolError if all searches failed."""
        root = _ResearchQuestion(question, " ".join(question.split())[: research_prompts.MAX_QUESTION_CHARS], "0")
        self._queries.add(normalise_question(root.query))
        await self._report_line(START)
        try:
            async with PausableTimeout(self._limits.seconds):
                await self._run_levels(root)
        except TimeoutError:
            self._ctx.log.warning("research_out_of_time", seconds=self._limits.seconds)
        await self._report_line(END)
        found = _deduplicate(root.evidence())
        if not found and self._errors:
            raise ToolError(self._errors[0])
        return await in_untrusted_thread(_cut_to_tokens, found, self._limits.tokens)

    async def _run_levels(self, root: _ResearchQuestion) -> None:
        level = [root]
        for depth in range(self._limits.depth, 0, -1):
            level = level[: max(0, self._limits.searches - self._searches)]
            self._searches += len(level)
            left, each_needs = self._limits.calls - self._calls, 2 if depth > 1 else 1
            calls = [max(0, min(each_needs, left - each_needs * before)) for before in range(len(level))]
            await _run_in_parallel(self._research_question(each, most) for each, most in zip(level, calls, strict=True))
            self._calls += sum(each.calls for each in level)
            for each in level:
                each.children = list(self._new_follow_ups(each))
            level = [follower for each in level for follower in each.children]
            if not level:
                return

    def _new_follow_ups(self, parent: _ResearchQuestion) -> Sequence[_ResearchQuestion]:
        """Return the follow-up questions that have not been researched before."""
        found = list[_ResearchQuestion]()
        for number, each in enumerate(parent.follow_ups, 1):
            if normalise_question(each.query) not in self._queries:
                self._queries.add(normalise_question(each.query))
                found.append(_ResearchQuestion(each.question, each.query, f"{parent.path}.{number}"))
        return found

    # -- one question -----------------------------------------------------------------------------------------------
    async def _research_question(self, this: _ResearchQuestion, max_calls: int) -> None:
        """Search, ask the model whether that suffices and what to search next, with `max_calls` requests at most."""
        async with self._slots:
            await self._report_line(f"Searching by `{this.query}`...")
            this.chunks, elapsed = await self._search_all(this.query)
            await self._report_line(f"Retrieval {len(this.chunks)} results in {elapsed:.1f}ms")
            if this.calls == max_calls:
                return
            this.calls += 1
            await self._report_line("Checking the sufficiency for retrieved information.")
            text = await in_untrusted_thread(evidence_text, this.chunks, self._model.spec.context_tokens // 2)
            answer = await self._ask(f"check:{this.path}", research_prompts.check_prompt(this.question, text))
            verdict = research_prompts.parse_verdict(answer)
            if verdict.is_sufficient:
                await self._report_line(f"Yes, the retrieved information is sufficient for '{this.question}'.")
                return
            if this.calls == max_calls:
                return
            this.calls += 1
            messages = research_prompts.follow_up_prompt(this.question, this.query, verdict.missing, text)
            this.follow_ups = research_prompts.parse_follow_ups(await self._ask(f"follow:{this.path}", messages))
            if this.follow_ups:
                listed = "".join(f"</br> - {each.question}" for each in this.follow_ups)
                await self._report_line("Next step is to search for the following questions:" + listed)

    async def _ask(self, key: str, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the model's answer; "" if the request fails, which ends only this question."""
        key = f"research/{key}"
        reply: Completion | None = await load_reply(self._ctx, key)
        if reply is None:
            with journal_place(key):
                reply = await BufferedAnswer(self._ctx, self._model).ask(ChatRequest(messages, retries=None))
            await record_reply(self._ctx, key, reply)
        if reply.error:
            self._ctx.log.warning("research_not_checked", error=str(reply.error))
            return ""
        return reply.text

    async def _search_all(self, query: str) -> tuple[list[Chunk], float]:
        """Search all sources; return their results in the sources' order, and the milliseconds of the slowest one."""
        searches = await _run_in_parallel(self._search(query, number) for number in range(len(self._sources)))
        self._errors += [search["error"] for search in searches if search["error"]]
        found = _deduplicate(chunk for search in searches for chunk in search["chunks"])
        return found, max((search["elapsed_ms"] for search in searches), default=0.0)

    async def _search(self, query: str, number: int) -> Mapping[str, Any]:
        """Search one source, or read the result of an earlier attempt: {chunks, error, elapsed_ms, usage}."""
        key = f"research/search:{sha256(query.encode()).hexdigest()[:32]}:{number}"
        search = await self._ctx.journal_get(key)
        if search is not None:
            self._ctx.add_usage(Usage(*search["usage"]))
            return search
        clock = asyncio.get_running_loop()
        began = clock.time()
        source = self._sources[number]
        inner = CitationCollector(self._ctx, source, key)
        with journal_place(key, inside=key, component=source.component):
            error = await self._call_source(source, query, inner)
        found = inner.chunks if source.component == "Retrieval" else inner.chunks[:WEB_RESULTS]
        elapsed = clock.time() - began
        search = {
            "chunks": found,
            "error": error,
            "elapsed_ms": elapsed * 1000,
            "usage": usage_entry(inner.usage),
        }
        await self._ctx.journal_put(key, search)
        await self._ctx.trace(
            {
                "path": self._ctx.name or self._ctx.node_id,
                "tool_name": source.name,
                "arguments": {query_argument(source): query},
                "result": error or f"{len(found)} results",
                "elapsed_time": elapsed,
            },
            ToolCallPosition(ordinal=number, has_failed=bool(error)),
        )
        return search

    async def _call_source(self, source: Function, query: str, inner: "CitationCollector") -> str:
        """Call a source's function within its time limit; return the error, "" if there is none."""
        limit = source.limit if source.limit is not None else self._ctx.time_limit(source.component)
        time = PausableTimeout(limit)
        try:
            async with time:
                with count_usage(inner.add_usage):
                    run = await source.call({query_argument(source): query}, inner.as_node_context())
        except TimeoutError:
            if not time.has_expired():
                raise
            return timeout_text(limit, "" if source.limit is not None else source.component)
        return run.error or ""

    async def _report_line(self, line: str) -> None:
        await self._report_progress(line + BREAK)


class CitationCollector(ToolContext):
    """The context of one search of a research: it collects citations, which are added later, in the right order."""

    def __init__(self, ctx: NodeContext, function: Function, place: str) -> None:
        super().__init__(ctx, function, place)
        self.chunks: list[Chunk] = []

    async def cite(self, chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> list[int]:
        self.chunks += chunks
        return list(range(len(chunks)))


async def cite_evidence(found: Sequence[Chunk], ctx: NodeContext) -> str:
    """Add the evidence to the run's references, in its order; return its text for a model."""
    documents = [
        {
            "doc_name": chunk.get("document_name"),
            "doc_id": chunk.get("document_id"),
            "count": 1,
            "url": chunk.get("url"),
        }
        for chunk in found
    ]
    return await citations.cite_chunks(found, documents, ctx)


def query_argument(source: Function) -> str:
    """Return the name of a search function's argument for the query."""
    return str(source.schema["function"]["parameters"]["required"][0])


def normalise_question(question: str) -> str:
    """Return a question without case, punctuation and extra spaces; two with the same result are searched once."""
    return " ".join("".join(letter if letter.isalnum() else " " for letter in question.casefold()).split())


def evidence_text(found: Sequence[Chunk], tokens: int) -> str:
    """Return the evidence as text for the model, at most `tokens` tokens of it."""
    return "\n".join(
        citations.chunk_text(number, chunk) for number, chunk in enumerate(_cut_to_tokens(found, tokens), 1)
    )


def _cut_to_tokens(found: Sequence[Chunk], tokens: int) -> list[Chunk]:
    """Return the chunks up to the first one that does not fit into `tokens`."""
    fitting, used = list[Chunk](), 0
    for chunk in found:
        used += count_tokens(str(chunk.get("content") or ""))
        if used > tokens:
            break
        fitting.append(chunk)
    return fitting


def _deduplicate(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return the chunks in order without duplicates, which have the same chunk id and document id."""
    found = dict[tuple[str, str], Chunk]()
    for chunk in chunks:
        found.setdefault((str(chunk.get("chunk_id")), str(chunk.get("document_id"))), chunk)
    return list(found.values())


async def _run_in_parallel(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines in parallel and return their results in order. Raise the first error, and cancel the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None  # callers must see a lost lease as such, not as a group
    return [task.result() for task in tasks]
