"""Ingestion and search of knowledge bases on a real database, also after a lost process."""

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

from api.knowledge.datasets import delete_base
from api.knowledge.documents import _delete  # pyright: ignore[reportPrivateUsage]
from canvas.errors import ToolError
from knowledge.bases.ingestion import storage_of
from knowledge.models import TenantModels
from providers.models.transport.clients import close_connections
from providers.models.types.embeddings import EmbeddingResult
from store.db.database import Database
from store.knowledge import bases as knowledge_bases
from store.knowledge import chunks
from store.knowledge import documents as knowledge_documents
from store.knowledge.documents import DocumentFilter
from store.primitives.ids import new_id
from store.tenants import tenants
from store.tenants.audit import Actor
from tests.integration.engine import until
from tests.integration.knowledge_bases import CHAT, EMBEDDING, RANKS, KnowledgeTenant, Vendor
from tests.integration.store.slow_storage import SlowStorage

REFUNDS = "Refunds take five days, after which the money is there."
HOLIDAYS = "Holidays are thirty days a year, Sundays not counted."


class Killed(BaseException):
    """Simulates a killed process: no code handles it."""


@dataclass
class DyingModels:
    """Models of a process that is killed at its n-th request for vectors."""

    models: TenantModels
    at: int

    async def embedder(self, tenant_id: UUID, llm_id: str) -> "DyingModels":
        self.real = await self.models.embedder(tenant_id, llm_id)
        return self

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        self.at -= 1
        if not self.at:
            raise Killed
        return await self.real.embed(texts)


RULES = "\n\n".join(f"Rule {number}: on day {number} nobody leaves the house before noon." for number in range(200))


@pytest.fixture
def tenant(database: Database, model_vendor: Vendor, tmp_path: Path) -> KnowledgeTenant:
    return create_tenant(database, model_vendor, tmp_path)


def create_tenant(database: Database, model_vendor: Vendor, folder: Path, **options: int) -> KnowledgeTenant:
    with database.transaction() as tx:
        tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
    return KnowledgeTenant(database, tenant_id, folder, [model_vendor.account], **options)


def lose_claims(tenant: KnowledgeTenant, count: int) -> None:
    """Claim the tenant's waiting document, as workers do that are killed at once."""
    for _ in range(count):
        with tenant.database.transaction() as tx:
            assert knowledge_documents.claim_next(tx, new_id(), timedelta(0), tenant.tenant_id)


# -- ingestion -------------------------------------------------------------------------------------------------------
def test_document_is_ingested_and_its_nearest_passage_is_found(tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    base = tenant.base(model=EMBEDDING, tokens=16)
    added = tenant.add(base, "policy.md", f"{REFUNDS}\n\n{HOLIDAYS}", year=2024)

    tenant.read()

    found = tenant.find("How many days of holidays are there?", limit=1)
    (chunk,) = found["chunks"]
    assert chunk["content_with_weight"] == HOLIDAYS
    assert (chunk["docnm_kwd"], chunk["kb_id"]) == ("policy.md", base.hex)
    assert chunk["document_metadata"] == {"year": 2024}
    assert chunk["similarity"] == pytest.approx((chunk["vector_similarity"] + chunk["term_similarity"]) / 2, abs=1e-5)
    assert found["doc_aggs"] == [{"doc_name": "policy.md", "doc_id": added.id.hex, "count": 1}]
    assert tenant.document(added).tokens == 7
    assert model_vendor.embedded[0] == [REFUNDS, HOLIDAYS]


def test_a_base_without_a_model_is_searched_by_words(tenant: KnowledgeTenant) -> None:
    base = tenant.base(model="", language="Chinese")
    tenant.add(base, "zh.txt", "我们的退款政策：五天之内。")
    tenant.add(base, "other.txt", "员工每年有三十天假期。")
    tenant.read()

    assert tenant.names("退款") == ["zh.txt"]
    assert tenant.names("假期有多少天", limit=1) == ["other.txt"]


def test_same_content_is_two_documents_and_a_name_in_use_gets_a_number(tenant: KnowledgeTenant) -> None:
    base = tenant.base()

    first = tenant.add(base, "a.txt", "One content.")
    same_content = tenant.add(base, "a.txt", "One content.")
    same_name = tenant.add(base, "a.txt", "Another content.")
    with tenant.database.transaction() as tx:
        oldest = knowledge_documents.find_same_content(tx, tenant.tenant_id, base, first.sha256)
        of_one = knowledge_documents.list_unshared_contents(tx, tenant.tenant_id, base, [first.id])
        of_both = knowledge_documents.list_unshared_contents(tx, tenant.tenant_id, base, [first.id, same_content.id])

    assert [document.name for document in (first, same_content, same_name)] == ["a.txt", "a(1).txt", "a(2).txt"]
    assert (oldest and oldest.id, of_one, of_both) == (first.id, [], [first.sha256])


def test_ingestion_after_a_lost_process_continues_from_the_stored_chunks(
    tenant: KnowledgeTenant, model_vendor: Vendor
) -> None:
    base = tenant.base(model=EMBEDDING)
    added = tenant.add(base, "rules.txt", RULES)

    with pytest.raises(Killed):
        asyncio.run(
            tenant.ingestion(models=DyingModels(tenant.models, 2), lease=timedelta(milliseconds=200)).next(
                tenant.tenant_id
            )
        )
    partial = tenant.document(added)
    embedded_before = len(list(chain(*model_vendor.embedded)))
    until(lambda: tenant.read() == 1)

    assert (partial.status, tenant.document(added).status) == ("pending", "done")
    assert 0 < partial.chunks < tenant.document(added).chunks
    with tenant.database.transaction() as tx:
        stored = [row.text for row in chunks.list_of_document(tx, tenant.tenant_id, added.id, most=999, skipped=0)[0]]
    assert "".join("".join(stored).split()) == "".join(RULES.split())
    assert embedded_before == partial.chunks
    assert list(chain(*model_vendor.embedded)) == stored


def test_partly_stored_document_is_not_found(tenant: KnowledgeTenant) -> None:
    base = tenant.base()
    added = tenant.add(base, "rules.txt", RULES)
    tenant.read()
    with tenant.database.transaction() as tx:
        knowledge_documents.start_processing(tx, tenant.tenant_id, base, [added.id])

    assert tenant.names("rule") == []
    tenant.read()
    assert tenant.names("rule", limit=1) == ["rules.txt"]


def test_concurrent_ingestions_lease_different_documents(tenant: KnowledgeTenant) -> None:
    base = tenant.base()
    both = [tenant.add(base, f"{number}.txt", f"Number {number}. {RULES}") for number in range(2)]

    async def read() -> list[bool]:
        return await asyncio.gather(*(tenant.ingestion().next(tenant.tenant_id) for _ in range(3)))

    assert sorted(asyncio.run(read())) == [False, True, True]
    assert {tenant.document(each).status for each in both} == {"done"}


def test_cancelled_document_is_abandoned_by_its_reader(tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    base = tenant.base(model=EMBEDDING)
    added = tenant.add(base, "rules.txt", RULES)

    async def read_and_stop() -> None:
        reading = asyncio.create_task(tenant.ingestion().next(tenant.tenant_id))
        while not model_vendor.embedded:
            await asyncio.sleep(0.002)
        with tenant.database.transaction() as tx:
            knowledge_documents.stop_processing(tx, tenant.tenant_id, base, [added.id])
        await reading
        await close_connections()

    asyncio.run(read_and_stop())

    assert tenant.document(added).status == "uploaded"
    assert tenant.names("rule") == []


def test_cancelled_ingestion_releases_the_document_for_the_next_one(
    tenant: KnowledgeTenant, model_vendor: Vendor
) -> None:
    base = tenant.base(model=EMBEDDING)
    added = tenant.add(base, "rules.txt", RULES)

    async def read_and_cancel() -> None:
        reading = asyncio.create_task(tenant.ingestion().next(tenant.tenant_id))
        while not model_vendor.embedded:
            await asyncio.sleep(0.002)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await close_connections()

    asyncio.run(read_and_cancel())

    assert tenant.read() == 1
    assert tenant.document(added).status == "done"


def test_error_of_the_model_is_stored_with_the_document(tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    base = tenant.base(model=EMBEDDING)
    added = tenant.add(base, "a.txt", "Something.")
    model_vendor.refusals = 9

    tenant.read()

    failed = tenant.document(added)
    assert failed.status == "failed"
    assert "this text is not welcome" in failed.error
    assert "sk-secret" not in failed.error


def test_document_that_kills_every_worker_fails(tenant: KnowledgeTenant) -> None:
    base = tenant.base()
    added = tenant.add(base, "a.txt", "Something.")
    lose_claims(tenant, knowledge_documents.MAX_TRIES)

    tenant.read()

    assert tenant.document(added).status == "failed"
    assert "started 5 times" in tenant.document(added).error


@pytest.mark.parametrize(("lost", "status"), [(4, "done"), (5, "failed")])
def test_document_that_is_started_again_has_five_tries_again(tenant: KnowledgeTenant, lost: int, status: str) -> None:
    base = tenant.base()
    added = tenant.add(base, "a.txt", "Something.")
    lose_claims(tenant, knowledge_documents.MAX_TRIES)
    tenant.read()
    with tenant.database.transaction() as tx:
        assert knowledge_documents.start_processing(tx, tenant.tenant_id, base, [added.id]) == 1

    lose_claims(tenant, lost)
    tenant.read()

    assert tenant.document(added).status == status


@pytest.mark.parametrize(("kind", "megabytes"), [("docx", 70), ("xlsx", 260)])
def test_file_with_a_large_unpacked_size_is_refused(tenant: KnowledgeTenant, kind: str, megabytes: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        inside = "word/document.xml" if kind == "docx" else "xl/workbook.xml"
        with archive.open(inside, "w") as member:
            for _ in range(megabytes):
                member.write(bytes(1024 * 1024))
    base = tenant.base()
    added = tenant.add(base, f"bomb.{kind}", packed.getvalue())

    tenant.read()

    assert tenant.document(added).status == "failed"
    assert "unpacks to more than can be read" in tenant.document(added).error


def test_recursive_xml_entities_are_not_expanded(tenant: KnowledgeTenant) -> None:
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
    base = tenant.base()
    added = tenant.add(base, "laughs.docx", packed.getvalue())

    tenant.read()

    assert tenant.document(added).chunks == 0 or tenant.document(added).status == "failed"


# -- search ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def refund_tenant(tenant: KnowledgeTenant) -> KnowledgeTenant:
    """Return a tenant with a base of three documents of different years."""
    base = tenant.base(model=EMBEDDING)
    tenant.add(base, "2019.txt", "Refunds take nine days.", year=2019, lang="en")
    tenant.add(base, "2024.txt", "Refunds take five days.", year=2024, lang="en")
    tenant.add(base, "bare.txt", "Refunds are slow.")
    tenant.read()
    return tenant


def manual(*conditions: dict[str, object], logic: str = "and") -> dict[str, object]:
    return {"method": "manual", "logic": logic, "manual": list(conditions)}


def test_manual_filter_limits_the_documents_that_are_found(refund_tenant: KnowledgeTenant) -> None:
    recent = manual({"key": "year", "op": "≥", "value": "2020"})
    none = manual({"key": "year", "op": ">", "value": "2030"})

    assert refund_tenant.names("refunds", filter=recent) == ["2024.txt"]
    assert refund_tenant.names("refunds", filter=none) == []
    assert sorted(refund_tenant.names("refunds", filter=manual())) == ["2019.txt", "2024.txt", "bare.txt"]


def test_prompt_of_an_automatic_filter_contains_keys_and_values(
    refund_tenant: KnowledgeTenant, model_vendor: Vendor
) -> None:
    model_vendor.answers = ['{"conditions": [{"key": "year", "op": "=", "value": 2019}]}']

    found = refund_tenant.names("refunds in 2019", filter={"method": "auto"})

    assert found == ["2019.txt"]
    (request,) = model_vendor.chatted
    assert request["model"] == CHAT.partition("@")[0]
    assert '"year": ["2019", "2024"]' in request["messages"][0]["content"]


def test_semi_automatic_filter_has_the_authors_keys_and_operators(
    refund_tenant: KnowledgeTenant, model_vendor: Vendor
) -> None:
    model_vendor.answers = ['[{"key": "year", "op": "=", "value": 2019}, {"key": "lang", "op": "=", "value": "fr"}]']

    after = {"method": "semi_auto", "semi_auto": [{"key": "year", "op": ">"}]}

    assert refund_tenant.names("refunds after 2019", filter=after) == ["2024.txt"]
    assert '"lang"' not in model_vendor.chatted[0]["messages"][0]["content"]


@pytest.mark.parametrize("answers", [[], ["no idea"], ['{"conditions": [{"key": "year", "op": "=", "value": 1}]}']])
def test_search_is_not_filtered_if_the_model_returns_no_usable_filter(
    refund_tenant: KnowledgeTenant, model_vendor: Vendor, answers: list[str]
) -> None:
    model_vendor.answers = answers

    assert len(refund_tenant.names("refunds", filter={"method": "auto"})) == 3


def test_query_contains_the_question_and_its_translations(refund_tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    model_vendor.answers = ["refunds ### remboursements"]

    assert len(refund_tenant.names("Rückerstattungen", languages=["English", "French"], threshold=0.4)) == 3
    assert model_vendor.embedded[-1] == ["Rückerstattungen\nrefunds\nremboursements"]
    assert refund_tenant.names("Refunds", languages=["French"], limit=1)  # the model has no answer left: without it


def test_reranker_decides_the_order(refund_tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    found = refund_tenant.find("refunds", rerank_id=RANKS, word_weight=0.0, threshold=0.5)

    (request,) = model_vendor.ranked
    assert request["query"] == "refunds"
    assert [chunk["content_with_weight"] for chunk in found["chunks"]] == request["documents"][:2]
    assert [chunk["similarity"] for chunk in found["chunks"]] == [1.0, 0.5]


def test_bases_of_different_models_are_not_searched_together(refund_tenant: KnowledgeTenant) -> None:
    refund_tenant.base("Other", model="echo")

    with pytest.raises(ToolError, match=r"Knowledge bases use different embedding models\."):
        refund_tenant.find("refunds", "Policies", "Other")


HANDBOOK = """# Leave
## 1.1 Holidays
Holidays are thirty days a year, and Sundays are not counted among them at all.

## 1.2 Illness
Whoever is ill says so on the first day, and brings a note on the fourth one.

# Money
Refunds take five days, after which the money is there for everybody to see.
"""


@pytest.fixture
def handbook_tenant(tenant: KnowledgeTenant) -> KnowledgeTenant:
    base = tenant.base(model=EMBEDDING, tokens=32)
    tenant.add(base, "handbook.md", HANDBOOK)
    tenant.add(base, "other.txt", "Holidays of others are none of ours.")
    tenant.read()
    return tenant


def test_passages_of_a_picked_section_come_first(handbook_tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    model_vendor.answers = ["I would read [2, 77, true]"]

    found = handbook_tenant.find("How many holidays are there?", use_table_of_contents=True, threshold=0.0, limit=2)
    without = handbook_tenant.find("How many holidays are there?", threshold=0.0, limit=2)

    (request,) = model_vendor.chatted
    assert "0 Leave\n  1 1.1 Holidays\n  2 1.2 Illness\n3 Money" in request["messages"][0]["content"]
    assert "brings a note" in found["chunks"][0]["content_with_weight"]
    assert "brings a note" not in str(without["chunks"][0])


@pytest.mark.parametrize("answers", [[], ["[]"], ["nothing of use"], ["[99, -1]"]])
def test_result_is_unchanged_if_the_model_picks_no_heading(
    handbook_tenant: KnowledgeTenant, model_vendor: Vendor, answers: list[str]
) -> None:
    model_vendor.answers = answers

    found = handbook_tenant.find("How many holidays are there?", use_table_of_contents=True)

    assert found == handbook_tenant.find("How many holidays are there?")


def test_document_without_headings_needs_no_model_call(refund_tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    assert refund_tenant.names("refunds", use_table_of_contents=True) == refund_tenant.names("refunds")
    assert model_vendor.chatted == []


def test_key_words_of_a_model_are_added_to_the_query(refund_tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    model_vendor.answers = ["refunds, Refunds，money"]

    found = refund_tenant.find("When do I get back what I paid?", add_key_words=True, word_weight=1.0, threshold=0.3)

    assert len(found["chunks"]) == 3
    assert model_vendor.embedded[-1] == ["When do I get back what I paid?\nrefunds Refunds money"]
    assert refund_tenant.names("refunds", add_key_words=True)  # the model has no answer left: without it


def test_passages_have_highlighted_query_words(refund_tenant: KnowledgeTenant) -> None:
    (first, *_) = refund_tenant.find("How long does a refund take?", highlight=True)["chunks"]

    assert "<em>Refunds</em>" in first["highlight"]
    assert "<em>" not in first["content_with_weight"]


def test_search_with_an_unconfigured_graph_is_an_error(refund_tenant: KnowledgeTenant) -> None:
    with pytest.raises(ToolError, match="No knowledge graph is configured"):
        refund_tenant.find("refunds", use_graph=True)


def test_deleted_and_added_documents_are_seen_by_the_next_search(refund_tenant: KnowledgeTenant) -> None:
    with refund_tenant.database.transaction() as tx:
        (base,) = knowledge_bases.find_by_id_or_name(tx, refund_tenant.tenant_id, [], ["policies"])
        found, _ = knowledge_documents.page(tx, refund_tenant.tenant_id, base.id, DocumentFilter(name="2019.txt"))
        refund_tenant.names("refunds")
        gone = knowledge_documents.list_unshared_contents(tx, refund_tenant.tenant_id, base.id, [found[0].id])
        knowledge_documents.delete(tx, refund_tenant.tenant_id, base.id, [found[0].id])
    refund_tenant.add(base.id, "2026.txt", "Refunds take no time.")
    refund_tenant.read()

    assert sorted(refund_tenant.names("refunds")) == ["2024.txt", "2026.txt", "bare.txt"]
    assert gone == [found[0].sha256]
    assert storage_of(refund_tenant.blobs, base.id).get(gone[0])


# -- tenants ---------------------------------------------------------------------------------------------------------
def test_another_tenant_finds_nothing_by_name_id_or_document(
    refund_tenant: KnowledgeTenant, model_vendor: Vendor, tmp_path: Path
) -> None:
    other_tenant = create_tenant(refund_tenant.database, model_vendor, tmp_path)
    with refund_tenant.database.transaction() as tx:
        (base,) = knowledge_bases.find_by_id_or_name(tx, refund_tenant.tenant_id, [], ["policies"])
        documents, _ = knowledge_documents.page(tx, refund_tenant.tenant_id, base.id)
        ids = [document.id for document in documents]

        assert knowledge_bases.find_by_id_or_name(tx, other_tenant.tenant_id, [base.id], ["policies"]) == []
        assert knowledge_documents.get_many(tx, other_tenant.tenant_id, base.id, ids) == []
        assert knowledge_documents.list_unshared_contents(tx, other_tenant.tenant_id, base.id, ids) == []
        knowledge_documents.delete(tx, other_tenant.tenant_id, base.id, ids)
        assert knowledge_documents.page(tx, refund_tenant.tenant_id, base.id)[0] == documents
        assert knowledge_documents.start_processing(tx, other_tenant.tenant_id, base.id, ids) == 0
        assert knowledge_documents.claim_next(tx, new_id(), timedelta(seconds=1), other_tenant.tenant_id) is None
        assert chunks.load_chunks(tx, other_tenant.tenant_id, [(ids[0], 0)]) == {}
        assert chunks.load_metadata(tx, other_tenant.tenant_id, [base.id]) == {}
        assert chunks.filter_owned(tx, other_tenant.tenant_id, [base.id], ids) == set()
    assert refund_tenant.names("refunds")


def test_bytes_of_documents_are_deleted_while_no_transaction_is_open(refund_tenant: KnowledgeTenant) -> None:
    bucket = SlowStorage(refund_tenant.blobs, refund_tenant.database.url)
    app_state: Any = SimpleNamespace(database=refund_tenant.database, blobs=bucket)
    with refund_tenant.database.transaction() as tx:
        (base,) = knowledge_bases.find_by_id_or_name(tx, refund_tenant.tenant_id, [], ["policies"])
        base = knowledge_bases.get(tx, refund_tenant.tenant_id, base.id)
        found, _ = knowledge_documents.page(tx, refund_tenant.tenant_id, base.id)

    _delete(app_state, base, [document.id for document in found[:2]], Actor("command_line"))
    delete_base(app_state, base, Actor("command_line"))

    assert bucket.record.calls == ["discard", "discard", "clear", "clear"]
    assert bucket.record.open == []
    with refund_tenant.database.transaction() as tx:
        assert knowledge_bases.find_by_id_or_name(tx, refund_tenant.tenant_id, [base.id], []) == []
