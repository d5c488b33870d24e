from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import ModelError, UnresolvedReference
from canvas.outcome import Routed
from components.nodes.flow.categorize import CategorizeParams, categorize, choose_category
from providers.models.chat.echo import echo_answer
from providers.models.types.chat import ChatRequest, Completion, ModelSpec, Usage
from tests.fakes import FakeContext, run

ORDERS = {"order": {"description": "buys", "to": ["A"]}, "Other": {"to": ["B"]}}


class Model:
    """A model that returns one answer and records its requests."""

    spec = ModelSpec("m", "m", "Fake", None)

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self.requests: list[ChatRequest] = []

    async def complete(self, request: ChatRequest) -> Completion:
        self.requests.append(request)
        return Completion(self._answer, usage=Usage(1, 1, 2, 1))


def run_categorize(answer: str, ctx: FakeContext | None = None, **params: Any) -> tuple[Any, FakeContext, ChatRequest]:
    model = Model(answer)
    ctx = ctx or FakeContext(globals={"sys.query": "Where?"})
    ctx.models = {"m": model}  # type: ignore[dict-item]  # it does not stream
    outcome = run(categorize, {"llm_id": "m", "category_description": ORDERS, **params}, ctx)
    return outcome, ctx, model.requests[0]


@pytest.mark.parametrize(
    ("answer", "name", "target"),
    [
        ("order", "order", "A"),
        ("ORDER.", "order", "A"),
        ("Category: Order", "order", "A"),
        ("I think other, not order... other", "Other", "B"),
        ("ordering other", "order", "A"),
        ("", "Other", "B"),
        ("zzz", "Other", "B"),
        ("<think>order order</think>other", "Other", "B"),
    ],
)
def test_category_mentioned_most_often_in_the_answer_is_chosen(answer: str, name: str, target: str):
    outcome, _, _ = run_categorize(answer)

    assert outcome == Routed(to=(target,), outputs={"category_name": name, "category": name, "_next": [target]})


def test_default_category_is_chosen_instead_of_the_last_one():
    assert run_categorize("zzz", default_category="order")[0].to == ("A",)
    assert run_categorize("zzz", default_category="gone")[0].to == ("B",)


def test_a_failed_call_is_raised_with_the_error_text():
    with pytest.raises(ModelError) as failure:
        run_categorize("**ERROR**: SERVER_ERROR - order", exception_method="comment", exception_default_value="D")

    assert failure.value.message == "**ERROR**: SERVER_ERROR - order"


def test_request_has_the_retries_of_the_provider_layer_and_not_of_the_node():
    _, ctx, request = run_categorize("order", max_retries=1, temperature="0.1", temperatureEnabled=True)

    assert request.retries is None  # the provider layer's own number
    assert request.params == {"temperature": 0.1}
    assert ctx.usage.calls == 1


def test_the_question_quotes_the_conversation_on_one_line():
    ctx = FakeContext(globals={"sys.query": "Where?"})
    ctx.entries = [
        {"role": "user", "content": "u0"},
        {"role": "assistant", "content": "a0"},
        {"role": "user", "content": "u1"},
        {"role": "assistant", "content": "a1\nx"},
        {"role": "user", "content": "as it was sent"},
    ]

    _, _, request = run_categorize("order", ctx, message_history_window_size=2)

    assert request.messages[-1] == {
        "role": "user",
        "content": 'ASSISTANT: "a0" | USER: "u1" | ASSISTANT: "a1x" | USER: "Where?" →',
    }


@pytest.mark.parametrize(("value", "text"), [("hi", "hi"), (None, ""), (["é", 1], '["é", 1]')])
def test_the_query_may_be_any_value_of_the_canvas(value: Any, text: str):
    ctx = FakeContext(values={"Code:0": {"result": value}}, entries=[{"role": "user", "content": "raw"}])

    _, ctx, request = run_categorize("order", ctx, query="{Code:0@result}", message_history_window_size=0)

    assert request.messages[-1]["content"] == f'USER: "{text}" →'
    assert ctx.inputs == {"Code:0@result": text}


def test_unknown_query_reference_fails_the_node():
    with pytest.raises(UnresolvedReference):
        run_categorize("order", query="Nobody:0@x")


def test_the_system_prompt_lists_names_descriptions_and_examples():
    categories = {
        "Refund": {"description": "wants money back", "examples": ["I want it back\nnow", " "], "to": ["A"]},
        "Shipping": {"examples": "Where is it?\n\nLost", "to": "B"},
        "Other": {"examples": [{"value": "hm"}], "to": ["C"]},
    }

    outcome, _, request = run_categorize("Shipping", category_description=categories)

    system = request.messages[0]["content"]
    assert "\nCategories:\n- Refund\n- Shipping\n- Other\n\n" in system
    assert "\nRefund: wants money back\n" in system
    assert 'USER: "I want it back    now" → Refund\nUSER: "Where is it?" → Shipping\n' in system
    assert 'USER: "Lost" → Shipping\nUSER: "hm" → Other\n' in system
    assert outcome.to == ("B",)


def test_the_echo_model_finds_the_categories_in_the_prompt():
    ctx = FakeContext(globals={"sys.query": "an ORDER please"})

    _, _, request = run_categorize("order", ctx)

    assert echo_answer(request.messages) == "order"


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"category_description": {}},
        {"category_description": {"": {"to": ["A"]}}},
        {"category_description": {"a": {"to": []}}},
        {"category_description": {"a": {"to": None}}},
        {"category_description": {"a": {}}},
        {"category_description": {"a": {"to": ["A"]}}, "message_history_window_size": -1},
        {"category_description": {"a": {"to": ["A"]}}, "message_history_window_size": "2"},
    ],
)
def test_categories_without_a_target_and_invalid_windows_are_refused_at_load(params: dict[str, Any]):
    with pytest.raises(ValueError, match=r"\[Categorize\]"):
        CategorizeParams.model_validate(params)


def test_only_categories_and_window_are_validated_at_load():
    params = CategorizeParams.model_validate({"category_description": ORDERS, "temperature": 7, "max_tokens": "many"})

    assert params.llm_id == ""


@given(st.lists(st.text(min_size=1), min_size=1, unique=True), st.text())
def test_every_answer_leads_to_one_of_the_categories(names: list[str], answer: str):
    assert choose_category(names, answer) in names
