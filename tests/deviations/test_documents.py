"""Stored canvases that are refused or accepted where the reference does otherwise, and what searches leave empty."""

from typing import Any

import pytest

from canvas.document import parsing
from canvas.errors import InvalidCanvas
from canvas.validation import check
from components.checks.check import findings_of
from tests.deviations.told import Stage, Told, drawn, recorded, says, states


def refusal_of(document: Any) -> str:
    """Why a document is refused; "" if it is accepted."""
    try:
        errors = check.errors_of(findings_of(parsing.parse(document)))
    except InvalidCanvas as refused:
        return refused.message
    return errors[0].message if errors else ""


# -- accepts_more ----------------------------------------------------------------------------------------------------


@states("accepts_more", case="invalid_missing_retrieval")
def test_a_document_needs_no_list_of_references(told: Told):
    assert (told.answer, told.error) == ("x", "")


@states("accepts_more", "invalid_invoke_method")
@pytest.mark.parametrize("method", ["patch", "delete", "PATCH"])
def test_a_request_may_patch_and_delete(method: str):
    document = recorded("invalid_invoke_method").document_at("")
    document["components"]["X:1"]["obj"]["params"]["method"] = method

    assert refusal_of(document) == ""


@states("accepts_more")
@pytest.mark.parametrize("missing", ["path", "history", "retrieval", "globals", "variables"])
def test_a_document_needs_no_state_of_earlier_runs(missing: str):
    document = {"path": [], "history": [], "retrieval": [], **drawn("begin -> Message:Out", {"Message:Out": says("x")})}
    del document[missing]

    assert refusal_of(document) == ""


@states("accepts_more")
def test_a_graph_is_enough(stage: Stage):
    nodes = [
        {"id": "begin", "data": {"label": "Begin", "name": "begin", "form": {}}},
        {"id": "Message:Out", "data": {"label": "Message", "name": "out", "form": {"content": ["from a graph"]}}},
    ]
    edges = [{"source": "begin", "target": "Message:Out", "sourceHandle": "start", "targetHandle": "end"}]

    assert stage.play({"graph": {"nodes": nodes, "edges": edges}}).answer == "from a graph"


@states("accepts_more")
def test_an_answer_of_older_canvases_ends_the_turn_and_gives_the_next_query(stage: Stage):
    params = {"Message:Out": says("you said {Answer:A@answer}")}

    told = stage.play(drawn("begin -> Answer:A -> Message:Out", params), {"query": "hi"}, {"query": "more"})

    assert told.answers == ["", "you said more"]


# -- refused_earlier -------------------------------------------------------------------------------------------------


@states("refused_earlier", "invalid_missing_begin")
def test_a_document_without_a_beginning_is_refused_before_it_runs():
    assert "begin" in refusal_of(recorded("invalid_missing_begin").document_at(""))


@states("refused_earlier")
def test_an_edge_to_nowhere_is_refused_before_it_runs():
    document = drawn("begin -> Message:Out", {"Message:Out": says("x")})
    document["components"]["Message:Out"]["downstream"] = ["Message:Gone"]

    assert "Message:Gone" in refusal_of(document)


# -- empty_json ------------------------------------------------------------------------------------------------------


@states("empty_json", case="retrieval_empty")
def test_a_search_that_finds_nothing_leaves_an_empty_list(told: Told):
    assert told.outputs("Retrieval:R") == {"formalized_content": "NOTHING FOUND", "json": []}
    assert told.answer == "not grounded"


@states("empty_json", case="retrieval_two_turns")
def test_what_an_earlier_turn_has_found_is_not_in_a_later_ones_list(told: Told):
    assert [len(told.outputs("Retrieval:R", run)["json"]) for run in range(2)] == [2, 0]
    assert told.answers == ["grounded", "not grounded"]
