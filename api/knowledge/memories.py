"""Routes of memories: create, list, change, delete, and list the messages of one.

Refusals have RAGFlow's words and codes, with status 200 unless the client asks for real ones
(docs/decisions/0082-chunks-and-memories-are-ragflows.md).
"""

import re
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BeforeValidator, Field

from api.http.errors import ABSENT, ARGUMENT, DATA, RequestRefused
from api.http.paging import ListPageDep, parse_list
from api.http.replies import parse_id, success
from api.http.reply_styles import EnvelopeRoute
from api.http.schemas import READ_ONLY_FIELDS, Body, NoEffect
from api.knowledge import memory_wire
from api.knowledge.ragflow_words import require_arguments
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.idempotency import OnceByBody
from api.requests.request_bodies import SmallBody, body_openapi, ignored_field_warnings, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from canvas.errors import ModelError, NotFound
from knowledge.models import first_model_of
from providers.models.chat.catalogue import resolve
from providers.models.embeddings.factory import EMBEDDING
from store.db.transaction import Transaction
from store.knowledge import memories, memory_messages
from store.knowledge.memories import MAX_NAME_CHARS, TYPES, Memory
from store.tenants import tenants as tenant_rows
from store.tenants.audit import Action

router = APIRouter(tags=["memories"], dependencies=[NEEDS_EDIT], route_class=EnvelopeRoute)

DEFAULT_BYTES = 5 * 1024 * 1024
MAX_BYTES = 64 * 1024 * 1024  # of a memory; a search reads all of it
MAX_TEMPERATURE = 2
MAX_AVATAR_CHARS = 65_535
_AVATAR = re.compile(r"data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/=\s]*")

MEMORY_FIELDS: NoEffect = {
    **READ_ONLY_FIELDS,
    "storage_type": ("table",),
    **dict.fromkeys(("memory_used", "owner_name", "tenant_embd_id", "tenant_llm_id"), ()),
}
"""Fields of RAGFlow's memories that have no effect here."""


def _parse_name(written: Any) -> str:
    name = written.strip() if isinstance(written, str) else ""
    if not name:
        raise RequestRefused(ARGUMENT, "Memory name cannot be empty or whitespace.")
    if len(name) > MAX_NAME_CHARS:
        raise RequestRefused(ARGUMENT, f"Memory name '{name[:1000]}' exceeds limit of {MAX_NAME_CHARS}.")
    return name


def _parse_types(written: Any) -> list[str]:
    if not isinstance(written, list):
        raise RequestRefused(ARGUMENT, "Memory type must be a list.")
    unknown = sorted({str(each)[:64] for each in written if each not in TYPES})
    if unknown:
        shown = "{" + ", ".join(map(repr, unknown[:10])) + "}"
        raise RequestRefused(ARGUMENT, f"Memory type '{shown}' is not supported.")
    return written


def _parse_permissions(written: Any) -> Any:
    if written not in ("me", "team"):
        raise RequestRefused(ARGUMENT, f"Unknown permission '{str(written)[:64]}'.")
    return written


def _parse_size(written: Any) -> int:
    is_number = isinstance(written, int) and not isinstance(written, bool)
    number = int(written) if is_number or (isinstance(written, str) and written.isdecimal()) else 0
    if not 0 < number <= MAX_BYTES:
        raise RequestRefused(ARGUMENT, f"Memory size should be in range (0, {MAX_BYTES}] Bytes.")
    return number


def _parse_policy(written: Any) -> Any:
    if written not in ("FIFO", "NONE"):
        raise RequestRefused(ARGUMENT, f"Forgetting policy '{str(written)[:64]}' is not supported.")
    return written


def _parse_temperature(written: Any) -> float:
    try:
        number = float(written)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number <= MAX_TEMPERATURE:
        raise RequestRefused(ARGUMENT, f"Temperature should be in range [0, {MAX_TEMPERATURE}].")
    return number


def _parse_avatar(written: Any) -> str:
    if written == "":
        return ""
    if not isinstance(written, str) or len(written) > MAX_AVATAR_CHARS or not _AVATAR.fullmatch(written):
        message = f"`avatar` must be data:image/...;base64,... with at most {MAX_AVATAR_CHARS} characters, or empty."
        raise RequestRefused(ARGUMENT, message)
    return written


Name = Annotated[str, BeforeValidator(_parse_name), Field(description="1 to 128 characters")]
Types = Annotated[list[Literal["raw", "semantic", "episodic", "procedural"]], BeforeValidator(_parse_types)]
Permissions = Annotated[Literal["me", "team"], BeforeValidator(_parse_permissions)]
Size = Annotated[int, BeforeValidator(_parse_size), Field(description="Bytes of texts and vectors, up to 64 MiB")]
Policy = Annotated[Literal["FIFO", "NONE"], BeforeValidator(_parse_policy)]
Temperature = Annotated[float, BeforeValidator(_parse_temperature), Field(description="0 to 2")]
Avatar = Annotated[str, BeforeValidator(_parse_avatar), Field(description="data:image/png;base64,... or empty")]
Several = Annotated[list[str] | None, Query(description="May be repeated, or a comma list")]


class NewMemoryBody(Body):
    """A new memory. With `embd_id` "", its embedding model is the tenant's first; without any, searches match words.

    With `llm_id` "", the tenant's first chat model extracts facts.
    """

    without_effect: ClassVar[NoEffect] = MEMORY_FIELDS

    name: Name
    memory_type: Types
    embd_id: str = Field(max_length=255)
    llm_id: str = Field(max_length=255)
    avatar: Avatar = ""
    description: str = Field(default="", max_length=65535)
    permissions: Permissions = "me"
    memory_size: Size = DEFAULT_BYTES
    forgetting_policy: Policy = "FIFO"
    temperature: Temperature = 0.5
    system_prompt: str = Field(default="", max_length=65535)
    user_prompt: str = Field(default="", max_length=65535)


class ChangedMemoryBody(Body):
    """Changes of a memory. Types and embedding model can only change while the memory is empty."""

    without_effect: ClassVar[NoEffect] = MEMORY_FIELDS

    name: Name | None = None
    memory_type: Types | None = None
    embd_id: str | None = Field(default=None, max_length=255)
    llm_id: str | None = Field(default=None, max_length=255)
    avatar: Avatar | None = None
    description: str | None = Field(default=None, max_length=65535)
    permissions: Permissions | None = None
    memory_size: Size | None = None
    forgetting_policy: Policy | None = None
    temperature: Temperature | None = None
    system_prompt: str | None = Field(default=None, max_length=65535)
    user_prompt: str | None = Field(default=None, max_length=65535)


def get_caller_memory(tx: Transaction, principal: RequestPrincipal, memory_id: str) -> Memory:
    """Return a memory of the caller. Raises RequestRefused, also for a memory of another tenant."""
    found = parse_id(memory_id)
    try:
        if found is not None:
            return memories.get(tx, principal.tenant_id, found)
    except NotFound:
        pass
    raise memory_not_found(memory_id)


def memory_not_found(memory_id: str) -> RequestRefused:
    """Return the refusal of a memory that the caller does not have."""
    return RequestRefused(ABSENT, f"Memory '{memory_id[:128]}' not found.", is_absent=True)


@router.post("/memories", openapi_extra=body_openapi(NewMemoryBody))
def create(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, once: OnceByBody) -> Response:
    """Create an empty memory. If its name is taken, it gets a number: `name(1)`."""
    require_arguments(body, "name", "memory_type", "embd_id", "llm_id")
    fields = parse_body(NewMemoryBody, body)
    embedding, chat = _choose_models(context, principal, fields.embd_id, fields.llm_id, is_new=True)
    with once.transaction(context.database) as tx:
        made = memories.create(
            tx,
            principal.tenant_id,
            memories.find_free_name(tx, principal.tenant_id, fields.name),
            types=_type_bits(fields.memory_type),
            embedding_model=embedding or "",
            chat_model=chat or "",
            most_bytes=fields.memory_size,
            avatar=fields.avatar,
            description=fields.description,
            permissions=fields.permissions,
            policy=fields.forgetting_policy,
            temperature=fields.temperature,
            system_prompt=fields.system_prompt,
            user_prompt=fields.user_prompt,
        )
        return once.store_reply(
            tx, success(memory_wire.memory_json(made), **ignored_field_warnings(NewMemoryBody, body))
        )


@router.get("/memories", dependencies=[NEEDS_READ])
def list_memories(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    page: ListPageDep,
    keywords: str = "",
    memory_type: Several = None,
    storage_type: str = "",
    tenant_id: Several = None,
) -> Response:
    """List the caller's memories, the newest first, optionally with `keywords` in the name.

    There is only the `storage_type` `table`: another one finds nothing, and so does another tenant.
    """
    names = parse_list(",".join(memory_type or []))
    if unknown := [name for name in names if name not in TYPES]:
        raise RequestRefused(ARGUMENT, f"`memory_type` is {unknown[0][:64]!r}. Use some of: {', '.join(TYPES)}.")
    tenants = parse_list(",".join(tenant_id or []))
    if (tenants and principal.tenant_id not in map(parse_id, tenants)) or storage_type not in ("", "table"):
        return success({"memory_list": [], "total_count": 0})
    types = _type_bits(names)
    with context.database.statements() as tx:
        found, total = memories.page(
            tx, principal.tenant_id, keywords=keywords, types=types, most=page.size, skipped=page.offset
        )
        owner = tenant_rows.find_name(tx, principal.tenant_id)
    return success({"memory_list": [memory_wire.memory_json(each, owner) for each in found], "total_count": total})


@router.get("/memories/{memory_id}/config", dependencies=[NEEDS_READ])
def config(context: ApiContextDep, principal: ApiTokenCaller, memory_id: str) -> Response:
    """Get the settings of a memory."""
    with context.database.statements() as tx:
        memory = get_caller_memory(tx, principal, memory_id)
        return success(memory_wire.memory_json(memory, tenant_rows.find_name(tx, principal.tenant_id)))


@router.get("/memories/{memory_id}", dependencies=[NEEDS_READ])
def show(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    memory_id: str,
    page: ListPageDep,
    agent_id: Several = None,
    keywords: str = "",
) -> Response:
    """List the conversations in a memory, the newest first, each with its extracts. `keywords`: in the session id."""
    agents = parse_list(",".join(agent_id or []))
    tenant_id = principal.tenant_id
    with context.database.statements() as tx:
        memory = get_caller_memory(tx, principal, memory_id)
        conversations, total = memory_messages.page(
            tx, tenant_id, memory.id, agent_ids=agents, keywords=keywords, most=page.size, skipped=page.offset
        )
        extracted = memory_messages.list_extracted(tx, tenant_id, memory.id, [each.number for each in conversations])
    message_list = [
        memory_wire.conversation_json(each, [one for one in extracted if one.source == each.number])
        for each in conversations
    ]
    return success({"messages": {"message_list": message_list, "total_count": total}, "storage_type": "table"})


@router.put("/memories/{memory_id}", openapi_extra=body_openapi(ChangedMemoryBody))
def change(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, memory_id: str) -> Response:
    """Change a memory. If its new name is taken, it gets a number: `name(1)`."""
    fields = parse_body(ChangedMemoryBody, body)
    with context.database.transaction() as tx:
        get_caller_memory(tx, principal, memory_id)
    embedding, chat = _choose_models(context, principal, fields.embd_id, fields.llm_id, is_new=False)
    types = _type_bits(fields.memory_type) | TYPES["raw"] if fields.memory_type is not None else None
    with context.database.transaction() as tx:
        memory = get_caller_memory(tx, principal, memory_id)
        fixed = {"memory_type": (types, memory.types), "embd_id": (embedding, memory.embedding_model)}
        stays = [name for name, (requested, now) in fixed.items() if requested is not None and requested != now]
        if stays and memory.bytes:
            raise RequestRefused(ARGUMENT, f"Can't update {stays} when memory isn't empty.")
        changed = memories.update(
            tx,
            principal.tenant_id,
            memory.id,
            name=memories.find_free_name(tx, principal.tenant_id, fields.name, memory.id) if fields.name else None,
            types=types,
            embedding_model=embedding,
            chat_model=chat,
            avatar=fields.avatar,
            description=fields.description,
            permissions=fields.permissions,
            most_bytes=fields.memory_size,
            policy=fields.forgetting_policy,
            temperature=fields.temperature,
            system_prompt=fields.system_prompt,
            user_prompt=fields.user_prompt,
        )
        return success(memory_wire.memory_json(changed), **ignored_field_warnings(ChangedMemoryBody, body))


@router.delete("/memories/{memory_id}")
def delete(context: ApiContextDep, principal: ApiTokenCaller, memory_id: str) -> Response:
    """Delete a memory with its messages."""
    with context.database.transaction() as tx:
        memory = get_caller_memory(tx, principal, memory_id)
        memories.delete(tx, principal.tenant_id, memory.id)
        principal.record(tx, Action.MEMORY_DELETED, memory.id, name=memory.name)
    return success(None)


def _type_bits(names: list[Any]) -> int:
    return sum({TYPES[name] for name in names})


def _choose_models(
    context: ApiContext, principal: RequestPrincipal, embedding: str | None, chat: str | None, *, is_new: bool
) -> tuple[str | None, str | None]:
    """Return embedding and chat model as requested; a new memory gets the tenant's first embedding model.

    Raises RequestRefused for a model of another kind.
    """
    accounts = context.models.accounts(principal.tenant_id)
    if is_new and not embedding:
        embedding = first_model_of(accounts, EMBEDDING)
    try:
        if embedding:
            resolve(embedding, accounts, kind=EMBEDDING)
        if chat:
            resolve(chat, accounts)
    except ModelError as error:
        raise RequestRefused(DATA, error.message) from error
    return embedding, chat
