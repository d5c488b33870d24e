"""Behaviour that all tools share: retries, schemas for models, redaction of secrets."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from canvas.errors import AddressRefused, HttpFailed, ToolError
from components.context import NodeContext
from components.tools import TOOLS, find
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.web_search.tavily import TAVILY_SEARCH
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import by_model

KEY = "tvly-s3cret/key"


class EchoParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("api_key",)

    api_key: Any = ""


def tool(*results: Any, **settings: Any) -> tuple[Tool[EchoParams], list[Mapping[str, Any]]]:
    """Return a tool that returns these results in order, raising the errors among them, and its list of calls."""
    left, calls = list(results), list[Mapping[str, Any]]()

    async def call(params: EchoParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
        calls.append(arguments)
        result = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(result, Exception):
            raise result
        return result

    arguments = {
        "query": Argument("string", "What.", required=True, default="{sys.query}"),
        "domains": Argument("array", "Where.", default=[], items="string"),
        "kind": Argument("string", "Which.", default="web", enum=("web", "news")),
    }
    return Tool("Echo", "echo", EchoParams, "Echoes.", arguments, call, effect="idempotent", **settings), calls


def call_tool(subject: Tool[EchoParams], arguments: Mapping[str, Any], **params: Any) -> Any:
    return by_model(subject, {"delay_after_error": 0, **params}, arguments, FakeHttp(no_network))


def test_transient_error_is_retried_as_often_as_the_node_allows():
    echo, calls = tool(HttpFailed("busy", retryable=True), ToolResult({"formalized_content": "yes"}, answer="yes"))

    done = call_tool(echo, {"query": "q"}, max_retries=1)

    assert (done.answer, done.error, len(calls)) == ("yes", None, 2)


def test_model_gets_the_error_with_the_tools_label_after_the_last_try():
    echo, calls = tool(HttpFailed("busy", retryable=True))

    done = call_tool(echo, {"query": "q"}, max_retries="2")

    assert (done.answer, done.error, done.code, len(calls)) == ("Echo error: busy", "busy", "http_failed", 3)


@pytest.mark.parametrize("error", [ToolError("no such place"), AddressRefused("no"), ValueError("odd"), RuntimeError()])
def test_final_error_is_not_retried(error: Exception):
    echo, calls = tool(error)

    done = call_tool(echo, {"query": "q"}, max_retries=5)

    assert len(calls) == 1
    assert done.error == (str(error) or "RuntimeError")


def test_retries_of_the_tool_override_those_of_the_node():
    echo, calls = tool(HttpFailed("busy", retryable=True), retries=2)

    call_tool(echo, {"query": "q"}, max_retries=0)

    assert len(calls) == 3


def test_retry_after_is_limited_to_30_seconds(monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("components.tools.framework.base.asyncio.sleep", sleep)
    echo, _ = tool(
        HttpFailed("busy", retryable=True, retry_after=7.0),
        HttpFailed("busy", retryable=True, retry_after=3600.0),
        HttpFailed("busy", retryable=True),
    )

    call_tool(echo, {"query": "q"}, max_retries=3, delay_after_error=0.5)

    assert waits == [7.0, 30.0, 0.5]


@pytest.mark.parametrize("query", [None, "", "  ", []])
def test_empty_query_gives_the_empty_result_without_a_call(query: Any):
    echo, calls = tool(ToolResult({"formalized_content": "found"}))

    done = call_tool(echo, {"query": query})

    assert (dict(done.outputs), done.answer, calls) == ({"formalized_content": ""}, "", [])


def test_omitted_argument_has_its_default():
    echo, calls = tool(ToolResult({}))

    call_tool(echo, {"query": "q", "kind": None})

    assert calls == [{"query": "q", "domains": [], "kind": "web"}]


def test_key_is_redacted_in_outputs_errors_and_repr():
    text = f"{KEY} was used at https://x.test/?key=tvly-s3cret%2Fkey"
    succeeding, _ = tool(ToolResult({"json": [{KEY: text}], "formalized_content": text}, answer=text))
    failing, _ = tool(ToolError(f"bad key {KEY}"))

    done, failed = call_tool(succeeding, {"query": "q"}, api_key=KEY), call_tool(failing, {"query": "q"}, api_key=KEY)

    clean = "[REDACTED] was used at https://x.test/?key=[REDACTED]"
    assert dict(done.outputs) == {"json": [{"[REDACTED]": clean}], "formalized_content": clean}
    assert done.answer == clean
    assert failed.answer == "Echo error: bad key [REDACTED]"
    assert "s3cret" not in repr(EchoParams(api_key=KEY))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"bad key {KEY[:-1]}", "bad key [REDACTED]"),
        (f"bad key {KEY[:8]}", "bad key [REDACTED]"),
        ("bad key tvly-s3cret%2Fk", "bad key [REDACTED]"),
        (f"bad key {KEY[:7]}", f"bad key {KEY[:7]}"),
        (f"{KEY[:9]} is no key", f"{KEY[:9]} is no key"),
        (KEY[:8], "[REDACTED]"),
    ],
)
def test_truncated_key_at_the_end_of_a_text_is_redacted(text: str, expected: str):
    failing, _ = tool(ToolError(text))

    assert call_tool(failing, {"query": "q"}, api_key=KEY).error == expected


def test_short_placeholder_key_is_not_redacted():
    echo, _ = tool(ToolResult({"formalized_content": "xxx of xxx"}, answer="xxx of xxx"))

    assert call_tool(echo, {"query": "q"}, api_key="xxx").answer == "xxx of xxx"


def test_without_an_answer_a_model_gets_the_content_else_all_outputs_but_internal_ones():
    with_content, _ = tool(ToolResult({"content": "text", "json": [1]}))
    without, _ = tool(ToolResult({"json": [1], "_elapsed_time": 2}))

    assert call_tool(with_content, {"query": "q"}).answer == "text"
    assert call_tool(without, {"query": "q"}).answer == {"json": [1]}


def test_schema_has_item_types_and_plain_defaults_but_no_references():
    function = tool(ToolResult({}))[0].schema(EchoParams(), "echo_0")["function"]

    assert function["name"] == "echo_0"
    assert function["parameters"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What."},
            "domains": {"type": "array", "description": "Where.", "items": {"type": "string"}, "default": []},
            "kind": {"type": "string", "description": "Which.", "enum": ["web", "news"], "default": "web"},
        },
        "required": ["query"],
    }


def test_description_of_the_author_replaces_that_of_the_tool():
    echo = tool(ToolResult({}))[0]

    assert echo.schema(EchoParams(description="Our shop."), "e")["function"]["description"] == "Our shop."
    assert echo.schema(EchoParams(), "e")["function"]["description"] == "Echoes."


@pytest.mark.parametrize("name", ["TavilySearch", "TAVILYSEARCH", "tavily_search", "tavily", "Tavily"])
def test_a_tool_is_found_by_class_function_and_alias_in_any_case(name: str):
    assert find(name) is TAVILY_SEARCH


def test_an_unknown_tool_is_not_found():
    assert find("NoSuchThing") is None


@pytest.mark.parametrize("listed", sorted({tool.name for tool in TOOLS.values()}))
def test_every_tool_and_argument_has_a_description(listed: str):
    found = find(listed)
    assert found is not None

    assert found.description.endswith(".")
    assert all(argument.description.endswith(".") for argument in found.arguments.values())
    assert found.main_output in found.outputs
    assert set(found.empty_outputs or ()) <= set(found.outputs)


@pytest.mark.parametrize("retry_after", [5.0, 3600.0])
def test_retry_delay_beyond_the_time_limit_is_not_waited_for(retry_after: float):
    echo, calls = tool(HttpFailed("slow down", retryable=True, retry_after=retry_after))

    done = by_model(echo, {"max_retries": 3}, {"query": "q"}, FakeHttp(no_network), limits={"Echo": 4.0})

    assert (done.error, len(calls)) == ("slow down", 1)


def test_vendors_maximum_of_tries_overrides_the_nodes():
    echo, calls = tool(HttpFailed("busy", retryable=True), max_attempts=3)

    call_tool(echo, {"query": "q"}, max_retries=9)
    call_tool(echo, {"query": "q"}, max_retries=1)

    assert len(calls) == 3 + 2


@pytest.mark.parametrize("blank", [None, "", " "])
def test_blank_argument_counts_as_omitted(blank: Any):
    echo, calls = tool(ToolResult({}))

    call_tool(echo, {"query": "q", "kind": blank, "domains": blank})

    assert calls == [{"query": "q", "domains": [], "kind": "web"}]
