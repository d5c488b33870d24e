"""Embedders and rerankers over HTTP, against a local server with scripted replies."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from canvas.errors import ModelError
from providers.models.chat.catalogue import resolve
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.factory import (
    EMBEDDING,
    RERANK,
    Embedder,
    EmbeddingResult,
    Reranker,
    open_embedder,
    open_reranker,
)
from providers.models.transport.clients import close_connections
from providers.models.vendors.accounts import AccountModel, VendorAccount
from providers.models.wires.openai_sdk import RequestLimits
from tests.vendor_server import Reply, VendorServer, streamed, vendor_server, whole

T = TypeVar("T")
KEY = "sk-a-very-secret-key"
FACTORY = "OpenAI-API-Compatible"


def vectors(*numbers: float, tokens: int | None = None) -> Reply:
    data = [{"object": "embedding", "index": index, "embedding": [x, 1.0]} for index, x in enumerate(numbers)]
    usage = {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}} if tokens else {}
    return whole({"object": "list", "data": data, "model": "m", **usage})


def ranks(*scores: float) -> Reply:
    best_first = sorted(range(len(scores)), key=lambda index: -scores[index])
    return whole({"results": [{"index": index, "relevance_score": scores[index]} for index in best_first]})


def account(server: VendorServer, kind: str, factory: str = FACTORY, **account: Any) -> VendorAccount:
    context = account.pop("context_tokens", None)
    models = {"m": AccountModel(kinds=frozenset({kind}), context_tokens=context)}
    return VendorAccount(factory, base_url=server.url, api_key=KEY, models=models, **account)


class Waits(list[float]):
    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def with_embedder(
    plays: list[Reply], use: Callable[[Embedder], Awaitable[T]], waits: Waits | None = None, **account_fields: Any
) -> tuple[T, VendorServer]:
    async def send() -> tuple[T, VendorServer]:
        async with vendor_server(*plays) as server:
            vendor_account = account(server, EMBEDDING, **account_fields)
            spec = resolve(f"m@{vendor_account.factory}", [vendor_account], kind=EMBEDDING)
            retry_policy = RetryPolicy(waits if waits is not None else Waits(), lambda: 1.0, retries=1)
            try:
                return await use(open_embedder(spec, RequestLimits(), retry_policy)), server
            finally:
                await close_connections()

    return asyncio.run(send())


def embed(plays: list[Reply], *texts: str, **account_fields: Any) -> tuple[EmbeddingResult, VendorServer]:
    return with_embedder(plays, lambda embedder: embedder.embed(texts), **account_fields)


def rank(plays: list[Reply], *texts: str, **account_fields: Any) -> tuple[Any, VendorServer]:
    async def send() -> tuple[Any, VendorServer]:
        async with vendor_server(*plays) as server:
            vendor_account = account(server, RERANK, **account_fields)
            reranker: Reranker = open_reranker(
                resolve(f"m@{vendor_account.factory}", [vendor_account], kind=RERANK),
                RequestLimits(),
                RetryPolicy(Waits(), lambda: 1.0, retries=1),
            )
            try:
                return await reranker.rank("question", texts), server
            finally:
                await close_connections()

    return asyncio.run(send())


def test_texts_become_vectors_over_the_wire():
    result, server = embed([vectors(1.0, 2.0, tokens=7)], "a", "b")

    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/v1/embeddings")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.json == {"model": "m", "input": ["a", "b"]}
    assert (result.vectors, result.tokens) == ([[1.0, 1.0], [2.0, 1.0]], 7)


def test_many_texts_are_sent_in_batches_and_their_vectors_keep_the_order():
    plays = [vectors(1.0, 2.0, tokens=2), vectors(3.0, 4.0, tokens=2), vectors(5.0, tokens=1)]
    result, server = embed(plays, *"abcde", extra={"embedding_batch": 2, "embedding_fields": {"dimensions": 2}})

    assert [body["input"] for body in server.bodies] == [["a", "b"], ["c", "d"], ["e"]]
    assert {body["dimensions"] for body in server.bodies} == {2}
    assert [vector[0] for vector in result.vectors] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert result.tokens == 5


def test_long_text_is_truncated_to_the_context_and_empty_text_is_sent_as_a_space():
    _, server = embed([vectors(1.0, 2.0)], "word " * 100, "", context_tokens=10)

    long, blank = server.bodies[0]["input"]
    assert 5 <= len(long.split()) <= 10
    assert blank == " "


def test_no_request_is_sent_without_texts():
    result, server = embed([vectors(1.0)])

    assert (result, server.requests) == (EmbeddingResult([], 0), [])


def test_azure_request_has_the_deployment_and_the_api_version():
    key = json.dumps({"api_key": KEY, "api_version": "2024-06-01"})

    async def send() -> VendorServer:
        async with vendor_server(vectors(1.0)) as server:
            models = {"m": AccountModel(kinds=frozenset({EMBEDDING}))}
            vendor_account = VendorAccount("Azure-OpenAI", base_url=server.url, api_key=key, models=models)
            await open_embedder(resolve("m@Azure-OpenAI", [vendor_account], kind=EMBEDDING)).embed(["a"])
            await close_connections()
            return server

    (request,) = asyncio.run(send()).requests

    assert request.target == "/openai/deployments/m/embeddings?api-version=2024-06-01"
    assert request.headers["api-key"] == KEY


def test_rate_limited_request_is_retried_after_the_vendors_delay():
    waits = Waits()
    result, server = embed(
        [whole({"error": {"message": "slow"}}, 429, retry_after="7"), vectors(1.0)], "a", waits=waits
    )

    assert (len(result.vectors), len(server.requests), waits) == (1, 2, [7.0])


@pytest.mark.parametrize(
    ("plays", "kind", "retryable", "requests"),
    [
        ([whole({"error": {"message": f"bad key {KEY}"}}, 401)], "AUTH_ERROR", False, 1),
        ([whole({"error": {"message": "no such model"}}, 404)], "MODEL_ERROR", False, 1),
        ([whole({"error": {"message": "input too long"}}, 400)], "INVALID_REQUEST", False, 1),
        ([whole("overloaded", 529)], "SERVER_ERROR", True, 2),
        ([whole("{")], "SERVER_ERROR", True, 2),
        ([streamed(b'{"data": [', kind="application/json", then="break")], "CONNECTION_ERROR", True, 2),
        ([whole("<html>", content_type="text/html")], "MODEL_ERROR", False, 1),
        ([vectors(1.0, 2.0)], "MODEL_ERROR", False, 1),
    ],
)
def test_vendor_error_has_its_code_and_no_key(plays: list[Reply], kind: str, retryable: bool, requests: int):
    async def expect_error(embedder: Embedder) -> ModelError:
        with pytest.raises(ModelError) as failed:
            await embedder.embed(["a"])
        return failed.value

    error, server = with_embedder(plays, expect_error)

    assert error.details["kind"] == kind
    assert error.message.startswith(f"Model m@{FACTORY}: {kind} - ")
    assert error.retryable is retryable
    assert KEY not in error.message
    assert len(server.requests) == requests


def test_vectors_that_change_their_length_between_batches_are_refused():
    other = whole({"data": [{"index": 0, "embedding": [1.0, 2.0, 3.0]}]})

    with pytest.raises(ModelError, match="several lengths: 2, 3"):
        embed([vectors(1.0), other], "a", "b", extra={"embedding_batch": 1})


def test_texts_are_ranked_over_the_wire():
    scores, server = rank([ranks(-3.0, 5.0, 1.0)], "a", "b", "c")

    (request,) = server.requests
    assert request.target == "/v1/rerank"
    assert request.json == {"model": "m", "query": "question", "documents": ["a", "b", "c"], "top_n": 3}
    assert scores == [0.0, 1.0, 0.5]


def test_scores_of_several_batches_are_scaled_together():
    scores, server = rank([ranks(0.0, 4.0), ranks(2.0)], "a", "b", "c", extra={"rerank_batch": 2})

    assert [body["documents"] for body in server.bodies] == [["a", "b"], ["c"]]
    assert scores == [0.0, 1.0, 0.5]


def test_huggingface_reranker_receives_its_own_fields():
    answer = whole([{"index": 1, "score": 0.75}, {"index": 0, "score": 0.25}])
    scores, server = rank([answer], "a", "b", factory="HuggingFace")

    assert server.requests[0].target == "/rerank"
    assert server.bodies[0] == {"model": "m", "query": "question", "texts": ["a", "b"]}
    assert scores == [0.25, 0.75]
