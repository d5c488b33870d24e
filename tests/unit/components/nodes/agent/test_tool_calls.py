import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.errors import NodeFailure
from components.nodes.agent.tool_calls import MAX_RESULT_BYTES, FinishedCall, ToolCalls
from components.nodes.agent.tool_set import Function, ToolEntry, index_by_name, tool_function
from components.tools.framework.base import ToolResult, ToolRun
from providers.models.types.chat import ToolCall, Usage
from tests.fakes import FakeContext
from tests.unit.components.nodes.agent.agents import Calls, EchoParams, echo_tool


def echo(calls: Calls, answer: Any = None, **params: Any) -> Function:
    tool = echo_tool(calls, answer)
    return tool_function(ToolEntry("Echo", "Echo", EchoParams(**params), tool), 0)


def function(call: Any, name: str = "f_0", limit: float | None = None) -> Function:
    return Function(name, "F", "F", {}, call, limit)


def run_calls(
    ctx: FakeContext, functions: list[Function], *calls: tuple[str, str], at_once: int = 8, seconds: float = 60
) -> ToolCalls:
    async def run_all() -> ToolCalls:
        ends_at = asyncio.get_running_loop().time() + seconds
        rounds = ToolCalls(ctx, index_by_name(functions), ends_at, at_once)
        await rounds.run([ToolCall(f"id{i}", name, text) for i, (name, text) in enumerate(calls)], "0")
        return rounds

    return asyncio.run(run_all())


def test_unsafe_call_has_an_unknown_outcome_until_its_result_is_recorded():
    ctx = FakeContext()
    seen: list[tuple[list[str], list[str]]] = []

    async def send(arguments: Any, inner: Any) -> ToolRun:
        seen.append((list(ctx.non_repeatable_work), list(ctx.journal)))
        return ToolRun({}, "sent")

    unsafe = Function("send_0", "Send", "Send", {}, send, effect="unsafe")
    run_calls(ctx, [unsafe, function(send, "look_1")], ("send_0", "{}"), at_once=1)
    run_calls(ctx, [unsafe, function(send, "look_1")], ("send_0", "{}"), at_once=1)

    assert seen == [(["begun"], [])]
    assert (ctx.non_repeatable_work, list(ctx.journal)) == (["done"], ["call:0:0"])


def results(done: ToolCalls) -> list[Any]:
    return [used.result for used in done.finished]


def test_error_of_a_call_is_its_result():
    calls = Calls()

    done = run_calls(
        FakeContext(),
        [echo(calls)],
        ("nope_9", "{}"),
        ("echo_0", "[1, 2]"),
        ("echo_0", "what?"),
        ("echo_0", '{"query": "fine", "times": 2,'),
        ("echo_0", " "),
    )

    assert results(done) == [
        "LLM tool nope_9 does not exist",
        "Tool arguments for echo_0 must be an object, got list",
        "Tool arguments for echo_0 must be an object, got str",
        "echo of fine",
        "echo of None",
    ]
    assert calls.arguments == [{"query": "fine", "times": 2}, {"times": 1}]


def test_exception_of_a_tool_is_its_result_without_secrets():
    def boom(_: Any) -> Any:
        raise RuntimeError("boom! with sk-secret")

    done = run_calls(FakeContext(), [echo(Calls(), boom, api_key="sk-secret")], ("echo_0", '{"query": "x"}'))

    assert results(done) == ["Echo error: boom! with [REDACTED]"]


def test_node_failure_of_a_function_is_its_result():
    async def fail(arguments: Any, ctx: Any) -> ToolRun:
        raise NodeFailure("boom!")

    assert results(run_calls(FakeContext(), [function(fail)], ("f_0", "{}"))) == ["boom!"]


def test_model_can_neither_set_nor_see_the_authors_parameters():
    calls = Calls()

    run_calls(FakeContext(), [echo(calls, top=7)], ("echo_0", '{"query": null, "top": 99, "api_key": "mine"}'))

    assert calls.arguments == [{"times": 1}]
    assert calls.params[0].top == 7
    assert calls.params[0].api_key == ""


def test_calls_of_a_round_run_in_parallel_and_results_have_the_order_of_calls():
    calls = Calls()
    later = asyncio.Event()

    async def first(_: Any) -> str:
        await later.wait()
        return "first"

    def second(_: Any) -> str:
        later.set()
        return "second"

    slow, fast = echo(calls, first), echo(calls, second)
    functions = [slow, Function("fast_1", "Fast", "Fast", {}, fast.call)]

    done = run_calls(FakeContext(), functions, ("echo_0", "{}"), ("fast_1", "{}"))

    assert results(done) == ["first", "second"]
    assert [used.name for used in done.finished] == ["echo_0", "fast_1"]


@pytest.mark.parametrize(("at_once", "most"), [(8, 8), (5, 5), (1, 1)])
def test_number_of_parallel_calls_is_limited(at_once: int, most: int):
    calls = Calls()

    run_calls(FakeContext(), [echo(calls)], *[("echo_0", "{}")] * 20, at_once=at_once)

    assert len(calls.arguments) == 20
    assert calls.most_at_once == most


@pytest.mark.parametrize(
    ("limit", "own", "seconds", "advice"),
    [
        (None, 0.001, 60, ". An operator can raise COMPONENT_EXEC_TIMEOUT_F."),
        (0.001, 600, 60, ""),
        (None, 600, 0.001, ". An operator can raise COMPONENT_EXEC_TIMEOUT_AGENT."),
        (None, 600, -5, ". An operator can raise COMPONENT_EXEC_TIMEOUT_AGENT."),
    ],
)
def test_call_times_out_at_its_own_time_limit_or_at_the_agents(
    limit: float | None, own: float, seconds: float, advice: str
):
    async def never(arguments: Any, ctx: Any) -> ToolRun:
        await asyncio.Event().wait()
        raise AssertionError

    ctx = FakeContext(limits={"F": own})

    done = run_calls(ctx, [function(never, limit=limit)], ("f_0", "{}"), seconds=seconds)

    assert results(done) == [f"Operation timed out after 0 seconds{advice}"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("é", "é"),
        ({"a": "é", "b": [1, None]}, '{"a": "é", "b": [1, null]}'),
        ([1, "x"], '[1, "x"]'),
        (3.5, "3.5"),
        (float("nan"), "null"),
        (("x", {"y"}), '["x", "{\'y\'}"]'),
        ("a\x00b\ud800", "ab\ufffd"),
    ],
)
def test_results_are_sent_as_text_or_json(answer: Any, text: str):
    async def call(arguments: Any, ctx: Any) -> ToolRun:
        return ToolRun({}, answer)

    done = run_calls(FakeContext(), [function(call)], ("f_0", "{}"))

    assert done.finished[0].text == text


@pytest.mark.parametrize("letter", ["x", "é", "字"])
@pytest.mark.parametrize("wrap", [str, lambda text: {"a": text}])
def test_a_long_result_is_cut_with_a_note(letter: str, wrap: Any):
    async def call(arguments: Any, ctx: Any) -> ToolRun:
        return ToolRun({}, wrap(letter * (MAX_RESULT_BYTES + 1)))

    (used,) = run_calls(FakeContext(), [function(call)], ("f_0", "{}")).finished

    assert len(used.text.encode()) <= MAX_RESULT_BYTES
    assert used.text.endswith(f"{letter}\n[The result was too long and ends here.]")


def test_circular_result_is_replaced_by_an_error():
    endless: dict[str, Any] = {}
    endless["self"] = endless

    async def call(arguments: Any, ctx: Any) -> ToolRun:
        return ToolRun({}, endless)

    assert results(run_calls(FakeContext(), [function(call)], ("f_0", "{}"))) == [
        "The result is nested too deeply to be shown."
    ]


def test_usage_and_artifacts_of_a_call_are_restored_in_a_second_attempt():
    files = [{"name": "d.csv", "url": "/d.csv", "mime_type": "text/csv"}, "rubbish"]

    async def call(arguments: Any, ctx: Any) -> ToolRun:
        ctx.add_usage(Usage(1, 2, 3, 1))
        return ToolRun({"_ARTIFACTS": files}, "made")

    first = FakeContext(name="Lead")
    run_calls(first, [function(call)], ("f_0", '{"a": 1}'))
    second = FakeContext(name="Lead", journal=first.journal)
    done = run_calls(second, [function(call)], ("f_0", '{"a": 1}'))

    assert first.usage == second.usage == Usage(1, 2, 3, 1)
    assert done.artifacts == [files[0]]
    assert done.finished == [FinishedCall("f_0", {"a": 1}, "made")]
    assert [trace["tool_name"] for trace in first.traces] == ["f_0"]
    assert second.traces == []
    assert json.loads(json.dumps(first.journal)) == first.journal


def test_tool_shares_its_agents_values_but_has_its_own_journal_keys():
    seen: list[Any] = []

    async def call(arguments: Any, ctx: Any) -> ToolRun:
        seen.append((ctx.node_id, ctx.name, ctx.is_streaming, ctx.lookup("sys.query"), await ctx.journal_get("k")))
        await ctx.write("not streamed")
        ctx.note_input("sys.query", "not noted")
        await ctx.journal_put("k", 1)
        return ToolRun({}, "")

    ctx = FakeContext(node_id="Agent:A", name="Lead", globals={"sys.query": "Q"}, is_streaming=True)
    run_calls(ctx, [function(call)], ("f_0", "{}"), ("f_0", "{}"))

    assert sorted(seen) == [
        ("Agent:A-->F:0:0", "Lead-->F", False, "Q", None),
        ("Agent:A-->F:0:1", "Lead-->F", False, "Q", None),
    ]
    assert {"0:0/k", "0:1/k"} <= ctx.journal.keys()
    assert ctx.streamed_text == ""
    assert ctx.inputs == {}


def test_lost_lease_in_a_round_is_raised_unchanged():
    class Lost(BaseException):
        pass

    class Losing(FakeContext):
        async def journal_put(self, key: str, value: Any) -> bool:
            raise Lost

    with pytest.raises(Lost):
        run_calls(Losing(), [echo(Calls())], ("echo_0", "{}"), ("echo_0", "{}"))


def test_a_result_of_none_falls_back_to_the_content_or_to_all_outputs():
    def nothing(_: Any) -> ToolResult:
        return ToolResult({"content": "", "json": [1], "_elapsed_time": 3})

    done = run_calls(FakeContext(), [echo(Calls(), nothing)], ("echo_0", "{}"))

    assert done.finished[0].text == '{"content": "", "json": [1]}'


@settings(max_examples=15)
@given(st.text())
def test_any_arguments_give_a_text_result(text: str):
    done = run_calls(FakeContext(), [echo(Calls())], ("echo_0", text))

    assert isinstance(done.finished[0].text, str)


@pytest.mark.parametrize(("name", "path"), [("Ask", "Ask"), ("", "Agent:0")])
def test_trace_of_a_call_has_the_node_id_when_the_node_has_no_name(name: str, path: str):
    async def call(arguments: Any, ctx: Any) -> ToolRun:
        return ToolRun({}, "done")

    ctx = FakeContext(node_id="Agent:0", name=name)
    run_calls(ctx, [function(call)], ("f_0", "{}"))

    assert [trace["path"].partition("-->")[0] for trace in ctx.traces] == [path]
