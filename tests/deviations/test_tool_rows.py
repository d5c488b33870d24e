"""Tools: citation numbers, results for models, retries, vendors and MCP servers."""

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
from tests.deviations.observed_run import covers_rows
from tests.fakes import FakeContext, FakeHttp, no_network, run
from tests.unit.components.nodes.agent.agents import ECHO, Calls, Log, ask, calls, echo_tool, only_tools
from tests.unit.components.tools.vendors import by_model, by_path, error_of, json_reply, outputs_of, reply, vendor


def failing(error: Exception, **settings: Any) -> tuple[Tool[ToolParams], list[Mapping[str, Any]]]:
    """Make a tool that always fails; return it with the list of its calls."""
    received: list[Mapping[str, Any]] = []

    async def call(params: ToolParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
        received.append(arguments)
        raise error

    return Tool(
        "Failing", "fail", ToolParams, "Fails.", {}, call, effect="idempotent", empty_outputs=None, **settings
    ), received


# -- T1, T2, T3: sources and results ---------------------------------------------------------------------------------


@covers_rows("T1")
def test_citation_number_of_the_first_source_is_not_reassigned():
    chunks = [f"chunk-{number}" for number in range(300)]

    numbers = assign_numbers(chunks, {})

    assert len(set(numbers.values())) == len(chunks)
    assert assign_numbers(["another"], numbers)["another"] not in numbers.values()


@covers_rows("T2")
def test_failed_tool_clears_its_outputs_of_the_previous_round():
    tool, _ = failing(ToolError("down"))
    ctx = FakeContext(previous={"formalized_content": "of the last round"})

    outcome = run(tool_component(tool), {"outputs": {"json": {}}}, ctx)

    assert isinstance(outcome, Failed)
    assert outcome.outputs["formalized_content"] is None


@covers_rows("T3")
def test_list_result_of_a_tool_is_json_for_the_model():
    script = Script([{"last_role": "tool", "reply": "done"}, calls(("echo_0", {"query": "q"}))])

    with only_tools(echo_tool(Calls(), lambda _: ["é", {"k": None}])):
        ask(script, tools=[ECHO])

    assert script.requests[1].messages[-1]["content"] == '["é", {"k": null}]'


@covers_rows("T3")
def test_array_argument_in_a_tool_schema_names_its_item_type():
    tool = tavily.TAVILY_SEARCH

    properties = tool.schema(tool.params(), "tavily_0")["function"]["parameters"]["properties"]

    assert properties["include_domains"]["items"] == {"type": "string"}


# -- T4, T5, T6: limits, retries, defaults ---------------------------------------------------------------------------


@covers_rows("T4")
def test_tool_time_limit_covers_all_its_retries():
    async def call(params: ToolParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
        await asyncio.Event().wait()
        raise AssertionError

    tool = Tool("Slow", "slow", ToolParams, "Waits.", {}, call, effect="idempotent", empty_outputs=None)

    outcome = run(tool_component(tool), {"max_retries": 3}, FakeContext(limits={"Slow": 0.02}))

    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(
        "Operation timed out after 0.02 seconds. An operator can raise COMPONENT_EXEC_TIMEOUT_"
    )


@covers_rows("T5")
def test_tool_does_not_wait_after_its_last_retry(monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("components.tools.framework.base.asyncio.sleep", sleep)
    tool, received = failing(HttpFailed("busy", retryable=True))

    by_model(tool, {"max_retries": 2, "delay_after_error": 7}, {}, FakeHttp(no_network))

    assert (len(received), len(waits)) == (3, 2)


@covers_rows("T5")
@pytest.mark.parametrize("error", [ToolError("bad key"), AddressRefused("private"), HttpFailed("404", retryable=False)])
def test_permanent_tool_error_is_not_retried(error: Exception):
    tool, received = failing(error)

    by_model(tool, {"max_retries": 5, "delay_after_error": 0}, {}, FakeHttp(no_network))

    assert len(received) == 1


@covers_rows("T6")
def test_default_value_replaces_the_result_of_a_failed_tool():
    tool, _ = failing(ToolError("down"))
    policy = {"exception_method": "comment", "exception_default_value": "later"}

    outcome = run(tool_component(tool), policy, FakeContext())

    assert isinstance(outcome, Finished)
    assert outcome.outputs == {"formalized_content": "later", "result": "later", "_SUPPRESSED_ERROR": "down"}


# -- T7 to T12: vendors ----------------------------------------------------------------------------------------------


@covers_rows("T7")
def test_duckduckgo_news_channel_requests_news():
    found = {"results": [{"title": "T", "url": "https://e.test/", "excerpt": "News.", "date": 0, "source": "E"}]}
    http = by_path({"/news.js": json_reply(found), "duckduckgo.com/": reply("vqd='4-1'")})

    outputs = outputs_of(DUCKDUCKGO, {"query": "q", "channel": "news"}, http)

    assert any("/news.js" in call.url for call in http.calls)
    assert "News." in outputs["formalized_content"]


@covers_rows("T8")
def test_google_sends_start_and_page_size_and_shows_snippets():
    about = {"about_this_result": {"source": {"description": "the site"}}, "snippet": "the page"}
    http = vendor(json_reply({"organic_results": [about]}))

    outputs = outputs_of(GOOGLE, {"q": "q", "api_key": "key-1234", "start": "10", "num": 3}, http)

    params: Any = http.calls[0].params
    assert (params["start"], params["num"]) == (10, 3)
    assert outputs["formalized_content"].endswith("the page")


@covers_rows("T9")
def test_pubmed_without_results_is_not_an_error():
    found = reply("<eSearchResult><Count>0</Count><IdList/></eSearchResult>")

    assert outputs_of(PUBMED, {"query": "q"}, vendor(found)) == {"formalized_content": "", "json": []}


@covers_rows("T9")
def test_pubmed_abstract_is_shown_completely():
    parts = "<AbstractText>First.</AbstractText><AbstractText>Last.</AbstractText>"
    article = f"<MedlineCitation><PMID>1</PMID><Article><Abstract>{parts}</Abstract></Article></MedlineCitation>"
    fetched = reply(f"<PubmedArticleSet><PubmedArticle>{article}</PubmedArticle></PubmedArticleSet>")
    found = reply("<eSearchResult><IdList><Id>1</Id></IdList></eSearchResult>")

    outputs = outputs_of(PUBMED, {"query": "q"}, by_path({"esearch": found, "efetch": fetched}))

    assert outputs["json"][0]["abstract"] == "First.\nLast."


@covers_rows("T10")
def test_wikipedia_gets_all_articles_with_one_request_in_the_nodes_language():
    http = vendor(json_reply({"query": {"pages": {}}}))

    outputs_of(WIKIPEDIA, {"query": "q", "language": "de"}, http)

    assert [call.url for call in http.calls] == ["https://de.wikipedia.org/w/api.php"]


@covers_rows("T11")
def test_jin10_and_tushare_return_news():
    flashes = vendor(json_reply({"status": 200, "data": [{"data": {"content": "Gold up"}}]}))
    news = vendor(json_reply({"code": 0, "data": {"fields": ["content"], "items": [["Gold up"]]}}))

    assert outputs_of(JIN10, {"query": "q"}, flashes)["formalized_content"] == "Gold up"
    assert "Gold up" in outputs_of(TUSHARE, {"query": "gold"}, news)["formalized_content"]


@covers_rows("T11")
def test_discontinued_vendor_fails_with_a_clear_error():
    assert "not available" in error_of(WENCAI, {"query": "q"}, FakeHttp(no_network))


@covers_rows("T12")
def test_qweather_output_is_json():
    found = {"city/lookup": json_reply({"code": "200", "location": [{"id": "101"}]})}
    now = json_reply({"code": "200", "now": {"temp": "21", "text": "Sunny"}})

    outputs = outputs_of(QWEATHER, {"query": "Beijing"}, by_path({**found, "weather/now": now}))

    assert outputs["formalized_content"] == '{"temp": "21", "text": "Sunny"}'


# -- T17: MCP ----------------------------------------------------------------------------------------------------------


@covers_rows("T17")
@pytest.mark.parametrize(("value", "is_sent"), [("Bearer abra", True), ("rare", True), ("Bearer ", False), ("", False)])
def test_mcp_header_is_omitted_only_without_a_value(value: str, is_sent: bool):
    assert fill_headers({"Authorization": value}, {}, {}).headers == ({"Authorization": value} if is_sent else {})


@covers_rows("T17")
def test_mcp_result_text_contains_every_item():
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    assert text_of(content, None, is_error=False) == "one\ntwo"


@covers_rows("T17")
def test_failed_agent_closes_its_mcp_sessions():
    servers = Servers()
    ctx = FakeContext(globals={"sys.query": "Q"}, services=Services(FakeHttp(no_network), mcp=servers), log=Log())
    script = Script([{**calls(("add_0", {"a": 1})), "times": 1}, {"error": "**ERROR**: AUTH_ERROR - no"}])

    outcome, _ = ask(script, ctx, mcp=[{"mcp_id": "s1", "tools": {"add": {}}}])

    assert isinstance(outcome, Failed)
    assert servers.seen == ["add", "closed"]


class Servers:
    """Records the calls to MCP servers, and their end."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def call(self, call: McpCall) -> str:
        self.seen.append(call.tool)
        return "3"

    async def load_pinned_description(self, server: str, tool: str) -> McpToolDescription | None:
        return None

    async def close(self) -> None:
        self.seen.append("closed")
