"""Message writes its content part by part to the stream, and stores it as one output."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from canvas.document.references import Ref
from canvas.errors import NodeFailure, ToolError, UnresolvedReference
from canvas.outcome import Finished, MessageEnd
from components.context import AUDIO_END, AUDIO_START, THINK_END, THINK_START
from components.nodes.flow.message import MessageParams, leading_text, message
from tests.fakes import FakeContext, run
from tests.unit.components.nodes.llm.test_read_aloud import Log

PDF = {"doc_id": "1", "filename": "a.pdf", "mime_type": "x", "size": 3}


def content(ctx: FakeContext, *texts: str, **params: Any) -> str:
    outcome = run(message, {"content": list(texts), **params}, ctx)
    assert isinstance(outcome, Finished)
    return outcome.outputs["content"]


def context(**values: Any) -> FakeContext:
    return FakeContext(globals={"sys.query": "Bob", **{f"env.{name}": value for name, value in values.items()}})


def test_literal_text_and_values_are_written_part_by_part():
    ctx = context()

    outcome = run(message, {"content": ["Hi {sys.query}!"]}, ctx)

    assert outcome == Finished(outputs={"content": "Hi Bob!", "downloads": []}, end=MessageEnd())
    assert ctx.text_deltas == ["Hi ", "Bob", "!"]
    assert ctx.inputs == {"sys.query": "Bob"}


def test_a_plain_text_is_one_alternative():
    outcome = run(message, {"content": "Hi {sys.query}!"}, context())

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "Hi Bob!"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{env.l}", '[1, "a", {"k": 1}]'),
        ("{{sys.query}}", "Bob"),
        ("{{ sys.query }} {{{sys.query}}}", "Bob Bob"),
        ("{sys.query}{{ sys_query|upper }}", "BobBOB"),
        ("{{ sys_query|upper }}{{ nobody }}", ""),
        ("{sys.query} {{ 1 // 0 }}", "Bob {{ 1 // 0 }}"),
        ("Hi {sys.query} !", "Hi Bob !"),
        ("{env.o} {env.b} {env.i}", '{"k": "ä"} true 3'),
        ("{env.n}/{env.f}", "/1.0"),
        ("cost: ${sys.query}_(a+b)* \\d 100% {not a ref}", "cost: $Bob_(a+b)* \\d 100% {not a ref}"),
        ("line1\n\n{sys.query}\n\tline4 ", "line1\n\nBob\n\tline4 "),
        ("{item}", "{item}"),
    ],
)
def test_references_and_templates_in_the_content_are_rendered_as_specified(text: str, expected: str):
    assert content(context(l=[1, "a", {"k": 1}], n=None, f=1.0, o={"k": "ä"}, b=True, i=3), text) == expected


def test_empty_text_writes_nothing():
    ctx = context(e="")

    assert content(ctx, "{env.e}") == ""
    assert content(ctx, "{env.e}", stream=False) == ""
    assert "".join(ctx.text_deltas) == ""
    assert ctx.text_deltas == []


def test_template_and_message_without_streaming_are_written_as_a_whole():
    ctx = context()

    content(ctx, "{% if true %}Hi {sys.query}{% endif %}")
    content(ctx, "Ho {sys.query}", stream=False)

    assert ctx.text_deltas == ["Hi Bob", "Ho Bob"]


def test_a_template_that_does_not_parse_fails_the_node():
    with pytest.raises(NodeFailure):
        content(context(), "{% if %}broken{% endif %} {sys.query}")


def test_an_unknown_reference_fails_the_node():
    with pytest.raises(UnresolvedReference):
        content(context(), "{SYS.QUERY}")


def test_files_in_values_are_removed_from_the_text_and_become_downloads():
    ctx = context(d=json.dumps(PDF), e=[PDF])

    outcome = run(message, {"content": ["{env.d} tail{env.e}"], "status": 202}, ctx)

    assert outcome == Finished(
        outputs={"content": " tail", "downloads": [PDF]}, end=MessageEnd(status=202, downloads=(PDF,))
    )
    assert ctx.inputs == {"env.d": "", "env.e": ""}


@pytest.mark.parametrize(
    ("value", "text", "downloads"),
    [
        (PDF, "<>", [PDF]),
        ([PDF, {**PDF, "doc_id": "2"}], "<>", [PDF, {**PDF, "doc_id": "2"}]),
        (json.dumps([PDF]), "<>", [PDF]),
        ({**PDF, "include_download_info_in_content": False}, "<>", [PDF]),
        ({**PDF, "include_download_info_in_content": True}, f"<{json.dumps(PDF)}>", [PDF]),
        ([PDF, {**PDF, "include_download_info_in_content": 1}], f"<{json.dumps([PDF, PDF])}>", [PDF]),
        ([PDF, "x"], f"<{json.dumps([PDF, 'x'])}>", []),
        ({"doc_id": "1"}, '<{"doc_id": "1"}>', []),
        ([], "<[]>", []),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_file_descriptors_in_values_become_downloads(value: Any, text: str, downloads: list[Any], stream: bool):
    outcome = run(message, {"content": ["<{env.d}>"], "stream": stream}, context(d=value))

    assert outcome == Finished(
        outputs={"content": text, "downloads": downloads}, end=MessageEnd(downloads=tuple(downloads))
    )


def test_repeated_reference_is_resolved_once():
    class Counting(FakeContext):
        lookups = 0

        def lookup(self, expression: str) -> Any:
            self.lookups += 1
            return super().lookup(expression)

    ctx = Counting(globals={"sys.query": "Bob"})

    assert content(ctx, "{sys.query} and {{sys.query}}") == "Bob and Bob"
    assert ctx.lookups == 1


def test_aliases_work_in_a_message_inside_an_iteration():
    assert content(FakeContext(aliases={"item": "a", "index": 0}), "{index}: {item}") == "0: a"


def test_reasoning_of_a_streaming_node_is_written_between_markers_and_not_stored():
    ctx = FakeContext(values={"LLM:A": {"content": "<think>ab</think>Hello"}}, streaming_nodes={"LLM:A"})

    assert content(ctx, "Say: {LLM:A@content}") == "Say: Hello"
    assert ctx.streamed_text == f"Say: {THINK_START}ab{THINK_END}Hello"
    assert ctx.inputs == {"LLM:A@content": "<think>ab</think>Hello"}


def test_reasoning_gets_markers_in_a_template_too():
    ctx = FakeContext(values={"LLM:A": {"content": "<think>ab</think>Hello"}}, streaming_nodes={"LLM:A"})

    assert content(ctx, "{% if true %}T: {LLM:A@content}{% endif %}") == "T: Hello"
    assert ctx.text_deltas == [f"T: {THINK_START}ab{THINK_END}Hello"]


@pytest.mark.parametrize("stray", ["<think>" * 20_000, "</think>a", "a<think>"])
def test_think_tag_without_its_counterpart_stays_text(stray: str):
    ctx = FakeContext(values={"LLM:A": {"content": f"<think>ab</think>{stray}"}}, streaming_nodes={"LLM:A"})

    assert content(ctx, "{LLM:A@content}") == stray
    assert ctx.streamed_text == f"{THINK_START}ab{THINK_END}{stray}"


def test_other_values_are_written_unchanged_without_markers():
    marked = f"<think>ab</think>{THINK_START}x{THINK_END}{AUDIO_START}{'0' * 32}{AUDIO_END}"
    ctx = FakeContext(values={"LLM:A": {"content": marked}})

    assert content(ctx, "{LLM:A@content}" + AUDIO_START) == f"<think>ab</think>x{'0' * 32}"
    assert ctx.streamed_text == f"<think>ab</think>x{'0' * 32}"


def test_only_alternatives_whose_nodes_have_run_are_chosen():
    ctx = FakeContext(values={"A:1": {"x": "a"}, "B:1": {}}, not_run={"B:1"})

    assert {content(ctx, "{B:1@x}b", "{A:1@x}", f"{{B:1@x}}{n}") for n in range(5)} == {"a"}


def test_a_message_whose_nodes_have_not_run_is_shown_with_empty_values():
    ctx = FakeContext(values={"A:1": {"x": "a"}, "B:1": {}}, not_run={"B:1"})

    assert content(ctx, "{A:1@x}|{B:1@x}") == "a|"


def test_second_attempt_chooses_the_same_alternative_and_other_visits_choose_anew():
    texts = [str(number) for number in range(10)]

    for visits in ([{"visit": visit} for visit in range(30)], [{"scope_item": item} for item in range(30)]):
        choices = [content(FakeContext(**fields), *texts) for fields in visits]

        assert choices == [content(FakeContext(**fields), *texts) for fields in visits]
        assert len(set(choices)) > 3


def test_the_references_of_all_alternatives_are_shown_as_inputs():
    ctx = context(a=1, b=2)

    content(ctx, "{env.a}", "{env.b}")

    assert ctx.inputs == {"env.a": "1", "env.b": "2"}


def test_message_end_has_the_references_of_the_run_if_there_are_any():
    chunks = {"chunks": {"7": {"id": "c", "content": "x"}}, "doc_aggs": {}}
    agg = {"chunks": {}, "doc_aggs": {"a.pdf": {"doc_name": "a.pdf", "count": 1}}}

    ends = [
        run(message, {"content": ["x"]}, FakeContext(reference_store=store))
        for store in (chunks, agg, {"chunks": {}, "doc_aggs": {}})
    ]

    assert [end.end.reference for end in ends if isinstance(end, Finished) and end.end] == [chunks, agg, None]


@pytest.mark.parametrize(
    ("user_id", "user"),
    [
        (None, ""),
        ("ann", "ann"),
        ("{sys.user_id}", "u-1"),
        ("{{ sys.user_id }}", "u-1"),
        ("{begin@who}", "42"),
        ("a {sys.user_id}", "a {sys.user_id}"),
    ],
)
def test_answer_is_saved_to_memories_with_its_reasoning_for_a_user(user_id: Any, user: str):
    ctx = FakeContext(
        values={"LLM:A": {"content": "<think>ab</think>Hello"}, "begin": {"who": 42}},
        globals={"sys.user_id": "u-1"},
        streaming_nodes={"LLM:A"},
    )

    text = content(ctx, "{LLM:A@content}", memory_ids=["m1", "m2"], user_id=user_id)

    assert text == "Hello"
    assert ctx.memories == [(("m1", "m2"), user, "<think>ab</think>Hello")]


@pytest.mark.parametrize("memory_ids", [None, [], "", {}])
def test_message_without_memories_saves_nothing(memory_ids: Any):
    ctx = FakeContext()

    content(ctx, "Hello", memory_ids=memory_ids)

    assert ctx.memories == []


def test_failing_memory_is_reported_and_does_not_fail_the_node():
    class FailingMemory(FakeContext):
        async def remember(self, memory_ids: Any, user_id: str, answer: str) -> None:
            raise ToolError("Memory ['m1'] not found.")

    outcome = run(message, {"content": ["Hi"], "memory_ids": ["m1"]}, FailingMemory(log=Log()))

    assert outcome == Finished(
        outputs={"content": "Hi", "downloads": [], "memory_error": "Memory ['m1'] not found."}, end=MessageEnd()
    )


def test_unresolved_memory_user_is_reported():
    outcome = run(message, {"content": ["Hi"], "memory_ids": ["m1"], "user_id": "{sys.nobody}"}, FakeContext(log=Log()))

    assert isinstance(outcome, Finished)
    assert "sys.nobody" in outcome.outputs["memory_error"]


def test_memory_error_of_an_earlier_visit_is_cleared():
    ctx = FakeContext(previous={"memory_error": "late"})

    outcome = run(message, {"content": ["Hi"], "memory_ids": ["m1"]}, ctx)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["memory_error"] is None


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


def leading_text_of(ctx: FakeContext, text: str, **params: Any) -> str | None:
    def has_run(ref: Ref) -> bool:
        return ref.node not in ctx.not_run

    definition = {"content": [text], **params}
    return leading_text(definition, "LLM:A", ctx.lookup, has_run, ctx.streams_from)


def test_leading_text_is_the_text_before_a_nodes_content():
    ctx = FakeContext(values={"LLM:A": {}, "B:1": {"x": [1]}}, not_run={"LLM:A"})

    assert leading_text_of(ctx, "B has {B:1@x}, A says {LLM:A@content}.") == "B has [1], A says "
    assert leading_text_of(ctx, "{{ LLM:A@content }}") == ""


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
def test_leading_text_with_unknown_values_is_none(text: str, params: dict[str, Any]):
    ctx = FakeContext(values={"LLM:A": {}, "C:1": {}}, not_run={"LLM:A", "C:1"})

    assert leading_text_of(ctx, text, **params) is None


def test_several_alternatives_have_no_leading_text():
    assert leading_text({"content": ["{LLM:A@content}", "x"]}, "LLM:A", FakeContext().lookup, lambda _: True) is None


MARKS = "".join((THINK_START, THINK_END, AUDIO_START, AUDIO_END))  # no model writes them


@given(
    before=st.text(max_size=20),
    value=st.text(max_size=20),
    thought=st.text(st.characters(exclude_characters="<>" + MARKS), max_size=10),
    answer=st.text(st.characters(exclude_characters="<>" + MARKS), max_size=10),
)
def test_message_begins_with_its_leading_text(before: str, value: str, thought: str, answer: str):
    text = before.replace("{", "(").replace("}", ")") + "{sys.query}{LLM:A@content} end"
    streamed = f"{THINK_START}{thought}{THINK_END}{answer}"
    ctx = FakeContext(
        values={"LLM:A": {"content": f"<think>{thought}</think>{answer}"}},
        globals={"sys.query": value},
        streaming_nodes={"LLM:A"},
    )

    leading = leading_text({"content": [text]}, "LLM:A", ctx.lookup, lambda ref: ref.node is None, ctx.streams_from)
    content(ctx, text)

    assert leading is not None
    assert ctx.streamed_text == leading + streamed + " end"
