"""A tool as a node: what it reads, what it leaves, and what a failure becomes."""

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


def world(**known: Any) -> FakeContext:
    values = {"Loop:A": {"names": ["a", "b"]}, "begin": {"who": "Ann"}}
    return FakeContext(values=values, globals={"sys.query": "tea"}, **known)


@pytest.mark.parametrize(
    ("stored", "given"),
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
def test_a_whole_reference_keeps_its_type_and_only_what_resolves_is_put_into_a_text(stored: Any, given: Any):
    tool, calls = search()
    ctx = world()

    run(tool_component(tool), {"query": stored}, ctx)

    assert calls == [{"query": given, "channel": "text", "domains": []}]
    assert ctx.inputs == {"query": given, "channel": "text", "domains": []}


def test_a_stored_list_may_hold_references_and_takes_in_the_items_of_others():
    tool, calls = search()

    run(
        tool_component(tool), {"query": "q", "domains": ["{begin@who}", "{Loop:A@names}", "of {begin@who}", 7]}, world()
    )

    assert calls[0]["domains"] == ["Ann", "a", "b", "of Ann", 7]


def test_a_parameter_that_the_canvas_leaves_out_or_of_null_has_the_tools_default():
    tool, calls = search()
    ctx = world()

    run(tool_component(tool), {"channel": None}, ctx)

    assert ctx.inputs == {"query": "tea", "channel": "text", "domains": []}
    assert calls[0]["query"] == "tea"


def test_an_element_of_an_iteration_keeps_its_type_and_is_plain_text_outside_of_one():
    tool, calls = search()

    run(tool_component(tool), {"query": "{item}"}, world(aliases={"item": {"a": 1}}))
    run(tool_component(tool), {"query": "{item}"}, world())

    assert [call["query"] for call in calls] == [{"a": 1}, "{item}"]


def test_one_reference_to_what_the_canvas_does_not_have_fails_the_node():
    tool, calls = search()

    outcome = run(tool_component(tool), {"query": "{nobody@x}"}, world())

    assert outcome == Failed("Can't find variable: 'nobody@x'", "unresolved_reference")
    assert calls == []


def test_what_an_earlier_run_of_the_node_has_left_is_cleared():
    tool, _ = search(ToolError("down"))
    declared = {"json": {"type": "Array"}, "extra": {"type": "string"}}
    ctx = world(previous={"formalized_content": "old", "result": "old", "_SUPPRESSED_ERROR": "old"})

    outcome = run(tool_component(tool), {"outputs": declared}, ctx)

    cleared = dict.fromkeys(["json", "extra", "formalized_content", "result", "_SUPPRESSED_ERROR"])
    assert outcome == Failed("down", "tool_error", outputs=cleared)


def test_first_run_sets_its_own_outputs_only():
    tool, _ = search()

    assert run(tool_component(tool), {}, world()) == Finished(outputs={"formalized_content": "found", "json": [1]})


def test_under_comment_a_default_becomes_the_result_and_the_main_output():
    tool, _ = search(ToolError("down"))

    outcome = run(tool_component(tool), {"exception_method": "comment", "exception_default_value": "later"}, world())

    outputs = {"formalized_content": "later", "result": "later", "_SUPPRESSED_ERROR": "down"}
    assert outcome == Finished(outputs=outputs)


def test_a_default_does_not_take_the_place_of_a_list():
    tool, _ = search(ToolError("down"), main_output="json")

    outcome = run(tool_component(tool), {"exception_method": "comment", "exception_default_value": "later"}, world())

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

    assert run(tool_component(tool), policy, world()) == Failed("down", "tool_error")


def test_a_call_that_takes_too_long_fails_like_any_other_and_its_default_counts():
    tool, _ = search("never")
    limited = {"limits": {"Search": 0.01}}

    failed = run(tool_component(tool), {}, world(**limited))
    defaulted = run(
        tool_component(tool), {"exception_method": "comment", "exception_default_value": "later"}, world(**limited)
    )

    assert failed == Failed(
        "Operation timed out after 0.01 seconds. An operator can raise COMPONENT_EXEC_TIMEOUT_SEARCH.", "node_timeout"
    )
    assert isinstance(defaulted, Finished)
    assert defaulted.outputs["formalized_content"] == "later"


def test_cancelled_call_is_cancelled_in_the_tool():
    tool, _ = search("never")

    async def cancelled() -> None:
        work: Any = tool_component(tool).run(SearchParams(), world())
        task = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


def test_a_class_that_is_gone_loads_and_fails_only_when_it_runs():
    stored = {"channel": "Webpages", "top_n": 10, "api_key": "YOUR_API_KEY"}

    assert run(tool_component(BING), stored, world()) == Failed("Can't import Bing", "tool_error")


def test_a_model_reads_that_the_class_is_gone():
    done = asyncio.run(BING.run(ToolParams(), {"query": "tea"}, world()))

    assert done.answer == "Can't import Bing"
