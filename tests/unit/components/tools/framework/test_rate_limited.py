"""Which requests of tools keep their vendor's pace: all of those tools that name one."""

from collections.abc import Mapping
from typing import Any

import pytest

from components import tools
from components.tools.academic.arxiv import ARXIV
from components.tools.academic.pubmed import PUBMED
from providers.models.types.rate_limits import VendorRateLimit
from tests.fakes import FakeHttp
from tests.unit.components.tools.vendors import by_path, on_node, reply, vendor

FEED = reply('<feed xmlns="http://www.w3.org/2005/Atom"/>')
FOUND = {
    "esearch": reply("<eSearchResult><IdList><Id>1</Id></IdList></eSearchResult>"),
    "efetch": reply("<PubmedArticleSet/>"),
}


def test_a_preprint_server_is_asked_every_three_seconds():
    http = vendor(FEED)

    on_node(ARXIV, {"query": "q"}, http)

    assert [call.rate_limit for call in http.calls] == [VendorRateLimit(1, 3.0)]


def test_another_try_keeps_the_pace_as_well():
    http = vendor(reply("busy", 503), FEED)

    on_node(ARXIV, {"query": "q", "max_retries": 1, "delay_after_error": 0}, http)

    assert [call.rate_limit for call in http.calls] == [VendorRateLimit(1, 3.0)] * 2


@pytest.mark.parametrize(("params", "requests"), [({}, 3), ({"api_key": "key-1234"}, 10), ({"api_key": " "}, 3)])
def test_both_requests_of_a_search_for_articles_keep_the_pace_of_who_asks(params: Mapping[str, Any], requests: int):
    http = by_path(FOUND)

    on_node(PUBMED, {"query": "q", **params}, http)

    assert [(call.rate_limit.requests, call.rate_limit.seconds) for call in http.calls if call.rate_limit] == [
        (requests, 1.0)
    ] * 2


def test_other_vendors_have_no_rate_limit():
    paced = {tool.name for tool in tools.TOOLS.values() if tool.rate_limit is not None}
    http = FakeHttp(lambda _: reply('{"items": []}'))

    on_node(tools.TOOLS["github"], {"query": "q"}, http)

    assert paced == {"ArXiv", "PubMed"}
    assert [call.rate_limit for call in http.calls] == [None]
