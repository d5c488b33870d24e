"""ArXiv, with recorded feeds."""

from dataclasses import replace
from typing import Any

import pytest

from components.tools.academic.arxiv import ARXIV
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import error_of, outputs_of, refusing, reply, unreachable, vendor

ENTRY = """<entry><id>http://arxiv.org/abs/2601.00001v1</id><published>2026-01-01T00:00:00Z</published>
<title>Small
  Widgets</title><summary> We study small widgets.
</summary><author><name>Ann Lee</name></author><author><name>Bo Li</name></author>
<link href="http://arxiv.org/abs/2601.00001v1" rel="alternate"/>
<link title="pdf" href="http://arxiv.org/pdf/2601.00001v1" rel="related"/></entry>"""
REFUSED = "<entry><id>http://arxiv.org/api/errors#x</id><title>Error</title><summary>bad query</summary></entry>"
BLOCK = (
    "\nID: 127\n├── Title: Small Widgets\n├── URL: http://arxiv.org/pdf/2601.00001v1\n"
    "└── Content:\nWe study small widgets."
)


def feed(*entries: str) -> Any:
    xml = '<?xml version="1.0" encoding="UTF-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">'
    return reply(f"{xml}<title>Results</title>{''.join(entries)}</feed>")


def test_abstracts_become_citations_and_json():
    outputs = outputs_of(ARXIV, {"query": "widgets"}, vendor(feed(ENTRY)))

    assert outputs["formalized_content"] == BLOCK
    assert outputs["json"] == [
        {
            "title": "Small Widgets",
            "summary": "We study small widgets.",
            "authors": ["Ann Lee", "Bo Li"],
            "pdf_url": "http://arxiv.org/pdf/2601.00001v1",
            "entry_id": "http://arxiv.org/abs/2601.00001v1",
            "published": "2026-01-01T00:00:00Z",
            "updated": "",
        }
    ]


def test_query_is_sent_unchanged():
    http = vendor(feed())

    outputs_of(ARXIV, {"query": "au:lee AND widgets", "top_n": "3", "sort_by": "relevance"}, http)

    assert http.calls[0].params == {
        "search_query": "au:lee AND widgets",
        "id_list": "",
        "sortBy": "relevance",
        "sortOrder": "descending",
        "start": 0,
        "max_results": 3,
    }


def test_an_article_without_a_pdf_has_no_address():
    outputs = outputs_of(ARXIV, {"query": "w"}, vendor(feed("<entry><summary>s</summary></entry>")))

    assert outputs["json"][0]["pdf_url"] is None
    assert "URL" not in outputs["formalized_content"]


def test_empty_result_is_not_an_error():
    assert outputs_of(ARXIV, {"query": "w"}, vendor(feed())) == {"formalized_content": "", "json": []}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (feed(REFUSED), "bad query"),
        (reply("busy", 503), "HTTP 503: busy"),
        (reply("not xml"), "The answer is not valid XML"),
        (reply('<!DOCTYPE f [<!ENTITY a "ha">]><feed>&a;</feed>'), "entities of its own"),
    ],
)
def test_error_of_the_vendor_is_an_error(answer: Any, error: str):
    assert error in error_of(ARXIV, {"query": "w"}, vendor(answer))


def test_transport_failure_is_an_error():
    assert "non-public" in error_of(ARXIV, {"query": "w"}, FakeHttp(refusing))
    assert "12 s" in error_of(ARXIV, {"query": "w"}, FakeHttp(unreachable))


def test_empty_query_sends_no_request():
    assert outputs_of(ARXIV, {"query": ""}, FakeHttp(no_network)) == {"formalized_content": ""}


@pytest.mark.parametrize("status", [400, 500])
def test_error_entry_of_a_feed_is_the_error_with_any_status(status: int):
    answer = replace(feed(REFUSED), status=status)

    assert error_of(ARXIV, {"query": "id:1", "delay_after_error": 0}, vendor(answer)) == "bad query"


def test_request_is_tried_three_times_at_most():
    http = vendor(reply("busy", 503))

    error_of(ARXIV, {"query": "q", "max_retries": 9, "delay_after_error": 0}, http)

    assert len(http.calls) == 3


def test_other_xml_document_is_an_error():
    page = reply("<html><body><p>We are busy.</p></body></html>", content_type="text/html")

    assert error_of(ARXIV, {"query": "q"}, vendor(page)).startswith("The answer is not a feed: <html>")
