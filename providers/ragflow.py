"""Knowledge bases and memories of a RAGFlow server, over its public HTTP API.

Implements `providers.interfaces.Retriever`. The server does everything that needs models (languages, reranking,
knowledge graph, tables of contents). A metadata filter that a model would have to write (`auto`, `semi_auto`) is
ignored, and the search is unfiltered.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from canvas.errors import HttpFailed, ToolError
from providers.interfaces import Http, HttpCall, HttpResponse, RetrievalQuery

REQUEST_TIMEOUT = 60.0  # timeout of one request; the node's own timeout is usually shorter
MAX_TRIES = 3
RETRY_DELAY = 0.2  # seconds before the second try, twice as long before the third
UNAUTHORIZED_CODES = frozenset({401, 109})  # `code` in the body of a response
BUSY_STATUSES = frozenset({502, 503, 504})
MAX_EXCERPT = 200  # characters of an invalid response that the error quotes

_ID = re.compile(r"[0-9a-f]{32}")
_CANVAS_NAMES = {
    "id": "chunk_id",
    "content": "content_with_weight",
    "document_id": "doc_id",
    "document_keyword": "docnm_kwd",
    "document_name": "docnm_kwd",
    "dataset_id": "kb_id",
    "important_keywords": "important_kwd",
}
_OPERATORS = {"=": "is", "≠": "not is", "≥": ">=", "≤": "<="}


class RagflowClient:
    """The RAGFlow server of the deployment's settings. `api_key` decides which datasets and memories are visible."""

    def __init__(self, http: Http, base_url: str, api_key: str, *, retry_delay: float = RETRY_DELAY) -> None:
        self._http = http
        self._base = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._retry_delay = retry_delay

    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        """Return {"chunks", "doc_aggs"}, best first. Raises ToolError with the server's message."""
        return await (self._search_memories(search) if search.memory_ids else self._search_datasets(search))

    async def _search_datasets(self, search: RetrievalQuery) -> Mapping[str, Any]:
        options = search.options
        names: set[str] = set(options.get("may_be_names") or ())
        ids = [await self._find_dataset_id(each) if each in names else each for each in search.dataset_ids]
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
        if condition := _metadata_condition(options.get("meta_data_filter") or {}):
            body["metadata_condition"] = condition
        found = await self._request_data(HttpCall("POST", f"{self._base}/api/v1/retrieval", json=body))
        found = found if isinstance(found, Mapping) else {}
        aggregates = found.get("doc_aggs")
        return {
            "chunks": [_canvas_chunk(chunk) for chunk in _objects(found.get("chunks"))],
            "doc_aggs": _objects(aggregates),
        }

    async def _search_memories(self, search: RetrievalQuery) -> Mapping[str, Any]:
        options = search.options
        query: dict[str, Any] = {
            "query": search.question,
            "memory_id": list(search.memory_ids),
            "similarity_threshold": options["similarity_threshold"],
            "keywords_similarity_weight": options["keywords_similarity_weight"],
            "top_n": options["top_n"],
        }
        if options.get("user_id"):
            query["user_id"] = options["user_id"]
        found = await self._request_data(HttpCall("GET", f"{self._base}/api/v1/messages/search", params=query))
        return {"chunks": _objects(found), "doc_aggs": []}

    async def save(self, memory_ids: Sequence[str], record: Mapping[str, Any], key: str | None) -> None:
        """Store {user_id, agent_id, session_id, user_input, agent_response} in each memory. Raises ToolError.

        A server that supports idempotency keys stores the record once; another server stores it once per request.
        """
        body = {"memory_id": list(memory_ids), **record}
        keyed = {"Idempotency-Key": key} if key else dict[str, str]()
        await self._request_data(HttpCall("POST", f"{self._base}/api/v1/messages", headers=keyed, json=body))

    async def _find_dataset_id(self, name_or_id: str) -> str:
        """Return the id of a dataset, given its name or its id. Raises ToolError if it does not exist."""
        if _ID.fullmatch(name_or_id):
            return name_or_id
        try:
            found = await self._request_data(
                HttpCall("GET", f"{self._base}/api/v1/datasets", params={"name": name_or_id})
            )
        except HttpFailed:
            raise
        except ToolError as error:  # the server answers an unknown name with an error
            raise ToolError(f"Dataset({name_or_id}) does not exist.") from error
        known = [dataset for dataset in _objects(found) if dataset.get("name") == name_or_id and dataset.get("id")]
        if not known:
            raise ToolError(f"Dataset({name_or_id}) does not exist.")
        return str(known[0]["id"])

    async def _request_data(self, call: HttpCall) -> Any:
        """Send a request and return the `data` of a response with code 0. Raises ToolError for every other code."""
        call = replace(call, headers={**call.headers, **self._headers}, timeout=REQUEST_TIMEOUT, trusted=True)
        reply = await self._send_with_retries(call)
        try:
            body = json.loads(reply.content, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, Mapping) or (not reply.is_success and not body.get("message")):
            excerpt = reply.content[:MAX_EXCERPT].decode("utf-8", "replace")
            raise HttpFailed(
                f"HTTP {reply.status}: {excerpt}", retryable=reply.status in BUSY_STATUSES, status=reply.status
            )
        if body.get("code") in UNAUTHORIZED_CODES or "Authorization is not valid" in str(body.get("message")):
            raise ToolError(
                f"The RAGFlow server at EASEL_RAGFLOW_URL refuses the key: {body.get('message')} "
                "Set EASEL_RAGFLOW_API_KEY to a key of that server."
            )
        if body.get("code") != 0:
            raise ToolError(str(body.get("message") or f"The knowledge base answers with code {body.get('code')}."))
        return body.get("data")

    async def _send_with_retries(self, call: HttpCall) -> HttpResponse:
        """Return a response of any status; retry if none came or the server is busy."""
        for attempt in range(1, MAX_TRIES):
            try:
                reply = await self._http.send(call)
            except HttpFailed as error:
                if not error.retryable:
                    raise
            else:
                if reply.status not in BUSY_STATUSES:
                    return reply
            await asyncio.sleep(self._retry_delay * attempt)
        return await self._http.send(call)


def _metadata_condition(stored: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a manual metadata filter in the API's form; None without conditions, since that would match nothing."""
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


def _canvas_chunk(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chunk with the field names that canvases use."""
    return {_CANVAS_NAMES.get(name, name): value for name, value in chunk.items()}


def _objects(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the objects of a list; an empty response may contain an object instead of a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
