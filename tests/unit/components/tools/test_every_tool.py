"""All tools against the table of the specification, and against vendors and models that send anything at all."""

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
NEEDED: Mapping[str, Mapping[str, Any]] = {  # parameters without which a tool asks nobody
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


def called(
    tool: Tool[Any],
    arguments: Mapping[str, Any],
    http: FakeHttp,
    references: dict[str, Any] | None = None,
    **params: Any,
) -> tuple[ToolRun, list[Any]]:
    """A call as an Agent makes it, and what the tool raised that no tool should."""
    odd: list[Any] = []

    async def noting(own: Any, completed: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
        try:
            return await tool.call(own, completed, ctx)
        except NodeFailure:
            raise
        except Exception as error:
            odd.append(error)
            raise

    function = tool_function(ToolEntry(tool.name, tool.name, params_of(tool, **params), replace(tool, call=noting)), 0)
    store = {"chunks": {}, "doc_aggs": {}} if references is None else references
    ctx: Any = FakeContext(services=Services(http), reference_store=store)
    return asyncio.run(awaited(function.call(arguments, ctx))), odd


async def awaited(call: Awaitable[ToolRun]) -> ToolRun:
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
def test_what_a_model_is_offered_is_a_schema_that_strict_providers_take(name: str) -> None:
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
    """One property: its type is JSON's, an array says what it holds, a default and the choices are of that type."""
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
    """A vendor that gives back all it was told, wherever a tool might look for something to show."""
    told = f"{call.url} {call.params} {call.headers} {call.json} {call.form} {call.content}"
    row = dict.fromkeys(("title", "url", "content", "snippet", "text", "id", "name", "description", told), told)
    texts = dict.fromkeys(("error", "message", "code", "msg", "error_msg"), told)
    lists = {name: [row] for name in ("items", "organic_results", "translations")}
    results = {"result": [row]} if "querit.ai/v1/search" in call.url else [row]
    body = {**texts, **lists, "results": results, "query": {"pages": {"1": row}}}
    return json_reply(body, status)


@every_tool
@pytest.mark.parametrize("status", [200, 400, 503])
def test_a_secret_shows_in_nothing_that_a_tool_gives(name: str, status: int) -> None:
    tool = EVERY[name]
    known = dict.fromkeys(tool.params.secrets, SECRET)
    arguments = {argument: "https://a.test" for argument, told in tool.arguments.items() if told.required}
    http = FakeHttp(lambda call: echoing(call, status))
    references: dict[str, Any] = {"chunks": {}, "doc_aggs": {}}

    done, _ = called(tool, arguments, http, references, max_retries=0, **known)

    params = params_of(tool, **known)
    shown = f"{done} {references} {params!r} {params} {tool.schema(params, 'f')}"
    spellings = (SECRET, "s3cret%2Fk3y%2B0123456789", "s3cret\\/k3y+0123456789")
    assert [spelling for spelling in spellings if spelling in shown] == []


# -- anything at all -------------------------------------------------------------------------------------------------


@every_tool
@pytest.mark.parametrize("value", [None, "", " ", [], {}], ids=repr)
def test_null_and_empty_arguments_are_handled_by_every_tool(name: str, value: Any) -> None:
    tool = EVERY[name]
    http = FakeHttp(lambda _: json_reply({}))

    done, odd = called(tool, dict.fromkeys(tool.arguments, value), http)
    without, also_odd = called(tool, {}, http)

    assert (odd, also_odd) == ([], [])
    assert all(run.error or run.error is None for run in (done, without))


@every_tool
@pytest.mark.parametrize(
    "value", [7, -1, 1e308, True, {"a": [1]}, [[1], None], ["x", 7], "\x00'\"{sys.query}"], ids=repr
)
def test_arguments_of_other_types_are_accepted_or_a_clear_error(name: str, value: Any) -> None:
    tool = EVERY[name]
    http = FakeHttp(lambda _: json_reply({}))

    for argument in tool.arguments:
        plain = {other: "https://a.test" for other, told in tool.arguments.items() if told.required}
        done, odd = called(tool, {**plain, argument: value}, http)
        assert odd == [], argument
        assert done.error is None or (done.error and done.answer)


ROW = {"title": "t", "url": "https://e.test", "content": "c", "snippet": "s", "score": 0.5}
ANSWERS: Mapping[str, Mapping[str, Any]] = {  # by a part of the address: what a vendor sends when all is well
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


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Every place in an answer, the whole of it first."""
    yield ()
    members = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield from ((name, *rest) for rest in places(member))


def spoilt(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    """The answer with something else in this place."""
    if not place:
        return other
    changed: Any = dict(value) if isinstance(value, Mapping) else list(value)
    changed[place[0]] = spoilt(value[place[0]], place[1:], other)
    return changed


SPOILABLE = [
    (name, part, place)
    for name, answers in ANSWERS.items()
    for part, answer in answers.items()
    for place in places(answer)
]


def assert_told_in_words(name: str, part: str, body: Any, status: int = 200) -> None:
    """What a tool makes of this answer, while all others are well, is a result or an error of ours."""
    tool = EVERY[name]
    asked = {argument: "https://a.test" for argument, told in tool.arguments.items() if told.required}

    def answer(call: HttpCall) -> HttpResponse:
        if part in call.url:
            return HttpResponse(status, {}, json.dumps(body).encode(), call.url)
        return json_reply(next(other for at, other in ANSWERS[name].items() if at in call.url))

    http = FakeHttp(answer)
    done, odd = called(replace(tool, retries=0), asked, http, **MORE.get(name, {}))

    assert http.calls
    assert odd == [], (name, body)
    assert done.error is None or done.error
    assert json.dumps([dict(done.outputs), done.answer])


def test_ordinary_answers_of_vendors_are_no_errors() -> None:
    for name, answers in ANSWERS.items():
        asked = {argument: "https://a.test" for argument, told in EVERY[name].arguments.items() if told.required}
        http = FakeHttp(
            lambda call, by=answers: json_reply(next(body for part, body in by.items() if part in call.url))
        )
        done, _ = called(EVERY[name], asked, http, **MORE.get(name, {}))
        assert (done.error, len(http.calls)) == (None, len(answers)), name


@pytest.mark.parametrize("other", [None, 7, True, "x", [], {}, [None], [7], [[]], {"x": None}], ids=repr)
def test_mutated_answer_becomes_a_result_or_a_clear_error(other: Any) -> None:
    for name, part, place in SPOILABLE:
        assert_told_in_words(name, part, spoilt(ANSWERS[name][part], place, other))


@settings(max_examples=30, deadline=None)
@given(at=st.sampled_from(SPOILABLE), other=junk, status=st.sampled_from([200, 200, 204, 400, 429, 500]))
def test_any_answer_becomes_a_result_or_a_clear_error(at: Any, other: Any, status: int) -> None:
    name, part, place = at

    assert_told_in_words(name, part, spoilt(ANSWERS[name][part], place, other), status)


@pytest.mark.parametrize("name", ["KeenableSearch", "QueritSearch", "QWeather", "TavilySearch"])
@pytest.mark.parametrize("depth", [150, 900, 100_000])
def test_deeply_nested_answer_is_a_clear_error(name: str, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    row = f'[{{"title": "t", "snippet": {deep}, "content": {deep}, "id": "1"}}]'
    text = f'{{"code": "200", "location": {row}, "now": {row[1:-1]}, "results": {row}}}'
    if name == "QueritSearch":
        text = f'{{"results": {{"result": {row}}}}}'
    http = FakeHttp(lambda _: HttpResponse(200, {}, text.encode(), "https://vendor.test/"))

    done, _ = called(EVERY[name], {"query": "q"}, http, api_key=SECRET)

    assert done.error is None or re.match(r"The answer is (not valid JSON|nested too deeply)", done.error), done.error
