import asyncio
import json
from typing import Any

import pytest

from providers.models.chat.echo import EchoWire, echo_answer, echo_spec, instance_of
from providers.models.chat.retrying_model import RetryingModel
from providers.models.types.chat import ChatRequest, ContentDelta

CATEGORIZE = "Choose one.\n\nCategories:\n- order\n- return\n- Other\n\nAnswer with the name only."


def echo(user: str, system: str = "Be nice.") -> str:
    return echo_answer([{"role": "system", "content": system}, {"role": "user", "content": user}])


def structured(schema: dict[str, Any]) -> Any:
    return json.loads(echo("anything", "Answer in JSON.\n\nJSON schema:\n" + json.dumps(schema, indent=2)))


def test_echo_model_answers_with_the_question():
    assert echo("Hello, who is there?") == "Hello, who is there?"


def test_the_echo_answers_the_last_question():
    talk = [("user", "first"), ("assistant", "ok"), ("user", "second"), ("assistant", "yes")]

    assert echo_answer([{"role": role, "content": content} for role, content in talk]) == "second"


def test_echo_without_messages_is_empty():
    assert echo_answer([]) == ""


def test_echo_is_streamed_in_small_deltas():
    async def read() -> list[str]:
        request = ChatRequest([{"role": "user", "content": "a" * 30}])
        model = RetryingModel(echo_spec(), EchoWire())
        return [delta.text async for delta in model.stream(request) if isinstance(delta, ContentDelta)]

    texts = asyncio.run(read())

    assert "".join(texts) == "a" * 30
    assert len(texts) == 3


def test_echo_model_is_labelled_as_built_in():
    assert echo_spec().is_builtin


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("I want to RETURN my order", "return"),
        ("an other order", "Other"),
        ("order", "order"),
        ('USER: "my order" | ASSISTANT: "which order?" | USER: "I return it" →', "return"),
    ],
)
def test_the_echo_chooses_the_category_that_the_question_names_first(question: str, name: str):
    assert echo(question, CATEGORIZE) == name


def test_a_question_that_names_no_category_is_echoed():
    assert echo("hm", CATEGORIZE) == "hm"


def test_echo_prefers_the_longer_of_two_categories_at_the_same_position():
    assert echo("ordering", "Categories:\n- order\n- ordering") == "ordering"


def test_the_echo_fills_in_what_a_schema_requires():
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 18},
            "note": {"type": "string"},
        },
        "required": ["name", "age"],
    }

    assert structured(schema) == {"name": "", "age": 18}


def test_the_echo_fills_in_everything_if_nothing_is_required():
    schema = {"properties": {"ok": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}}}}

    assert structured(schema) == {"ok": False, "tags": []}


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        ({"const": 3}, 3),
        ({"enum": ["b", "a"]}, "b"),
        ({"type": "string", "default": "x"}, "x"),
        ({"type": "string", "minLength": 2}, "--"),
        ({"type": "array", "items": {"type": "number"}, "minItems": 2}, [0, 0]),
        ({"type": ["null", "string"]}, None),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 0),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "boolean"}}}, False),
        ({"$ref": "#/nowhere"}, None),
        (True, None),
        ({"type": "object", "properties": []}, {}),
    ],
)
def test_every_kind_of_schema_has_a_small_instance(schema: Any, instance: Any):
    assert instance_of(schema) == instance


def test_instance_of_a_recursive_schema_is_finite():
    schema = {"$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}

    assert json.dumps(instance_of(schema))


def test_text_that_only_mentions_a_schema_is_echoed():
    assert echo("hi", "JSON schema:\n{broken") == "hi"
