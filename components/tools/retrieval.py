"""Retrieval: search in knowledge bases or memories.

DSL: `query`, `retrieval_from` (`dataset`, `memory`), `dataset_ids` (formerly `kb_ids`), `memory_ids`, `user_id`,
`top_n`, `top_k`, `similarity_threshold`, `keywords_similarity_weight`, `rerank_id`, `empty_response`, `use_kg`,
`toc_enhance`, `cross_languages`, `meta_data_filter`. An id with an `@` is a reference to a name, an id, or a list of
them. The retriever (`providers/interfaces.py`) does the search and its model calls. Its option `may_be_names` lists the
dataset ids that may be names; for a search in memories it returns chunks with `content`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates import templates
from components.text.templates.templates import value_text
from components.tools.framework import citations
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import positive
from providers.interfaces import RetrievalQuery
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.text.context_window import count_tokens

SOURCES = ("dataset", "memory")
NOT_CONFIGURED = (
    "No knowledge base is configured for this deployment. Set EASEL_RAGFLOW_URL and EASEL_RAGFLOW_API_KEY, "
    "or use a deployment that has one."
)

_USER_PREFIX = re.compile(r"^user\s*[:：]\s*", re.IGNORECASE)
_SEARCH_FIELD = re.compile(r".*_(?:vec|tks|ltks)|vector")
_OPTIONS = (
    "top_n", "top_k", "similarity_threshold", "keywords_similarity_weight", "rerank_id", "use_kg", "toc_enhance",
    "cross_languages",
)  # fmt: skip


def _fraction(label: str) -> BeforeValidator:
    """Return a check for a number from 0 to 1, also as text."""

    def check(value: Any) -> float:
        try:
            number = float(value) if not isinstance(value, bool) else -1.0
        except (TypeError, ValueError):
            number = -1.0
        if not 0 <= number <= 1:
            raise ValueError(f"{label} {value} not supported, should be a float number in range [0, 1]")
        return number

    return BeforeValidator(check)


class RetrievalParams(ToolParams):
    retrieval_from: Any = None
    dataset_ids: Any = Field(default_factory=list[Any])
    kb_ids: Any = Field(default_factory=list[Any])
    memory_ids: Any = Field(default_factory=list[Any])
    user_id: Any = None
    similarity_threshold: Annotated[float, _fraction("[Retrieval] Similarity threshold")] = 0.2
    keywords_similarity_weight: Annotated[float, _fraction("[Retrieval] Keyword similarity weight")] = 0.5
    top_n: Annotated[int, positive("[Retrieval] Top N")] = 8
    top_k: Annotated[int, positive("[Retrieval] Top K")] = 1024
    rerank_id: Any = ""
    empty_response: Any = ""
    use_kg: Any = False
    toc_enhance: Any = False
    cross_languages: Any = Field(default_factory=list[Any])
    meta_data_filter: Any = Field(default_factory=dict[str, Any])
    kb_vars: Any = Field(default_factory=list[Any])

    @property
    def can_find_sources(self) -> bool:
        """Results of memories cannot be cited."""
        return self.retrieval_from != "memory" and bool(self.datasets)

    @property
    def datasets(self) -> list[Any]:
        """The stored dataset ids, from `dataset_ids` or the older field `kb_ids`."""
        return _as_list(self.dataset_ids) or _as_list(self.kb_ids)


async def retrieve(params: RetrievalParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    nothing = {"formalized_content": value_text(params.empty_response)}  # the model gets this object, as upstream
    question = _USER_PREFIX.sub("", value_text(arguments.get("query")).strip())
    memories = _as_list(params.memory_ids)
    source = _source_kind(params, memories)
    if not question or source is None:
        return ToolResult(nothing, answer=nothing)
    if source == "memory":
        return await _search_memories(question, memories, params, ctx)
    ids, named = _resolve_ids(params.datasets, ctx)
    if not ids:
        raise ToolError("No dataset is selected.")
    options = {name: getattr(params, name) for name in _OPTIONS}
    options |= {"meta_data_filter": _resolve_filter(params.meta_data_filter, ctx), "may_be_names": named}
    found = await _search(RetrievalQuery(question, dataset_ids=ids, options=options), ctx)
    chunks = [_strip_search_fields(chunk) for chunk in found.get("chunks") or ()]
    if not chunks:
        return ToolResult({**nothing, "json": []}, answer=nothing)
    formalized = await citations.cite_chunks(chunks, _count_documents(found, chunks), ctx)
    return ToolResult({"formalized_content": formalized, "json": chunks}, answer=formalized)


def _source_kind(params: RetrievalParams, memories: Sequence[Any]) -> str | None:
    """Return "dataset" or "memory": as the node says, else the kind that it has ids of; None if it has none."""
    if params.retrieval_from in SOURCES:
        return params.retrieval_from
    return "dataset" if params.datasets else "memory" if memories else None


async def _search_memories(
    question: str, memories: Sequence[Any], params: RetrievalParams, ctx: NodeContext
) -> ToolResult:
    ids, _ = _resolve_ids(memories, ctx)
    if not ids:
        raise ToolError("No memory is selected.")
    user = params.user_id
    options = {name: getattr(params, name) for name in _OPTIONS}
    options["user_id"] = value_text(ctx.lookup(user) if _is_reference(user, ctx) else user)
    found = await _search(RetrievalQuery(question, memory_ids=ids, options=options), ctx)
    contents = [value_text(chunk.get("content")) for chunk in found.get("chunks") or ()]
    fitting = await in_untrusted_thread(_fit_to_budget, [content for content in contents if content])
    text = "\n".join(fitting) or value_text(params.empty_response)
    return ToolResult({"formalized_content": text}, answer=text)


async def _search(search: RetrievalQuery, ctx: NodeContext) -> Mapping[str, Any]:
    if ctx.services.retriever is None:
        raise ToolError(NOT_CONFIGURED)
    return await ctx.services.retriever.search(search)


def _resolve_ids(entries: Sequence[Any], ctx: NodeContext) -> tuple[list[str], list[str]]:
    """Resolve references among entries; return the ids, each once and in order, and those that may be names."""
    ids: dict[str, None] = {}
    named: dict[str, None] = {}
    for entry in entries:
        for value, is_referred in _entry_values(entry, ctx):
            text = value_text(value).strip()
            if text:
                ids[text] = None
            if text and is_referred:
                named[text] = None
    return list(ids), list(named)


def _entry_values(entry: Any, ctx: NodeContext) -> Iterator[tuple[Any, bool]]:
    """Yield the values of an entry, each with whether it came from a reference."""
    if not isinstance(entry, str) or "@" not in entry:
        yield entry, False
        return
    for value in _as_list(ctx.lookup(entry)):
        yield value, True


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    return [] if value in (None, "") else [value]


def _resolve_filter(stored: Any, ctx: NodeContext) -> dict[str, Any]:
    """Return the metadata filter with its references replaced by their values."""
    if not isinstance(stored, Mapping) or not stored:
        return {}
    conditions = [condition for condition in _as_list(stored.get("manual")) if isinstance(condition, Mapping)]
    filled = [{**condition, "value": _resolve_value(condition.get("value"), ctx)} for condition in conditions]
    return {**stored, "manual": filled}


def _resolve_value(value: Any, ctx: NodeContext) -> Any:
    return templates.format_text(value, ctx.lookup) if isinstance(value, str) else value


def _is_reference(value: Any, ctx: NodeContext) -> bool:
    return isinstance(value, str) and ctx.is_reference(value)


def _strip_search_fields(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chunk without the fields that only a search engine uses."""
    return {name: value for name, value in chunk.items() if not _SEARCH_FIELD.fullmatch(name)}


def _count_documents(found: Mapping[str, Any], chunks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the number of chunks of each document, from the search result or else counted here."""
    counts = found.get("doc_aggs")
    if isinstance(counts, list) and counts:
        return [document for document in counts if isinstance(document, Mapping)]
    return [{"doc_name": chunk.get("docnm_kwd"), "doc_id": chunk.get("doc_id"), "count": 1} for chunk in chunks]


def _fit_to_budget(contents: Sequence[str]) -> list[str]:
    """Return the first contents that fit the token budget."""
    fitting: list[str] = []
    spent = 0
    for content in contents:
        spent += count_tokens(content)
        if spent > citations.TOKEN_BUDGET:
            break
        fitting.append(content)
    return fitting


RETRIEVAL = Tool(
    "Retrieval",
    "search_my_dateset",
    RetrievalParams,
    description="Searches the knowledge bases for passages about a question. Use it before you answer from memory.",
    arguments={
        "query": Argument(
            "string", "What to look for: a question or key words, complete in itself.", required=True, default=""
        )
    },
    call=retrieve,
    effect="idempotent",
    empty_outputs=None,
    errors_are_bare=True,
    brings_sources=True,
)
