"""Message is what the user reads: said in pieces, stored as a whole."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from canvas.errors import NodeFailure, UnresolvedReference
from canvas.outcome import Finished, MessageEnd
from canvas.references import Ref
from components.context import THINK_END, THINK_START
from components.message import MessageParams, message, opening
from tests.fakes import FakeContext, run

PDF = {"doc_id": "1", "filename": "a.pdf", "mime_type": "x", "size": 3}


def content(ctx: FakeContext, *texts: str, **params: Any) -> str:
    outcome = run(message, {"content": list(texts), **params}, ctx)
    assert isinstance(outcome, Finished)
    return outcome.outputs["content"]


def world(**values: Any) -> FakeContext:
    return FakeContext(globals={"sys.query": "Bob", **{f"env.{name}": value for name, value in values.items()}})


def test_literal_text_and_values_are_said_piece_by_piece():
    ctx = world()

    outcome = run(message, {"content": ["Hi {sys.query}!"]}, ctx)

    assert outcome == Finished(outputs={"content": "Hi Bob!", "downloads": []}, end=MessageEnd())
    assert ctx.pieces == ["Hi ", "Bob", "!"]
    assert ctx.inputs == {"sys.query": "Bob"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{env.l}", '[1, "a", {"k": 1}]'),
        ("{{sys.query}}", "Bob"),
        ("{{ sys.query }} {{{sys.query}}}", "Bob Bob"),
        ("{sys.query}{{ sys_query|upper }}", "BobBOB"),
        ("{env.n}/{env.f}", "/1.0"),
        ("cost: ${sys.query}_(a+b)* \\d 100% {not a ref}", "cost: $Bob_(a+b)* \\d 100% {not a ref}"),
        ("line1\n\n{sys.query}\n\tline4 ", "line1\n\nBob\n\tline4 "),
        ("{item}", "{item}"),
    ],
)
def test_content_reads_as_the_specification_says(text: str, expected: str):
    assert content(world(l=[1, "a", {"k": 1}], n=None, f=1.0), text) == expected


def test_nothing_is_said_for_an_empty_text():
    ctx = world(e="")

    assert content(ctx, "{env.e}") == ""
    assert content(ctx, "{env.e}", stream=False) == ""
    assert "".join(ctx.pieces) == ""
    assert ctx.pieces == []


def test_a_template_and_a_message_that_does_not_stream_are_said_as_a_whole():
    ctx = world()

    content(ctx, "{% if true %}Hi {sys.query}{% endif %}")
    content(ctx, "Ho {sys.query}", stream=False)

    assert ctx.pieces == ["Hi Bob", "Ho Bob"]


def test_a_template_that_does_not_parse_fails_the_node():
    with pytest.raises(NodeFailure):
        content(world(), "{% if %}broken{% endif %} {sys.query}")


def test_an_unknown_reference_fails_the_node():
    with pytest.raises(UnresolvedReference):
        content(world(), "{SYS.QUERY}")


def test_files_leave_the_text_and_become_downloads_once_each():
    ctx = world(d=json.dumps(PDF), e=[PDF])

    outcome = run(message, {"content": ["{env.d} tail{env.e}"], "status": 202}, ctx)

    assert outcome == Finished(
        outputs={"content": " tail", "downloads": [PDF]}, end=MessageEnd(status=202, downloads=(PDF,))
    )
    assert ctx.inputs == {"env.d": "", "env.e": ""}


def test_aliases_work_in_a_message_inside_an_iteration():
    assert content(FakeContext(aliases={"item": "a", "index": 0}), "{index}: {item}") == "0: a"


def test_the_reasoning_of_a_node_that_is_listened_to_is_said_between_markers_and_not_stored():
    ctx = FakeContext(values={"LLM:A": {"content": "<think>ab</think>Hello"}}, listened={"LLM:A"})

    assert content(ctx, "Say: {LLM:A@content}") == "Say: Hello"
    assert ctx.said == f"Say: {THINK_START}ab{THINK_END}Hello"
    assert ctx.inputs == {"LLM:A@content": "<think>ab</think>Hello"}


def test_reasoning_is_told_apart_in_a_template_too():
    ctx = FakeContext(values={"LLM:A": {"content": "<think>ab</think>Hello"}}, listened={"LLM:A"})

    assert content(ctx, "{% if true %}T: {LLM:A@content}{% endif %}") == "T: Hello"
    assert ctx.pieces == [f"T: {THINK_START}ab{THINK_END}Hello"]


def test_other_values_are_said_as_they_are_but_never_with_our_markers():
    ctx = FakeContext(values={"LLM:A": {"content": f"<think>ab</think>{THINK_START}x{THINK_END}"}})

    assert content(ctx, "{LLM:A@content}") == "<think>ab</think>x"
    assert ctx.said == "<think>ab</think>x"


def test_only_alternatives_whose_nodes_have_run_are_chosen():
    ctx = FakeContext(values={"A:1": {"x": "a"}, "B:1": {}}, not_run={"B:1"})

    assert {content(ctx, "{B:1@x}b", "{A:1@x}", f"{{B:1@x}}{n}") for n in range(5)} == {"a"}


def test_a_message_whose_nodes_have_not_run_is_shown_with_empty_values():
    ctx = FakeContext(values={"A:1": {"x": "a"}, "B:1": {}}, not_run={"B:1"})

    assert content(ctx, "{A:1@x}|{B:1@x}") == "a|"


def test_a_second_attempt_chooses_the_same_alternative_and_visits_differ():
    texts = [str(number) for number in range(10)]

    choices = [content(FakeContext(visit=visit), *texts) for visit in range(30)]

    assert choices == [content(FakeContext(visit=visit), *texts) for visit in range(30)]
    assert len(set(choices)) > 3


def test_the_references_of_all_alternatives_are_shown_as_inputs():
    ctx = world(a=1, b=2)

    content(ctx, "{env.a}", "{env.b}")

    assert ctx.inputs == {"env.a": "1", "env.b": "2"}


@pytest.mark.parametrize(
    ("params", "label"),
    [
        ({}, "[Message] Content"),
        ({"content": []}, "[Message] Content"),
        ({"content": ""}, "[Message] Content"),
        ({"content": {"a": 1}}, "[Message] Content"),
        ({"content": ["x"], "stream": "yes"}, "[Message] stream"),
        ({"content": ["x"], "stream": 1}, "[Message] stream"),
    ],
)
def test_a_message_without_text_is_refused(params: dict[str, Any], label: str):
    with pytest.raises(ValidationError) as refused:
        MessageParams.model_validate(params)

    assert label in str(refused.value)


def opened(ctx: FakeContext, text: str, **params: Any) -> str | None:
    def known(ref: Ref) -> bool:
        return ref.node not in ctx.not_run

    definition = {"content": [text], **params}
    return opening(definition, "LLM:A", ctx.lookup, known, ctx.listens_to)


def test_a_node_may_say_ahead_what_comes_before_its_content():
    ctx = FakeContext(values={"LLM:A": {}, "B:1": {"x": [1]}}, not_run={"LLM:A"})

    assert opened(ctx, "B has {B:1@x}, A says {LLM:A@content}.") == "B has [1], A says "
    assert opened(ctx, "{{ LLM:A@content }}") == ""


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("{% if 1 %}{LLM:A@content}{% endif %}", {}),
        ("{LLM:A@content}", {"stream": False}),
        ("{C:1@late}{LLM:A@content}", {}),
        ("{LLM:A@thinking}{LLM:A@content}", {}),
        ("{LLM:A@content.part}", {}),
        ("no mention", {}),
    ],
)
def test_an_opening_that_cannot_be_known_is_none(text: str, params: dict[str, Any]):
    ctx = FakeContext(values={"LLM:A": {}, "C:1": {}}, not_run={"LLM:A", "C:1"})

    assert opened(ctx, text, **params) is None


def test_several_alternatives_have_no_common_opening():
    assert opening({"content": ["{LLM:A@content}", "x"]}, "LLM:A", FakeContext().lookup, lambda _: True) is None


@given(
    before=st.text(max_size=20),
    value=st.text(max_size=20),
    thought=st.text(st.characters(exclude_characters="<>" + THINK_START + THINK_END), max_size=10),
    answer=st.text(st.characters(exclude_characters="<>" + THINK_START + THINK_END), max_size=10),
)
def test_what_was_said_ahead_is_how_the_message_begins(before: str, value: str, thought: str, answer: str):
    text = before.replace("{", "(").replace("}", ")") + "{sys.query}{LLM:A@content} end"
    spoken = f"{THINK_START}{thought}{THINK_END}{answer}"
    ctx = FakeContext(
        values={"LLM:A": {"content": f"<think>{thought}</think>{answer}"}},
        globals={"sys.query": value},
        listened={"LLM:A"},
    )

    ahead = opening({"content": [text]}, "LLM:A", ctx.lookup, lambda ref: ref.node is None, ctx.listens_to)
    content(ctx, text)

    assert ahead is not None
    assert ctx.said == ahead + spoken + " end"
