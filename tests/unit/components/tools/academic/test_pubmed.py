"""PubMed, with recorded replies to its two requests."""

import re
from typing import Any

import pytest

from components.tools.academic.pubmed import PUBMED
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import (
    by_path,
    error_of,
    json_reply,
    outputs_of,
    refusing,
    reply,
    unreachable,
    vendor,
)

IDS = reply("<eSearchResult><Count>1</Count><IdList><Id>1</Id></IdList></eSearchResult>")
NO_IDS = reply("<eSearchResult><Count>0</Count><IdList/></eSearchResult>")
PLAIN = "<AbstractText>Mice like widgets.</AbstractText>"
CONTENT = (
    "Title: Widgets in mice\nAuthors: Ann Lee, Bo Li\nJournal: J Widget\nVolume: 12\nIssue: 3\nPages: 45-9\n"
    "DOI: 10.1/w\nAbstract: Mice like widgets."
)


def articles(abstract: str, title: str = "Widgets in mice", more: str = "", own_doi: str = "10.1/w") -> Any:
    return reply(
        f"""<?xml version="1.0"?><!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD//EN" "https://dtd.test/p.dtd">
<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>1</PMID><Article>
<Journal><JournalIssue><Volume>12</Volume><Issue>3</Issue></JournalIssue><Title>J Widget</Title></Journal>
<ArticleTitle>{title}</ArticleTitle>{more}<Pagination><MedlinePgn>45-9</MedlinePgn></Pagination>
<Abstract>{abstract}</Abstract><AuthorList><Author><LastName>Lee</LastName><ForeName>Ann</ForeName></Author>
<Author><LastName>Li</LastName><ForeName>Bo</ForeName></Author></AuthorList></Article></MedlineCitation>
<PubmedData><ReferenceList><Reference><ArticleIdList><ArticleId IdType="doi">10.9/other</ArticleId></ArticleIdList>
</Reference></ReferenceList><ArticleIdList><ArticleId IdType="pubmed">1</ArticleId>
<ArticleId IdType="doi">{own_doi}</ArticleId></ArticleIdList></PubmedData></PubmedArticle></PubmedArticleSet>"""
    )


def pubmed(fetched: Any, found: Any = IDS) -> FakeHttp:
    return by_path({"esearch": found, "efetch": fetched})


def test_articles_become_citations_and_json():
    outputs = outputs_of(PUBMED, {"query": "mice"}, pubmed(articles(PLAIN)))

    assert outputs["formalized_content"] == (
        f"\nID: 262\n├── Title: Widgets in mice\n├── URL: https://pubmed.ncbi.nlm.nih.gov/1\n└── Content:\n{CONTENT}"
    )
    assert outputs["json"][0]["doi"] == "10.1/w"


@pytest.mark.parametrize(
    ("own", "located", "doi"),
    [
        ("10.1/w", '<ELocationID EIdType="doi">10.2/e</ELocationID>', "10.1/w"),
        ("", '<ELocationID EIdType="pii">S1</ELocationID><ELocationID EIdType="doi">10.2/e</ELocationID>', "10.2/e"),
        ("", '<ELocationID EIdType="doi" ValidYN="N">10.2/e</ELocationID>', "-"),
    ],
)
def test_doi_is_read_from_the_id_list_or_else_from_the_location(own: str, located: str, doi: str):
    outputs = outputs_of(PUBMED, {"query": "mice"}, pubmed(articles(PLAIN, more=located, own_doi=own)))

    assert outputs["json"][0]["doi"] == doi


def test_search_reply_in_json_is_parsed():
    found = json_reply({"esearchresult": {"idlist": ["1"]}})

    assert CONTENT in outputs_of(PUBMED, {"query": "m"}, pubmed(articles(PLAIN), found))["formalized_content"]


def test_request_contains_the_contact_address():
    http = pubmed(articles(PLAIN))

    outputs_of(PUBMED, {"query": "mice", "top_n": 3, "email": "ann@example.com"}, http)

    search: Any = http.calls[0].params
    assert (search["term"], search["retmax"], search["email"], search["db"]) == ("mice", 3, "ann@example.com", "pubmed")
    fetch: Any = http.calls[1].params
    assert fetch["id"] == "1"


@pytest.mark.parametrize("found", [NO_IDS, json_reply({"esearchresult": {"idlist": []}}), json_reply({})])
def test_empty_search_is_not_an_error_and_fetches_nothing(found: Any):
    http = vendor(found)

    assert outputs_of(PUBMED, {"query": "m"}, http) == {"formalized_content": "", "json": []}
    assert len(http.calls) == 1


def test_structured_abstract_is_returned_in_full():
    parts = '<AbstractText Label="METHODS">Ask H<sub>2</sub>O.</AbstractText><AbstractText>Done.</AbstractText>'

    outputs = outputs_of(PUBMED, {"query": "m"}, pubmed(articles(parts, "Mice &amp; <i>men</i>")))

    assert outputs["json"][0]["abstract"] == "METHODS: Ask H2O.\nDone."
    assert outputs["json"][0]["title"] == "Mice & men"


def test_missing_fields_of_an_article_have_placeholders():
    bare = reply("<PubmedArticleSet><PubmedArticle/></PubmedArticleSet>")

    content = outputs_of(PUBMED, {"query": "m"}, pubmed(bare))["formalized_content"].partition("Content:\n")[2]

    assert content == (
        "Title: No title\nAuthors: Unknown Authors\nJournal: Unknown Journal\nVolume: -\nIssue: -\nPages: -\nDOI: -\n"
        "Abstract: No abstract available"
    )


@pytest.mark.parametrize("broken", [reply("busy", 429), reply("<html>"), reply("<a><b></a>")])
def test_error_of_the_vendor_is_an_error(broken: Any):
    assert error_of(PUBMED, {"query": "m"}, pubmed(broken))
    assert error_of(PUBMED, {"query": "m"}, pubmed(articles(PLAIN), broken))


def test_transport_failure_is_an_error():
    assert "non-public" in error_of(PUBMED, {"query": "m"}, FakeHttp(refusing))
    assert "12 s" in error_of(PUBMED, {"query": "m"}, FakeHttp(unreachable))


def test_empty_query_sends_no_request():
    assert outputs_of(PUBMED, {"query": ""}, FakeHttp(no_network)) == {"formalized_content": ""}


@pytest.mark.parametrize(
    "answer",
    [
        reply("<eSearchResult><ERROR>Search Backend failed</ERROR></eSearchResult>"),
        json_reply({"header": {}, "esearchresult": {"ERROR": "Search Backend failed"}}),
        json_reply({"error": "Search Backend failed", "count": "4"}),
    ],
)
def test_error_in_the_search_result_is_an_error(answer: Any):
    assert error_of(PUBMED, {"query": "q"}, pubmed(reply("not requested"), answer)) == "Search Backend failed"


@pytest.mark.parametrize("hits", [IDS, reply("<html><p>We are busy.</p></html>")])
def test_other_xml_document_is_an_error(hits: Any):
    http = pubmed(reply("<html><p>We are busy.</p></html>"), hits)

    assert re.match(
        "The answer is not of type (eSearchResult|PubmedArticleSet): <html>", error_of(PUBMED, {"query": "q"}, http)
    )


def test_error_in_place_of_articles_is_an_error():
    http = pubmed(reply("<eFetchResult><ERROR>ID list is empty!</ERROR></eFetchResult>"))

    assert error_of(PUBMED, {"query": "q"}, http) == "ID list is empty!"


def test_key_is_sent_with_both_requests_and_redacted():
    http = pubmed(articles("<AbstractText>As of key-0123456789.</AbstractText>"))

    outputs = outputs_of(PUBMED, {"query": "m", "api_key": " key-0123456789 "}, http)

    assert [dict(call.params or {})["api_key"] for call in http.calls] == ["key-0123456789"] * 2
    assert "key-0123456789" not in str(outputs)
