"""Answer writes the texts that were not written before, and waits for the next query."""

from typing import Any

import pytest

from canvas.outcome import Finished, WaitingForInput
from components.nodes.flow.answer import AnswerParams, answer
from tests.fakes import FakeContext, run


def answer_params(*nodes: str) -> dict[str, Any]:
    return {"says": [{"text": f"{{{node}@content}}", "said": f"{{{node}@_said}}"} for node in nodes]}


def test_answer_after_begin_waits_without_writing():
    ctx = FakeContext(globals={"sys.query": "Hello"})

    assert run(answer, {}, ctx) == WaitingForInput(inputs={})
    assert ctx.streamed_text == ""


def test_text_of_the_node_before_answer_is_written_once():
    new = FakeContext(values={"LLM:A": {"content": "Hi there"}})
    old = FakeContext(values={"LLM:A": {"content": "Hi there", "_said": True}})

    assert (
        run(answer, answer_params("LLM:A"), new)
        == run(answer, answer_params("LLM:A"), old)
        == WaitingForInput(inputs={})
    )
    assert new.text_deltas == ["Hi there"]
    assert old.streamed_text == ""


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (["one", "two"], "one\ntwo"), (["", "two"], "two"), ([None, None], ""), ([["a"], 5], '["a"]\n5'),
        (["a\ufdd0b\ufdd1c"], "abc"),
    ],
)  # fmt: skip
def test_several_texts_are_one_message(contents: list[Any], text: str):
    nodes = [f"LLM:{number}" for number in range(len(contents))]
    ctx = FakeContext(values={node: {"content": content} for node, content in zip(nodes, contents, strict=True)})

    run(answer, answer_params(*nodes), ctx)

    assert ctx.streamed_text == text


@pytest.mark.parametrize("query", ["Bye", {"text": "Bye"}])
def test_query_of_the_next_turn_is_the_output_and_written_texts_are_marked(query: Any):
    values = {"LLM:A": {"content": "Hi"}, "LLM:B": {"content": ""}, "LLM:C": {"content": "old", "_said": True}}
    ctx = FakeContext(values=values, answers={"query": query})

    outcome = run(answer, answer_params("LLM:A", "LLM:B", "LLM:C"), ctx)

    assert outcome == Finished(outputs={"answer": query, "content": query}, assign={"LLM:A@_said": True})
    assert ctx.streamed_text == ""
    assert ctx.inputs == {"query": query}


def test_answers_to_other_forms_leave_answer_waiting():
    ctx = FakeContext(values={"LLM:A": {"content": "Hi"}}, answers={"query": ""})

    assert run(answer, answer_params("LLM:A"), ctx) == WaitingForInput(inputs={})
    assert ctx.streamed_text == ""


def test_outputs_of_answer_exist_before_it_runs():
    assert AnswerParams.default_outputs == ("answer", "content")
