"""Memories on real rows: what was said is kept once, found, looked through by a model, and gives way in the end."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.errors import Conflict, NotFound, ToolError
from knowledge.index import vector_codec
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
from tests.integration.memories import Notebook, extracted

ALL = sum(TYPES.values())
TEA = "User Input: I like green tea.\nAgent Response: Noted."
ROME = "User Input: I live in Rome.\nAgent Response: Noted."


ELSEWHERE = vector_codec.encode_vector([0.0] * (VECTOR_LENGTH - 1) + [1.0])


class Killed(BaseException):
    """What ends a process: nothing that runs in it notices."""


@dataclass
class Dying:
    """Models of a process that is killed once its chat model is asked for."""

    models: TenantModels

    def accounts(self, tenant_id: UUID) -> Any:
        return self.models.accounts(tenant_id)

    async def open(self, tenant_id: UUID, llm_id: str) -> ChatModel:
        raise Killed


@pytest.fixture
def book(database: Database, served: Vendor) -> Notebook:
    return a_notebook(database, served)


def a_notebook(database: Database, served: Vendor) -> Notebook:
    with database.transaction() as tx:
        tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
    return Notebook(database, tenant_id, [served.account])


# -- saving and finding ----------------------------------------------------------------------------------------------
def test_saved_exchange_is_found_by_vector_and_words(book: Notebook, served: Vendor) -> None:
    memory = book.memory(model=EMBEDDING)
    book.write(memory, "I like green tea.")
    book.write(memory, "I live in Rome.")

    found = book.find("Which tea does she like?", memory, limit=1)

    assert found == [TEA]
    assert served.embedded[0] == [TEA]


def test_exchange_of_one_activation_is_saved_once_under_concurrency(book: Notebook) -> None:
    memory = book.memory(model="")

    with ThreadPoolExecutor(4) as several:
        list(several.map(lambda _: book.write(memory, "I like green tea.", key="activation-1"), range(4)))
    book.write(memory, "I like green tea.", key="activation-1")

    assert [message.number for message in book.messages(memory)] == [1]
    assert book.again(memory).bytes == len(TEA)


def test_message_numbers_are_unique_under_concurrency(book: Notebook) -> None:
    memory = book.memory(model="")

    with ThreadPoolExecutor(4) as several:
        list(several.map(lambda at: book.write(memory, f"Fact {at}"), range(12)))

    assert sorted(message.number for message in book.messages(memory)) == list(range(1, 13))


def test_word_weight_of_the_node_is_used(book: Notebook, served: Vendor) -> None:
    """Row T20: all weight on the words leaves nothing to the vector, and the other way about."""
    memory = book.memory(model=EMBEDDING)
    book.write(memory, "I like green tea.")
    with book.database.transaction() as tx:  # as if the model saw no likeness, whatever the words are
        tx.execute(
            text("update memory_messages set vector = :vector where memory_id = :id"), vector=ELSEWHERE, id=memory.id
        )

    by_words = book.find("green tea", memory, word_weight=1.0, threshold=0.5)
    by_vector = book.find("green tea", memory, word_weight=0.0, threshold=0.5)

    assert (by_words, by_vector) == ([TEA], [])


def test_of_equally_near_messages_the_newest_comes_first(book: Notebook) -> None:
    memory = book.memory(model="")
    for when in ("Monday", "Tuesday", "Wednesday"):
        book.write(memory, "tea", when)

    found = book.find("tea", memory, word_weight=1.0)

    assert [text.rpartition(" ")[2] for text in found] == ["Wednesday", "Tuesday", "Monday"]


def test_a_search_can_be_narrowed_to_a_user(book: Notebook) -> None:
    memory = book.memory(model="")
    book.write(memory, "I like green tea.", user_id="ann")
    book.write(memory, "I like black tea.", user_id="bob")

    found = book.find("tea", memory, whose={"user_id": "ann"})

    assert found == [TEA]


def test_memories_of_several_embedding_models_are_not_searched_together(book: Notebook) -> None:
    one, other = book.memory("One", model="echo"), book.memory("Other", model=EMBEDDING)

    with pytest.raises(ToolError, match="Memory use different embedding models"):
        book.find("tea", one, other)


def test_what_is_forgotten_or_disabled_is_not_found(book: Notebook) -> None:
    memory = book.memory(model="")
    book.write(memory, "I like green tea.")
    book.write(memory, "I live in Rome.")

    with book.database.transaction() as tx:
        memory_messages.forget(tx, book.tenant_id, memory.id, 1)
        memory_messages.enable(tx, book.tenant_id, memory.id, 2, enabled=False)
    nothing = book.find("tea Rome", memory)
    with book.database.transaction() as tx:
        memory_messages.enable(tx, book.tenant_id, memory.id, 2, enabled=True)

    assert nothing == []
    assert book.find("tea Rome", memory) == [ROME]


# -- whose it is -----------------------------------------------------------------------------------------------------
def test_another_tenants_memory_is_neither_found_nor_written(
    database: Database, book: Notebook, served: Vendor
) -> None:
    memory = book.memory(model="")
    book.write(memory, "I like green tea.")
    stranger = a_notebook(database, served)

    named = asyncio.run(stranger.memories.find_by_name(stranger.tenant_id, [memory.id.hex, "Customers"]))
    with pytest.raises(ToolError, match=f"Memory \\['{memory.id.hex}'\\] not found."):
        save(stranger, [memory.id.hex])

    assert named == {}
    assert stranger.find("tea", memory) == []
    with pytest.raises(NotFound), database.transaction() as tx:
        memory_messages.forget(tx, stranger.tenant_id, memory.id, 1)
    assert len(book.messages(memory)) == 1


def test_existing_memories_are_written_although_others_are_missing(book: Notebook) -> None:
    memory = book.memory(model="")

    with pytest.raises(ToolError, match=r"Memory \['nobody', 'nothing'\] not found\."):
        save(book, ["nobody", "customers", memory.id.hex, "nothing"])

    assert len(book.messages(memory)) == 1


def test_a_name_is_taken_once_in_any_case(book: Notebook) -> None:
    book.memory("Customers")

    with pytest.raises(Conflict):
        book.memory("CUSTOMERS")


# -- extraction ------------------------------------------------------------------------------------------------------
def test_model_extracts_facts_and_events_from_a_conversation(book: Notebook, served: Vendor) -> None:
    memory = book.memory(types=ALL, model=EMBEDDING, chat=CHAT, temperature=0.3)
    served.answers.append(extracted(semantic=["Ann likes green tea."], episodic=["Ann moved to Rome."], other=["No."]))
    book.write(memory, "I like green tea, and I moved to Rome.", user_id="ann", session_id="s1")

    waited = book.told
    book.extract()

    assert waited == 1
    made = {message.content: message for message in book.messages(memory) if message.source}
    assert made.keys() == {"Ann likes green tea.", "Ann moved to Rome."}
    fact = made["Ann likes green tea."]
    assert (fact.type, fact.source, fact.user_id, fact.session_id) == (TYPES["semantic"], 1, "ann", "s1")
    assert book.find("green tea", memory, limit=1) == ["Ann likes green tea."]
    (asked,) = served.chatted
    assert asked["temperature"] == 0.3
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert "semantic, episodic, procedural" in asked["messages"][0]["content"]
    assert "I moved to Rome." in asked["messages"][1]["content"]


def test_times_are_those_of_the_answer_and_else_of_the_conversation(book: Notebook, served: Vendor) -> None:
    memory = book.memory(types=3, model="", chat=CHAT)
    served.answers.append(
        '{"semantic": [{"content": "A", "valid_at": "2024-02-03T04:05:06+02:00", "invalid_at": "2025-01-01"},'
        ' {"content": "B", "valid_at": "some day", "invalid_at": ""}]}'
    )
    book.write(memory, "Hello")

    book.extract()

    said, *_ = [message for message in book.messages(memory) if not message.source]
    by_content = {message.content: message for message in book.messages(memory)}
    assert by_content["A"].valid_at == datetime(2024, 2, 3, 2, 5, 6, tzinfo=UTC)
    assert by_content["A"].invalid_at == datetime(2025, 1, 1, tzinfo=UTC)
    assert (by_content["B"].valid_at, by_content["B"].invalid_at) == (said.valid_at, None)


def test_extraction_after_a_lost_process_stores_once(book: Notebook, served: Vendor) -> None:
    memory = book.memory(types=3, model="", chat=CHAT)
    book.write(memory, "I like green tea.")
    served.answers += [extracted(semantic=["Likes green tea."])] * 2

    with pytest.raises(Killed):
        book.extract(models=Dying(book.models), lease=timedelta(milliseconds=200))
    until(lambda: book.extract() == 1)
    again = book.extract()

    assert again == 0
    assert len([message for message in book.messages(memory) if message.source]) == 1
    assert len(served.chatted) == 1


def test_what_was_extracted_by_two_at_once_is_stored_once(book: Notebook, served: Vendor) -> None:
    memory = book.memory(types=3, model="", chat=CHAT)
    book.write(memory, "I like green tea.")
    served.answers += [extracted(semantic=["Likes green tea."])] * 2

    with pytest.raises(Killed):
        book.extract(models=Dying(book.models), lease=timedelta(0))  # the lease is over at once
    slow = _taken(book)
    until(lambda: book.extract() == 1)
    with book.database.transaction() as tx:
        stored = memory_extractions.complete(tx, memory, slow, [])

    assert stored is False
    assert len([message for message in book.messages(memory) if message.source]) == 1


def test_an_answer_that_cannot_be_read_extracts_nothing(book: Notebook, served: Vendor) -> None:
    memory = book.memory(types=ALL, model="", chat=CHAT)
    served.answers.append("There is nothing worth knowing.")
    book.write(memory, "Hello")

    book.extract()

    (said,) = book.messages(memory)
    assert (said.extraction, said.error) == ("done", "")


def test_a_model_that_refuses_fails_the_extraction_alone(book: Notebook, served: Vendor) -> None:
    memory = book.memory(types=ALL, model="", chat=CHAT)
    book.write(memory, "I like green tea.")  # and the vendor has no answers: 400

    book.extract()

    (said,) = book.messages(memory)
    assert said.extraction == "failed"
    assert "no more answers" in said.error
    assert book.find("tea", memory) == [TEA]


def test_conversation_that_kills_every_worker_fails(book: Notebook) -> None:
    memory = book.memory(types=ALL, model="", chat=CHAT)
    book.write(memory, "A conversation that kills.")

    for _ in range(MAX_TRIES):
        with pytest.raises(Killed):
            book.extract(models=Dying(book.models), lease=timedelta(0))
    book.extract(models=Dying(book.models))

    (said,) = book.messages(memory)
    assert said.extraction == "failed"


def test_cancelled_extraction_is_released_without_a_try(book: Notebook) -> None:
    memory = book.memory(types=ALL, model="", chat=CHAT)
    book.write(memory, "I like green tea.")

    async def stopped() -> None:
        extraction = Extraction(book.database, Hanging(book.models))
        going_on = asyncio.create_task(extraction.next(book.tenant_id))
        await asyncio.wait_for(hangs.wait(), 10)
        going_on.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going_on

    hangs = asyncio.Event()

    class Hanging(Dying):
        async def open(self, tenant_id: UUID, llm_id: str) -> ChatModel:
            hangs.set()
            await asyncio.Event().wait()
            raise AssertionError("it never wakes up")

    asyncio.run(stopped())

    taken = _taken(book)
    assert taken.tries == 1


# -- room ------------------------------------------------------------------------------------------------------------
def test_full_memory_evicts_forgotten_messages_then_the_oldest(book: Notebook) -> None:
    memory = book.memory(model="", most_bytes=4 * len(TEA))
    for number in range(4):
        book.write(memory, f"I like tea {number} ..")
    with book.database.transaction() as tx:
        memory_messages.forget(tx, book.tenant_id, memory.id, 3)

    book.write(memory, "I like tea 4 ..")
    first = sorted(message.number for message in book.messages(memory))
    book.write(memory, "I like tea 5 ..")

    assert first == [1, 2, 4, 5]
    assert sorted(message.number for message in book.messages(memory)) == [2, 4, 5, 6]
    assert book.again(memory).bytes == sum(len(message.content) for message in book.messages(memory))


@pytest.mark.parametrize(("policy", "most_bytes"), [("NONE", len(TEA)), ("FIFO", len(TEA) - 10)])
def test_memory_that_cannot_evict_reports_an_error_and_keeps_its_messages(
    book: Notebook, policy: str, most_bytes: int
) -> None:
    memory = book.memory(model="", most_bytes=most_bytes, policy=policy)
    if policy == "NONE":
        book.write(memory, "I like green tea.")

    with pytest.raises(ToolError, match="Memory size reached limit and cannot decide which to delete"):
        book.write(memory, "I like green tea, and much more than that.")

    assert len(book.messages(memory)) == (1 if policy == "NONE" else 0)


def test_a_deleted_memory_takes_its_messages_along(book: Notebook) -> None:
    memory = book.memory(types=ALL, model="")
    book.write(memory, "I like green tea.")

    with book.database.transaction() as tx:
        memories.delete(tx, book.tenant_id, memory.id)

    assert book.extract() == 0
    with pytest.raises(NotFound):
        book.write(memory, "I live in Rome.")


# -- in other words --------------------------------------------------------------------------------------------------
def save(book: Notebook, memory_ids: list[str]) -> None:
    """Save as a Message does."""
    record = {"user_id": "", "agent_id": "", "session_id": "", "user_input": "Hi", "agent_response": "Hello"}
    asyncio.run(TenantMemories(book.tenant_id, book.memories).save(memory_ids, record, "key"))


def _taken(book: Notebook) -> memory_extractions.LeasedExtraction:
    with book.database.transaction() as tx:
        taken = memory_extractions.claim_next(tx, new_id(), timedelta(0), book.tenant_id)
    assert taken is not None
    return taken
