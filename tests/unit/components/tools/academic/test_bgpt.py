"""BGPT, with recorded replies; the live vendor is not tested here."""

from typing import Any

import pytest

from components.tools.academic.bgpt import BGPT, BGPTParams
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import by_model, error_of, json_reply, outputs_of, reply, unreachable, vendor

PAPER = {
    "title": "Widgets in mice",
    "authors": "A. Lee, B. Li",
    "journal": "J Widget",
    "year": 2024,
    "doi": "10.1/w",
    "abstract": "Mice like widgets.",
    "sample_size_and_population_characteristics": "12 mice",
}
BLOCK = """
ID: 438
├── Title: Widgets in mice
├── URL: 10.1/w
└── Content:
Title: Widgets in mice
Authors: A. Lee, B. Li
Journal: J Widget
Year: 2024
DOI: 10.1/w
Abstract: Mice like widgets.
Methods: -
Sample size / population: 12 mice
Results: -
Limitations: -
Conflicts of interest: -
Data availability: -
Blind spots: -
How to falsify: -"""


def node(**params: Any) -> dict[str, Any]:
    return {"query": "widgets", "delay_after_error": 0, **params}


def content_of(paper: dict[str, Any]) -> str:
    outputs = outputs_of(BGPT, node(), vendor(json_reply({"results": [paper]})))
    return outputs["formalized_content"].partition("Content:\n")[2]


def test_paper_is_cited_with_a_line_for_each_field():
    outputs = outputs_of(BGPT, node(), vendor(json_reply({"results": [PAPER]})))

    assert outputs == {"formalized_content": BLOCK, "json": [PAPER]}


def test_request_contains_the_number_of_papers():
    http = vendor(json_reply({"results": []}))

    outputs_of(BGPT, node(query=" widgets ", top_n="3", api_key="bgpt-key-1", days_back="30"), http)
    outputs_of(BGPT, node(days_back=0), http)

    assert (http.calls[0].method, http.calls[0].url) == ("POST", "https://bgpt.pro/api/mcp-search")
    assert http.calls[0].timeout == 25.0
    assert http.calls[0].json == {"query": "widgets", "num_results": 3, "api_key": "bgpt-key-1", "days_back": 30}
    assert http.calls[1].json == {"query": "widgets", "num_results": 10}


@pytest.mark.parametrize("days_back", [None, "", 0, "0"])
def test_zero_days_back_set_no_limit(days_back: Any):
    assert BGPTParams(days_back=days_back).days_back is None


@pytest.mark.parametrize("days_back", [-1, "soon", 1.5, True, []])
def test_invalid_days_back_are_refused_when_the_canvas_is_loaded(days_back: Any):
    with pytest.raises(ValueError, match="should be positive integer"):
        BGPTParams(days_back=days_back)


def test_field_has_the_first_non_blank_member_and_lists_as_python_repr():
    text = content_of(
        {"methods_and_experimental_techniques": " ", "methods": ["a", 1], "study_blindspots": {"b": None}}
    )

    assert "\nMethods: ['a', 1]\n" in text
    assert "\nBlind spots: {'b': None}\n" in text


def test_paper_without_a_title_is_untitled_and_its_url_is_preferred_to_its_doi():
    found = {"results": [{"url": "https://e.test/p", "doi": "10.1/w"}, {"title": " "}, "junk", None]}

    outputs = outputs_of(BGPT, node(), vendor(json_reply(found)))

    assert "├── Title: Untitled\n├── URL: https://e.test/p\n" in outputs["formalized_content"]
    assert outputs["formalized_content"].count("ID: ") == 2
    assert outputs["json"] == found["results"]


def test_empty_result_is_not_an_error():
    assert outputs_of(BGPT, node(), vendor(json_reply({"results": []}))) == {"formalized_content": "", "json": []}


@pytest.mark.parametrize("query", ["", "  ", None])
def test_empty_question_sends_no_request(query: Any):
    assert outputs_of(BGPT, node(query=query), FakeHttp(no_network)) == {"formalized_content": ""}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (json_reply([]), "Invalid response from BGPT"),
        (json_reply(None), "Invalid response from BGPT"),
        (json_reply({}), "Invalid results format from BGPT"),
        (json_reply({"results": {}}), "Invalid results format from BGPT"),
        (json_reply({"results": None}), "Invalid results format from BGPT"),
        (reply("<html>"), "The answer is not valid JSON: <html>"),
        (reply("who are you", 401), "HTTP error: HTTP 401: who are you"),
        (reply("gone", 410), "HTTP error: HTTP 410: gone"),
        (reply("slow", 408), "HTTP error: HTTP 408: slow"),
    ],
)
def test_final_error_is_not_retried(answer: Any, error: str):
    http = vendor(answer)

    assert error_of(BGPT, node(max_retries=3), http) == error
    assert len(http.calls) == 1


@pytest.mark.parametrize(("status", "message"), [(429, "HTTP 429: busy"), (503, "HTTP 503: busy")])
def test_transient_error_is_retried(status: int, message: str):
    http = vendor(reply("busy", status))

    assert error_of(BGPT, node(max_retries=2), http) == f"Network error: {message}"
    assert len(http.calls) == 3


def test_a_vendor_that_does_not_answer_is_a_network_error():
    http = FakeHttp(unreachable)

    assert error_of(BGPT, node(max_retries=1), http) == "Network error: The request took longer than 12 s."
    assert len(http.calls) == 2


def test_a_model_reads_the_error_under_the_name_of_the_tool():
    done = by_model(BGPT, {"api_key": "bgpt-key-1"}, {"query": "w"}, vendor(reply("no bgpt-key-1", 403)))

    assert done.answer == "BGPT error: HTTP error: HTTP 403: no [REDACTED]"
