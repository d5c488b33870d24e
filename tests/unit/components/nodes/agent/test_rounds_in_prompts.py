import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.outcome import Failed, Finished
from components.context import THINK_END, THINK_START
from providers.models.chat.scripted import Script
from tests.fakes import FakeContext
from tests.unit.components.nodes.agent.agents import ECHO, Calls, ask, echo_tool, known, texts

ANALYSE = {"last": "Analyse the task", "reply": "MEDIUM: echo it"}
REFLECT = {"last": "Reflect on", "reply": "<think>hm</think>goes well"}
CLOSING = {"last": "Give the final answer", "reply": "forced"}


def step(*wanted: tuple[str, Any], **rule: Any) -> dict[str, Any]:
    listed = [{"name": name, "arguments": arguments} for name, arguments in wanted]
    return {"reply": f"<think>so</think>```json\n{json.dumps(listed)}\n```<|stop|> and so on", **rule}


def complete(answer: Any = "Final.", **rule: Any) -> dict[str, Any]:
    return step(("complete_task", {"answer": answer}), **rule)


def in_prompts(rules: list[dict[str, Any]], ctx: FakeContext | None = None, **params: Any):
    script, given = Script(rules), Calls()
    with known(echo_tool(given)):
        outcome, ctx = ask(script, ctx, tools=[ECHO], tool_mode="prompt", sys_prompt="You lead.", **params)
    return outcome, ctx, script, given


def test_a_task_is_analysed_worked_on_step_by_step_and_completed():
    rules = [ANALYSE, REFLECT, complete(last="goes well"), step(("echo_0", {"query": "1"}), ("echo_0", {"query": "2"}))]

    outcome, ctx, script, given = in_prompts(rules)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "Final."
    assert [call["query"] for call in given.given] == ["1", "2"]
    assert all(seen.tools == () for seen in script.requests)
    assert [seen.rule for seen in script.requests] == [0, 3, 1, 2]
    analysis, first, reflection, second = (texts(seen) for seen in script.requests)
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

    outcome, _, script, _ = in_prompts(rules, max_rounds=1)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "Final."
    assert len(script.requests) == 3


def test_when_the_rounds_are_used_up_the_answer_is_forced():
    rules = [ANALYSE, REFLECT, CLOSING, step(("echo_0", {"query": "again"}))]

    outcome, _, script, given = in_prompts(rules, max_rounds=2)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "forced"
    assert len(given.given) == 3
    assert texts(script.requests[-1])[0] == ("system", "You lead.")


def test_a_long_history_keeps_its_beginning_and_its_end():
    rules = [ANALYSE, REFLECT, CLOSING, step(("echo_0", {"query": "again"}))]

    _, _, script, _ = in_prompts(rules, max_rounds=7)

    said = texts(script.requests[-1])[1:]
    assert len(said) == 12
    assert said[0] == ("user", "Q")


def test_answer_is_streamed_after_the_tools_that_ran():
    ctx = FakeContext(globals={"sys.query": "Q"}, is_streaming=True)
    rules = [ANALYSE, REFLECT, complete(last="goes well"), step(("echo_0", {"query": "1"}))]

    outcome, ctx, _, _ = in_prompts(rules, ctx)

    assert ctx.said == f"{THINK_START}Running the echo_0 tool...{THINK_END}Final."
    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "<think>Running the echo_0 tool...</think>Final."


def test_failed_analysis_or_reflection_is_skipped():
    rules: list[dict[str, Any]] = [
        {"last": "Analyse the task", "error": "invalid"},
        {"last": "Reflect on", "error": "invalid"},
        complete(last="## Observation"),
        step(("echo_0", {"query": "1"})),
    ]

    outcome, _, script, _ = in_prompts(rules)

    assert isinstance(outcome, Finished)
    assert "## Reflection" not in texts(script.requests[-1])[-1][1]


def test_an_error_between_the_steps_is_the_answer():
    quiet, _, _, _ = in_prompts([ANALYSE, {"error": "invalid"}])
    spoken, ctx, _, _ = in_prompts(
        [ANALYSE, {"error": "invalid"}], FakeContext(globals={"sys.query": "Q"}, is_streaming=True)
    )

    error = "**ERROR**: INVALID_REQUEST - invalid"
    assert quiet == Failed(error, "model_error")
    assert spoken == Finished(outputs={"content": error, "_ERROR": error})
    assert ctx.said == error


def test_another_attempt_goes_on_from_what_was_recorded():
    rules = [ANALYSE, REFLECT, complete(last="goes well"), step(("echo_0", {"query": "1"}))]
    whole, first, _, _ = in_prompts(rules)

    again = FakeContext(globals={"sys.query": "Q"}, journal=dict(first.journal))
    outcome, again, script, given = in_prompts(rules, again)

    assert outcome == whole
    assert script.requests == ()
    assert given.given == []
    assert again.usage == first.usage


def test_authors_guides_replace_the_built_in_ones():
    own = (
        "You lead.<TASK_ANALYSIS>analyse like me</TASK_ANALYSIS><PLAN_GENERATION>plan like me</PLAN_GENERATION>"
        "<REFLECTION>reflect like me</REFLECTION>"
    )
    script, given = (
        Script([ANALYSE, REFLECT, complete(last="goes well"), step(("echo_0", {"query": "1"}))]),
        Calls(),
    )

    with known(echo_tool(given)):
        ask(script, tools=[ECHO], tool_mode="prompt", sys_prompt=own)

    analysis, plan, reflection, _ = (texts(seen)[0][1] for seen in script.requests)
    assert "analyse like me" in analysis
    assert "plan like me" in plan
    assert "reflect like me" in reflection


@settings(max_examples=25)
@given(st.text())
def test_no_answer_breaks_a_step(answer: str):
    outcome, _, _, _ = in_prompts([ANALYSE, REFLECT, CLOSING, {"reply": answer}], max_rounds=0)

    assert isinstance(outcome, Finished | Failed)
