"""Routes of the messages in memories: add, get, search, forget, enable and disable.

The key of a message is `{memory_id}:{message_id}`. Searches do not find a forgotten message, and it is the first to be
deleted when the memory is full.
"""

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field

from api.http.errors import ABSENT, ARGUMENT, DATA, SERVER, RequestRefused
from api.http.replies import json_reply, parse_id, success
from api.http.reply_styles import EnvelopeRoute
from api.http.schemas import Body
from api.knowledge import memory_wire
from api.knowledge.memories import memory_not_found
from api.knowledge.ragflow_words import require_arguments
from api.requests.auth import ApiTokenCaller
from api.requests.dependencies import ApiContextDep, run_in_thread
from api.requests.idempotency import OnceByBody
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from canvas.errors import NodeFailure, NotFound
from canvas.ids import TenantId
from knowledge.memory.memories import MemoryQuery
from knowledge.memory_router import TenantMemories
from store.knowledge import memory_messages
from store.knowledge.memories import Memory
from store.knowledge.memory_messages import MessageScope

router = APIRouter(tags=["memories"], dependencies=[NEEDS_READ], route_class=EnvelopeRoute)

MAX_MEMORIES = 100
MOST_SHOWN = 1000
ADDED = "All add to task."

Ids = Annotated[list[str] | None, Query(description="Memories; may be repeated, or a comma list")]


class NewMessageBody(Body):
    """A question and its answer. Memories are named by id or name."""

    memory_id: list[str] | str
    user_input: str = ""
    agent_response: str = ""
    user_id: str = Field(default="", max_length=255)
    agent_id: str = Field(default="", max_length=255)
    session_id: str = Field(default="", max_length=255)


class MessageStatusBody(Body):
    """Whether searches find a message."""

    status: bool


@router.post("/messages", openapi_extra=body_openapi(NewMessageBody), dependencies=[NEEDS_EDIT])
async def add(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, once: OnceByBody) -> Response:
    """Store a question and its answer. A model extracts facts from them later.

    If a memory does not exist, or is full, the others store them, and the reply says what failed.
    """
    require_arguments(body, "memory_id")
    fields = parse_body(NewMessageBody, body)
    entries = _entries([fields.memory_id] if isinstance(fields.memory_id, str) else fields.memory_id)
    await run_in_thread(lambda: once.check_repeat(context.database))
    record = fields.model_dump(exclude={"memory_id"})
    key = f"{once.route} {once.key}" if once.key is not None else None
    try:
        await TenantMemories(principal.tenant_id, context.memories).save(entries, record, key)
    except NodeFailure as failure:
        raise RequestRefused(SERVER, f"Some messages failed to add. Detail: {failure.message}") from failure

    def store_reply() -> Response:
        with once.transaction(context.database) as tx:
            return once.store_reply(tx, json_reply({"code": 0, "message": ADDED, "data": None}))

    return await run_in_thread(store_reply)


@router.get("/messages/search")
async def search(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    memory_id: Ids = None,
    query: str = "",
    similarity_threshold: Annotated[float, Query(ge=0, le=1)] = 0.2,
    keywords_similarity_weight: Annotated[float, Query(ge=0, le=1)] = 0.7,
    top_n: Annotated[int, Query(ge=1, le=MOST_SHOWN)] = 10,
    agent_id: str = "",
    session_id: str = "",
    user_id: str = "",
) -> Response:
    """Find the messages that match a question best; without a memory none."""
    if not query.strip():
        raise RequestRefused(ARGUMENT, "`query` is required." if memory_id else "`query` and `memory_id` are required.")
    if not memory_id:
        return success([])
    memory_query = MemoryQuery(
        query, similarity_threshold, keywords_similarity_weight, top_n, MessageScope(user_id, agent_id, session_id)
    )
    chosen = await _find_memories(context, principal.tenant_id, memory_id)
    try:
        found = await context.memories.search(principal.tenant_id, chosen, memory_query)
    except NodeFailure as failure:
        raise RequestRefused(DATA, failure.message) from failure
    return success([{**memory_wire.message_json(message), "similarity": round(near, 6)} for message, near in found])


@router.get("/messages")
async def recent(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    memory_id: Ids = None,
    agent_id: str = "",
    session_id: str = "",
    limit: Annotated[int, Query(ge=1, le=MOST_SHOWN)] = 10,
) -> Response:
    """List the newest messages of memories."""
    if not memory_id:
        raise RequestRefused(ARGUMENT, "memory_ids is required.")
    chosen = await _find_memories(context, principal.tenant_id, memory_id)
    whose = MessageScope(agent_id=agent_id, session_id=session_id)

    def read() -> list[Any]:
        with context.database.statements() as tx:
            ids = [memory.id for memory in chosen]
            return memory_messages.list_recent(tx, principal.tenant_id, ids, whose, limit)

    return success([memory_wire.message_json(message) for message in await run_in_thread(read)])


@router.get("/messages/{message_key}/content")
def content(context: ApiContextDep, principal: ApiTokenCaller, message_key: str) -> Response:
    """Get a message with its content and its vector (`content_embed`), [] if its memory has no embedding model."""
    memory_id, number = _parse_key(message_key)
    try:
        with context.database.statements() as tx:
            found = memory_messages.get(tx, principal.tenant_id, memory_id, number)
            embedding = memory_messages.load_embedding(tx, principal.tenant_id, memory_id, number)
    except NotFound:
        raise _message_not_found(message_key) from None
    return success({"id": f"{memory_id.hex}_{number}", **memory_wire.message_json(found), "content_embed": embedding})


@router.delete("/messages/{message_key}", dependencies=[NEEDS_EDIT])
def forget(context: ApiContextDep, principal: ApiTokenCaller, message_key: str) -> Response:
    """Forget a message: searches no longer find it."""
    memory_id, number = _parse_key(message_key)
    try:
        with context.database.transaction() as tx:
            memory_messages.forget(tx, principal.tenant_id, memory_id, number)
    except NotFound:
        raise _message_not_found(message_key) from None
    return success(None)


@router.put("/messages/{message_key}", openapi_extra=body_openapi(MessageStatusBody), dependencies=[NEEDS_EDIT])
def switch(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, message_key: str) -> Response:
    """Enable or disable a message for searches."""
    require_arguments(body, "status")
    if not isinstance(body["status"], bool):
        raise RequestRefused(ARGUMENT, "Status must be a boolean.")
    memory_id, number = _parse_key(message_key)
    fields = parse_body(MessageStatusBody, body)
    try:
        with context.database.transaction() as tx:
            memory_messages.enable(tx, principal.tenant_id, memory_id, number, enabled=fields.status)
    except NotFound:
        raise _message_not_found(message_key) from None
    return success(None)


async def _find_memories(context: ApiContextDep, tenant_id: TenantId, parameters: Sequence[str]) -> list[Memory]:
    """Return the caller's memories with these ids. Raises RequestRefused if one does not exist."""
    entries = _entries([entry for each in parameters for entry in each.split(",")])
    found = await context.memories.find_by_name(tenant_id, entries)
    missing = [entry for entry in entries if entry not in found]
    if missing:
        raise RequestRefused(ABSENT, f"Memory {missing} not found.", is_absent=True)
    return list({memory.id: memory for memory in found.values()}.values())


def _entries(parameters: Sequence[str]) -> list[str]:
    entries = list(dict.fromkeys(entry.strip() for entry in parameters if entry.strip()))
    if not entries:
        raise RequestRefused(ARGUMENT, "memory_ids is required.")
    if len(entries) > MAX_MEMORIES:
        raise RequestRefused(ARGUMENT, f"`memory_id` may name at most {MAX_MEMORIES} memories.")
    return entries


def _parse_key(message_key: str) -> tuple[UUID, int]:
    memory_id, _, number = message_key.rpartition(":")
    found = parse_id(memory_id)
    if found is None and memory_id:
        raise memory_not_found(memory_id)
    if found is None or not (number.isascii() and number.isdigit() and len(number) < 18):
        raise _message_not_found(message_key)
    return found, int(number)


def _message_not_found(message_key: str) -> RequestRefused:
    memory_id, _, number = message_key.rpartition(":")
    message = f"Message '{number[:128]}' in memory '{memory_id[:128]}' not found."
    return RequestRefused(ABSENT, message, is_absent=True)
