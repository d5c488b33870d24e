"""Memories on a real database: saving, search, extraction by a model, and eviction."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.errors import Conflict, NotFound, ToolError
from knowledge.memory.extraction import Extraction
from knowledge.memory_router import TenantMemories
from knowledge.models import TenantModels
from providers.models.embeddings.hashed_words import VECTOR_LENGTH
from providers.models.types.chat import ChatModel
from store.db.database import Database
from store.knowledge import memories, memory_extractions, memory_messages
from store.knowledge.memories import TYPES
from store.knowledge.memory_extractions import MAX_TRIES
from store.primitives.ids import new_id
from store.tenants import tenants
from tests.integration.engine import until
from tests.integration.knowledge_bases import CHAT, EMBEDDING, Vendor
from tests.integration.memories import MemoryTenant, extraction_answer

ALL = sum(TYPES.values())
TEA = "User Input: I like green tea.\nAgent Response: Noted."
ROME = "User Input: I live in Rome.\nAgent Response: Noted."


UNSIMILAR_VECTOR = [0.0] * (VECTOR_LENGTH - 1) + [1.0]


class Killed(BaseException):
    """Simulates a killed process: no code handles it."""


@dataclass
class DyingModels:
    """Models of a process that is killed when it opens its chat model."""

    models: TenantModels

    def accounts(self, tenant_id: UUID) -> Any:
        return self.models.accounts(tenant_id)

    async def open(self, tenant_id: UUID, llm_id: str) -> ChatModel:
        raise Killed


@pytest.fixture
def tenant(database: Database, model_vendor: Vendor) -> MemoryTenant:
    return create_tenant(database, model_vendor)


def create_tenant(database: Database, model_vendor: Vendor) -> MemoryTenant:
    with database.transaction() as tx:
        tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
    return MemoryTenant(database, tenant_id, [model_vendor.account])


# -- saving and finding ----------------------------------------------------------------------------------------------
def test_saved_exchange_is_found_by_vector_and_words(tenant: MemoryTenant, model_vendor: Vendor) -> None:
    memory = tenant.memory(model=EMBEDDING)
    tenant.write(memory, "I like green tea.")
    tenant.write(memory, "I live in Rome.")

    found = tenant.find("Which tea does she like?", memory, limit=1)

    assert found == [TEA]
    assert model_vendor.embedded[0] == [TEA]


def test_exchange_of_one_activation_is_saved_once_under_concurrency(tenant: MemoryTenant) -> None:
    memory = tenant.memory(model="")

    with ThreadPoolExecutor(4) as several:
        list(several.map(lambda _: tenant.write(memory, "I like green tea.", key="activation-1"), range(4)))
    tenant.write(memory, "I like green tea.", key="activation-1")

    assert [message.number for message in tenant.messages(memory)] == [1]
    assert tenant.reload(memory).bytes == len(TEA)


def test_message_numbers_are_unique_under_concurrency(tenant: MemoryTenant) -> None:
    memory = tenant.memory(model="")

    with ThreadPoolExecutor(4) as several:
        list(several.map(lambda at: tenant.write(memory, f"Fact {at}"), range(12)))

    assert sorted(message.number for message in tenant.messages(memory)) == list(range(1, 13))


def test_word_weight_of_the_node_is_used(tenant: MemoryTenant, model_vendor: Vendor) -> None:
    """With all weight on the words the vector does not count, and the other way about."""
    memory = tenant.memory(model=EMBEDDING)
    tenant.write(memory, "I like green tea.")
    with tenant.database.transaction() as tx:  # a vector that is similar to none
        tx.execute(
            text("update memory_messages set embedding = cast(:embedding as real[]) where memory_id = :id"),
            embedding=UNSIMILAR_VECTOR,
            id=memory.id,
        )

    by_words = tenant.find("green tea", memory, word_weight=1.0, threshold=0.5)
    by_vector = tenant.find("green tea", memory, word_weight=0.0, threshold=0.5)

    assert (by_words, by_vector) == ([TEA], [])


def test_newest_of_equally_near_messages_comes_first(tenant: MemoryTenant) -> None:
    memory = tenant.memory(model="")
    for when in ("Monday", "Tuesday", "Wednesday"):
        tenant.write(memory, "tea", when)

    found = tenant.find("tea", memory, word_weight=1.0)

    assert [text.rpartition(" ")[2] for text in found] == ["Wednesday", "Tuesday", "Monday"]


def test_search_can_be_limited_to_a_user(tenant: MemoryTenant) -> None:
    memory = tenant.memory(model="")
    tenant.write(memory, "I like green tea.", user_id="ann")
    tenant.write(memory, "I like black tea.", user_id="bob")

    found = tenant.find("tea", memory, scope={"user_id": "ann"})

    assert found == [TEA]


def test_memories_of_several_embedding_models_are_not_searched_together(tenant: MemoryTenant) -> None:
    one, other = tenant.memory("One", model="echo"), tenant.memory("Other", model=EMBEDDING)

    with pytest.raises(ToolError, match="Memory use different embedding models"):
        tenant.find("tea", one, other)


def test_forgotten_and_disabled_messages_are_not_found(tenant: MemoryTenant) -> None:
    memory = tenant.memory(model="")
    tenant.write(memory, "I like green tea.")
    tenant.write(memory, "I live in Rome.")

    with tenant.database.transaction() as tx:
        memory_messages.forget(tx, tenant.tenant_id, memory.id, 1)
        memory_messages.enable(tx, tenant.tenant_id, memory.id, 2, enabled=False)
    nothing = tenant.find("tea Rome", memory)
    with tenant.database.transaction() as tx:
        memory_messages.enable(tx, tenant.tenant_id, memory.id, 2, enabled=True)

    assert nothing == []
    assert tenant.find("tea Rome", memory) == [ROME]


# -- tenants --------------------------------------------------------------------------------------------------------
def test_another_tenants_memory_is_neither_found_nor_written(
    database: Database, tenant: MemoryTenant, model_vendor: Vendor
) -> None:
    memory = tenant.memory(model="")
    tenant.write(memory, "I like green tea.")
    other_tenant = create_tenant(database, model_vendor)

    by_name = asyncio.run(other_tenant.memories.find_by_name(other_tenant.tenant_id, [memory.id.hex, "Customers"]))
    with pytest.raises(ToolError, match=f"Memory \\['{memory.id.hex}'\\] not found."):
        save(other_tenant, [memory.id.hex])

    assert by_name == {}
    assert other_tenant.find("tea", memory) == []
    with pytest.raises(NotFound), database.transaction() as tx:
        memory_messages.forget(tx, other_tenant.tenant_id, memory.id, 1)
    assert len(tenant.messages(memory)) == 1


def test_existing_memories_are_written_although_others_are_missing(tenant: MemoryTenant) -> None:
    memory = tenant.memory(model="")

    with pytest.raises(ToolError, match=r"Memory \['nobody', 'nothing'\] not found\."):
        save(tenant, ["nobody", "customers", memory.id.hex, "nothing"])

    assert len(tenant.messages(memory)) == 1


def test_memory_names_are_unique_regardless_of_case(tenant: MemoryTenant) -> None:
    tenant.memory("Customers")

    with pytest.raises(Conflict):
        tenant.memory("CUSTOMERS")


# -- extraction ------------------------------------------------------------------------------------------------------
def test_model_extracts_facts_and_events_from_a_conversation(tenant: MemoryTenant, model_vendor: Vendor) -> None:
    memory = tenant.memory(types=ALL, model=EMBEDDING, chat=CHAT, temperature=0.3)
    model_vendor.answers.append(
        extraction_answer(semantic=["Ann likes green tea."], episodic=["Ann moved to Rome."], other=["No."])
    )
    tenant.write(memory, "I like green tea, and I moved to Rome.", user_id="ann", session_id="s1")

    requests = tenant.extraction_requests
    tenant.extract()

    assert requests == 1
    extracted = {message.content: message for message in tenant.messages(memory) if message.source}
    assert extracted.keys() == {"Ann likes green tea.", "Ann moved to Rome."}
    fact = extracted["Ann likes green tea."]
    assert (fact.type, fact.source, fact.user_id, fact.session_id) == (TYPES["semantic"], 1, "ann", "s1")
    assert tenant.find("green tea", memory, limit=1) == ["Ann likes green tea."]
    (request,) = model_vendor.chatted
    assert request["temperature"] == 0.3
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert "semantic, episodic, procedural" in request["messages"][0]["content"]
    assert "I moved to Rome." in request["messages"][1]["content"]


def test_extracted_times_default_to_the_time_of_the_conversation(tenant: MemoryTenant, model_vendor: Vendor) -> None:
    memory = tenant.memory(types=3, model="", chat=CHAT)
    model_vendor.answers.append(
        '{"semantic": [{"content": "A", "valid_at": "2024-02-03T04:05:06+02:00", "invalid_at": "2025-01-01"},'
        ' {"content": "B", "valid_at": "some day", "invalid_at": ""}]}'
    )
    tenant.write(memory, "Hello")

    tenant.extract()

    message, *_ = [message for message in tenant.messages(memory) if not message.source]
    by_content = {message.content: message for message in tenant.messages(memory)}
    assert by_content["A"].valid_at == datetime(2024, 2, 3, 2, 5, 6, tzinfo=UTC)
    assert by_content["A"].invalid_at == datetime(2025, 1, 1, tzinfo=UTC)
    assert (by_content["B"].valid_at, by_content["B"].invalid_at) == (message.valid_at, None)


def test_extraction_after_a_lost_process_stores_once(tenant: MemoryTenant, model_vendor: Vendor) -> None:
    memory = tenant.memory(types=3, model="", chat=CHAT)
    tenant.write(memory, "I like green tea.")
    model_vendor.answers += [extraction_answer(semantic=["Likes green tea."])] * 2

    with pytest.raises(Killed):
        tenant.extract(models=DyingModels(tenant.models), lease=timedelta(milliseconds=200))
    until(lambda: tenant.extract() == 1)
    repeated = tenant.extract()

    assert repeated == 0
    assert len([message for message in tenant.messages(memory) if message.source]) == 1
    assert len(model_vendor.chatted) == 1


def test_concurrent_extractions_of_one_exchange_are_stored_once(tenant: MemoryTenant, model_vendor: Vendor) -> None:
    memory = tenant.memory(types=3, model="", chat=CHAT)
    tenant.write(memory, "I like green tea.")
    model_vendor.answers += [extraction_answer(semantic=["Likes green tea."])] * 2

    with pytest.raises(Killed):
        tenant.extract(models=DyingModels(tenant.models), lease=timedelta(0))  # the lease expires at once
    slow = claim_extraction(tenant)
    until(lambda: tenant.extract() == 1)
    with tenant.database.transaction() as tx:
        stored = memory_extractions.complete(tx, memory, slow, [])

    assert stored is False
    assert len([message for message in tenant.messages(memory) if message.source]) == 1


def test_unparsable_model_answer_extracts_nothing(tenant: MemoryTenant, model_vendor: Vendor) -> None:
    memory = tenant.memory(types=ALL, model="", chat=CHAT)
    model_vendor.answers.append("There is nothing worth knowing.")
    tenant.write(memory, "Hello")

    tenant.extract()

    (message,) = tenant.messages(memory)
    assert (message.extraction, message.error) == ("done", "")


def test_model_error_fails_the_extraction_and_the_message_stays_searchable(
    tenant: MemoryTenant, model_vendor: Vendor
) -> None:
    memory = tenant.memory(types=ALL, model="", chat=CHAT)
    tenant.write(memory, "I like green tea.")  # the vendor has no answers, and returns 400

    tenant.extract()

    (message,) = tenant.messages(memory)
    assert message.extraction == "failed"
    assert "no more answers" in message.error
    assert tenant.find("tea", memory) == [TEA]


def test_conversation_that_kills_every_worker_fails(tenant: MemoryTenant) -> None:
    memory = tenant.memory(types=ALL, model="", chat=CHAT)
    tenant.write(memory, "A conversation that kills.")

    for _ in range(MAX_TRIES):
        with pytest.raises(Killed):
            tenant.extract(models=DyingModels(tenant.models), lease=timedelta(0))
    tenant.extract(models=DyingModels(tenant.models))

    (message,) = tenant.messages(memory)
    assert message.extraction == "failed"


def test_cancelled_extraction_is_released_without_counting_a_try(tenant: MemoryTenant) -> None:
    memory = tenant.memory(types=ALL, model="", chat=CHAT)
    tenant.write(memory, "I like green tea.")

    async def cancel_extraction() -> None:
        extraction = Extraction(tenant.database, HangingModels(tenant.models))
        extracting = asyncio.create_task(extraction.next(tenant.tenant_id))
        await asyncio.wait_for(has_started.wait(), 10)
        extracting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await extracting

    has_started = asyncio.Event()

    class HangingModels(DyingModels):
        async def open(self, tenant_id: UUID, llm_id: str) -> ChatModel:
            has_started.set()
            await asyncio.Event().wait()
            raise AssertionError("not reached")

    asyncio.run(cancel_extraction())

    extraction = claim_extraction(tenant)
    assert extraction.tries == 1


# -- eviction --------------------------------------------------------------------------------------------------------
def test_full_memory_evicts_forgotten_messages_then_the_oldest(tenant: MemoryTenant) -> None:
    memory = tenant.memory(model="", most_bytes=4 * len(TEA))
    for number in range(4):
        tenant.write(memory, f"I like tea {number} ..")
    with tenant.database.transaction() as tx:
        memory_messages.forget(tx, tenant.tenant_id, memory.id, 3)

    tenant.write(memory, "I like tea 4 ..")
    first = sorted(message.number for message in tenant.messages(memory))
    tenant.write(memory, "I like tea 5 ..")

    assert first == [1, 2, 4, 5]
    assert sorted(message.number for message in tenant.messages(memory)) == [2, 4, 5, 6]
    assert tenant.reload(memory).bytes == sum(len(message.content) for message in tenant.messages(memory))


@pytest.mark.parametrize(("policy", "most_bytes"), [("NONE", len(TEA)), ("FIFO", len(TEA) - 10)])
def test_memory_that_cannot_evict_reports_an_error_and_keeps_its_messages(
    tenant: MemoryTenant, policy: str, most_bytes: int
) -> None:
    memory = tenant.memory(model="", most_bytes=most_bytes, policy=policy)
    if policy == "NONE":
        tenant.write(memory, "I like green tea.")

    with pytest.raises(ToolError, match="Memory size reached limit and cannot decide which to delete"):
        tenant.write(memory, "I like green tea, and much more than that.")

    assert len(tenant.messages(memory)) == (1 if policy == "NONE" else 0)


def test_messages_are_deleted_with_their_memory(tenant: MemoryTenant) -> None:
    memory = tenant.memory(types=ALL, model="")
    tenant.write(memory, "I like green tea.")

    with tenant.database.transaction() as tx:
        memories.delete(tx, tenant.tenant_id, memory.id)

    assert tenant.extract() == 0
    with pytest.raises(NotFound):
        tenant.write(memory, "I live in Rome.")


# -- helpers ---------------------------------------------------------------------------------------------------------
def save(tenant: MemoryTenant, memory_ids: list[str]) -> None:
    """Save an exchange as a Message node does."""
    record = {"user_id": "", "agent_id": "", "session_id": "", "user_input": "Hi", "agent_response": "Hello"}
    asyncio.run(TenantMemories(tenant.tenant_id, tenant.memories).save(memory_ids, record, "key"))


def claim_extraction(tenant: MemoryTenant) -> memory_extractions.LeasedExtraction:
    with tenant.database.transaction() as tx:
        extraction = memory_extractions.claim_next(tx, new_id(), timedelta(0), tenant.tenant_id)
    assert extraction is not None
    return extraction
