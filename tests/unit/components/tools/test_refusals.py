"""Refusals of vendors: each tool retries transient ones, and no others (tools 1.8)."""

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

ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
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
}
KEYS = ("api_key", "auth_key", "token", "secret_key", "web_apikey")
MORE = {**dict.fromkeys(KEYS, "key-0123456789"), "searxng_url": "https://searx.test", "delay_after_error": 0}
FINAL_STATUSES, TRANSIENT_STATUSES = (400, 401, 403, 404, 422), (429, 500, 502, 503, 504)
ALWAYS_THRICE = frozenset({"DeepL", "QueritContents", "QueritSearch"})  # whatever max_retries is
REFUSES_PROGRAMS = "GoogleScholar"  # with 429, which it does not retry

every_vendor = pytest.mark.parametrize("name", ARGUMENTS)


@every_vendor
def test_final_refusal_is_not_retried(name: str):
    for status in FINAL_STATUSES:
        three_tries = run_refused(name, status)

        assert three_tries.requests == run_refused(name, status, tries=1).requests, status
        assert three_tries.run.error, status


@every_vendor
def test_transient_refusal_is_retried_as_often_as_the_node_allows(name: str):
    for status in TRANSIENT_STATUSES:
        one_try, three_tries = run_refused(name, status, tries=1, wait="0"), run_refused(name, status, wait="0")

        is_constant = name in ALWAYS_THRICE or (name == REFUSES_PROGRAMS and status == 429)
        assert three_tries.requests == (1 if is_constant else 3) * one_try.requests, status
        assert three_tries.run.error, status


@every_vendor
def test_retry_delay_beyond_the_time_limit_is_not_waited_for(name: str):
    assert run_refused(name, 429, wait="29", limit=20.0).requests == run_refused(name, 403).requests


@dataclass(frozen=True)
class RefusedRun:
    run: ToolRun
    requests: int


def run_refused(name: str, status: int, *, tries: int = 3, wait: str = "", limit: float = 60.0) -> RefusedRun:
    """Run a tool whose vendor always refuses; return its run and the number of requests."""
    tool = find(name)
    assert tool is not None
    http = FakeHttp(lambda _: reply("no", status, **({"retry_after": wait} if wait else {})))
    params = tool.params.model_validate({**MORE, "max_retries": tries - 1})
    ctx: Any = FakeContext(services=Services(http), limits={name: limit})
    run = asyncio.run(tool.run(params, ARGUMENTS[name], ctx))
    return RefusedRun(run, len(http.calls))
