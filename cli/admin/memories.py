"""Memories: `easel memory`."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

import typer

from canvas.errors import InvalidRequest, NotFound
from canvas.ids import TenantId
from cli.models.tenant_models import choose_embedding_model, describe_search, open_models, tenant_models
from cli.shell import output
from cli.shell.actor import find_actor
from cli.shell.connection import CommandConnection, open_connection
from cli.shell.exit_codes import Exit
from cli.shell.options import LOCAL_TENANT, AsJson, ByWords, Embedding, OfTenant, Question, Threshold, WordsOnly
from knowledge.memory.memories import MemoryQuery, MemoryStore
from knowledge.memory.prompts import format_timestamp
from providers.models.chat.catalogue import resolve
from store.knowledge import memories, memory_messages
from store.knowledge.memories import TYPES, Memory
from store.knowledge.memory_messages import MemoryMessage, MessageScope, type_name
from store.tenants import audit
from store.tenants.audit import Action

memory = typer.Typer(help="Memories: create, list, show, search, rm.", no_args_is_help=True)

DEFAULT_SIZE = 5  # MiB

MemoryArgument = Annotated[str, typer.Argument(help="A memory, by name or id.", metavar="MEMORY")]
UserOption = Annotated[str, typer.Option("--user", help="Only messages of this user.", metavar="USER")]


@memory.command()
def create(
    name: Annotated[str, typer.Argument(help="Name by which canvases use it.", metavar="NAME")],
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="What a model extracts: semantic, episodic, procedural; may be repeated.", metavar="TYPE"
        ),
    ] = None,
    model: Embedding = None,
    words_only: WordsOnly = False,
    chat: Annotated[
        str, typer.Option(help="Chat model that extracts. Default: the tenant's first one.", metavar="MODEL")
    ] = "",
    size: Annotated[int, typer.Option(help="Maximum size in MiB.", min=1, max=64)] = DEFAULT_SIZE,
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Create an empty memory and print its id."""
    unknown = [each for each in types or () if each not in TYPES]
    if unknown:
        raise InvalidRequest(f'"{unknown[0]}" is not a type of memory. Use one of: {", ".join(TYPES)}.')
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)
        accounts = tenant_models(connection).accounts(tenant_id)
        chosen = "" if words_only else choose_embedding_model(accounts, model)
        if chat:
            resolve(chat, accounts)
        with connection.database.transaction() as tx:
            made = memories.create(
                tx,
                tenant_id,
                name.strip(),
                types=sum({TYPES[each] for each in types or ()}),
                embedding_model=chosen,
                chat_model=chat,
                most_bytes=size * 1024 * 1024,
            )
    output.print_line(made.id.hex)
    extracted = f" A model extracts {' and '.join(made.extracted_types)} facts." if made.extracted_types else ""
    output.print_message(f'"{name}" is searched by {describe_search(chosen)}.{extracted}')


@memory.command("list")
def list_all(tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """List memories."""
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)
        with connection.database.transaction() as tx:
            found, _ = memories.page(tx, tenant_id, most=10_000)
    columns = ("id", "name", "types", "bytes", "of", "embedding_model", "created")
    rows = [_row_of_memory(each) for each in found]
    output.print_table(
        rows, columns, as_json=as_json, empty="There are no memories. `easel memory create NAME` adds one."
    )


@memory.command()
def show(
    memory: MemoryArgument,
    user: UserOption = "",
    most: Annotated[int, typer.Option(help="Maximum number of messages.", min=1)] = 20,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Show the newest messages of a memory."""
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)
        found = _find_memory(connection, tenant_id, memory)
        with connection.database.transaction() as tx:
            messages = memory_messages.list_recent(tx, tenant_id, [found.id], MessageScope(user_id=user), most)
    columns = ("number", "type", "source", "user", "valid_at", "extraction", "content")
    rows = [_row_of_message(each) for each in messages]
    output.print_table(rows, columns, as_json=as_json, empty="The memory has no messages.")


@memory.command()
def search(
    memory: MemoryArgument,
    question: Question,
    user: UserOption = "",
    top_n: Annotated[int, typer.Option(help="Maximum number of messages.", min=1, max=1000)] = 8,
    threshold: Threshold = 0.2,
    by_words: ByWords = 0.5,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Show the messages that match a question best. Exit code 1 if there are none."""
    query = MemoryQuery(question, threshold, by_words, top_n, MessageScope(user_id=user))
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)
        chosen = _find_memory(connection, tenant_id, memory)
        found = asyncio.run(_search(connection, chosen, query))
    for message, near in found:
        if as_json:
            output.print_json({**_row_of_message(message), "similarity": round(near, 6)})
            continue
        output.print_line(f"{near:.3f}  {type_name(message.type)}, {format_timestamp(message.valid_at)}")
        output.print_line(message.content + "\n")
    if not found:
        output.print_message("No message reaches the threshold. Use a lower --threshold.", output.YELLOW)
        raise typer.Exit(Exit.FAILED)


@memory.command()
def rm(
    memory: MemoryArgument,
    numbers: Annotated[
        list[int] | None,
        typer.Argument(help="Messages to forget; by default the whole memory is deleted.", metavar="[NUMBER...]"),
    ] = None,
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Delete a memory, or mark messages of it as forgotten."""
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)
        found = _find_memory(connection, tenant_id, memory)
        with connection.database.transaction() as tx:
            for number in numbers or ():
                memory_messages.forget(tx, tenant_id, found.id, number)
            if not numbers:
                memories.delete(tx, tenant_id, found.id)
                audit.record(tx, tenant_id, find_actor(), Action.MEMORY_DELETED, found.id, {"name": found.name})
    output.print_message(f"{len(numbers)} messages are forgotten." if numbers else f'"{found.name}" is deleted.')


# -- steps -----------------------------------------------------------------------------------------------------------
def _find_memory(connection: CommandConnection, tenant_id: TenantId, name: str) -> Memory:
    ids = list[UUID]()
    with suppress(ValueError):
        ids.append(UUID(name))
    with connection.database.transaction() as tx:
        found = memories.find_by_id_or_name(tx, tenant_id, ids, [name])
    if not found:
        raise NotFound(f'There is no memory "{name}". `easel memory list` lists them.')
    return found[0]


async def _search(
    connection: CommandConnection, chosen: Memory, query: MemoryQuery
) -> list[tuple[MemoryMessage, float]]:
    async with open_models(connection) as models:
        return await MemoryStore(connection.database, models).search(chosen.tenant_id, [chosen], query)


def _row_of_memory(of: Memory) -> dict[str, Any]:
    return {
        "id": of.id.hex,
        "name": of.name,
        "types": ", ".join(name for name, bit in TYPES.items() if bit & of.types),
        "bytes": of.bytes,
        "of": of.most_bytes,
        "embedding_model": of.embedding_model or "(words alone)",
        "created": of.created_at,
    }


def _row_of_message(of: MemoryMessage) -> dict[str, Any]:
    return {
        "number": of.number,
        "type": type_name(of.type),
        "source": of.source or None,
        "user": of.user_id,
        "valid_at": of.valid_at,
        "extraction": of.extraction if not of.error else f"{of.extraction}: {of.error}",
        "content": of.content,
    }
