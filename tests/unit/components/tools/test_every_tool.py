"""All tools against the table of the specification, and against arbitrary replies and arguments."""

import asyncio
import json
import re
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.document import component_names
from canvas.errors import NodeFailure
from components import registry, tools
from components.context import NodeContext
from components.nodes.agent.tool_set import ToolEntry, parse_entry, tool_function
from components.tools.framework.base import Tool, ToolResult, ToolRun
from components.tools.framework.retired import RETIRED
from providers.interfaces import HttpCall, HttpResponse, Services
from settings import TIME_LIMITS
from tests.fakes import FakeContext, FakeHttp
from tests.unit.components.tools.vendors import json_reply

TABLE: Mapping[str, tuple[str, tuple[str, ...], int]] = {  # class: function, aliases, seconds
    "AkShare": ("akshare_stock_news", ("akshare",), 12),
    "ArXiv": ("arxiv_search", ("arxiv",), 12),
    "BGPT": ("bgpt_search", ("bgpt",), 30),
    "CodeExec": ("execute_code", ("code_exec", "codeexec"), 600),
    "Crawler": ("web_crawler", ("crawler",), 600),
    "DeepL": ("deepl_translate", ("deepl",), 12),
    "DuckDuckGo": ("duckduckgo_search", ("duckduckgo",), 12),
    "Email": ("email", (), 60),
    "ExeSQL": ("execute_sql", ("exesql",), 3),
    "GitHub": ("github_search", ("github",), 12),
    "Google": ("google_search", ("google",), 12),
    "GoogleScholar": ("google_scholar_search", ("google_scholar", "googlescholar"), 12),
    "Jin10": ("jin10", (), 30),
    "KeenableSearch": ("keenable_search", ("keenable", "keenablesearch"), 12),
    "PubMed": ("pubmed_search", ("pubmed",), 12),
    "QueritSearch": ("querit_search", ("querit", "queritsearch"), 12),
    "QueritContents": ("querit_contents", ("queritcontents",), 70),
    "QWeather": ("qweather", (), 12),
    "Retrieval": ("search_my_dateset", ("search_my_dataset", "SearchMyDataset", "retrieval"), 12),
    "SearXNG": ("searxng_search", ("searxng",), 12),
    "TavilySearch": ("tavily_search", ("tavily", "tavilysearch"), 12),
    "TavilyExtract": ("tavily_extract", ("tavilyextract",), 600),
    "TuShare": ("tushare", (), 30),
    "WenCai": ("iwencai", ("wencai",), 12),
    "Wikipedia": ("wikipedia_search", ("wikipedia",), 60),
    "YahooFinance": ("yahoo_finance", ("yahoofinance",), 60),
}
EVERY: Mapping[str, Tool[Any]] = {
    tool.name: tool for tool in sorted(tools.TOOLS.values(), key=lambda tool: tool.name) if tool not in RETIRED
}
NEEDED: Mapping[str, Mapping[str, Any]] = {  # parameters without which a tool sends no request
    "Email": {
        "smtp_server": "smtp.test",
        "email": "me@x.test",
        "password": "pass-1234",
        "sender_name": "Ann",
    },
    "ExeSQL": {"db_type": "postgres", "host": "db.test", "database": "d", "username": "u", "password": "pass-1234"},
    "Google": {"api_key": "key-1234"},
    "QueritContents": {"api_key": "key-1234"},
    "QueritSearch": {"api_key": "key-1234"},
}
SECRET = "s3cret/k3y+0123456789"
SOUNDS_SECRET = re.compile(r"(?:^|_)(?:api_?key|key|token|password|secret|web_apikey|auth|proxy)(?:_|$)")

every_tool = pytest.mark.parametrize("name", EVERY)


def params_of(tool: Tool[Any], **more: Any) -> Any:
    return tool.params.model_validate({"delay_after_error": 0, **NEEDED.get(tool.name, {}), **more})


def call_tool(
    tool: Tool[Any],
    arguments: Mapping[str, Any],
    http: FakeHttp,
    references: dict[str, Any] | None = None,
    **params: Any,
) -> tuple[ToolRun, list[Any]]:
    """Call a tool as an Agent does; return its run and its unexpected exceptions."""
    unexpected: list[Any] = []

    async def recording(own: Any, completed: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
        try:
            return await tool.call(own, completed, ctx)
        except NodeFailure:
            raise
        except Exception as error:
            unexpected.append(error)
            raise

    function = tool_function(
        ToolEntry(tool.name, tool.name, params_of(tool, **params), replace(tool, call=recording)), 0
    )
    store = {"chunks": {}, "doc_aggs": {}} if references is None else references
    ctx: Any = FakeContext(services=Services(http), reference_store=store)
    return asyncio.run(await_run(function.call(arguments, ctx))), unexpected


async def await_run(call: Awaitable[ToolRun]) -> ToolRun:
    return await call


def no_agent(_: Any) -> Any:
    raise AssertionError("this is no Agent")


# -- names, schemas, limits ------------------------------------------------------------------------------------------


def test_the_table_has_every_tool() -> None:
    assert set(EVERY) <= set(TABLE)
    assert set(TABLE) == set(component_names.TOOLS)


@every_tool
def test_a_tool_is_found_by_each_of_its_names_in_any_case(name: str) -> None:
    function, aliases, _ = TABLE[name]

    for spelling in (name, function, *aliases):
        for cased in (spelling, spelling.upper(), spelling.lower(), spelling.swapcase()):
            on_canvas = registry.find(cased)
            in_agent = parse_entry({"component_name": cased, "params": NEEDED.get(name)}, no_agent)
            assert component_names.canonical(cased) == name
            assert tools.find(cased) is in_agent.tool is EVERY[name], cased
            assert on_canvas is not None
            assert on_canvas.name == in_agent.name == name


@every_tool
def test_a_tool_has_the_function_name_and_the_time_limit_of_the_table(name: str) -> None:
    function, _, seconds = TABLE[name]

    assert (EVERY[name].function, TIME_LIMITS[name]) == (function, seconds)


@every_tool
def test_tool_schema_is_accepted_by_strict_providers(name: str) -> None:
    tool = EVERY[name]

    offered = tool_function(ToolEntry(name, name, params_of(tool), tool), 7).schema

    assert json.loads(json.dumps(offered)) == offered
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", offered["function"]["name"])
    assert offered["function"]["name"] == f"{tool.function}_7"
    assert offered["function"]["description"]
    parameters = offered["function"]["parameters"]
    assert parameters["type"] == "object"
    assert set(parameters["required"]) <= set(parameters["properties"])
    for described in parameters["properties"].values():
        assert described["description"]
        assert_is_schema(described)


def assert_is_schema(described: Mapping[str, Any]) -> None:
    """Assert that a property has a JSON type, an array has an item type, and defaults and choices match."""
    types = {"string": str, "integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict}
    assert described["type"] in types
    assert set(described) <= {"type", "description", "enum", "items", "default"}
    assert (described["type"] == "array") == ("items" in described)
    assert "items" not in described or described["items"]["type"] in types
    for value in (*described.get("enum", ()), *([described["default"]] if "default" in described else ())):
        assert isinstance(value, types[described["type"]])


# -- secrets ---------------------------------------------------------------------------------------------------------


@every_tool
def test_parameters_named_like_secrets_are_declared_secret(name: str) -> None:
    params = EVERY[name].params

    assert {field for field in params.model_fields if SOUNDS_SECRET.search(field)} == set(params.secrets)


def echoing(call: HttpCall, status: int) -> HttpResponse:
    """Return a reply that repeats the request in every field that a tool may show."""
    request = f"{call.url} {call.params} {call.headers} {call.json} {call.form} {call.content}"
    row = dict.fromkeys(("title", "url", "content", "snippet", "text", "id", "name", "description", request), request)
    texts = dict.fromkeys(("error", "message", "code", "msg", "error_msg"), request)
    lists = {name: [row] for name in ("items", "organic_results", "translations")}
    results = {"result": [row]} if "querit.ai/v1/search" in call.url else [row]
    body = {**texts, **lists, "results": results, "query": {"pages": {"1": row}}}
    return json_reply(body, status)


@every_tool
@pytest.mark.parametrize("status", [200, 400, 503])
def test_secret_parameter_is_redacted_in_all_results(name: str, status: int) -> None:
    tool = EVERY[name]
    known = dict.fromkeys(tool.params.secrets, SECRET)
    arguments = {argument: "https://a.test" for argument, definition in tool.arguments.items() if definition.required}
    http = FakeHttp(lambda call: echoing(call, status))
    references: dict[str, Any] = {"chunks": {}, "doc_aggs": {}}

    done, _ = call_tool(tool, arguments, http, references, max_retries=0, **known)

    params = params_of(tool, **known)
    output = f"{done} {references} {params!r} {params} {tool.schema(params, 'f')}"
    spellings = (SECRET, "s3cret%2Fk3y%2B0123456789", "s3cret\\/k3y+0123456789")
    assert [spelling for spelling in spellings if spelling in output] == []


# -- arbitrary arguments and answers ---------------------------------------------------------------------------------


@every_tool
@pytest.mark.parametrize("value", [None, "", " ", [], {}], ids=repr)
def test_null_and_empty_arguments_are_handled_by_every_tool(name: str, value: Any) -> None:
    tool = EVERY[name]
    http = FakeHttp(lambda _: json_reply({}))

    done, unexpected = call_tool(tool, dict.fromkeys(tool.arguments, value), http)
    without, also_unexpected = call_tool(tool, {}, http)

    assert (unexpected, also_unexpected) == ([], [])
    assert all(run.error or run.error is None for run in (done, without))


@every_tool
@pytest.mark.parametrize(
    "value", [7, -1, 1e308, True, {"a": [1]}, [[1], None], ["x", 7], "\x00'\"{sys.query}"], ids=repr
)
def test_arguments_of_other_types_are_accepted_or_a_clear_error(name: str, value: Any) -> None:
    tool = EVERY[name]
    http = FakeHttp(lambda _: json_reply({}))

    for argument in tool.arguments:
        plain = {other: "https://a.test" for other, definition in tool.arguments.items() if definition.required}
        done, unexpected = call_tool(tool, {**plain, argument: value}, http)
        assert unexpected == [], argument
        assert done.error is None or (done.error and done.answer)


ROW = {"title": "t", "url": "https://e.test", "content": "c", "snippet": "s", "score": 0.5}
ANSWERS: Mapping[str, Mapping[str, Any]] = {  # by a part of the URL: an ordinary reply of the vendor
    "BGPT": {"": {"results": [{"title": "t", "doi": "d", "abstract": "a", "methods": ["m"]}]}},
    "DeepL": {"": {"translations": [{"text": "t"}]}},
    "GitHub": {"": {"items": [{"name": "n", "html_url": "u", "description": "d", "watchers": 1}]}},
    "Google": {
        "": {"organic_results": [{**ROW, "snippet": "", "about_this_result": {"source": {"description": "d"}}}]}
    },
    "KeenableSearch": {"": {"results": [ROW, {"description": "d"}]}},
    "QueritContents": {"": {"results": [{"url": "u"}], "statuses": [{}]}},
    "QueritSearch": {"": {"results": {"result": [ROW, ROW]}, "error_msg": ""}},
    "QWeather": {
        "lookup": {"code": "200", "location": [{"id": "101"}]},
        "weather": {"code": "200", "now": {"temp": "21"}, "error": {"detail": "d"}},
    },
    "SearXNG": {"": {"results": [ROW]}},
    "TavilyExtract": {"": {"results": [{"url": "u", "raw_content": "r"}], "failed_results": [{"url": "u"}]}},
    "TavilySearch": {"": {"results": [{**ROW, "raw_content": "r"}]}},
    "Wikipedia": {"": {"query": {"pages": {"9": {"index": 1, "title": "t", "fullurl": "u", "extract": "e"}}}}},
}
MORE: Mapping[str, Mapping[str, Any]] = {"SearXNG": {"searxng_url": "https://searx.test"}}

junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["", "200", "\ud800", "9" * 400])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["id", "x"]), inner, max_size=2)
    ),
    max_leaves=5,
)


def paths(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in an answer, the root first."""
    yield ()
    members = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield from ((name, *rest) for rest in paths(member))


def replace_at(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Return the answer with the value at this path replaced."""
    if not path:
        return other
    changed: Any = dict(value) if isinstance(value, Mapping) else list(value)
    changed[path[0]] = replace_at(value[path[0]], path[1:], other)
    return changed


PATHS = [
    (name, part, path)
    for name, answers in ANSWERS.items()
    for part, answer in answers.items()
    for path in paths(answer)
]


def assert_result_or_error(name: str, part: str, body: Any, status: int = 200) -> None:
    """Assert that a tool makes a result or a clear error of this answer, among ordinary others."""
    tool = EVERY[name]
    arguments = {argument: "https://a.test" for argument, definition in tool.arguments.items() if definition.required}

    def answer(call: HttpCall) -> HttpResponse:
        if part in call.url:
            return HttpResponse(status, {}, json.dumps(body).encode(), call.url)
        return json_reply(next(other for at, other in ANSWERS[name].items() if at in call.url))

    http = FakeHttp(answer)
    done, unexpected = call_tool(replace(tool, retries=0), arguments, http, **MORE.get(name, {}))

    assert http.calls
    assert unexpected == [], (name, body)
    assert done.error is None or done.error
    assert json.dumps([dict(done.outputs), done.answer])


def test_ordinary_answers_of_vendors_are_not_errors() -> None:
    for name, answers in ANSWERS.items():
        arguments = {
            argument: "https://a.test" for argument, definition in EVERY[name].arguments.items() if definition.required
        }
        http = FakeHttp(
            lambda call, by=answers: json_reply(next(body for part, body in by.items() if part in call.url))
        )
        done, _ = call_tool(EVERY[name], arguments, http, **MORE.get(name, {}))
        assert (done.error, len(http.calls)) == (None, len(answers)), name


@pytest.mark.parametrize("other", [None, 7, True, "x", [], {}, [None], [7], [[]], {"x": None}], ids=repr)
def test_mutated_answer_becomes_a_result_or_a_clear_error(other: Any) -> None:
    for name, part, path in PATHS:
        assert_result_or_error(name, part, replace_at(ANSWERS[name][part], path, other))


@settings(max_examples=30, deadline=None)
@given(at=st.sampled_from(PATHS), other=junk, status=st.sampled_from([200, 200, 204, 400, 429, 500]))
def test_any_answer_becomes_a_result_or_a_clear_error(at: Any, other: Any, status: int) -> None:
    name, part, path = at

    assert_result_or_error(name, part, replace_at(ANSWERS[name][part], path, other), status)


@pytest.mark.parametrize("name", ["KeenableSearch", "QueritSearch", "QWeather", "TavilySearch"])
@pytest.mark.parametrize("depth", [150, 900, 100_000])
def test_deeply_nested_answer_is_a_clear_error(name: str, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    row = f'[{{"title": "t", "snippet": {deep}, "content": {deep}, "id": "1"}}]'
    text = f'{{"code": "200", "location": {row}, "now": {row[1:-1]}, "results": {row}}}'
    if name == "QueritSearch":
        text = f'{{"results": {{"result": {row}}}}}'
    http = FakeHttp(lambda _: HttpResponse(200, {}, text.encode(), "https://vendor.test/"))

    done, _ = call_tool(EVERY[name], {"query": "q"}, http, api_key=SECRET)

    assert done.error is None or re.match(r"The answer is (not valid JSON|nested too deeply)", done.error), done.error
