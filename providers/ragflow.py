"""Knowledge bases and memories of a RAGFlow server, by its public HTTP API (tools 6.5 and 12).

It keeps the promise of `providers.interfaces.Retriever`. Everything that a search needs models for (languages,
reranking, knowledge graph, tables of contents) happens on that server; a metadata filter that a model would have to
write (`auto`, `semi_auto`) is left out, and the search goes unfiltered.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from canvas.errors import HttpFailed, ToolError
from providers.interfaces import Call, Http, Reply, RetrievalQuery

SECONDS = 60.0  # of one request; the node's own limit is usually shorter
TRIES = 3
PAUSE = 0.2  # seconds before the second try, twice as long before the third
UNAUTHORIZED = frozenset({401, 109})  # codes in an answer's body
BUSY = frozenset({502, 503, 504})
SHOWN = 200  # characters of an answer that is none

_ID = re.compile(r"[0-9a-f]{32}")
_TODAY = {
    "id": "chunk_id",
    "content": "content_with_weight",
    "document_id": "doc_id",
    "document_keyword": "docnm_kwd",
    "document_name": "docnm_kwd",
    "dataset_id": "kb_id",
    "important_keywords": "important_kwd",
}
_OPERATORS = {"=": "is", "≠": "not is", "≥": ">=", "≤": "<="}


class RagflowServer:
    """A server that a deployment's settings name. `api_key` decides which datasets and memories there are."""

    def __init__(self, http: Http, base_url: str, api_key: str, *, pause: float = PAUSE) -> None:
        self._http = http
        self._base = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._pause = pause

    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        """{"chunks", "doc_aggs"}, best first. Raises ToolError in the server's words."""
        return await (self._in_memories(search) if search.memory_ids else self._in_datasets(search))

    async def _in_datasets(self, search: RetrievalQuery) -> Mapping[str, Any]:
        options = search.options
        names: set[str] = set(options.get("may_be_names") or ())
        ids = [await self._id_of(each) if each in names else each for each in search.dataset_ids]
        body: dict[str, Any] = {
            "question": search.question,
            "dataset_ids": list(dict.fromkeys(ids)),
            "page": 1,
            "page_size": options["top_n"],
            "similarity_threshold": options["similarity_threshold"],
            "vector_similarity_weight": round(1 - options["keywords_similarity_weight"], 6),
            "top_k": options["top_k"],
            "keyword": False,
            "highlight": False,
            "use_kg": bool(options.get("use_kg")),
            "toc_enhance": bool(options.get("toc_enhance")),
        }
        if options.get("rerank_id"):
            body["rerank_id"] = options["rerank_id"]
        if options.get("cross_languages"):
            body["cross_languages"] = options["cross_languages"]
        if condition := _condition(options.get("meta_data_filter") or {}):
            body["metadata_condition"] = condition
        found = await self._data(Call("POST", f"{self._base}/api/v1/retrieval", json=body))
        found = found if isinstance(found, Mapping) else {}
        aggregates = found.get("doc_aggs")
        return {
            "chunks": [_chunk(chunk) for chunk in _objects(found.get("chunks"))],
            "doc_aggs": _objects(aggregates),
        }

    async def _in_memories(self, search: RetrievalQuery) -> Mapping[str, Any]:
        options = search.options
        asked: dict[str, Any] = {
            "query": search.question,
            "memory_id": list(search.memory_ids),
            "similarity_threshold": options["similarity_threshold"],
            "keywords_similarity_weight": options["keywords_similarity_weight"],
            "top_n": options["top_n"],
        }
        if options.get("user_id"):
            asked["user_id"] = options["user_id"]
        found = await self._data(Call("GET", f"{self._base}/api/v1/messages/search", params=asked))
        return {"chunks": _objects(found), "doc_aggs": []}

    async def save(self, memory_ids: Sequence[str], record: Mapping[str, Any], key: str | None) -> None:
        """Keep {user_id, agent_id, session_id, user_input, agent_response} there. Raises ToolError.

        A server that knows keys of idempotency keeps it once; another one keeps it as often as it is asked.
        """
        body = {"memory_id": list(memory_ids), **record}
        keyed = {"Idempotency-Key": key} if key else dict[str, str]()
        await self._data(Call("POST", f"{self._base}/api/v1/messages", headers=keyed, json=body))

    async def _id_of(self, name_or_id: str) -> str:
        """A dataset by its name, else by its id. Raises ToolError if there is neither."""
        if _ID.fullmatch(name_or_id):
            return name_or_id
        try:
            found = await self._data(Call("GET", f"{self._base}/api/v1/datasets", params={"name": name_or_id}))
        except HttpFailed:
            raise
        except ToolError as error:  # the server answers a name that it does not know with an error
            raise ToolError(f"Dataset({name_or_id}) does not exist.") from error
        known = [dataset for dataset in _objects(found) if dataset.get("name") == name_or_id and dataset.get("id")]
        if not known:
            raise ToolError(f"Dataset({name_or_id}) does not exist.")
        return str(known[0]["id"])

    async def _data(self, call: Call) -> Any:
        """The `data` of an answer whose code is 0. Raises ToolError for every other."""
        call = replace(call, headers={**call.headers, **self._headers}, timeout=SECONDS, trusted=True)
        reply = await self._answer(call)
        try:
            body = json.loads(reply.content, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, Mapping) or (not reply.is_success and not body.get("message")):
            told = reply.content[:SHOWN].decode("utf-8", "replace")
            raise HttpFailed(f"HTTP {reply.status}: {told}", retryable=reply.status in BUSY, status=reply.status)
        if body.get("code") in UNAUTHORIZED or "Authorization is not valid" in str(body.get("message")):
            raise ToolError(
                f"The RAGFlow server of EASEL_RAGFLOW_URL refuses the key: {body.get('message')} "
                "An operator sets EASEL_RAGFLOW_API_KEY to a key of that server."
            )
        if body.get("code") != 0:
            raise ToolError(str(body.get("message") or f"The knowledge base answers with code {body.get('code')}."))
        return body.get("data")

    async def _answer(self, call: Call) -> Reply:
        """An answer of any status; where none came, or the server is busy, it is asked again."""
        for attempt in range(1, TRIES):
            try:
                reply = await self._http.send(call)
            except HttpFailed as error:
                if not error.retryable:
                    raise
            else:
                if reply.status not in BUSY:
                    return reply
            await asyncio.sleep(self._pause * attempt)
        return await self._http.send(call)


def _condition(stored: Mapping[str, Any]) -> dict[str, Any] | None:
    """A filter that its author wrote, as the API spells it; None without any condition, which would find nothing."""
    if stored.get("method") != "manual":
        return None
    conditions = [
        {
            "name": condition.get("key") or condition.get("name"),
            "comparison_operator": _OPERATORS.get(operator := str(condition.get("op") or "="), operator),
            "value": condition.get("value"),
        }
        for condition in _objects(stored.get("manual"))
    ]
    named = [condition for condition in conditions if condition["name"]]
    return {"logic": stored.get("logic") or "and", "conditions": named} if named else None


def _chunk(told: Mapping[str, Any]) -> dict[str, Any]:
    """A chunk by the names that canvases know."""
    return {_TODAY.get(name, name): value for name, value in told.items()}


def _objects(value: Any) -> Sequence[Mapping[str, Any]]:
    """The objects of a list; an empty answer may have an object in its place."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
