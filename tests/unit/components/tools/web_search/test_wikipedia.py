"""Wikipedia, with recorded replies of its API."""

from typing import Any

import pytest

from components.tools.web_search.wikipedia import WIKIPEDIA
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import error_of, json_reply, outputs_of, refusing, reply, unreachable, vendor

WIDGET = {
    "index": 1,
    "title": "Widget",
    "fullurl": "https://en.wikipedia.org/wiki/Widget",
    "extract": "A widget is a small gadget.",
}
GADGET = {"index": 2, "title": "Gadget", "fullurl": "https://en.wikipedia.org/wiki/Gadget", "extract": "A gadget."}
BLOCK = (
    "\nID: 37\n├── Title: Widget\n├── URL: https://en.wikipedia.org/wiki/Widget\n"
    "└── Content:\nA widget is a small gadget."
)


def pages(listed: Any) -> Any:
    return json_reply({"query": {"pages": listed}})


def test_introductions_become_citations_and_json():
    outputs = outputs_of(WIKIPEDIA, {"query": "widget"}, vendor(pages({"9": WIDGET})))

    assert outputs["formalized_content"] == BLOCK
    assert outputs["json"] == [{"title": "Widget", "url": WIDGET["fullurl"], "extract": WIDGET["extract"]}]


def test_one_request_in_the_language_of_the_node_searches_and_reads():
    http = vendor(pages({"9": WIDGET}))

    outputs_of(WIKIPEDIA, {"query": "widget", "language": "de", "top_n": 50}, http)

    params: Any = http.calls[0].params
    assert http.calls[0].url == "https://de.wikipedia.org/w/api.php"
    assert (params["gsrsearch"], params["gsrlimit"], params["prop"]) == ("widget", 20, "extracts|info|pageprops")
    assert len(http.calls) == 1


@pytest.mark.parametrize("listed", [{"1": GADGET, "9": WIDGET}, [GADGET, WIDGET]])
def test_articles_are_in_the_order_of_their_index(listed: Any):
    outputs = outputs_of(WIKIPEDIA, {"query": "w"}, vendor(pages(listed)))

    assert [row["title"] for row in outputs["json"]] == ["Widget", "Gadget"]


def test_disambiguation_pages_and_empty_pages_are_left_out():
    listed = {"1": {**WIDGET, "pageprops": {"disambiguation": ""}}, "2": {**WIDGET, "extract": ""}, "3": {}, "4": None}

    assert outputs_of(WIKIPEDIA, {"query": "w"}, vendor(pages(listed))) == {"formalized_content": "", "json": []}


def test_empty_result_is_not_an_error():
    http = vendor(json_reply({"batchcomplete": ""}))

    assert outputs_of(WIKIPEDIA, {"query": "w"}, http) == {"formalized_content": "", "json": []}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (json_reply({"error": {"code": "x", "info": "Search is down."}}), "Search is down."),
        (
            reply("too many", 429),
            "HTTP 429: too many (The vendor refuses requests without a contact address. An operator can set "
            "EASEL_CONTACT to a URL or a mail address.)",
        ),
        (reply("<html>"), "The answer is not valid JSON: <html>"),
        (json_reply([1]), "The answer is not a JSON object: it is of type list."),
    ],
)
def test_error_of_the_vendor_is_an_error(answer: Any, error: str):
    assert error_of(WIKIPEDIA, {"query": "w"}, vendor(answer)) == error


def test_transport_failure_is_an_error():
    assert "non-public" in error_of(WIKIPEDIA, {"query": "w"}, FakeHttp(refusing))
    assert "12 s" in error_of(WIKIPEDIA, {"query": "w"}, FakeHttp(unreachable))


def test_empty_query_sends_no_request():
    assert outputs_of(WIKIPEDIA, {"query": None}, FakeHttp(no_network)) == {"formalized_content": ""}
