"""A RAGFlow server by recorded shapes of its API: that a server still answers so is not shown here."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from canvas.errors import HttpFailed, ToolError
from providers.interfaces import HttpCall, HttpResponse, RetrievalQuery
from providers.ragflow import RagflowClient
from tests.fakes import FakeHttp

OPTIONS = {"top_n": 8, "top_k": 1024, "similarity_threshold": 0.2, "keywords_similarity_weight": 0.3}
FOUND = {
    "code": 0,
    "data": {
        "chunks": [
            {
                "id": "c1", "content": "Refunds take 5 days.", "document_id": "d1", "document_keyword": "policy.md",
                "dataset_id": "k1", "similarity": 0.8, "vector_similarity": 0.7, "term_similarity": 0.9,
                "positions": [], "important_keywords": ["refund"],
            }
        ],
        "doc_aggs": [{"doc_name": "policy.md", "doc_id": "d1", "count": 1}],
        "total": 1,
    },
}  # fmt: skip


def reply(body: Any, status: int = 200) -> HttpResponse:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpResponse(status, {}, content, "http://rag.test/")


def server(*answers: HttpResponse | Exception) -> tuple[RagflowClient, FakeHttp]:
    """Gives its answers one after the other, the last one for ever."""
    left = list(answers)

    def answer(call: HttpCall) -> HttpResponse:
        told = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(told, Exception):
            raise told
        return told

    http = FakeHttp(answer)
    return RagflowClient(http, "http://rag.test/", "ragflow-key", retry_delay=0), http


def search(given: RagflowClient, question: str = "refunds", **options: Any) -> Mapping[str, Any]:
    ids = options.pop("ids", ("k1",))
    return asyncio.run(given.search(RetrievalQuery(question, dataset_ids=ids, options={**OPTIONS, **options})))


def test_chunks_come_by_the_names_that_canvases_know():
    rag, _ = server(reply(FOUND))

    found = search(rag)

    assert found["chunks"] == [
        {
            "chunk_id": "c1", "content_with_weight": "Refunds take 5 days.", "doc_id": "d1", "docnm_kwd": "policy.md",
            "kb_id": "k1", "similarity": 0.8, "vector_similarity": 0.7, "term_similarity": 0.9, "positions": [],
            "important_kwd": ["refund"],
        }
    ]  # fmt: skip
    assert found["doc_aggs"] == FOUND["data"]["doc_aggs"]


def test_the_server_is_asked_in_its_own_words():
    rag, http = server(reply(FOUND))

    search(rag, top_n=4, top_k=64, rerank_id="r", cross_languages=["French"], use_kg=True)

    [call] = http.calls
    assert (call.method, call.url, call.trusted) == ("POST", "http://rag.test/api/v1/retrieval", True)
    assert call.headers == {"Authorization": "Bearer ragflow-key"}
    assert call.json == {
        "question": "refunds",
        "dataset_ids": ["k1"],
        "page": 1,
        "page_size": 4,
        "similarity_threshold": 0.2,
        "vector_similarity_weight": 0.7,
        "top_k": 64,
        "keyword": False,
        "highlight": False,
        "use_kg": True,
        "toc_enhance": False,
        "rerank_id": "r",
        "cross_languages": ["French"],
    }


def test_a_filter_that_its_author_wrote_is_sent_as_the_server_spells_it():
    rag, http = server(reply(FOUND))
    manual = [{"key": "year", "op": "≥", "value": "2020"}, {"key": "kind", "op": "contains", "value": "a"}, {"op": "="}]

    search(rag, meta_data_filter={"method": "manual", "logic": "or", "manual": manual})

    assert http.calls[0].json["metadata_condition"] == {
        "logic": "or",
        "conditions": [
            {"name": "year", "comparison_operator": ">=", "value": "2020"},
            {"name": "kind", "comparison_operator": "contains", "value": "a"},
        ],
    }


@pytest.mark.parametrize(
    "stored",
    [{}, {"method": "manual", "manual": []}, {"method": "auto"}, {"method": "semi_auto", "semi_auto": ["year"]}],
)
def test_a_filter_without_conditions_of_its_author_is_not_sent(stored: Mapping[str, Any]):
    rag, http = server(reply(FOUND))

    search(rag, meta_data_filter=stored)

    assert "metadata_condition" not in http.calls[0].json


def test_a_search_without_hits_may_have_an_object_where_a_list_is_due():
    rag, _ = server(reply({"code": 0, "data": {"total": 0, "chunks": [], "doc_aggs": {}}}))

    assert search(rag) == {"chunks": [], "doc_aggs": []}


def test_a_dataset_may_be_given_by_its_name():
    rag, http = server(reply({"code": 0, "data": [{"id": "k7", "name": "Manuals"}]}), reply(FOUND))
    plain = "0" * 32

    search(rag, ids=("k1", "Manuals", plain), may_be_names=["Manuals", plain])

    assert [(call.method, call.params) for call in http.calls] == [("GET", {"name": "Manuals"}), ("POST", None)]
    assert http.calls[1].json["dataset_ids"] == ["k1", "k7", plain]


@pytest.mark.parametrize(
    "answer",
    [
        reply({"code": 0, "data": []}),
        reply({"code": 0, "data": [{"id": "k7", "name": "Manuals of others"}]}),
        reply({"code": 102, "message": "You don't own the dataset Manuals."}),
    ],
)
def test_unknown_dataset_name_is_an_error(answer: HttpResponse):
    rag, _ = server(answer)

    with pytest.raises(ToolError, match=r"Dataset\(Manuals\) does not exist\."):
        search(rag, ids=("Manuals",), may_be_names=["Manuals"])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (reply({"code": 102, "message": "You don't own the dataset k9."}), "You don't own the dataset k9."),
        (
            reply({"code": 109, "message": "Authentication error: API key is invalid!"}, 401),
            r"server at EASEL_RAGFLOW_URL refuses the key: .*API key is invalid! Set EASEL_RAGFLOW_API_KEY",
        ),
        (reply({"code": 102, "message": "Authorization is not valid!"}), "EASEL_RAGFLOW_URL refuses the key"),
        (reply({"code": 500}), "answers with code 500"),
        (reply(b"<html>", 404), "HTTP 404: <html>"),
        (reply(b"[1]"), r"HTTP 200: \[1\]"),
        (HttpFailed("cannot connect"), "cannot connect"),
    ],
)
def test_refusal_has_the_servers_message(answer: HttpResponse | Exception, text: str):
    rag, http = server(answer)

    with pytest.raises(ToolError, match=text):
        search(rag)

    assert len(http.calls) == 1


@pytest.mark.parametrize("failure", [reply(b"", 503), HttpFailed("broken", retryable=True)])
def test_a_server_that_is_busy_is_asked_three_times(failure: HttpResponse | Exception):
    rag, _ = server(failure, failure, reply(FOUND))
    assert len(search(rag)["chunks"]) == 1

    rag, http = server(failure)
    with pytest.raises(HttpFailed):
        search(rag)
    assert len(http.calls) == 3


def test_memories_are_chunks_with_content():
    rag, http = server(reply({"code": 0, "data": [{"content": "Likes tea"}, {"content": "Lives in Rome"}]}))

    found = asyncio.run(
        rag.search(RetrievalQuery("tea", memory_ids=("m1", "m2"), options={**OPTIONS, "top_n": 3, "user_id": "ann"}))
    )

    assert found == {"chunks": [{"content": "Likes tea"}, {"content": "Lives in Rome"}], "doc_aggs": []}
    [call] = http.calls
    assert (call.method, call.url) == ("GET", "http://rag.test/api/v1/messages/search")
    assert call.params == {
        "query": "tea",
        "memory_id": ["m1", "m2"],
        "similarity_threshold": 0.2,
        "keywords_similarity_weight": 0.3,
        "top_n": 3,
        "user_id": "ann",
    }
