import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from canvas.errors import ModelError, UnresolvedReference
from canvas.outcome import Failed, Finished, Outcome
from components.context import THINK_END, THINK_START
from components.nodes.llm.llm import answer_schema, llm
from components.text.json_in_text import read_json
from providers.models.chat.echo import echo_answer
from providers.models.types.chat import (
    ChatRequest,
    Completion,
    ContentDelta,
    Delta,
    ErrorDelta,
    ModelSpec,
    ReasoningDelta,
    Usage,
    UsageDelta,
)
from tests.fakes import FakeContext, run

BROKEN = ErrorDelta("SERVER_ERROR", "boom")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "value": {"a": "of last time"}}


class Model:
    """A model that returns its answers in order, repeating the last one, and records its requests."""

    def __init__(self, *answers: str | ErrorDelta | list[Delta], reasoning: str = "", context: int = 8192) -> None:
        self._answers = list(answers)
        self._reasoning = reasoning
        self._context = context
        self.requests: list[ChatRequest] = []
        self.closed = 0

    @property
    def spec(self) -> ModelSpec:
        return ModelSpec("m", "m", "Fake", None, context_tokens=self._context)

    async def complete(self, request: ChatRequest) -> Completion:
        answer = self._next(request)
        usage = Usage(3, 2, 5, 1)
        if isinstance(answer, ErrorDelta):
            return Completion(str(answer), usage=usage, error=answer)
        assert isinstance(answer, str)
        return Completion(answer, self._reasoning, usage=usage)

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        answer = self._next(request)
        assert isinstance(answer, list)
        try:
            for delta in answer:
                yield delta
            yield UsageDelta(Usage(3, 2, 5, 1))
        finally:
            self.closed += 1

    def _next(self, request: ChatRequest) -> Any:
        self.requests.append(request)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def ask(model: Model, ctx: FakeContext | None = None, **params: Any) -> tuple[Outcome, FakeContext]:
    ctx = ctx or FakeContext(globals={"sys.query": "Q"})
    ctx.models = {"m": model}
    return run(llm, {"llm_id": "m", "delay_after_error": 0, **params}, ctx), ctx


def streaming_context() -> FakeContext:
    return FakeContext(globals={"sys.query": "Q"}, is_streaming=True)


def test_prompts_are_sent_to_the_model_and_its_answer_is_the_content():
    model = Model("hello")

    outcome, ctx = ask(model, sys_prompt="S {sys.query}", prompts=[{"role": "user", "content": "U {sys.query}"}])

    assert outcome == Finished(outputs={"content": "hello"})
    assert model.requests[0].messages == [{"role": "system", "content": "S Q"}, {"role": "user", "content": "U Q"}]
    assert model.requests[0].retries == 0
    assert ctx.inputs == {"sys.query": "Q"}
    assert ctx.usage == Usage(3, 2, 5, 1)
    assert ctx.streamed_text == ""


def test_node_whose_output_is_unused_does_not_call_its_model():
    model = Model("hello")

    outcome, _ = ask(model, FakeContext(globals={"sys.query": "Q"}, has_reader=False))

    assert outcome == Finished(outputs={})
    assert model.requests == []


def test_an_unknown_model_fails_the_node_and_still_shows_its_inputs():
    ctx = FakeContext(globals={"sys.query": "Q"})

    with pytest.raises(ModelError, match="other"):
        ask(Model("x"), ctx, llm_id="other", exception_method="comment", exception_default_value="DEF")

    assert ctx.inputs == {"sys.query": "Q"}


def test_a_prompt_that_refers_to_an_unknown_node_fails_the_node():
    with pytest.raises(UnresolvedReference, match="Can't find variable"):
        ask(Model("x"), prompts="{Nobody:0@content}")


# -- buffered answer --------------------------------------------------------------------------------------------------


def test_failed_request_is_retried_max_retries_times():
    model = Model(BROKEN, BROKEN, "ok")

    outcome, ctx = ask(model, max_retries=2)

    assert outcome == Finished(outputs={"content": "ok"})
    assert len(model.requests) == 3
    assert ctx.usage.calls == 3


def test_the_last_error_is_the_error_of_the_node():
    model = Model("**ERROR**: one", "**ERROR**: two", "late")

    with pytest.raises(ModelError) as failure:
        ask(model, max_retries=1)

    assert failure.value.message == "**ERROR**: two"
    assert len(model.requests) == 2


def test_an_answer_that_carries_the_error_mark_is_an_error():
    with pytest.raises(ModelError, match="the word"):
        ask(Model("the word **ERROR** is in the text"))


def test_default_value_replaces_a_failed_answer_with_method_comment():
    outcome, _ = ask(Model(BROKEN), exception_method="comment", exception_default_value="DEF")

    assert outcome == Finished(outputs={"content": "DEF"})


@pytest.mark.parametrize("policy", [("comment", ""), ("goto", "DEF"), (None, "DEF"), ("", "DEF")])
def test_default_value_is_ignored_if_empty_or_without_method_comment(policy: tuple[Any, str]):
    method, default = policy

    with pytest.raises(ModelError):
        ask(Model(BROKEN), exception_method=method, exception_default_value=default)


def test_waits_between_attempts_double_and_end_at_a_minute(monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []

    async def record_wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", record_wait)
    with pytest.raises(ModelError):
        ask(Model(BROKEN), max_retries=6, delay_after_error=2)

    assert waits == [2, 4, 8, 16, 32, 60]


def test_empty_question_fails_without_a_request_and_without_retries():
    model = Model("x")

    with pytest.raises(ModelError, match=r"\*\*ERROR\*\*"):
        ask(model, FakeContext(globals={"sys.query": "  "}), sys_prompt="S", max_retries=3)

    assert model.requests == []


def test_default_value_is_the_answer_to_an_empty_question_with_method_comment():
    ctx = FakeContext(globals={"sys.query": ""})

    outcome, _ = ask(Model("x"), ctx, exception_method="comment", exception_default_value="DEF")

    assert outcome == Finished(outputs={"content": "DEF"})


def test_reasoning_is_a_separate_output():
    outcome, _ = ask(Model("answer", reasoning="because"))

    assert outcome == Finished(outputs={"content": "answer", "thinking": "because"})


def test_reasoning_of_an_earlier_activation_is_cleared():
    ctx = FakeContext(globals={"sys.query": "Q"}, previous={"thinking": "of the last round"})

    outcome, _ = ask(Model("answer"), ctx)

    assert outcome == Finished(outputs={"content": "answer", "thinking": None})


def test_reasoning_inside_an_answer_is_removed():
    outcome, _ = ask(Model("<think>a</think>b</think>answer"))

    assert outcome == Finished(outputs={"content": "answer"})


# -- structured answer ------------------------------------------------------------------------------------------------


def test_structured_answer_is_parsed_and_content_stays_unset():
    model = Model('<think>hm {"a": 0}</think>Here:\n```json\n{"a": "1"}\n```\n')

    outcome, _ = ask(model, sys_prompt="Extract.", outputs={"content": {}, "structured": SCHEMA})

    assert outcome == Finished(outputs={"structured": {"a": "1"}})
    system = model.requests[0].messages[0]["content"]
    assert system.startswith("Extract.\n\n")
    assert "of last time" not in system
    assert "\nJSON schema:\n{" in system


def test_the_echo_model_finds_the_schema_in_the_prompt():
    model = Model("{}")

    ask(model, sys_prompt="Extract {this}.", outputs={"structured": SCHEMA})

    assert "a" in (read_json(echo_answer(model.requests[0].messages)) or [])


def test_structured_node_never_streams():
    outcome, ctx = ask(Model('{"a": "1"}'), streaming_context(), outputs={"structured": SCHEMA})

    assert outcome == Finished(outputs={"structured": {"a": "1"}})
    assert ctx.streamed_text == ""


def test_errors_and_non_json_answers_share_the_attempts():
    model = Model(BROKEN, "I cannot do that", '{"a": "1"}')

    outcome, _ = ask(model, max_retries=2, outputs={"structured": SCHEMA})

    assert outcome == Finished(outputs={"structured": {"a": "1"}})
    assert len(model.requests) == 3


def test_missing_structured_answer_fails_with_the_last_error_despite_a_default_value():
    policy: dict[str, Any] = {"exception_method": "comment", "exception_default_value": "DEF"}

    unreadable, _ = ask(Model("no"), outputs={"structured": SCHEMA}, **policy)
    broken, _ = ask(Model("no", BROKEN), max_retries=1, outputs={"structured": SCHEMA}, **policy)
    empty, _ = ask(Model("no"), prompts=" ", outputs={"structured": SCHEMA}, **policy)

    assert isinstance(unreadable, Failed)
    assert "cannot be parsed as JSON" in unreadable.error
    assert broken == Failed(error=str(BROKEN), code="model_error")
    assert isinstance(empty, Failed)


@pytest.mark.parametrize(
    "outputs", [{}, {"structured": {}}, {"structured": {"properties": {}}}, {"structured": None}, [], None]
)
def test_structured_output_without_properties_has_no_schema(outputs: Any):
    assert answer_schema(outputs) is None


# -- streamed answer --------------------------------------------------------------------------------------------------


def test_streaming_node_writes_every_delta_as_it_arrives():
    model = Model([ContentDelta("ha"), ContentDelta("ha"), ContentDelta(""), ContentDelta("!")])

    outcome, ctx = ask(model, streaming_context(), max_retries=2, delay_after_error=0.5)

    assert ctx.text_deltas == ["ha", "ha", "!"]
    assert outcome == Finished(outputs={"content": "haha!"})
    assert (model.requests[0].retries, model.requests[0].retry_delay) == (2, 0.5)
    assert ctx.usage.calls == 1


def test_reasoning_is_written_between_markers_and_stored_between_tags():
    model = Model([ReasoningDelta("a"), ReasoningDelta("b"), ContentDelta("Hel"), ContentDelta("lo")])

    outcome, ctx = ask(model, streaming_context())

    assert ctx.streamed_text == f"{THINK_START}ab{THINK_END}Hello"
    assert outcome == Finished(outputs={"content": "<think>ab</think>Hello", "thinking": "ab"})


def test_answer_of_reasoning_only_ends_with_the_end_marker():
    outcome, ctx = ask(Model([ReasoningDelta("hm")]), streaming_context())

    assert ctx.streamed_text == f"{THINK_START}hm{THINK_END}"
    assert outcome == Finished(outputs={"content": "<think>hm</think>", "thinking": "hm"})


def test_an_empty_answer_is_an_empty_content():
    outcome, ctx = ask(Model([]), streaming_context())

    assert outcome == Finished(outputs={"content": ""})
    assert ctx.text_deltas == []


def test_error_is_written_last_and_the_run_continues():
    outcome, ctx = ask(Model([ReasoningDelta("hm"), BROKEN]), streaming_context())

    assert ctx.streamed_text == f"{THINK_START}hm{THINK_END}{BROKEN}"
    assert outcome == Finished(outputs={"content": str(BROKEN), "_ERROR": str(BROKEN)})
    assert ctx.usage.calls == 1


def test_default_value_is_written_in_place_of_an_error():
    model = Model([ContentDelta("Hel"), BROKEN])

    outcome, ctx = ask(model, streaming_context(), exception_method="comment", exception_default_value="DEF")

    assert ctx.text_deltas == ["Hel", "DEF"]
    assert outcome == Finished(outputs={"content": "DEF"})


def test_delta_with_the_error_mark_ends_the_stream():
    model = Model([ContentDelta("Hel"), ContentDelta("**ERROR** z"), ContentDelta("more"), ReasoningDelta("more")])

    outcome, ctx = ask(model, streaming_context())

    assert ctx.text_deltas == ["Hel", "**ERROR** z"]
    assert outcome == Finished(outputs={"content": "**ERROR** z", "_ERROR": "**ERROR** z"})


def test_empty_question_writes_the_error_to_the_stream():
    model = Model([ContentDelta("x")])

    outcome, ctx = ask(model, FakeContext(globals={"sys.query": ""}, is_streaming=True))

    assert model.requests == []
    assert isinstance(outcome, Finished)
    assert ctx.text_deltas == [outcome.outputs["_ERROR"]] == [outcome.outputs["content"]]


def test_error_while_writing_ends_the_call():
    model = Model([ContentDelta("a"), ContentDelta("b")])
    ctx = streaming_context()

    async def fail_to_write(text: str) -> None:
        raise ConnectionError(text)

    ctx.write = fail_to_write
    with pytest.raises(ConnectionError):
        ask(model, ctx)

    assert model.closed == 1
