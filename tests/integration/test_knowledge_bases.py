"""Knowledge bases on real rows: documents are read, however often whoever reads them ends, and passages are found."""

import asyncio
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from api.knowledge.datasets import delete_base
from api.knowledge.documents import _delete  # pyright: ignore[reportPrivateUsage]
from canvas.errors import ToolError
from knowledge.bases.ingestion import storage_of
from knowledge.bases.search import SearchQuery
from knowledge.models import TenantModels
from providers.models.transport.clients import close_connections
from providers.models.types.embeddings import EmbeddingResult
from store.db.database import Database
from store.knowledge import bases as knowledge_bases
from store.knowledge import chunks
from store.knowledge import documents as knowledge_documents
from store.primitives.ids import new_id
from store.tenants import tenants
from tests.integration.engine import until
from tests.integration.knowledge_bases import CHAT, EMBEDDING, RANKS, Shop, Vendor
from tests.integration.store.slow_storage import SlowStorage

REFUNDS = "Refunds take five days, after which the money is there."
WAITS = text("""
    select count(*) from pg_locks join pg_database on pg_database.oid = database
    where not granted and relation = 'knowledge_chunks'::regclass and datname = current_database()
""")
HOLIDAYS = "Holidays are thirty days a year, Sundays not counted."


class Killed(BaseException):
    """What ends a process: nothing that runs in it notices."""


@dataclass
class Dying:
    """Models of a process that is killed when it asks for vectors once too often."""

    models: TenantModels
    at: int

    async def embedder(self, tenant_id: UUID, llm_id: str) -> "Dying":
        self.real = await self.models.embedder(tenant_id, llm_id)
        return self

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        self.at -= 1
        if not self.at:
            raise Killed
        return await self.real.embed(texts)


RULES = "\n\n".join(f"Rule {number}: on day {number} nobody leaves the house before noon." for number in range(200))


@pytest.fixture
def shop(database: Database, served: Vendor, tmp_path: Path) -> Shop:
    return a_shop(database, served, tmp_path)


def a_shop(database: Database, served: Vendor, folder: Path, **given: int) -> Shop:
    with database.transaction() as tx:
        tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
    return Shop(database, tenant_id, folder, [served.account], **given)


# -- reading ---------------------------------------------------------------------------------------------------------
def test_a_document_is_read_and_its_nearest_passage_is_found(shop: Shop, served: Vendor) -> None:
    base = shop.base(model=EMBEDDING, tokens=16)
    added = shop.add(base, "policy.md", f"{REFUNDS}\n\n{HOLIDAYS}", year=2024)

    shop.read()

    found = shop.find("How many days of holidays are there?", limit=1)
    (chunk,) = found["chunks"]
    assert chunk["content_with_weight"] == HOLIDAYS
    assert (chunk["docnm_kwd"], chunk["kb_id"]) == ("policy.md", base.hex)
    assert chunk["document_metadata"] == {"year": 2024}
    assert chunk["similarity"] == pytest.approx((chunk["vector_similarity"] + chunk["term_similarity"]) / 2, abs=1e-5)
    assert found["doc_aggs"] == [{"doc_name": "policy.md", "doc_id": added.id.hex, "count": 1}]
    assert shop.document(added).tokens == 7
    assert served.embedded[0] == [REFUNDS, HOLIDAYS]


def test_a_base_without_a_model_is_searched_by_words(shop: Shop) -> None:
    base = shop.base(model="", language="Chinese")
    shop.add(base, "zh.txt", "我们的退款政策：五天之内。")
    shop.add(base, "other.txt", "员工每年有三十天假期。")
    shop.read()

    assert shop.names("退款") == ["zh.txt"]
    assert shop.names("假期有多少天", limit=1) == ["other.txt"]


def test_the_same_content_is_in_a_base_once_and_another_content_gets_a_number(shop: Shop) -> None:
    base, other = shop.base(), shop.base("Other")

    first = shop.add(base, "a.txt", "One content.")
    again = shop.add(base, "b.txt", "One content.")
    renamed = shop.add(base, "a.txt", "Another content.")
    elsewhere = shop.add(other, "a.txt", "One content.")

    assert again.id == first.id
    assert renamed.name == "a(1).txt"
    assert elsewhere.id != first.id


def test_ingestion_after_a_lost_process_continues_from_the_stored_chunks(shop: Shop, served: Vendor) -> None:
    base = shop.base(model=EMBEDDING)
    added = shop.add(base, "rules.txt", RULES)

    with pytest.raises(Killed):
        asyncio.run(
            shop.ingestion(models=Dying(shop.models, 2), lease=timedelta(milliseconds=200)).next(shop.tenant_id)
        )
    left = shop.document(added)
    paid = len(list(chain(*served.embedded)))
    until(lambda: shop.read() == 1)

    assert (left.status, shop.document(added).status) == ("pending", "done")
    assert 0 < left.chunks < shop.document(added).chunks
    with shop.database.transaction() as tx:
        stored = [row.text for row in chunks.list_of_document(tx, shop.tenant_id, added.id, most=999, skipped=0)]
    assert "".join("".join(stored).split()) == "".join(RULES.split())
    assert paid == left.chunks
    assert list(chain(*served.embedded)) == stored


def test_partly_stored_document_is_not_found(shop: Shop) -> None:
    base = shop.base()
    added = shop.add(base, "rules.txt", RULES)
    shop.read()
    with shop.database.transaction() as tx:
        knowledge_documents.start_processing(tx, shop.tenant_id, base, [added.id])

    assert shop.names("rule") == []
    shop.read()
    assert shop.names("rule", limit=1) == ["rules.txt"]


def test_concurrent_ingestions_lease_different_documents(shop: Shop) -> None:
    base = shop.base()
    both = [shop.add(base, f"{number}.txt", f"Number {number}. {RULES}") for number in range(2)]

    async def read() -> list[bool]:
        return await asyncio.gather(*(shop.ingestion().next(shop.tenant_id) for _ in range(3)))

    assert sorted(asyncio.run(read())) == [False, True, True]
    assert {shop.document(each).status for each in both} == {"done"}


def test_cancelled_document_is_abandoned_by_its_reader(shop: Shop, served: Vendor) -> None:
    base = shop.base(model=EMBEDDING)
    added = shop.add(base, "rules.txt", RULES)

    async def read_and_stop() -> None:
        reading = asyncio.create_task(shop.ingestion().next(shop.tenant_id))
        while not served.embedded:
            await asyncio.sleep(0.002)
        with shop.database.transaction() as tx:
            knowledge_documents.stop_processing(tx, shop.tenant_id, base, [added.id])
        await reading
        await close_connections()

    asyncio.run(read_and_stop())

    assert shop.document(added).status == "uploaded"
    assert shop.names("rule") == []


def test_cancelled_ingestion_releases_the_document_without_a_try(shop: Shop, served: Vendor) -> None:
    base = shop.base(model=EMBEDDING)
    added = shop.add(base, "rules.txt", RULES)

    async def read_and_cancel() -> None:
        reading = asyncio.create_task(shop.ingestion().next(shop.tenant_id))
        while not served.embedded:
            await asyncio.sleep(0.002)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await close_connections()

    asyncio.run(read_and_cancel())

    assert shop.read() == 1
    assert shop.document(added).status == "done"


def test_error_of_the_model_is_stored_with_the_document(shop: Shop, served: Vendor) -> None:
    base = shop.base(model=EMBEDDING)
    added = shop.add(base, "a.txt", "Something.")
    served.refusals = 9

    shop.read()

    failed = shop.document(added)
    assert failed.status == "failed"
    assert "this text is not welcome" in failed.error
    assert "sk-secret" not in failed.error


def test_document_that_kills_every_worker_fails(shop: Shop) -> None:
    base = shop.base()
    added = shop.add(base, "a.txt", "Something.")
    for _ in range(knowledge_documents.MAX_TRIES):
        with shop.database.transaction() as tx:
            assert knowledge_documents.claim_next(tx, new_id(), timedelta(0), shop.tenant_id)

    shop.read()

    assert shop.document(added).status == "failed"
    assert "started 5 times" in shop.document(added).error


@pytest.mark.parametrize(("kind", "megabytes"), [("docx", 70), ("xlsx", 260)])
def test_a_file_that_unpacks_to_too_much_is_refused(shop: Shop, kind: str, megabytes: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        inside = "word/document.xml" if kind == "docx" else "xl/workbook.xml"
        with archive.open(inside, "w") as member:
            for _ in range(megabytes):
                member.write(bytes(1024 * 1024))
    base = shop.base()
    added = shop.add(base, f"bomb.{kind}", packed.getvalue())

    shop.read()

    assert shop.document(added).status == "failed"
    assert "unpacks to more than can be read" in shop.document(added).error


def test_entities_of_xml_that_multiply_are_not_followed(shop: Shop) -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    document = (
        f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY l0 "ha">{laughs}]>'
        '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>'
        "&l11;</w:t></w:r></w:p></w:body></w:document>"
    )
    types = (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Override PartName='
        '"/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.'
        'document.main+xml"/><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/></Types>'
    )
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
        'Target="word/document.xml"/></Relationships>'
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("[Content_Types].xml", types)
        archive.writestr("_rels/.rels", relations)
        archive.writestr("word/document.xml", document)
    base = shop.base()
    added = shop.add(base, "laughs.docx", packed.getvalue())

    shop.read()

    assert shop.document(added).chunks == 0 or shop.document(added).status == "failed"


# -- searching -------------------------------------------------------------------------------------------------------
@pytest.fixture
def library(shop: Shop) -> Shop:
    """A base with three documents of different years."""
    base = shop.base(model=EMBEDDING)
    shop.add(base, "2019.txt", "Refunds take nine days.", year=2019, lang="en")
    shop.add(base, "2024.txt", "Refunds take five days.", year=2024, lang="en")
    shop.add(base, "bare.txt", "Refunds are slow.")
    shop.read()
    return shop


def manual(*conditions: dict[str, object], logic: str = "and") -> dict[str, object]:
    return {"method": "manual", "logic": logic, "manual": list(conditions)}


def test_a_filter_that_its_author_wrote_decides_which_documents_are_found(library: Shop) -> None:
    recent = manual({"key": "year", "op": "≥", "value": "2020"})
    none = manual({"key": "year", "op": ">", "value": "2030"})

    assert library.names("refunds", filter=recent) == ["2024.txt"]
    assert library.names("refunds", filter=none) == []
    assert sorted(library.names("refunds", filter=manual())) == ["2019.txt", "2024.txt", "bare.txt"]


def test_prompt_of_an_automatic_filter_contains_keys_and_values(library: Shop, served: Vendor) -> None:
    served.answers = ['{"conditions": [{"key": "year", "op": "=", "value": 2019}]}']

    found = library.names("refunds in 2019", filter={"method": "auto"})

    assert found == ["2019.txt"]
    (asked,) = served.chatted
    assert asked["model"] == CHAT.partition("@")[0]
    assert '"year": ["2019", "2024"]' in asked["messages"][0]["content"]


def test_semi_automatic_filter_has_the_authors_keys_and_operators(library: Shop, served: Vendor) -> None:
    served.answers = ['[{"key": "year", "op": "=", "value": 2019}, {"key": "lang", "op": "=", "value": "fr"}]']

    after = {"method": "semi_auto", "semi_auto": [{"key": "year", "op": ">"}]}

    assert library.names("refunds after 2019", filter=after) == ["2024.txt"]
    assert '"lang"' not in served.chatted[0]["messages"][0]["content"]


@pytest.mark.parametrize("answers", [[], ["no idea"], ['{"conditions": [{"key": "year", "op": "=", "value": 1}]}']])
def test_a_model_that_finds_no_filter_leaves_the_search_as_it_was(
    library: Shop, served: Vendor, answers: list[str]
) -> None:
    served.answers = answers

    assert len(library.names("refunds", filter={"method": "auto"})) == 3


def test_query_contains_the_question_and_its_translations(library: Shop, served: Vendor) -> None:
    served.answers = ["refunds ### remboursements"]

    assert len(library.names("Rückerstattungen", languages=["English", "French"], threshold=0.4)) == 3
    assert served.embedded[-1] == ["Rückerstattungen\nrefunds\nremboursements"]
    assert library.names("Refunds", languages=["French"], limit=1)  # the model has no answer left: without it


def test_reranker_decides_the_order(library: Shop, served: Vendor) -> None:
    found = library.find("refunds", rerank_id=RANKS, word_weight=0.0, threshold=0.5)

    (asked,) = served.ranked
    assert asked["query"] == "refunds"
    assert [chunk["content_with_weight"] for chunk in found["chunks"]] == asked["documents"][:2]
    assert [chunk["similarity"] for chunk in found["chunks"]] == [1.0, 0.5]


def test_bases_of_different_models_are_not_searched_together(library: Shop) -> None:
    library.base("Other", model="echo")

    with pytest.raises(ToolError, match=r"Knowledge bases use different embedding models\."):
        library.find("refunds", "Policies", "Other")


HANDBOOK = """# Leave
## 1.1 Holidays
Holidays are thirty days a year, and Sundays are not counted among them at all.

## 1.2 Illness
Whoever is ill says so on the first day, and brings a note on the fourth one.

# Money
Refunds take five days, after which the money is there for everybody to see.
"""


@pytest.fixture
def handbook(shop: Shop) -> Shop:
    base = shop.base(model=EMBEDDING, tokens=32)
    shop.add(base, "handbook.md", HANDBOOK)
    shop.add(base, "other.txt", "Holidays of others are none of ours.")
    shop.read()
    return shop


def test_passages_of_a_picked_section_come_first(handbook: Shop, served: Vendor) -> None:
    served.answers = ["I would read [2, 77, true]"]

    found = handbook.find("How many holidays are there?", use_table_of_contents=True, threshold=0.0, limit=2)
    without = handbook.find("How many holidays are there?", threshold=0.0, limit=2)

    (asked,) = served.chatted
    assert "0 Leave\n  1 1.1 Holidays\n  2 1.2 Illness\n3 Money" in asked["messages"][0]["content"]
    assert "brings a note" in found["chunks"][0]["content_with_weight"]
    assert "brings a note" not in str(without["chunks"][0])


@pytest.mark.parametrize("answers", [[], ["[]"], ["nothing of use"], ["[99, -1]"]])
def test_result_is_unchanged_if_the_model_picks_no_heading(handbook: Shop, served: Vendor, answers: list[str]) -> None:
    served.answers = answers

    found = handbook.find("How many holidays are there?", use_table_of_contents=True)

    assert found == handbook.find("How many holidays are there?")


def test_document_without_headings_needs_no_model_call(library: Shop, served: Vendor) -> None:
    assert library.names("refunds", use_table_of_contents=True) == library.names("refunds")
    assert served.chatted == []


def test_key_words_of_a_model_are_added_to_the_query(library: Shop, served: Vendor) -> None:
    served.answers = ["refunds, Refunds，money"]

    found = library.find("When do I get back what I paid?", add_key_words=True, word_weight=1.0, threshold=0.3)

    assert len(found["chunks"]) == 3
    assert served.embedded[-1] == ["When do I get back what I paid?\nrefunds Refunds money"]
    assert library.names("refunds", add_key_words=True)  # the model has no answer left: without it


def test_passages_have_highlighted_query_words(library: Shop) -> None:
    (first, *_) = library.find("How long does a refund take?", highlight=True)["chunks"]

    assert "<em>Refunds</em>" in first["highlight"]
    assert "<em>" not in first["content_with_weight"]


def test_a_graph_that_nobody_has_configured_is_an_error(library: Shop) -> None:
    with pytest.raises(ToolError, match="No knowledge graph is configured"):
        library.find("refunds", use_graph=True)


def test_deleted_and_added_documents_are_seen_by_the_next_search(library: Shop) -> None:
    with library.database.transaction() as tx:
        (base,) = knowledge_bases.find_by_id_or_name(tx, library.tenant_id, [], ["policies"])
        found, _ = knowledge_documents.page(tx, library.tenant_id, base.id, name="2019.txt")
        library.names("refunds")
        gone = knowledge_documents.list_contents(tx, library.tenant_id, base.id, [found[0].id])
        knowledge_documents.delete(tx, library.tenant_id, base.id, [found[0].id])
    library.add(base.id, "2026.txt", "Refunds take no time.")
    library.read()

    assert sorted(library.names("refunds")) == ["2024.txt", "2026.txt", "bare.txt"]
    assert gone == [found[0].sha256]
    assert storage_of(library.blobs, base.id).get(gone[0])


def test_base_that_exceeds_the_memory_is_searched(library: Shop, served: Vendor, tmp_path: Path) -> None:
    small = Shop(library.database, library.tenant_id, tmp_path, [served.account], memory=100)

    assert small.names("refunds") == library.names("refunds")
    assert (small.shelf.size, library.shelf.size > 0) == (0, True)


def test_index_is_loaded_although_the_first_caller_gives_up(library: Shop) -> None:
    async def give_up() -> None:
        with library.database.transaction() as tx:
            tx.execute(text("lock table knowledge_chunks in access exclusive mode"))
            bases = await library.library.find_bases(library.tenant_id, ["Policies"])
            asking = asyncio.create_task(
                library.library.search(library.tenant_id, list(bases.values()), SearchQuery("refunds"))
            )
            with library.database.statements() as looking:
                while not looking.scalar(WAITS):
                    await asyncio.sleep(0.01)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert asking.cancelled()
            assert library.shelf.size == 0
        await close_connections()

    asyncio.run(asyncio.wait_for(give_up(), 10))  # which waits for its threads in the end

    assert library.shelf.size > 0


def test_least_recently_used_index_is_evicted(library: Shop) -> None:
    other = library.base("Other", model=EMBEDDING)
    library.add(other, "a.txt", "Refunds elsewhere.")
    library.read()
    library.names("refunds")
    needed = library.shelf.size
    shop = Shop(library.database, library.tenant_id, library.folder, library.accounts, memory=needed)

    for name in ("Policies", "Other", "Policies"):
        assert shop.names("refunds", name)
        assert shop.shelf.size <= needed


# -- whose -----------------------------------------------------------------------------------------------------------
def test_another_tenant_finds_nothing_by_name_id_or_document(library: Shop, served: Vendor, tmp_path: Path) -> None:
    stranger = a_shop(library.database, served, tmp_path)
    with library.database.transaction() as tx:
        (base,) = knowledge_bases.find_by_id_or_name(tx, library.tenant_id, [], ["policies"])
        documents, _ = knowledge_documents.page(tx, library.tenant_id, base.id)
        ids = [document.id for document in documents]

        assert knowledge_bases.find_by_id_or_name(tx, stranger.tenant_id, [base.id], ["policies"]) == []
        assert knowledge_documents.get_many(tx, stranger.tenant_id, base.id, ids) == []
        assert knowledge_documents.list_contents(tx, stranger.tenant_id, base.id, ids) == []
        knowledge_documents.delete(tx, stranger.tenant_id, base.id, ids)
        assert knowledge_documents.page(tx, library.tenant_id, base.id)[0] == documents
        assert knowledge_documents.start_processing(tx, stranger.tenant_id, base.id, ids) == 0
        assert knowledge_documents.claim_next(tx, new_id(), timedelta(seconds=1), stranger.tenant_id) is None
        assert chunks.list_searchable(tx, stranger.tenant_id, base.id) == {}
        assert chunks.load_chunks(tx, stranger.tenant_id, [(ids[0], 0)]) == {}
        assert chunks.load_metadata(tx, stranger.tenant_id, [base.id]) == {}
        assert chunks.filter_owned(tx, stranger.tenant_id, [base.id], ids) == set()
    assert list(chunks.read_blocks(library.database, stranger.tenant_id, dict.fromkeys(ids, 1))) == []
    assert library.names("refunds")


def test_bytes_of_documents_are_deleted_while_no_transaction_is_open(library: Shop) -> None:
    bucket = SlowStorage(library.blobs, library.database.url)
    edge: Any = SimpleNamespace(database=library.database, blobs=bucket)
    with library.database.transaction() as tx:
        (base,) = knowledge_bases.find_by_id_or_name(tx, library.tenant_id, [], ["policies"])
        base = knowledge_bases.get(tx, library.tenant_id, base.id)
        found, _ = knowledge_documents.page(tx, library.tenant_id, base.id)

    _delete(edge, base, [document.id for document in found[:2]])
    delete_base(edge, base)

    assert bucket.record.calls == ["discard", "discard", "clear", "clear"]
    assert bucket.record.open == []
    with library.database.transaction() as tx:
        assert knowledge_bases.find_by_id_or_name(tx, library.tenant_id, [base.id], []) == []
