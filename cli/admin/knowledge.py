"""Knowledge bases: `easel kb`."""

import asyncio
import mimetypes
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
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
from knowledge.bases.chunking import DEFAULTS
from knowledge.bases.ingestion import Ingestion, storage_of
from knowledge.bases.search import KnowledgeBaseSearch, SearchQuery
from knowledge.index.indexing import Indexing
from store.knowledge import bases as knowledge_bases
from store.knowledge import documents as knowledge_documents
from store.knowledge.bases import KnowledgeBase
from store.knowledge.documents import KnowledgeDocument
from store.tenants import audit
from store.tenants.audit import Action

kb = typer.Typer(help="Knowledge bases: create, add, search, list, rm.", no_args_is_help=True)

POLL_INTERVAL = 0.2  # seconds between two checks while a worker reads one of the documents

BaseArgument = Annotated[str, typer.Argument(help="A knowledge base, by name or id.", metavar="BASE")]


@kb.command()
def create(
    name: Annotated[str, typer.Argument(help="Name by which canvases use it.", metavar="NAME")],
    model: Embedding = None,
    words_only: WordsOnly = False,
    language: Annotated[str, typer.Option(help="Language of its texts, for word stems.")] = "English",
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Create an empty knowledge base and print its id."""
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)
        accounts = tenant_models(connection).accounts(tenant_id)
        chosen = "" if words_only else choose_embedding_model(accounts, model)
        with connection.database.transaction() as tx:
            base_id = knowledge_bases.create(
                tx, tenant_id, name.strip(), embedding_model=chosen, parser=DEFAULTS, language=language
            )
    output.print_line(base_id.hex)
    output.print_message(f'"{name}" is searched by {describe_search(chosen)}.')


@kb.command()
def add(
    base: BaseArgument,
    files: Annotated[list[Path], typer.Argument(help="Documents. The same content is added once.", metavar="FILE...")],
    meta: Annotated[
        list[str] | None, typer.Option(help="Metadata of new documents, for filters; may be repeated.", metavar="K=V")
    ] = None,
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Add documents and read them now. Exit code 1 if one cannot be read."""
    metadata = dict(_parse_pair(each) for each in meta or ())
    contents = [(file.name, _read(file)) for file in files]
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)
        found = _find_base(connection, tenant_id, base)
        added = [_add_document(connection, found, name, data, metadata) for name, data in contents]
        read = asyncio.run(_read_all(connection, found, [document.id for document in added]))
    for document in read:
        result = f"{document.chunks} chunks" if document.status == "done" else document.error
        output.print_message(f"{document.name}: {result}", output.GREEN if document.status == "done" else output.RED)
    if any(document.status != "done" for document in read):
        raise typer.Exit(Exit.FAILED)


@kb.command()
def search(
    base: BaseArgument,
    question: Question,
    top_n: Annotated[int, typer.Option(help="Maximum number of passages.", min=1, max=1000)] = 8,
    threshold: Threshold = 0.2,
    by_words: ByWords = 0.5,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Show the passages that match a question best. Exit code 1 if there are none."""
    query = SearchQuery(question, threshold=threshold, word_weight=by_words, limit=top_n)
    with open_connection() as connection:
        found = asyncio.run(_search(connection, connection.tenant(tenant), base, query))
    for chunk in found:
        if as_json:
            output.print_json(chunk)
            continue
        figures = (chunk["similarity"], chunk["vector_similarity"], chunk["term_similarity"])
        output.print_line("{:.3f} (vector {:.3f}, words {:.3f})  ".format(*figures) + chunk["docnm_kwd"])
        output.print_line(chunk["content_with_weight"] + "\n")
    if not found:
        output.print_message("No passage reaches the threshold. Use a lower --threshold.", output.YELLOW)
        raise typer.Exit(Exit.FAILED)


@kb.command("list")
def list_all(
    base: Annotated[str | None, typer.Argument(help="List the documents of this one.", metavar="BASE")] = None,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """List knowledge bases, or the documents of one."""
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)
        if base is None:
            with connection.database.transaction() as tx:
                bases, _ = knowledge_bases.page(tx, tenant_id, most=10_000)
            columns = ("id", "name", "documents", "chunks", "embedding_model", "created")
            rows = [_row_of_base(each) for each in bases]
            output.print_table(
                rows, columns, as_json=as_json, empty="There are no knowledge bases. `easel kb create NAME` adds one."
            )
            return
        found = _find_base(connection, tenant_id, base)
        with connection.database.transaction() as tx:
            documents, _ = knowledge_documents.page(tx, tenant_id, found.id, most=100_000)
    columns = ("id", "name", "size", "status", "chunks", "error")
    rows = [_row_of_document(each) for each in documents]
    output.print_table(
        rows, columns, as_json=as_json, empty=f"It has no documents. `easel kb add {base} FILE` adds some."
    )


@kb.command()
def rm(
    base: BaseArgument,
    documents: Annotated[
        list[str] | None,
        typer.Argument(help="Documents by name or id; by default the whole base.", metavar="[DOCUMENT...]"),
    ] = None,
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Delete a knowledge base, or documents from it."""
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)
        found = _find_base(connection, tenant_id, base)
        with connection.database.transaction() as tx:
            known, _ = knowledge_documents.page(tx, tenant_id, found.id, most=10**6)
        chosen = [_find_document(each, known) for each in documents] if documents else known
        storage = storage_of(connection.blobs, found.id)
        # the file first: if this process is stopped in between, the document can be deleted again
        for document in chosen:
            with connection.database.transaction() as tx:
                contents = knowledge_documents.list_unshared_contents(tx, tenant_id, found.id, [document.id])
            for sha256 in contents:
                storage.discard(sha256)
            with connection.database.transaction() as tx:
                knowledge_documents.delete(tx, tenant_id, found.id, [document.id])
                if documents:
                    details = {"knowledge_base_id": found.id.hex}
                    audit.record(tx, tenant_id, find_actor(), Action.DOCUMENT_DELETED, document.id, details)
        if not documents:
            storage.clear()
            with connection.database.transaction() as tx:
                knowledge_bases.delete(tx, tenant_id, found.id)
                details = {"name": found.name}
                audit.record(tx, tenant_id, find_actor(), Action.KNOWLEDGE_BASE_DELETED, found.id, details)
            storage.clear()  # files that were uploaded into the base meanwhile
    output.print_message(f"{len(chosen)} documents are deleted." if documents else f'"{found.name}" is deleted.')


# -- steps -----------------------------------------------------------------------------------------------------------
def _find_base(connection: CommandConnection, tenant_id: TenantId, written: str) -> KnowledgeBase:
    with connection.database.transaction() as tx:
        ids = list[UUID]()
        with suppress(ValueError):
            ids.append(UUID(written))
        found = knowledge_bases.find_by_id_or_name(tx, tenant_id, ids, [written])
        if not found:
            raise NotFound(f'The knowledge base "{written}" does not exist. `easel kb list` lists them.')
        return knowledge_bases.get(tx, tenant_id, found[0].id)


def _add_document(
    connection: CommandConnection, base: KnowledgeBase, name: str, data: bytes, metadata: dict[str, str]
) -> KnowledgeDocument:
    mime_type = mimetypes.guess_type(name, strict=False)[0] or "application/octet-stream"
    sha256 = storage_of(connection.blobs, base.id).store(data)
    with connection.database.transaction() as tx:
        document = knowledge_documents.find_same_content(tx, base.tenant_id, base.id, sha256)
        if document is None:
            return knowledge_documents.add(
                tx, base.tenant_id, base.id, name, mime_type, len(data), sha256, metadata=metadata, status="pending"
            )
        if document.status in ("failed", "uploaded"):
            knowledge_documents.start_processing(tx, base.tenant_id, base.id, [document.id])
    return document


async def _read_all(
    connection: CommandConnection, base: KnowledgeBase, ids: Sequence[UUID]
) -> Sequence[KnowledgeDocument]:
    """Read pending documents until these are read. Workers may read some of them."""
    async with open_models(connection) as models:
        ingestion = Ingestion(connection.database, connection.blobs, models)
        while True:
            with connection.database.transaction() as tx:
                found = knowledge_documents.get_many(tx, base.tenant_id, base.id, ids)
            if all(document.status != "pending" for document in found):
                await Indexing(connection.database).run_all()
                return sorted(found, key=lambda document: document.name)
            if not await ingestion.next(base.tenant_id):
                await asyncio.sleep(POLL_INTERVAL)


async def _search(connection: CommandConnection, tenant_id: TenantId, base: str, query: SearchQuery) -> list[Any]:
    async with open_models(connection) as models:
        library = KnowledgeBaseSearch(connection.database, models)
        bases = list((await library.find_bases(tenant_id, [base])).values())
        if not bases:
            raise NotFound(f'The knowledge base "{base}" does not exist. `easel kb list` lists them.')
        return (await library.search(tenant_id, bases, query))["chunks"]


def _parse_pair(written: str) -> tuple[str, str]:
    key, equals, value = written.partition("=")
    if not equals or not key.strip():
        raise InvalidRequest(f'"{written}" is not a pair. Write --meta key=value.')
    return key.strip(), value


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.") from error


def _find_document(written: str, known: Sequence[KnowledgeDocument]) -> KnowledgeDocument:
    for document in known:
        if written in (document.name, document.id.hex, str(document.id)):
            return document
    raise NotFound(f'The knowledge base has no document "{written}". `easel kb list BASE` lists its documents.')


def _row_of_base(base: KnowledgeBase) -> dict[str, Any]:
    return {
        "id": base.id.hex,
        "name": base.name,
        "documents": base.documents,
        "chunks": base.chunks,
        "embedding_model": base.embedding_model or "(words alone)",
        "created": base.created_at,
    }


def _row_of_document(document: KnowledgeDocument) -> dict[str, Any]:
    return {
        "id": document.id.hex,
        "name": document.name,
        "size": document.size,
        "status": document.status,
        "chunks": document.chunks,
        "error": document.error,
    }
