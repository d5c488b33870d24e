"""What each tool makes of a refusal: asked again where that may help, and never else (tools 1.8)."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from components.tools import find
from components.tools.framework.base import ToolRun
from providers.interfaces import Services
from tests.fakes import FakeContext, FakeHttp
from tests.unit.components.tools.vendors import reply

ASKED: Mapping[str, Mapping[str, Any]] = {
    "AkShare": {"query": "600519"},
    "ArXiv": {"query": "q"},
    "BGPT": {"query": "q"},
    "Crawler": {"query": "https://page.test"},
    "DeepL": {"query": "q"},
    "DuckDuckGo": {"query": "q"},
    "GitHub": {"query": "q"},
    "Google": {"q": "q"},
    "GoogleScholar": {"query": "q"},
    "Jin10": {"query": "q"},
    "KeenableSearch": {"query": "q"},
    "PubMed": {"query": "q"},
    "QueritContents": {"urls": ["https://page.test"]},
    "QueritSearch": {"query": "q"},
    "QWeather": {"query": "q"},
    "SearXNG": {"query": "q"},
    "TavilyExtract": {"urls": ["https://page.test"]},
    "TavilySearch": {"query": "q"},
    "TuShare": {"query": "q"},
    "Wikipedia": {"query": "q"},
    "YahooFinance": {"stock_code": "ACME"},
}
KEYS = ("api_key", "auth_key", "token", "secret_key", "web_apikey")
MORE = {**dict.fromkeys(KEYS, "key-0123456789"), "searxng_url": "https://searx.test", "delay_after_error": 0}
FOR_GOOD, MAY_PASS = (400, 401, 403, 404, 422), (429, 500, 502, 503, 504)
ALWAYS_THRICE = frozenset({"DeepL", "QueritContents", "QueritSearch"})  # whatever the node says
REFUSES_PROGRAMS = "GoogleScholar"  # by 429, which asking again does not mend

every_vendor = pytest.mark.parametrize("name", ASKED)


@every_vendor
def test_final_refusal_is_not_retried(name: str):
    for status in FOR_GOOD:
        allowed_thrice = refused(name, status)

        assert allowed_thrice.asked == refused(name, status, tries=1).asked, status
        assert allowed_thrice.run.error, status


@every_vendor
def test_transient_refusal_is_retried_as_often_as_the_node_allows(name: str):
    for status in MAY_PASS:
        once, allowed_thrice = refused(name, status, tries=1, wait="0"), refused(name, status, wait="0")

        stays = name in ALWAYS_THRICE or (name == REFUSES_PROGRAMS and status == 429)
        assert allowed_thrice.asked == (1 if stays else 3) * once.asked, status
        assert allowed_thrice.run.error, status


@every_vendor
def test_retry_delay_beyond_the_time_limit_is_not_waited_for(name: str):
    assert refused(name, 429, wait="29", limit=20.0).asked == refused(name, 403).asked


@dataclass(frozen=True)
class Refused:
    run: ToolRun
    asked: int


def refused(name: str, status: int, *, tries: int = 3, wait: str = "", limit: float = 60.0) -> Refused:
    """What a tool makes of a vendor that always refuses, and how often it asks."""
    tool = find(name)
    assert tool is not None
    http = FakeHttp(lambda _: reply("no", status, **({"retry_after": wait} if wait else {})))
    params = tool.params.model_validate({**MORE, "max_retries": tries - 1})
    ctx: Any = FakeContext(services=Services(http), limits={name: limit})
    run = asyncio.run(tool.run(params, ASKED[name], ctx))
    return Refused(run, len(http.calls))
