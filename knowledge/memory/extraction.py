"""Extraction: a model extracts facts, events and procedures from saved conversations (docs/tools.md).

A conversation that waits for extraction is a row; a free worker leases the oldest one. An extraction is one request to
the memory's model, one to its embedding model, and one transaction that stores the result and ends it. After a lost
process the next worker asks the model again, and nothing is stored twice.
"""

import asyncio
from datetime import timedelta

import structlog

from canvas.errors import ExecutorError, ModelError, NodeFailure, NotFound
from canvas.ids import LeaseId, TenantId
from knowledge.index import tokenizer
from knowledge.memory import prompts
from knowledge.memory.memories import LANGUAGE, MemoryStore
from knowledge.memory.prompts import ExtractedItem
from knowledge.models import Models, first_model_of
from providers.errors import RETRYABLE_CODES
from providers.models.billing.metering import RATE_LIMIT_TIMEOUT
from providers.models.text.sanitizer import without_reasoning
from providers.models.types.chat import ChatRequest
from store.db.database import Database
from store.knowledge import memories, memory_extractions
from store.knowledge.memories import TYPES, Memory
from store.knowledge.memory_extractions import MAX_TRIES, LeasedExtraction
from store.knowledge.memory_messages import NewMessage
from store.primitives.ids import new_id

log = structlog.get_logger()

LEASE = timedelta(minutes=12)  # a model call's ten minutes, and some more: the lease is not renewed
MAX_PAUSE = 60.0  # seconds


class Extraction:
    """Extracts from waiting conversations, one for each call of `next`.

    Call `next` from several threads to parallelise.
    """

    def __init__(self, database: Database, models: Models, lease: timedelta = LEASE) -> None:
        self._database = database
        self._models = models
        self._memories = MemoryStore(database, models)
        self._lease = lease

    async def next(self, tenant_id: TenantId | None = None) -> bool:
        """Process the conversation that has waited longest, of one tenant if named; return False if none waits."""
        extraction = await asyncio.to_thread(self._claim_next, tenant_id)
        if extraction is None:
            return False
        bound = {
            "memory_id": str(extraction.memory_id),
            "tenant_id": str(extraction.tenant_id),
            "number": extraction.number,
        }
        with structlog.contextvars.bound_contextvars(**bound):
            await self._run(extraction)
        return True

    def _claim_next(self, tenant_id: TenantId | None) -> LeasedExtraction | None:
        with self._database.transaction() as tx:
            return memory_extractions.claim_next(tx, LeaseId(new_id()), self._lease, tenant_id)

    async def _run(self, extraction: LeasedExtraction) -> None:
        if extraction.tries > MAX_TRIES:
            error_text = f"Extraction was started {MAX_TRIES} times, and the worker was lost each time."
            await asyncio.to_thread(self._fail, extraction, error_text)
            return
        try:
            count = await self._extract(extraction)
        except asyncio.CancelledError:
            self._release(extraction, "", 0.0, counts=False)
            raise
        except NotFound:
            log.info("memory_gone")
        except ExecutorError as failure:
            await self._handle_failure(extraction, failure)
        except Exception as error:  # noqa: BLE001 (a library may raise anything; other conversations still wait)
            log.error("memory_not_extracted", error=f"{type(error).__name__}: {error}".partition("\n")[0])
            await self._handle_failure(
                extraction, NodeFailure("Extraction failed. See the log for the reason.", retryable=True)
            )
        else:
            log.info("memory_extracted", messages=count)

    async def _handle_failure(self, extraction: LeasedExtraction, failure: ExecutorError) -> None:
        may_help = isinstance(failure, NodeFailure) and failure.retryable
        is_early = failure.details.get("kind") == RATE_LIMIT_TIMEOUT
        if may_help and (is_early or extraction.tries < MAX_TRIES):
            log.warning("memory_retried", error=failure.message, tries=extraction.tries)
            pause = min(2.0**extraction.tries, MAX_PAUSE)
            await asyncio.to_thread(self._release, extraction, failure.message, pause, counts=not is_early)
        else:
            log.warning("memory_failed", error=failure.message)
            await asyncio.to_thread(self._fail, extraction, failure.message)

    def _fail(self, extraction: LeasedExtraction, error: str) -> None:
        with self._database.transaction() as tx:
            memory_extractions.fail(tx, extraction, error)

    def _release(self, extraction: LeasedExtraction, error: str, pause: float, *, counts: bool) -> None:
        with self._database.transaction() as tx:
            memory_extractions.release(tx, extraction, error, timedelta(seconds=pause), counts=counts)

    # -- extraction -----------------------------------------------------------------------------------------------
    async def _extract(self, extraction: LeasedExtraction) -> int:
        """Ask the model and store its findings; return the number of messages."""
        memory = await asyncio.to_thread(self._memory, extraction)
        found = await self._ask_model(memory, extraction) if memory.extracted_types else []
        vectors = await self._memories.embed(memory, [each.content for each in found])

        def store() -> bool:
            made = [
                NewMessage(
                    TYPES[each.type],
                    each.content,
                    sorted(tokenizer.passage_words(each.content, LANGUAGE)),
                    vector,
                    each.valid_at,
                    each.invalid_at,
                )
                for each, vector in zip(found, vectors, strict=True)
            ]
            with self._database.transaction() as tx:
                return memory_extractions.complete(tx, memory, extraction, made)

        if not await asyncio.to_thread(store):
            log.info("memory_left")
            return 0
        return len(found)

    def _memory(self, extraction: LeasedExtraction) -> Memory:
        with self._database.statements() as tx:
            return memories.get(tx, extraction.tenant_id, extraction.memory_id)

    async def _ask_model(self, memory: Memory, extraction: LeasedExtraction) -> list[ExtractedItem]:
        """Return what the memory's model finds. Raises ModelError."""
        accounts = await asyncio.to_thread(self._models.accounts, extraction.tenant_id)
        llm_id = memory.chat_model or first_model_of(accounts, "chat")
        if not llm_id:
            raise ModelError(
                f'Memory "{memory.name}" has no chat model, and its tenant has no default one. Set one for the memory.',
                kind="MODEL_ERROR",
            )
        model = await self._models.open(extraction.tenant_id, llm_id)
        messages = prompts.build_messages(memory, extraction.content, extraction.valid_at)
        request = ChatRequest(messages, {"temperature": memory.temperature}, retries=None)
        answer = await model.complete(request)
        if answer.error is not None:
            code = answer.error.code
            raise ModelError(answer.text, retryable=code in RETRYABLE_CODES, kind=code, model=llm_id)
        return prompts.parse_items(without_reasoning(answer.text), memory.extracted_types, extraction.valid_at)
