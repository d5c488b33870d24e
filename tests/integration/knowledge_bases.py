"""Knowledge bases for tests: a local vendor of models, and a tenant whose documents are ingested on demand."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from knowledge.bases.ingestion import Ingestion, storage_of
from knowledge.bases.search import KnowledgeBaseSearch, SearchQuery
from knowledge.models import TenantModels
from providers.models.chat.catalogue import RequestLimits
from providers.models.embeddings.hashed_words import vector_of
from providers.models.transport.clients import close_connections
from providers.models.vendors.accounts import AccountModel, VendorAccount
from store.db.database import Database
from store.files.blobs import LocalBlobs
from store.knowledge import bases as knowledge_bases
from store.knowledge import documents
from store.knowledge.documents import KnowledgeDocument

EMBEDDING = "vectors@OpenAI-API-Compatible"
RANKS = "ranks@OpenAI-API-Compatible"
VISION = AccountModel(kinds=frozenset({"vision"}))
CHAT = "talk@OpenAI-API-Compatible"


@dataclass
class Vendor:
    """A vendor with OpenAI's API for embeddings, ranks and chat; `answers` are the next replies of the chat model."""

    url: str
    embedded: list[list[str]] = field(default_factory=list)
    ranked: list[Any] = field(default_factory=list)
    chatted: list[Any] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    refusals: int = 0  # requests for vectors that are answered with 400 from now on

    @property
    def account(self) -> VendorAccount:
        models = {
            "vectors": AccountModel(kinds=frozenset({"embedding"})),
            "ranks": AccountModel(kinds=frozenset({"rerank"})),
            "talk": AccountModel(is_tools=True),
        }
        return VendorAccount("OpenAI-API-Compatible", base_url=f"{self.url}/v1", api_key="sk-secret", models=models)

    def reset(self) -> None:
        """Clear all records."""
        for records in (self.embedded, self.ranked, self.chatted, self.answers):
            records.clear()
        self.refusals = 0

    def embed(self, request: Request) -> Response:
        texts = json.loads(request.data)["input"]
        if self.refusals:
            self.refusals -= 1
            return _json({"error": {"message": "this text is not welcome"}}, 400)
        self.embedded.append(texts)
        data = [{"index": at, "embedding": vector_of(text)} for at, text in enumerate(texts)]
        return _json({"data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}})

    def rank(self, request: Request) -> Response:
        body = json.loads(request.data)
        self.ranked.append(body)
        results = [{"index": at, "relevance_score": 1 / (1 + at)} for at in range(len(body["documents"]))]
        return _json({"results": list(reversed(results))})

    def chat(self, request: Request) -> Response:
        body = json.loads(request.data)
        self.chatted.append(body)
        if not self.answers:
            return _json({"error": {"message": "no more answers"}}, 400)
        message = {"role": "assistant", "content": self.answers.pop(0)}
        return _json({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


@contextmanager
def vendor() -> Iterator[Vendor]:
    """Run a vendor until the block ends."""
    with HTTPServer(host="127.0.0.1") as server:
        vendor_server = Vendor(server.url_for("").rstrip("/"))
        server.expect_request("/v1/embeddings").respond_with_handler(vendor_server.embed)
        server.expect_request("/v1/rerank").respond_with_handler(vendor_server.rank)
        server.expect_request("/v1/chat/completions").respond_with_handler(vendor_server.chat)
        yield vendor_server


@dataclass
class KnowledgeTenant:
    """A tenant with knowledge bases, and what ingests and searches its documents."""

    database: Database
    tenant_id: UUID
    folder: Path
    accounts: Sequence[VendorAccount] = ()

    def __post_init__(self) -> None:
        self.blobs = LocalBlobs(self.folder)
        self.models = TenantModels(self.database, self.accounts, RequestLimits(), None)
        self.base_search = KnowledgeBaseSearch(self.database, self.models)

    def base(self, name: str = "Policies", model: str = "echo", tokens: int = 64, language: str = "English") -> UUID:
        parser = {"chunk_token_num": tokens, "overlapped_percent": 0}
        with self.database.transaction() as tx:
            return knowledge_bases.create(
                tx, self.tenant_id, name, embedding_model=model, parser=parser, language=language
            )

    def add(self, base_id: UUID, name: str, text: str | bytes, **metadata: Any) -> KnowledgeDocument:
        """Add a document that is pending."""
        data = text.encode() if isinstance(text, str) else text
        sha256 = storage_of(self.blobs, base_id).store(data)
        with self.database.transaction() as tx:
            return documents.add(
                tx,
                self.tenant_id,
                base_id,
                name,
                "",
                len(data),
                sha256,
                metadata=metadata,
                status="pending",
            )

    def ingestion(self, **options: Any) -> Ingestion:
        return Ingestion(self.database, self.blobs, options.pop("models", self.models), **options)

    def read(self) -> int:
        """Ingest the pending documents; return their number."""

        async def read() -> int:
            count = 0
            try:
                while await self.ingestion().next(self.tenant_id):
                    count += 1
            finally:
                await close_connections()
            return count

        return asyncio.run(read())

    def document(self, document: KnowledgeDocument) -> KnowledgeDocument:
        with self.database.transaction() as tx:
            (found,) = documents.get_many(tx, self.tenant_id, document.base_id, [document.id])
        return found

    def find(self, question: str, *names: str, tenant_id: UUID | None = None, **options: Any) -> dict[str, Any]:
        """Search some bases; return the result."""
        owner = tenant_id or self.tenant_id

        async def find() -> dict[str, Any]:
            try:
                bases = await self.base_search.find_bases(owner, names or ["Policies"])
                return await self.base_search.search(owner, list(bases.values()), SearchQuery(question, **options))
            finally:
                await close_connections()

        return asyncio.run(find())

    def names(self, question: str, *names: str, **options: Any) -> list[str]:
        """Return the names of the documents that a search finds, the nearest first."""
        return [chunk["docnm_kwd"] for chunk in self.find(question, *names, **options)["chunks"]]


def _json(body: Any, status: int = 200) -> Response:
    return Response(json.dumps(body), status, content_type="application/json")
