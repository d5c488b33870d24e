"""Serialize memories and their messages for RAGFlow's API."""

from datetime import datetime
from typing import Any

from api.http.replies import date
from knowledge.memory.prompts import format_timestamp, system_prompt
from scheduler.views.json_values import milliseconds
from store.knowledge.memories import TYPES, Memory
from store.knowledge.memory_messages import MemoryMessage, type_name

PROGRESS = {"none": 1.0, "pending": 0.0, "done": 1.0, "failed": -1.0}


def memory_json(of: Memory, owner: str | None = None) -> dict[str, Any]:
    """Return a memory with its settings, and the name of its tenant as that of its owner, if it is given."""
    named = {"owner_name": owner} if owner is not None else {}
    return {
        "id": of.id.hex,
        "name": of.name,
        "avatar": of.avatar,
        "description": of.description,
        "tenant_id": of.tenant_id.hex,
        "memory_type": [name for name, bit in TYPES.items() if bit & of.types],
        "storage_type": "table",
        "embd_id": of.embedding_model,
        "llm_id": of.chat_model,
        "permissions": of.permissions,
        "memory_size": of.most_bytes,
        "memory_used": of.bytes,
        "forgetting_policy": of.policy,
        "temperature": of.temperature,
        "system_prompt": of.system_prompt or (system_prompt(of.extracted_types) if of.extracted_types else ""),
        "user_prompt": of.user_prompt,
        "create_time": milliseconds(of.created_at),
        "create_date": date(of.created_at),
        "update_time": milliseconds(of.updated_at),
        "update_date": date(of.updated_at),
        **named,
    }


def message_json(of: MemoryMessage, *, with_content: bool = True) -> dict[str, Any]:
    """Return a message; times are in UTC."""
    fields = {
        "message_id": of.number,
        "message_type": type_name(of.type),
        "source_id": of.source,
        "memory_id": of.memory_id.hex,
        "user_id": of.user_id,
        "agent_id": of.agent_id,
        "session_id": of.session_id,
        "valid_at": format_timestamp(of.valid_at),
        "invalid_at": _time(of.invalid_at),
        "forget_at": _time(of.forget_at),
        "status": of.is_enabled,
    }
    return {**fields, "content": of.content} if with_content else fields


def conversation_json(of: MemoryMessage, extracted: list[MemoryMessage]) -> dict[str, Any]:
    """Return a message with its extracts and the progress of the extraction: 0 waiting, 1 done, -1 failed."""
    task = {"progress": PROGRESS[of.extraction], "progress_msg": of.error}
    return {**message_json(of), "extract": [message_json(each) for each in extracted], "task": task}


def _time(moment: datetime | None) -> str | None:
    return format_timestamp(moment) if moment is not None else None
