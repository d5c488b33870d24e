"""Requests of the tools whose vendor has a rate limit carry that limit."""

from collections.abc import Mapping
from typing import Any

import pytest

from components import tools
from components.tools.academic.arxiv import ARXIV
from components.tools.academic.pubmed import PUBMED
from providers.rate_limits import VendorRateLimit
from tests.fakes import FakeHttp
from tests.unit.components.tools.vendors import by_path, on_node, reply, vendor

FEED = reply('<feed xmlns="http://www.w3.org/2005/Atom"/>')
FOUND = {
    "esearch": reply("<eSearchResult><IdList><Id>1</Id></IdList></eSearchResult>"),
    "efetch": reply("<PubmedArticleSet/>"),
}


def test_arxiv_requests_are_limited_to_one_in_three_seconds():
    http = vendor(FEED)

    on_node(ARXIV, {"query": "q"}, http)

    assert [call.rate_limit for call in http.calls] == [VendorRateLimit(1, 3.0)]


def test_retry_has_the_same_rate_limit():
    http = vendor(reply("busy", 503), FEED)

    on_node(ARXIV, {"query": "q", "max_retries": 1, "delay_after_error": 0}, http)

    assert [call.rate_limit for call in http.calls] == [VendorRateLimit(1, 3.0)] * 2


@pytest.mark.parametrize(("params", "requests"), [({}, 3), ({"api_key": "key-1234"}, 10), ({"api_key": " "}, 3)])
def test_both_pubmed_requests_have_the_rate_limit_with_or_without_a_key(params: Mapping[str, Any], requests: int):
    http = by_path(FOUND)

    on_node(PUBMED, {"query": "q", **params}, http)

    assert [(call.rate_limit.requests, call.rate_limit.seconds) for call in http.calls if call.rate_limit] == [
        (requests, 1.0)
    ] * 2


def test_other_vendors_have_no_rate_limit():
    limited = {tool.name for tool in tools.TOOLS.values() if tool.rate_limit is not None}
    http = FakeHttp(lambda _: reply('{"items": []}'))

    on_node(tools.TOOLS["github"], {"query": "q"}, http)

    assert limited == {"ArXiv", "PubMed"}
    assert [call.rate_limit for call in http.calls] == [None]
