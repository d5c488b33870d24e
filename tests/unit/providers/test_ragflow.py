"""The client of a RAGFlow server, with recorded responses. No real server is called."""

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
RESPONSE = {
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
    """Return a client whose server gives `answers` in order and repeats the last one."""
    remaining = list(answers)

    def answer(call: HttpCall) -> HttpResponse:
        response = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if isinstance(response, Exception):
            raise response
        return response

    http = FakeHttp(answer)
    return RagflowClient(http, "http://rag.test/", "ragflow-key", retry_delay=0), http


def search(client: RagflowClient, question: str = "refunds", **options: Any) -> Mapping[str, Any]:
    ids = options.pop("ids", ("k1",))
    return asyncio.run(client.search(RetrievalQuery(question, dataset_ids=ids, options={**OPTIONS, **options})))


def test_chunk_fields_have_the_names_that_canvases_use():
    rag, _ = server(reply(RESPONSE))

    result = search(rag)

    assert result["chunks"] == [
        {
            "chunk_id": "c1", "content_with_weight": "Refunds take 5 days.", "doc_id": "d1", "docnm_kwd": "policy.md",
            "kb_id": "k1", "similarity": 0.8, "vector_similarity": 0.7, "term_similarity": 0.9, "positions": [],
            "important_kwd": ["refund"],
        }
    ]  # fmt: skip
    assert result["doc_aggs"] == RESPONSE["data"]["doc_aggs"]


def test_search_request_has_the_fields_of_the_server_api():
    rag, http = server(reply(RESPONSE))

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


def test_manual_metadata_filter_is_sent_in_the_form_of_the_server():
    rag, http = server(reply(RESPONSE))
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
def test_metadata_filter_without_manual_conditions_is_not_sent(stored: Mapping[str, Any]):
    rag, http = server(reply(RESPONSE))

    search(rag, meta_data_filter=stored)

    assert "metadata_condition" not in http.calls[0].json


def test_search_without_hits_accepts_an_object_in_place_of_a_list():
    rag, _ = server(reply({"code": 0, "data": {"total": 0, "chunks": [], "doc_aggs": {}}}))

    assert search(rag) == {"chunks": [], "doc_aggs": []}


def test_dataset_name_is_resolved_to_its_id():
    rag, http = server(reply({"code": 0, "data": [{"id": "k7", "name": "Manuals"}]}), reply(RESPONSE))
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
def test_busy_server_is_tried_three_times(failure: HttpResponse | Exception):
    rag, _ = server(failure, failure, reply(RESPONSE))
    assert len(search(rag)["chunks"]) == 1

    rag, http = server(failure)
    with pytest.raises(HttpFailed):
        search(rag)
    assert len(http.calls) == 3


def test_memories_are_returned_as_chunks():
    rag, http = server(reply({"code": 0, "data": [{"content": "Likes tea"}, {"content": "Lives in Rome"}]}))

    result = asyncio.run(
        rag.search(RetrievalQuery("tea", memory_ids=("m1", "m2"), options={**OPTIONS, "top_n": 3, "user_id": "ann"}))
    )

    assert result == {"chunks": [{"content": "Likes tea"}, {"content": "Lives in Rome"}], "doc_aggs": []}
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
