import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.outcome import Failed, Finished
from components.context import THINK_END, THINK_START
from providers.models.chat.scripted import Script
from tests.fakes import FakeContext
from tests.unit.components.nodes.agent.agents import ECHO, Calls, ask, echo_tool, only_tools, texts

ANALYSE = {"last": "Analyse the task", "reply": "MEDIUM: echo it"}
REFLECT = {"last": "Reflect on", "reply": "<think>hm</think>goes well"}
CLOSING = {"last": "Give the final answer", "reply": "forced"}


def step(*calls: tuple[str, Any], **rule: Any) -> dict[str, Any]:
    listed = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return {"reply": f"<think>so</think>```json\n{json.dumps(listed)}\n```<|stop|> and so on", **rule}


def complete(answer: Any = "Final.", **rule: Any) -> dict[str, Any]:
    return step(("complete_task", {"answer": answer}), **rule)


def run_in_prompt_mode(rules: list[dict[str, Any]], ctx: FakeContext | None = None, **params: Any):
    script, recorded = Script(rules), Calls()
    with only_tools(echo_tool(recorded)):
        outcome, ctx = ask(script, ctx, tools=[ECHO], tool_mode="prompt", sys_prompt="You lead.", **params)
    return outcome, ctx, script, recorded


def test_a_task_is_analysed_worked_on_step_by_step_and_completed():
    rules = [ANALYSE, REFLECT, complete(last="goes well"), step(("echo_0", {"query": "1"}), ("echo_0", {"query": "2"}))]

    outcome, ctx, script, recorded = run_in_prompt_mode(rules)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "Final."
    assert [call["query"] for call in recorded.arguments] == ["1", "2"]
    assert all(request.tools == () for request in script.requests)
    assert [request.rule for request in script.requests] == [0, 3, 1, 2]
    analysis, first, reflection, second = (texts(request) for request in script.requests)
    assert "You lead." in analysis[0][1]
    assert '"name": "echo_0"' in analysis[0][1]
    assert "MEDIUM: echo it" in first[0][1]
    assert '"result": "echo of 1"' in reflection[0][1]
    assert second[-1] == (
        "user",
        '## Observation\n[{"name": "echo_0", "result": "echo of 1"}, {"name": "echo_0", "result": "echo of 2"}]'
        "\n\n## Reflection\ngoes well",
    )
    assert [trace["tool_name"] for trace in ctx.traces] == ["echo_0", "echo_0"]


@pytest.mark.parametrize(
    "answer", ["I would call echo", "[]", '[{"tool": "echo_0"}]', "[7]", '"echo_0"', "<think>only thoughts</think>"]
)
def test_unreadable_reply_is_reported_to_the_model_and_uses_up_the_round(answer: str):
    rules = [ANALYSE, complete(last="Tool call error"), {"reply": answer}]

    outcome, _, script, _ = run_in_prompt_mode(rules, max_rounds=1)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "Final."
    assert len(script.requests) == 3


def test_final_answer_is_requested_when_the_rounds_are_used_up():
    rules = [ANALYSE, REFLECT, CLOSING, step(("echo_0", {"query": "again"}))]

    outcome, _, script, recorded = run_in_prompt_mode(rules, max_rounds=2)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "forced"
    assert len(recorded.arguments) == 3
    assert texts(script.requests[-1])[0] == ("system", "You lead.")


def test_long_history_is_cut_in_the_middle():
    rules = [ANALYSE, REFLECT, CLOSING, step(("echo_0", {"query": "again"}))]

    _, _, script, _ = run_in_prompt_mode(rules, max_rounds=7)

    history = texts(script.requests[-1])[1:]
    assert len(history) == 12
    assert history[0] == ("user", "Q")


def test_answer_is_streamed_after_the_tools_that_ran():
    ctx = FakeContext(globals={"sys.query": "Q"}, is_streaming=True)
    rules = [ANALYSE, REFLECT, complete(last="goes well"), step(("echo_0", {"query": "1"}))]

    outcome, ctx, _, _ = run_in_prompt_mode(rules, ctx)

    assert ctx.streamed_text == f"{THINK_START}Running the echo_0 tool...{THINK_END}Final."
    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "<think>Running the echo_0 tool...</think>Final."


def test_failed_analysis_or_reflection_is_skipped():
    rules: list[dict[str, Any]] = [
        {"last": "Analyse the task", "error": "invalid"},
        {"last": "Reflect on", "error": "invalid"},
        complete(last="## Observation"),
        step(("echo_0", {"query": "1"})),
    ]

    outcome, _, script, _ = run_in_prompt_mode(rules)

    assert isinstance(outcome, Finished)
    assert "## Reflection" not in texts(script.requests[-1])[-1][1]


def test_failed_request_for_a_step_fails_the_node_or_is_written_to_the_stream():
    buffered, _, _, _ = run_in_prompt_mode([ANALYSE, {"error": "invalid"}])
    streamed, ctx, _, _ = run_in_prompt_mode(
        [ANALYSE, {"error": "invalid"}], FakeContext(globals={"sys.query": "Q"}, is_streaming=True)
    )

    error = "**ERROR**: INVALID_REQUEST - invalid"
    assert buffered == Failed(error, "model_error")
    assert streamed == Finished(outputs={"content": error, "_ERROR": error})
    assert ctx.streamed_text == error


def test_second_attempt_continues_from_the_journal():
    rules = [ANALYSE, REFLECT, complete(last="goes well"), step(("echo_0", {"query": "1"}))]
    whole, first, _, _ = run_in_prompt_mode(rules)

    again = FakeContext(globals={"sys.query": "Q"}, journal=dict(first.journal))
    outcome, again, script, recorded = run_in_prompt_mode(rules, again)

    assert outcome == whole
    assert script.requests == ()
    assert recorded.arguments == []
    assert again.usage == first.usage


def test_authors_guides_replace_the_built_in_ones():
    own = (
        "You lead.<TASK_ANALYSIS>analyse like me</TASK_ANALYSIS><PLAN_GENERATION>plan like me</PLAN_GENERATION>"
        "<REFLECTION>reflect like me</REFLECTION>"
    )
    script, recorded = (
        Script([ANALYSE, REFLECT, complete(last="goes well"), step(("echo_0", {"query": "1"}))]),
        Calls(),
    )

    with only_tools(echo_tool(recorded)):
        ask(script, tools=[ECHO], tool_mode="prompt", sys_prompt=own)

    analysis, plan, reflection, _ = (texts(request)[0][1] for request in script.requests)
    assert "analyse like me" in analysis
    assert "plan like me" in plan
    assert "reflect like me" in reflection


@settings(max_examples=25)
@given(st.text())
def test_any_model_reply_ends_in_an_outcome(answer: str):
    outcome, _, _, _ = run_in_prompt_mode([ANALYSE, REFLECT, CLOSING, {"reply": answer}], max_rounds=0)

    assert isinstance(outcome, Finished | Failed)
