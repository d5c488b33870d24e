"""What a call of an Agent's tool is given, and what a model is told of it beforehand."""

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


def called(
    function: Function, arguments: Mapping[str, Any], answer: HttpResponse = NOTHING, **known: Any
) -> tuple[ToolRun, FakeHttp]:
    async def work(ctx: FakeContext) -> ToolRun:
        return await function.call(arguments, ctx)

    http = vendor(answer)
    return asyncio.run(work(context(http, **known))), http


def sent(function: Function, arguments: Mapping[str, Any], **known: Any) -> Mapping[str, Any]:
    """What the vendor was asked for."""
    call = called(function, arguments, **known)[1].calls[0]
    asked: Any = call.json if call.json is not None else call.params
    return asked


def test_argument_that_a_model_omits_is_the_authors_value():
    search = tool("TavilySearch", topic="news", include_domains=["a.test"], exclude_domains="b.test, c.test")

    asked = sent(search, {"query": "tea"})

    assert (asked["topic"], asked["include_domains"], asked["exclude_domains"]) == (
        "news",
        ["a.test"],
        ["b.test", "c.test"],
    )
    assert sent(tool("Google", num="3", start=20), {"q": "tea"}).items() >= {"num": 3, "start": 20}.items()


def test_argument_of_a_model_overrides_the_authors_value():
    search = tool("TavilySearch", topic="news", include_domains=["a.test"])

    asked = sent(search, {"query": "tea", "topic": "general", "include_domains": []})

    assert (asked["topic"], asked["include_domains"]) == ("general", [])


def test_an_author_may_store_references():
    search = tool("TavilySearch", topic="{begin@topic}", include_domains=["{begin@sites}", "z.test"])
    values = {"begin": {"topic": "news", "sites": ["a.test", "b.test"]}}

    asked = sent(search, {"query": "tea"}, values=values)

    assert (asked["topic"], asked["include_domains"]) == ("news", ["a.test", "b.test", "z.test"])


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("Google", {"q": "tea", "start": "", "num": "5"}, {"start": 0, "num": 5}),
        ("TavilySearch", {"query": "tea", "topic": " ", "include_domains": ""}, {"topic": "general"}),
        ("TavilySearch", {"query": "tea", "include_domains": '["a.test", "b"]'}, {"include_domains": ["a.test", "b"]}),
        ("TavilyExtract", {"urls": '["https://a.test/x,y"]'}, {"urls": ["https://a.test/x,y"]}),
    ],
)
def test_models_write_numbers_and_lists_as_text_and_leave_blanks(
    name: str, arguments: Mapping[str, Any], expected: Mapping[str, Any]
):
    assert sent(tool(name), arguments).items() >= expected.items()


def test_a_model_is_told_the_authors_own_defaults_and_no_references():
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
    assert called(search, {"query": "tea"})[1].calls[0].url == "http://searx.internal:8080/search"


def test_missing_required_argument_is_not_filled_in():
    done, http = called(tool("TavilySearch", query="the author's"), {"topic": "news"})

    assert (done.answer, http.calls) == ("", [])
