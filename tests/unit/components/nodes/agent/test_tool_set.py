"""Arguments of an Agent's tool calls, and the schema that a model is offered."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from components.nodes.agent.tool_set import Function, parse_entry, tool_function
from components.tools.framework.base import ToolRun
from providers.interfaces import HttpResponse
from tests.fakes import FakeContext, FakeHttp
from tests.unit.components.tools.vendors import context, json_reply, vendor

NOTHING = json_reply({"results": [], "organic_results": []})


def no_agent(_: Any) -> Any:
    raise AssertionError("this is no Agent")


def tool(name: str, **params: Any) -> Function:
    return tool_function(
        parse_entry({"component_name": name, "params": {"api_key": "key-1234", **params}}, no_agent), 0
    )


def call_function(
    function: Function, arguments: Mapping[str, Any], answer: HttpResponse = NOTHING, **known: Any
) -> tuple[ToolRun, FakeHttp]:
    async def work(ctx: FakeContext) -> ToolRun:
        return await function.call(arguments, ctx)

    http = vendor(answer)
    return asyncio.run(work(context(http, **known))), http


def request_of(function: Function, arguments: Mapping[str, Any], **known: Any) -> Mapping[str, Any]:
    """Return the parameters of the request to the vendor."""
    call = call_function(function, arguments, **known)[1].calls[0]
    request: Any = call.json if call.json is not None else call.params
    return request


def test_argument_that_a_model_omits_is_the_authors_value():
    search = tool("TavilySearch", topic="news", include_domains=["a.test"], exclude_domains="b.test, c.test")

    request = request_of(search, {"query": "tea"})

    assert (request["topic"], request["include_domains"], request["exclude_domains"]) == (
        "news",
        ["a.test"],
        ["b.test", "c.test"],
    )
    assert request_of(tool("Google", num="3", start=20), {"q": "tea"}).items() >= {"num": 3, "start": 20}.items()


def test_argument_of_a_model_overrides_the_authors_value():
    search = tool("TavilySearch", topic="news", include_domains=["a.test"])

    request = request_of(search, {"query": "tea", "topic": "general", "include_domains": []})

    assert (request["topic"], request["include_domains"]) == ("general", [])


def test_references_in_stored_parameters_are_resolved():
    search = tool("TavilySearch", topic="{begin@topic}", include_domains=["{begin@sites}", "z.test"])
    values = {"begin": {"topic": "news", "sites": ["a.test", "b.test"]}}

    request = request_of(search, {"query": "tea"}, values=values)

    assert (request["topic"], request["include_domains"]) == ("news", ["a.test", "b.test", "z.test"])


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("Google", {"q": "tea", "start": "", "num": "5"}, {"start": 0, "num": 5}),
        ("TavilySearch", {"query": "tea", "topic": " ", "include_domains": ""}, {"topic": "general"}),
        ("TavilySearch", {"query": "tea", "include_domains": '["a.test", "b"]'}, {"include_domains": ["a.test", "b"]}),
        ("TavilyExtract", {"urls": '["https://a.test/x,y"]'}, {"urls": ["https://a.test/x,y"]}),
    ],
)
def test_numbers_lists_and_blanks_in_text_arguments_are_converted(
    name: str, arguments: Mapping[str, Any], expected: Mapping[str, Any]
):
    assert request_of(tool(name), arguments).items() >= expected.items()


def test_schema_has_the_defaults_of_the_author_but_no_references():
    offered = tool("TavilySearch", topic="news", include_domains="{begin@sites}").schema["function"]["parameters"]

    assert offered["properties"]["topic"]["default"] == "news"
    assert offered["properties"]["include_domains"]["default"] == []
    assert tool("DuckDuckGo", channel="text").schema["function"]["parameters"]["properties"]["channel"] == {
        "type": "string",
        "description": "`news` for recent events, else `general`.",
        "enum": ["general", "news"],
        "default": "general",
    }
    offered = tool("TavilySearch", topic="{begin@t}", query="mine").schema["function"]["parameters"]["properties"]
    assert offered["topic"]["default"] == "general"
    assert "default" not in offered["query"]


def test_authors_free_text_applies_without_being_shown_to_the_model():
    search = tool("SearXNG", searxng_url="http://searx.internal:8080")

    assert "internal" not in str(search.schema)
    assert call_function(search, {"query": "tea"})[1].calls[0].url == "http://searx.internal:8080/search"


def test_missing_required_argument_is_not_filled_in():
    done, http = call_function(tool("TavilySearch", query="the author's"), {"topic": "news"})

    assert (done.answer, http.calls) == ("", [])
