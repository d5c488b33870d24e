"""Stored canvases that are refused or accepted unlike in the reference, and empty search results."""

from typing import Any

import pytest

from canvas.document import parsing
from canvas.errors import InvalidCanvas
from canvas.validation import check
from components.checks.check import findings_of
from tests.deviations.observed_run import (
    CaseResult,
    CaseRunner,
    covers_rows,
    dsl_of,
    load_recorded_case,
    message_params,
)


def refusal_of(document: Any) -> str:
    """Return why a document is refused, or "" if it is accepted."""
    try:
        errors = check.errors_of(findings_of(parsing.parse(document)))
    except InvalidCanvas as refused:
        return refused.message
    return errors[0].message if errors else ""


# -- accepts_more ----------------------------------------------------------------------------------------------------


@covers_rows("accepts_more", case="invalid_missing_retrieval")
def test_document_without_retrieval_list_is_accepted(result: CaseResult):
    assert (result.answer, result.error) == ("x", "")


@covers_rows("accepts_more", "invalid_invoke_method")
@pytest.mark.parametrize("method", ["patch", "delete", "PATCH"])
def test_invoke_accepts_the_methods_patch_and_delete(method: str):
    document = load_recorded_case("invalid_invoke_method").document_at("")
    document["components"]["X:1"]["obj"]["params"]["method"] = method

    assert refusal_of(document) == ""


@covers_rows("accepts_more")
@pytest.mark.parametrize("missing", ["path", "history", "retrieval", "globals", "variables"])
def test_document_without_run_state_is_accepted(missing: str):
    document = {
        "path": [],
        "history": [],
        "retrieval": [],
        **dsl_of("begin -> Message:Out", {"Message:Out": message_params("x")}),
    }
    del document[missing]

    assert refusal_of(document) == ""


@covers_rows("accepts_more")
def test_document_with_only_a_graph_is_accepted(case_runner: CaseRunner):
    nodes = [
        {"id": "begin", "data": {"label": "Begin", "name": "begin", "form": {}}},
        {"id": "Message:Out", "data": {"label": "Message", "name": "out", "form": {"content": ["from a graph"]}}},
    ]
    edges = [{"source": "begin", "target": "Message:Out", "sourceHandle": "start", "targetHandle": "end"}]

    assert case_runner.run({"graph": {"nodes": nodes, "edges": edges}}).answer == "from a graph"


@covers_rows("accepts_more")
def test_answer_component_ends_the_turn_and_outputs_the_next_query(case_runner: CaseRunner):
    params = {"Message:Out": message_params("you said {Answer:A@answer}")}

    result = case_runner.run(dsl_of("begin -> Answer:A -> Message:Out", params), {"query": "hi"}, {"query": "more"})

    assert result.answers == ["", "you said more"]


# -- refused_earlier -------------------------------------------------------------------------------------------------


@covers_rows("refused_earlier", "invalid_missing_begin")
def test_document_without_begin_is_refused_before_it_runs():
    assert "begin" in refusal_of(load_recorded_case("invalid_missing_begin").document_at(""))


@covers_rows("refused_earlier")
def test_edge_to_a_missing_node_is_refused_before_the_run():
    document = dsl_of("begin -> Message:Out", {"Message:Out": message_params("x")})
    document["components"]["Message:Out"]["downstream"] = ["Message:Gone"]

    assert "Message:Gone" in refusal_of(document)


# -- empty_json ------------------------------------------------------------------------------------------------------


@covers_rows("empty_json", case="retrieval_empty")
def test_retrieval_without_results_outputs_an_empty_list(result: CaseResult):
    assert result.outputs("Retrieval:R") == {"formalized_content": "NOTHING FOUND", "json": []}
    assert result.answer == "not grounded"


@covers_rows("empty_json", case="retrieval_two_turns")
def test_retrieval_results_of_an_earlier_turn_are_not_in_the_next(result: CaseResult):
    assert [len(result.outputs("Retrieval:R", run)["json"]) for run in range(2)] == [2, 0]
    assert result.answers == ["grounded", "not grounded"]
