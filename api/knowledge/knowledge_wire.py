"""Serialize knowledge bases for RAGFlow's API: datasets, documents and chunks."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from api.http.replies import date
from api.knowledge.dataset_settings import complete_parser
from knowledge.bases.search import public_chunk_id, public_image_id
from scheduler.views.json_values import milliseconds
from store.knowledge.bases import KnowledgeBase
from store.knowledge.documents import KnowledgeDocument

_STATUS_NAMES = {
    "chunk_id": "id",
    "content_with_weight": "content",
    "doc_id": "document_id",
    "docnm_kwd": "document_keyword",
    "kb_id": "dataset_id",
    "important_kwd": "important_keywords",
    "question_kwd": "questions",
}
_FOUND_CHUNK_FIELDS = (
    "image_id",
    "similarity",
    "vector_similarity",
    "term_similarity",
    "positions",
    "tag_kwd",
    "doc_type_kwd",
)


def dataset_json(base: KnowledgeBase) -> dict[str, Any]:
    """Return a base as a dataset."""
    return {
        "id": base.id.hex,
        "name": base.name,
        "avatar": None,
        "description": base.description or None,
        "language": base.language,
        "embedding_model": base.embedding_model,
        "chunk_method": "naive",
        "parser_config": complete_parser(base.parser),
        "permission": "me",
        "pagerank": 0,
        "connectors": [],
        "status": "1",
        "tenant_id": base.tenant_id.hex,
        "created_by": base.tenant_id.hex,
        "document_count": base.documents,
        "chunk_count": base.chunks,
        "token_num": base.tokens,
        "similarity_threshold": 0.2,
        "vector_similarity_weight": 0.5,
        "create_time": milliseconds(base.created_at),
        "create_date": date(base.created_at),
        "update_time": milliseconds(base.updated_at),
        "update_date": date(base.updated_at),
        **base.settings,
    }


def document_json(row: KnowledgeDocument, base: KnowledgeBase) -> dict[str, Any]:
    """Return a document of a base; `progress` is 0 to 1, or -1 if parsing failed. Durations are in seconds."""
    parser = base.parser if row.parser is None else row.parser
    return {
        "id": row.id.hex,
        "dataset_id": row.base_id.hex,
        "name": row.name,
        "location": row.name,
        "size": row.size,
        "type": "doc",
        "suffix": row.name.rpartition(".")[2].lower() if "." in row.name else "",
        "source_type": "local",
        "chunk_method": row.settings.get("chunk_method") or base.settings.get("chunk_method") or "naive",
        "parser_config": complete_parser(parser),
        "meta_fields": dict(row.metadata),
        "chunk_count": row.chunks,
        "token_count": row.tokens,
        "run": row.run,
        "progress": _progress(row),
        "progress_msg": _progress_message(row),
        "process_begin_at": date(row.started_at),
        "process_duration": round(_process_seconds(row), 3),
        "status": "1" if row.enabled else "0",
        "enabled": row.enabled,
        "created_by": base.tenant_id.hex,
        "create_time": milliseconds(row.created_at),
        "create_date": date(row.created_at),
        "update_time": milliseconds(row.updated_at),
        "update_date": date(row.updated_at),
    }


def found_chunk_json(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chunk that a search has found."""
    named = {wire_name: chunk.get(name) for name, wire_name in _STATUS_NAMES.items()}
    also = {name: chunk.get(name) for name in _FOUND_CHUNK_FIELDS}
    marked = {"highlight": chunk["highlight"]} if chunk.get("highlight") else {}
    return {**named, **also, **marked, "document_metadata": chunk.get("document_metadata") or {}}


def stored_chunk_json(row: Any, of: KnowledgeDocument) -> dict[str, Any]:
    """Return a stored chunk of a document, with the names of RAGFlow's API."""
    chunk_id = public_chunk_id(of.id, row.position)
    details = row.details or {}
    return {
        "id": chunk_id,
        "content": row.text,
        "document_id": of.id.hex,
        "docnm_kwd": of.name,
        "dataset_id": of.base_id.hex,
        "important_keywords": details.get("important_keywords", []),
        "questions": details.get("questions", []),
        "tag_kwd": details.get("tag_kwd", []),
        "tag_feas": details.get("tag_feas", {}),
        "image_id": public_image_id(of.base_id, chunk_id) if row.has_image else "",
        "doc_type_kwd": "image" if row.has_image else "text",
        "positions": details.get("positions", []),
        "available": row.available,
    }


_INDEX_NAMES = {
    "content": "content_with_weight",
    "document_id": "doc_id",
    "dataset_id": "kb_id",
    "important_keywords": "important_kwd",
    "questions": "question_kwd",
    "image_id": "img_id",
    "positions": "position_int",
}


def index_chunk_json(row: Any, of: KnowledgeDocument) -> dict[str, Any]:
    """Return a stored chunk with the names of RAGFlow's index, which its route of one chunk shows."""
    shown = stored_chunk_json(row, of)
    available = shown.pop("available")
    return {_INDEX_NAMES.get(name, name): value for name, value in shown.items()} | {"available_int": int(available)}


def _process_seconds(row: KnowledgeDocument) -> float:
    if row.started_at is None:
        return 0.0
    end = row.ended_at or (datetime.now(UTC) if row.status == "pending" else row.started_at)
    return max(0.0, (end - row.started_at).total_seconds())


def _progress_message(row: KnowledgeDocument) -> str:
    if row.status == "done" and not row.error:
        return f"Task done ({_process_seconds(row):.2f}s)."
    return row.error


def _progress(row: KnowledgeDocument) -> float:
    if row.status == "failed":
        return -1.0
    if row.status == "done":
        return 1.0
    return round(row.chunks / row.expected, 3) if row.expected else 0.0
