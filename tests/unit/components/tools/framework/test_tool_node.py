"""A tool as a node: its inputs, its outputs and its failures."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from canvas.errors import ToolError
from canvas.outcome import Failed, Finished
from components.context import NodeContext
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.retired import RETIRED
from components.tools.framework.tool_node import tool_component
from tests.fakes import FakeContext, run

BING = RETIRED[0]


class SearchParams(ToolParams):
    channel: Any = "text"


def search(answer: Any = "found", **settings: Any) -> tuple[Tool[SearchParams], list[Mapping[str, Any]]]:
    calls: list[Mapping[str, Any]] = []

    async def call(params: SearchParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
        calls.append(arguments)
        if isinstance(answer, Exception):
            raise answer
        if answer == "never":
            await asyncio.Event().wait()
        return ToolResult({"formalized_content": answer, "json": [1]}, answer=answer)

    arguments = {
        "query": Argument("string", "What.", required=True, default="{sys.query}"),
        "channel": Argument("string", "Where.", default="general"),
        "domains": Argument("array", "Whose.", default=[]),
    }
    return Tool("Search", "search", SearchParams, "Finds.", arguments, call, effect="idempotent", **settings), calls


def context(**known: Any) -> FakeContext:
    values = {"Loop:A": {"names": ["a", "b"]}, "begin": {"who": "Ann"}}
    return FakeContext(values=values, globals={"sys.query": "tea"}, **known)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("{Loop:A@names}", ["a", "b"]),
        ("Loop:A@names", ["a", "b"]),
        ("sys.query", "tea"),
        (" {sys.query} ", "tea"),
        ("{begin@who} or {Loop:A@names}", 'Ann or ["a", "b"]'),
        ("f'{sys.version} {begin@who} {x}'", "f'{sys.version} Ann {x}'"),
        ("plain", "plain"),
        (7, 7),
        (["{begin@who}"], ["{begin@who}"]),
    ],
)
def test_whole_reference_keeps_its_type_and_known_references_in_a_text_are_resolved(stored: Any, expected: Any):
    tool, calls = search()
    ctx = context()

    run(tool_component(tool), {"query": stored}, ctx)

    assert calls == [{"query": expected, "channel": "text", "domains": []}]
    assert ctx.inputs == {"query": expected, "channel": "text", "domains": []}


def test_references_in_a_stored_list_are_resolved_and_lists_are_flattened():
    tool, calls = search()

    run(
        tool_component(tool),
        {"query": "q", "domains": ["{begin@who}", "{Loop:A@names}", "of {begin@who}", 7]},
        context(),
    )

    assert calls[0]["domains"] == ["Ann", "a", "b", "of Ann", 7]


def test_omitted_or_null_parameter_has_the_default_of_the_tool():
    tool, calls = search()
    ctx = context()

    run(tool_component(tool), {"channel": None}, ctx)

    assert ctx.inputs == {"query": "tea", "channel": "text", "domains": []}
    assert calls[0]["query"] == "tea"


def test_item_reference_keeps_its_type_in_an_iteration_and_is_text_outside():
    tool, calls = search()

    run(tool_component(tool), {"query": "{item}"}, context(aliases={"item": {"a": 1}}))
    run(tool_component(tool), {"query": "{item}"}, context())

    assert [call["query"] for call in calls] == [{"a": 1}, "{item}"]


def test_reference_to_an_unknown_node_fails_the_node():
    tool, calls = search()

    outcome = run(tool_component(tool), {"query": "{nobody@x}"}, context())

    assert outcome == Failed("Can't find variable: 'nobody@x'", "unresolved_reference")
    assert calls == []


def test_outputs_of_an_earlier_activation_are_cleared():
    tool, _ = search(ToolError("down"))
    declared = {"json": {"type": "Array"}, "extra": {"type": "string"}}
    ctx = context(previous={"formalized_content": "old", "result": "old", "_SUPPRESSED_ERROR": "old"})

    outcome = run(tool_component(tool), {"outputs": declared}, ctx)

    cleared = dict.fromkeys(["json", "extra", "formalized_content", "result", "_SUPPRESSED_ERROR"])
    assert outcome == Failed("down", "tool_error", outputs=cleared)


def test_first_run_sets_its_own_outputs_only():
    tool, _ = search()

    assert run(tool_component(tool), {}, context()) == Finished(outputs={"formalized_content": "found", "json": [1]})


def test_default_value_is_the_result_and_the_main_output_with_method_comment():
    tool, _ = search(ToolError("down"))

    outcome = run(tool_component(tool), {"exception_method": "comment", "exception_default_value": "later"}, context())

    outputs = {"formalized_content": "later", "result": "later", "_SUPPRESSED_ERROR": "down"}
    assert outcome == Finished(outputs=outputs)


def test_default_value_does_not_replace_a_list_output():
    tool, _ = search(ToolError("down"), main_output="json")

    outcome = run(tool_component(tool), {"exception_method": "comment", "exception_default_value": "later"}, context())

    assert outcome == Finished(outputs={"result": "later", "_SUPPRESSED_ERROR": "down"})


@pytest.mark.parametrize(
    "policy",
    [
        {"exception_method": "comment", "exception_default_value": ""},
        {"exception_method": "goto", "exception_goto": ["Message:Sorry"]},
        {"exception_default_value": "heard"},
    ],
)
def test_other_exception_methods_are_left_to_the_engine(policy: dict[str, Any]):
    tool, _ = search(ToolError("down"))

    assert run(tool_component(tool), policy, context()) == Failed("down", "tool_error")


def test_call_beyond_the_time_limit_fails_or_returns_the_default_value():
    tool, _ = search("never")
    limited = {"limits": {"Search": 0.01}}

    failed = run(tool_component(tool), {}, context(**limited))
    defaulted = run(
        tool_component(tool), {"exception_method": "comment", "exception_default_value": "later"}, context(**limited)
    )

    assert failed == Failed(
        "Operation timed out after 0.01 seconds. An operator can raise COMPONENT_EXEC_TIMEOUT_SEARCH.", "node_timeout"
    )
    assert isinstance(defaulted, Finished)
    assert defaulted.outputs["formalized_content"] == "later"


def test_cancelled_call_is_cancelled_in_the_tool():
    tool, _ = search("never")

    async def cancel_call() -> None:
        work: Any = tool_component(tool).run(SearchParams(), context())
        task = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel_call())


def test_retired_tool_can_be_loaded_and_fails_when_it_runs():
    stored = {"channel": "Webpages", "top_n": 10, "api_key": "YOUR_API_KEY"}

    assert run(tool_component(BING), stored, context()) == Failed("Can't import Bing", "tool_error")


def test_model_gets_the_error_of_a_retired_tool():
    done = asyncio.run(BING.run(ToolParams(), {"query": "tea"}, context()))

    assert done.answer == "Can't import Bing"
