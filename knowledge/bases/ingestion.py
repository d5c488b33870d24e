"""Ingestion: a document is read, chunked, embedded and stored in batches of chunks.

A document that waits is a row; a free worker leases the oldest one and renews the lease while it works. Chunks depend
only on the document's bytes and on the parser settings, its own or those of its base, so after a lost process the next
worker skips the stored chunks and continues. Searches do not find a document before it is stored completely.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from uuid import UUID

import structlog

from canvas.errors import ExecutorError, NodeFailure, NotFound
from canvas.ids import LeaseId, TenantId
from components.text.extraction.file_kinds import Kind
from components.text.extraction.file_texts import UnparsedFile
from knowledge.bases import chunking, page_transcripts
from knowledge.bases.page_transcripts import no_content_error, open_page_reader
from knowledge.index import tokenizer
from knowledge.index.vectors import normalize
from knowledge.models import Models
from providers.isolation.limited_process import OWNER, in_limited_process
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.billing.metering import RATE_LIMIT_TIMEOUT
from providers.models.embeddings.factory import Embedder
from store.db.database import Database
from store.files.blobs import Blobs
from store.knowledge import chunks as chunk_rows
from store.knowledge import documents
from store.knowledge.chunks import NewChunk
from store.knowledge.documents import MAX_TRIES, LeasedDocument
from store.primitives.ids import new_id

log = structlog.get_logger()

STORAGE_FOLDER = "knowledge"  # folder in the file storage
LEASE = timedelta(seconds=60)
MAX_CHARACTERS = 20_000_000  # of a document; ten times a volume of a long encyclopaedia
SHORT_TEXT_LENGTH = 100_000  # characters; shorter texts are chunked in a thread, longer ones in a child process
BATCH_SIZE = 32  # chunks of one commit; embedding them is repeated if the process ends before it
MAX_PAUSE = 60.0  # seconds


class DocumentLeaseLost(Exception):
    """Raised when another worker has the document, or its ingestion was cancelled."""


def storage_of(blobs: Blobs, base_id: UUID) -> Blobs:
    """Return the storage of a base's documents."""
    return blobs.part(STORAGE_FOLDER).part(base_id.hex)


async def _chunk_in_background(document: LeasedDocument, text: str) -> Sequence[str]:
    place = in_untrusted_thread if len(text) <= SHORT_TEXT_LENGTH else in_limited_process
    return await place(chunking.chunk_texts, text, dict(document.parser))


class Ingestion:
    """Ingests waiting documents, one for each call of `next`. Call `next` from several threads to parallelise."""

    def __init__(self, database: Database, blobs: Blobs | None, models: Models, lease: timedelta = LEASE) -> None:
        self._database = database
        self._blobs = blobs
        self._models = models
        self._lease = lease

    async def next(self, tenant_id: TenantId | None = None) -> bool:
        """Ingest the document that has waited longest, of one tenant if named; return False if none waits."""
        document = await asyncio.to_thread(self._claim_next, tenant_id)
        if document is None:
            return False
        OWNER.set(str(document.tenant_id))
        bound = {"document_id": str(document.id), "tenant_id": str(document.tenant_id)}
        with structlog.contextvars.bound_contextvars(**bound):
            await self._run(document)
        return True

    def _claim_next(self, tenant_id: TenantId | None) -> LeasedDocument | None:
        with self._database.transaction() as tx:
            return documents.claim_next(tx, LeaseId(new_id()), self._lease, tenant_id)

    async def _run(self, document: LeasedDocument) -> None:
        """Ingest a document and store its final status."""
        if document.tries > MAX_TRIES:
            error_text = f"Reading was started {MAX_TRIES} times, and the worker was lost each time."
            return await self._end(document, "failed", error_text)
        try:
            async with self._renew_lease(document):
                await self._read(document)
        except DocumentLeaseLost:
            log.info("document_left", generation=document.generation)
        except asyncio.CancelledError:
            self._release(document, "", 0.0, counts=False)
            raise
        except NotFound as gone:
            await self._end(document, "failed", f"{gone.message} Upload it again.")
        except (ExecutorError, OSError) as failure:
            await self._handle_failure(document, failure)
        except Exception as error:  # noqa: BLE001 (a file or a library may raise anything; other documents still wait)
            log.error("document_not_read", error=f"{type(error).__name__}: {error}".partition("\n")[0])
            await self._handle_failure(
                document, NodeFailure("The document could not be read. See the log for the reason.", retryable=True)
            )
        else:
            await self._end(document, "done")

    async def _handle_failure(self, document: LeasedDocument, failure: ExecutorError | OSError) -> None:
        may_help = isinstance(failure, OSError) or (isinstance(failure, NodeFailure) and failure.retryable)
        message = failure.message if isinstance(failure, ExecutorError) else f"The file storage: {failure}"
        is_early = failure.details.get("kind") == RATE_LIMIT_TIMEOUT if isinstance(failure, ExecutorError) else False
        if may_help and (is_early or document.tries < MAX_TRIES):
            log.warning("document_retried", error=message, tries=document.tries)
            pause = min(2.0**document.tries, MAX_PAUSE)
            await asyncio.to_thread(self._release, document, message, pause, counts=not is_early)
        else:
            log.warning("document_failed", error=message)
            await self._end(document, "failed", message)

    async def _end(self, document: LeasedDocument, status: str, error: str = "") -> None:
        def end() -> None:
            with self._database.transaction() as tx:
                documents.finish(tx, document, status, error)

        await asyncio.to_thread(end)

    def _release(self, document: LeasedDocument, error: str, pause: float, *, counts: bool) -> None:
        with self._database.transaction() as tx:
            documents.release(tx, document, error, timedelta(seconds=pause), counts=counts)

    # -- reading and storing --------------------------------------------------------------------------------------
    async def _read(self, document: LeasedDocument) -> None:
        file = await asyncio.to_thread(self._file, document)
        text = await file.full_text(MAX_CHARACTERS) if file.kind is not Kind.IMAGE else ""
        model = document.embedding_model
        embedder = await self._models.embedder(document.tenant_id, model) if model else None
        if not text and file.kind in page_transcripts.KINDS:
            await self._read_pages(document, file, embedder)
            return
        texts = await _chunk_in_background(document, text)
        for start in range(document.chunks, len(texts), BATCH_SIZE):
            part = texts[start : start + BATCH_SIZE]
            await self._store(document, start, part, len(texts), embedder)

    async def _read_pages(self, document: LeasedDocument, file: UnparsedFile, embedder: Embedder | None) -> None:
        """Read a picture or a scan with a model, page by page, from the first page that is not stored.

        A model's answer differs each time, so all chunks of a page and the number of pages read are stored together.
        """
        reader = await open_page_reader(file, self._models, document.tenant_id)
        stored = document.chunks
        for page in range(document.read_pages, reader.pages):
            texts = await _chunk_in_background(document, await reader.transcribe(page))
            read = page + 1
            expected = -(-(stored + len(texts)) * reader.pages // read)
            await self._store(document, stored, texts, expected, embedder, read_pages=read)
            stored += len(texts)
        if not stored:
            raise no_content_error(reader)

    def _file(self, document: LeasedDocument) -> UnparsedFile:
        if self._blobs is None:
            raise NodeFailure("This process has no file storage. Set EASEL_FILES_DIR.")
        data = storage_of(self._blobs, document.base_id).get(document.sha256)
        return UnparsedFile(document.name, document.mime_type, data)

    async def _store(
        self,
        document: LeasedDocument,
        start: int,
        texts: Sequence[str],
        expected: int,
        embedder: Embedder | None,
        *,
        read_pages: int = 0,
    ) -> None:
        embedded = await embedder.embed(texts) if embedder is not None and texts else None

        def store() -> None:
            vectors = [normalize(vector) for vector in embedded.vectors] if embedded else [None] * len(texts)
            made = [
                NewChunk(start + at, text, sorted(tokenizer.passage_words(text, document.language)), vector)
                for at, (text, vector) in enumerate(zip(texts, vectors, strict=True))
            ]
            with self._database.transaction() as tx:
                if not documents.assert_lease(tx, document):
                    raise DocumentLeaseLost
                if made:
                    chunk_rows.add(tx, document.tenant_id, document.base_id, document.id, made)
                tokens = embedded.tokens if embedded else 0
                documents.add_progress(
                    tx, document, more=len(made), expected=expected, tokens=tokens, read_pages=read_pages
                )

        await asyncio.to_thread(store)

    @asynccontextmanager
    async def _renew_lease(self, document: LeasedDocument) -> AsyncGenerator[None]:
        """Renew the lease until the block ends. If the lease is lost, the next store raises DocumentLeaseLost."""

        def renew() -> None:
            with self._database.transaction() as tx:
                documents.renew(tx, document, self._lease)

        async def renew_periodically() -> None:
            while True:
                await asyncio.sleep(self._lease.total_seconds() / 4)
                await asyncio.to_thread(renew)

        renewing = asyncio.create_task(renew_periodically())
        try:
            yield
        finally:
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing
