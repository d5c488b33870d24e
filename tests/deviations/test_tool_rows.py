"""Tools: numbers of sources, what a model reads, how often a vendor is asked, and what may be reached."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from canvas.errors import AddressRefused, HttpFailed, ToolError
from canvas.events.citation_numbers import assign_numbers
from canvas.outcome import Failed, Finished
from components.context import NodeContext
from components.tools.academic.pubmed import PUBMED
from components.tools.finance.jin10 import JIN10
from components.tools.finance.tushare import TUSHARE
from components.tools.finance.wencai import WENCAI
from components.tools.framework.base import Tool, ToolParams, ToolResult
from components.tools.framework.tool_node import tool_component
from components.tools.qweather import QWEATHER
from components.tools.web_search import tavily
from components.tools.web_search.duckduckgo import DUCKDUCKGO
from components.tools.web_search.google import GOOGLE
from components.tools.web_search.wikipedia import WIKIPEDIA
from providers.interfaces import McpCall, McpToolDescription, Services
from providers.mcp.headers import fill_headers
from providers.mcp.results import text_of
from providers.models.chat.scripted import Script
from tests.deviations.told import states
from tests.fakes import FakeContext, FakeHttp, no_network, run
from tests.unit.components.nodes.agent.agents import ECHO, Calls, Log, ask, calls, echo_tool, known
from tests.unit.components.tools.vendors import by_model, by_path, error_of, json_reply, outputs_of, reply, vendor


def failing(error: Exception, **settings: Any) -> tuple[Tool[ToolParams], list[Mapping[str, Any]]]:
    """A tool that never succeeds, and the calls it got."""
    given: list[Mapping[str, Any]] = []

    async def call(params: ToolParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
        given.append(arguments)
        raise error

    return Tool(
        "Failing", "fail", ToolParams, "Fails.", {}, call, effect="idempotent", empty_outputs=None, **settings
    ), given


# -- T1, T2, T3: sources and results ---------------------------------------------------------------------------------


@states("T1")
def test_the_first_source_keeps_a_number_that_a_later_one_asks_for():
    crowd = [f"chunk-{number}" for number in range(300)]

    numbers = assign_numbers(crowd, {})

    assert len(set(numbers.values())) == len(crowd)
    assert assign_numbers(["another"], numbers)["another"] not in numbers.values()


@states("T2")
def test_a_tool_that_fails_leaves_nothing_of_its_last_round():
    tool, _ = failing(ToolError("down"))
    ctx = FakeContext(previous={"formalized_content": "of the last round"})

    outcome = run(tool_component(tool), {"outputs": {"json": {}}}, ctx)

    assert isinstance(outcome, Failed)
    assert outcome.outputs["formalized_content"] is None


@states("T3")
def test_a_list_that_a_tool_finds_is_json_for_the_model():
    script = Script([{"last_role": "tool", "reply": "done"}, calls(("echo_0", {"query": "q"}))])

    with known(echo_tool(Calls(), lambda _: ["é", {"k": None}])):
        ask(script, tools=[ECHO])

    assert script.requests[1].messages[-1]["content"] == '["é", {"k": null}]'


@states("T3")
def test_a_list_that_a_model_may_give_says_what_it_holds():
    tool = tavily.TAVILY_SEARCH

    properties = tool.schema(tool.params(), "tavily_0")["function"]["parameters"]["properties"]

    assert properties["include_domains"]["items"] == {"type": "string"}


# -- T4, T5, T6: limits, retries, defaults ---------------------------------------------------------------------------


@states("T4")
def test_a_tool_has_its_time_once():
    async def call(params: ToolParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
        await asyncio.Event().wait()
        raise AssertionError

    tool = Tool("Slow", "slow", ToolParams, "Waits.", {}, call, effect="idempotent", empty_outputs=None)

    outcome = run(tool_component(tool), {"max_retries": 3}, FakeContext(limits={"Slow": 0.02}))

    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(
        "Operation timed out after 0.02 seconds. An operator can raise COMPONENT_EXEC_TIMEOUT_"
    )


@states("T5")
def test_nobody_waits_after_the_last_failure(monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("components.tools.framework.base.asyncio.sleep", sleep)
    tool, given = failing(HttpFailed("busy", retryable=True))

    by_model(tool, {"max_retries": 2, "delay_after_error": 7}, {}, FakeHttp(no_network))

    assert (len(given), len(waits)) == (3, 2)


@states("T5")
@pytest.mark.parametrize("error", [ToolError("bad key"), AddressRefused("private"), HttpFailed("404", retryable=False)])
def test_what_stays_wrong_is_tried_once(error: Exception):
    tool, given = failing(error)

    by_model(tool, {"max_retries": 5, "delay_after_error": 0}, {}, FakeHttp(no_network))

    assert len(given) == 1


@states("T6")
def test_the_default_of_a_failed_tool_is_its_result():
    tool, _ = failing(ToolError("down"))
    policy = {"exception_method": "comment", "exception_default_value": "later"}

    outcome = run(tool_component(tool), policy, FakeContext())

    assert isinstance(outcome, Finished)
    assert outcome.outputs == {"formalized_content": "later", "result": "later", "_SUPPRESSED_ERROR": "down"}


# -- T7 to T12: vendors ----------------------------------------------------------------------------------------------


@states("T7")
def test_the_news_channel_asks_for_news():
    found = {"results": [{"title": "T", "url": "https://e.test/", "excerpt": "News.", "date": 0, "source": "E"}]}
    http = by_path({"/news.js": json_reply(found), "duckduckgo.com/": reply("vqd='4-1'")})

    outputs = outputs_of(DUCKDUCKGO, {"query": "q", "channel": "news"}, http)

    assert any("/news.js" in call.url for call in http.calls)
    assert "News." in outputs["formalized_content"]


@states("T8")
def test_the_first_page_and_its_size_are_sent_and_snippets_are_shown():
    about = {"about_this_result": {"source": {"description": "the site"}}, "snippet": "the page"}
    http = vendor(json_reply({"organic_results": [about]}))

    outputs = outputs_of(GOOGLE, {"q": "q", "api_key": "key-1234", "start": "10", "num": 3}, http)

    params: Any = http.calls[0].params
    assert (params["start"], params["num"]) == (10, 3)
    assert outputs["formalized_content"].endswith("the page")


@states("T9")
def test_no_articles_are_no_error():
    found = reply("<eSearchResult><Count>0</Count><IdList/></eSearchResult>")

    assert outputs_of(PUBMED, {"query": "q"}, vendor(found)) == {"formalized_content": "", "json": []}


@states("T9")
def test_an_abstract_is_shown_to_its_end():
    parts = "<AbstractText>First.</AbstractText><AbstractText>Last.</AbstractText>"
    article = f"<MedlineCitation><PMID>1</PMID><Article><Abstract>{parts}</Abstract></Article></MedlineCitation>"
    fetched = reply(f"<PubmedArticleSet><PubmedArticle>{article}</PubmedArticle></PubmedArticleSet>")
    found = reply("<eSearchResult><IdList><Id>1</Id></IdList></eSearchResult>")

    outputs = outputs_of(PUBMED, {"query": "q"}, by_path({"esearch": found, "efetch": fetched}))

    assert outputs["json"][0]["abstract"] == "First.\nLast."


@states("T10")
def test_one_request_in_the_nodes_own_language_brings_all_articles():
    http = vendor(json_reply({"query": {"pages": {}}}))

    outputs_of(WIKIPEDIA, {"query": "q", "language": "de"}, http)

    assert [call.url for call in http.calls] == ["https://de.wikipedia.org/w/api.php"]


@states("T11")
def test_what_upstream_has_left_behind_works():
    flashes = vendor(json_reply({"status": 200, "data": [{"data": {"content": "Gold up"}}]}))
    news = vendor(json_reply({"code": 0, "data": {"fields": ["content"], "items": [["Gold up"]]}}))

    assert outputs_of(JIN10, {"query": "q"}, flashes)["formalized_content"] == "Gold up"
    assert "Gold up" in outputs_of(TUSHARE, {"query": "gold"}, news)["formalized_content"]


@states("T11")
def test_a_vendor_that_is_gone_is_a_clear_error():
    assert "not available" in error_of(WENCAI, {"query": "q"}, FakeHttp(no_network))


@states("T12")
def test_the_weather_is_json():
    found = {"city/lookup": json_reply({"code": "200", "location": [{"id": "101"}]})}
    now = json_reply({"code": "200", "now": {"temp": "21", "text": "Sunny"}})

    outputs = outputs_of(QWEATHER, {"query": "Beijing"}, by_path({**found, "weather/now": now}))

    assert outputs["formalized_content"] == '{"temp": "21", "text": "Sunny"}'


# -- T17: MCP ----------------------------------------------------------------------------------------------------------


@states("T17")
@pytest.mark.parametrize(("value", "is_sent"), [("Bearer abra", True), ("rare", True), ("Bearer ", False), ("", False)])
def test_only_a_header_that_carries_nothing_is_left_out(value: str, is_sent: bool):
    assert fill_headers({"Authorization": value}, {}, {}).headers == ({"Authorization": value} if is_sent else {})


@states("T17")
def test_every_item_of_a_result_counts():
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    assert text_of(content, None, is_error=False) == "one\ntwo"


@states("T17")
def test_an_agent_closes_the_sessions_it_has_opened_also_where_it_fails():
    servers = Servers()
    ctx = FakeContext(globals={"sys.query": "Q"}, services=Services(FakeHttp(no_network), mcp=servers), log=Log())
    script = Script([{**calls(("add_0", {"a": 1})), "times": 1}, {"error": "**ERROR**: AUTH_ERROR - no"}])

    outcome, _ = ask(script, ctx, mcp=[{"mcp_id": "s1", "tools": {"add": {}}}])

    assert isinstance(outcome, Failed)
    assert servers.seen == ["add", "closed"]


class Servers:
    """Notes what becomes of MCP servers."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def call(self, call: McpCall) -> str:
        self.seen.append(call.tool)
        return "3"

    async def load_pinned_description(self, server: str, tool: str) -> McpToolDescription | None:
        return None

    async def close(self) -> None:
        self.seen.append("closed")
