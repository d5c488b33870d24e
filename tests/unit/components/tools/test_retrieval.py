import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from canvas.errors import ToolError
from canvas.outcome import Failed, Finished
from components.tools import find
from components.tools.framework.tool_node import tool_component
from components.tools.retrieval import NOT_CONFIGURED, RETRIEVAL, RetrievalParams
from providers.interfaces import RetrievalQuery, Services
from tests.fakes import FakeContext, FakeHttp, no_network, run

TEA = {
    "chunk_id": "c1", "content_with_weight": "Tea is a drink.", "doc_id": "d1", "docnm_kwd": "tea.txt", "kb_id": "kb1",
    "similarity": 0.9, "vector_similarity": 0.8, "term_similarity": 0.7, "image_id": "", "positions": [],
}  # fmt: skip
COFFEE = {**TEA, "chunk_id": "c2", "content_with_weight": "Coffee is too.", "doc_id": "d2", "docnm_kwd": "coffee.txt"}
STORED = {"query": "{sys.query}", "dataset_ids": ["kb1"], "retrieval_from": "dataset", "empty_response": "NOTHING"}


class FakeRetriever:
    """Returns the same result for every query, and records the queries."""

    def __init__(self, *chunks: Mapping[str, Any], error: ToolError | None = None, **found: Any) -> None:
        self._found = {"chunks": list(chunks), **found}
        self._error = error
        self.searches: list[RetrievalQuery] = []

    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        self.searches.append(search)
        if self._error:
            raise self._error
        return self._found


def context(retriever: FakeRetriever | None, query: Any = "tea", **known: Any) -> FakeContext:
    services = Services(FakeHttp(no_network), retriever=retriever)
    return FakeContext(globals={"sys.query": query, **known.pop("globals", {})}, services=services, **known)


def retrieve(ctx: FakeContext, **params: Any) -> Finished | Failed:
    outcome = run(tool_component(RETRIEVAL), {**STORED, **params}, ctx)
    assert isinstance(outcome, Finished | Failed)
    return outcome


def query_of(query: Any = "tea", *, values: dict[str, dict[str, Any]] | None = None, **params: Any) -> RetrievalQuery:
    retriever = FakeRetriever(TEA)
    outcome = retrieve(context(retriever, query, values=values or {}), **params)
    assert isinstance(outcome, Finished), outcome
    return retriever.searches[0]


def test_passages_become_citations_json_and_references():
    ctx = context(FakeRetriever(TEA, COFFEE))

    outcome = retrieve(ctx)

    assert outcome.outputs == {
        "formalized_content": "\nID: 417\n├── Title: tea.txt\n└── Content:\nTea is a drink.\n\n"
        "ID: 211\n├── Title: coffee.txt\n└── Content:\nCoffee is too.",
        "json": [TEA, COFFEE],
    }
    assert ctx.reference_store["chunks"]["417"]["dataset_id"] == "kb1"
    assert ctx.reference_store["doc_aggs"] == {
        "tea.txt": {"doc_name": "tea.txt", "doc_id": "d1", "count": 1},
        "coffee.txt": {"doc_name": "coffee.txt", "doc_id": "d2", "count": 1},
    }


def test_document_counts_of_the_search_are_used():
    ctx = context(FakeRetriever(TEA, doc_aggs=[{"doc_name": "tea.txt", "doc_id": "d1", "count": 7}]))

    retrieve(ctx)

    assert ctx.reference_store["doc_aggs"]["tea.txt"]["count"] == 7


def test_document_metadata_is_part_of_the_citation():
    outcome = retrieve(context(FakeRetriever({**TEA, "document_metadata": {"year": 2026, "none": ""}})))

    assert "├── Title: tea.txt\n├── year: 2026\n└── Content:" in outcome.outputs["formalized_content"]


def test_fields_of_the_search_engine_are_left_out():
    outcome = retrieve(context(FakeRetriever({**TEA, "q_1024_vec": [0.1], "content_ltks": "tea", "vector": [1]})))

    assert outcome.outputs["json"] == [TEA]


def test_empty_result_is_the_empty_response_and_an_empty_list():
    ctx = context(FakeRetriever())

    outcome = retrieve(ctx)

    assert outcome.outputs == {"formalized_content": "NOTHING", "json": []}
    assert ctx.reference_store["chunks"] == {}


@pytest.mark.parametrize(
    ("query", "params"),
    [
        ("", {}),
        (None, {}),
        ("  ", {}),
        ("tea", {"retrieval_from": None, "dataset_ids": [], "kb_ids": [], "memory_ids": []}),
    ],
)
def test_empty_question_or_missing_sources_do_not_search(query: Any, params: Mapping[str, Any]):
    retriever = FakeRetriever(TEA)

    outcome = retrieve(context(retriever, query), **params)

    assert outcome.outputs == {"formalized_content": "NOTHING"}
    assert retriever.searches == []


@pytest.mark.parametrize("arguments", [{}, {"query": ""}, {"query": "tea"}])
def test_model_gets_the_empty_response_as_content_without_passages(arguments: Mapping[str, Any]):
    done = asyncio.run(RETRIEVAL.run(RetrievalParams.model_validate(STORED), arguments, context(FakeRetriever())))

    assert (done.answer, done.error) == ({"formalized_content": "NOTHING"}, None)


@pytest.mark.parametrize(
    ("retriever", "params", "text"),
    [
        (FakeRetriever(TEA), {"dataset_ids": [], "kb_ids": []}, "No dataset is selected."),
        (FakeRetriever(error=ToolError("You don't own the dataset k9.")), {}, "You don't own the dataset k9."),
        (None, {}, NOT_CONFIGURED),
    ],
)
def test_model_gets_the_error_without_the_tools_label(
    retriever: FakeRetriever | None, params: Mapping[str, Any], text: str
):
    stored = RetrievalParams.model_validate({**STORED, **params})

    done = asyncio.run(RETRIEVAL.run(stored, {"query": "tea"}, context(retriever)))

    assert (done.answer, done.error) == (text, text)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"dataset_ids": ["", None]}, "No dataset is selected."),
        ({"retrieval_from": "memory"}, "No memory is selected."),
        ({"dataset_ids": ["{begin@nowhere}"]}, "Can't find variable: 'begin@nowhere'"),
    ],
)
def test_source_without_a_selection_fails_the_node(params: Mapping[str, Any], text: str):
    outcome = retrieve(context(FakeRetriever(TEA)), **params)

    assert isinstance(outcome, Failed)
    assert outcome.error == text


def test_failed_search_fails_the_node_with_the_message_of_the_server():
    outcome = retrieve(context(FakeRetriever(error=ToolError("You don't own the dataset k9."))))

    assert isinstance(outcome, Failed)
    assert outcome.error == "You don't own the dataset k9."


def test_error_without_a_retriever_names_the_settings():
    outcome = retrieve(context(None))

    assert isinstance(outcome, Failed)
    assert outcome.error == NOT_CONFIGURED
    assert "EASEL_RAGFLOW_URL" in outcome.error
    assert "EASEL_RAGFLOW_API_KEY" in outcome.error


@pytest.mark.parametrize(
    ("query", "question"),
    [
        ("user: where is tea?", "where is tea?"),
        ("User：tea", "tea"),
        ("users of X", "users of X"),
        ("user guide", "user guide"),
        (["tea", 1], '["tea", 1]'),
    ],
)
def test_user_prefix_is_removed_from_the_question(query: Any, question: str):
    assert query_of(query).question == question


def test_datasets_come_from_dataset_ids_kb_ids_and_references():
    values = {"begin": {"kbs": ["Manuals", "kb2"], "one": "kb3"}}

    search = query_of(values=values, dataset_ids=[], kb_ids=["kb1", "begin@kbs", "{begin@one}", "kb1", ""])

    assert search.dataset_ids == ["kb1", "Manuals", "kb2", "kb3"]
    assert search.options["may_be_names"] == ["Manuals", "kb2", "kb3"]


def test_source_defaults_to_the_kind_that_has_ids():
    assert query_of(retrieval_from=None).dataset_ids == ["kb1"]
    assert query_of(retrieval_from="", dataset_ids=[], memory_ids=["m1"]).memory_ids == ["m1"]


def test_search_has_all_parameters_of_the_node():
    search = query_of(
        top_n="3", top_k=64, similarity_threshold="0.4", keywords_similarity_weight=0.3, rerank_id="r", use_kg=True
    )

    assert search.options == {
        "top_n": 3,
        "top_k": 64,
        "similarity_threshold": 0.4,
        "keywords_similarity_weight": 0.3,
        "rerank_id": "r",
        "use_kg": True,
        "toc_enhance": False,
        "cross_languages": [],
        "meta_data_filter": {},
        "may_be_names": [],
    }


def test_references_in_a_manual_filter_are_resolved():
    stored = {"method": "manual", "logic": "or", "manual": [{"key": "year", "op": "=", "value": "{begin@year}"}, "odd"]}

    search = query_of(values={"begin": {"year": 2026}}, meta_data_filter=stored)

    manual = [{"key": "year", "op": "=", "value": "2026"}]
    assert search.options["meta_data_filter"] == {"method": "manual", "logic": "or", "manual": manual}


def test_memories_are_lines_of_text_and_not_cited():
    ctx = context(FakeRetriever({"content": "Likes tea"}, {"content": "Lives in Rome"}, {"content": ""}))

    outcome = retrieve(ctx, retrieval_from="memory", memory_ids=["m1"], user_id="{sys.user_id}")

    assert outcome.outputs == {"formalized_content": "Likes tea\nLives in Rome"}
    assert ctx.reference_store["chunks"] == {}


def test_memory_search_has_the_user_of_the_node():
    retriever = FakeRetriever({"content": "Likes tea"})

    retrieve(
        context(retriever, globals={"sys.user_id": "ann"}),
        retrieval_from="memory",
        memory_ids=["m1"],
        user_id="{sys.user_id}",
    )

    assert retriever.searches[0].options["user_id"] == "ann"


def test_empty_memory_search_gives_the_empty_response():
    outcome = retrieve(context(FakeRetriever()), retrieval_from="memory", memory_ids=["m1"])

    assert outcome.outputs == {"formalized_content": "NOTHING"}


def test_model_gets_the_citations_and_its_query_is_not_a_template():
    retriever = FakeRetriever(TEA)
    params = RetrievalParams.model_validate({"dataset_ids": ["kb1"]})

    done = asyncio.run(RETRIEVAL.run(params, {"query": "{env.key} tea"}, context(retriever, globals={"env.key": "k"})))

    assert done.answer.startswith("\nID: 417")
    assert retriever.searches[0].question == "{env.key} tea"


def test_function_name_is_the_one_that_prompts_use():
    assert find("search_my_dateset") is RETRIEVAL
    assert RETRIEVAL.function == "search_my_dateset"
    assert RetrievalParams.model_validate({"function_name": "ask_manuals"}).function_name == "ask_manuals"


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"top_n": 0}, r"\[Retrieval\] Top N 0 not supported, should be positive integer"),
        ({"top_k": -1}, r"\[Retrieval\] Top K -1 not supported"),
        (
            {"similarity_threshold": 3},
            r"\[Retrieval\] Similarity threshold 3 not supported, should be a float number in range \[0, 1\]",
        ),
        ({"keywords_similarity_weight": "much"}, r"\[Retrieval\] Keyword similarity weight much not supported"),
        ({"similarity_threshold": True}, "Similarity threshold True not supported"),
    ],
)
def test_invalid_parameters_are_refused_when_the_canvas_is_loaded(params: Mapping[str, Any], text: str):
    with pytest.raises(ValidationError, match=text):
        RetrievalParams.model_validate(params)
