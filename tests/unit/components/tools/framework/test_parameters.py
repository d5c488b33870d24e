"""Validation of tool parameters."""

from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from components.tools import find
from components.tools.framework.base import ToolParams
from components.tools.framework.parameters import flag, not_empty, one_of, positive, text_list


class SomeParams(ToolParams):
    top_n: Annotated[int, positive("Top N")] = 10
    topic: Annotated[Any, one_of("Topic", ("general", "news"), by_reference=True)] = "general"
    depth: Annotated[Any, one_of("Depth", ("basic",))] = "basic"
    key: Annotated[Any, not_empty("Key")] = "k"
    patents: Annotated[bool, flag("Patents")] = True


def refusal(**params: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        SomeParams(**params)
    return str(refused.value.errors()[0].get("ctx", {}).get("error"))


@pytest.mark.parametrize(("stored", "value"), [(3, 3), ("3", 3), (" 3 ", 3), (3.0, 3), (10**9, 10**9)])
def test_a_whole_number_may_be_stored_as_text(stored: Any, value: int):
    assert SomeParams(top_n=stored).top_n == value


@pytest.mark.parametrize("stored", [0, -1, "0", "", "many", True, 1.5, [3], "{begin@n}", "9" * 5000])
def test_other_values_are_refused_as_positive_number(stored: Any):
    assert refusal(top_n=stored) == f"Top N {stored} not supported, should be positive integer"


def test_value_outside_of_the_choices_is_refused():
    assert refusal(topic="sports") == "Topic sports is not supported, it should be in [general, news]"
    assert refusal(depth="{begin@depth}") == "Depth {begin@depth} is not supported, it should be in [basic]"


@pytest.mark.parametrize("stored", ["{begin@topic}", "begin@topic", "sys.query", "news"])
def test_reference_is_accepted_for_a_choice_that_allows_references(stored: str):
    assert SomeParams(topic=stored).topic == stored


def test_null_gives_the_default():
    stored = SomeParams.model_validate(dict.fromkeys(SomeParams.model_fields))

    assert stored == SomeParams()


@pytest.mark.parametrize("stored", ["", "  "])
def test_empty_required_parameter_is_refused(stored: Any):
    assert refusal(key=stored) == "Key does not support empty value."


def test_flag_may_be_stored_as_the_text_true_or_false_only():
    assert SomeParams(patents="False").patents is False
    assert refusal(patents=1) == "Patents 1 not supported, should be boolean"


@pytest.mark.parametrize(
    ("stored", "items"),
    [
        ("a, b,,", ["a", "b"]),
        (["a ", None, 7, ""], ["a", "7"]),
        ("", []),
        (None, []),
        ({"a": 1}, []),
        (("x",), ["x"]),
        ('["a, b", null, "c"]', ["a, b", "c"]),
        ("[a", ["[a"]),
    ],
)
def test_a_list_of_texts_may_be_one_text_with_commas(stored: Any, items: list[str]):
    assert text_list(stored) == items


@pytest.mark.parametrize(
    ("name", "params", "error"),
    [
        ("TavilySearch", {"max_results": 0}, "max results 0 not supported, should be positive integer"),
        ("TavilySearch", {"days": "x"}, "days x not supported"),
        ("TavilySearch", {"topic": "sports"}, "should be in \\[general, news\\]"),
        ("TavilySearch", {"search_depth": "deep"}, "should be in \\[basic, advanced\\]"),
        ("TavilyExtract", {"format": "pdf"}, "should be in \\[markdown, text\\]"),
        ("DuckDuckGo", {"channel": "images"}, "should be in \\[text, news\\]"),
        ("Google", {"api_key": ""}, "SerpApi API key does not support empty value\\."),
        ("Google", {}, "SerpApi API key does not support empty value\\."),
        ("Wikipedia", {"language": "evil.test/"}, "is not supported"),
        ("Wikipedia", {"top_n": -1}, "Top N -1 not supported"),
        ("WenCai", {"query_type": "x"}, "Query type x is not supported"),
        ("YahooFinance", {"info": "yes"}, "should be boolean"),
        ("ArXiv", {"sort_by": "stars"}, "should be in \\[submittedDate, lastUpdatedDate, relevance\\]"),
        ("GoogleScholar", {"patents": "yes"}, "should be boolean"),
        ("DeepL", {"target_lang": "EN"}, "EN is not supported"),
    ],
)
def test_a_tool_with_bad_parameters_is_refused_when_its_canvas_is_loaded(name: str, params: dict[str, Any], error: str):
    tool = find(name)
    assert tool is not None

    with pytest.raises(ValidationError, match=error):
        tool.params.model_validate(params)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("Google", {"api_key": "k", "country": "xx", "language": "xx-klingon", "unknown": [1]}),
        ("Wikipedia", {"language": "zh", "top_n": "5"}),
        ("TavilySearch", {"include_raw_content": True, "topic": "{begin@topic}"}),
        ("DeepL", {"source_lang": "PT", "target_lang": "PT-BR"}),
    ],
)
def test_unlisted_codes_and_keys_are_accepted(name: str, params: dict[str, Any]):
    tool = find(name)
    assert tool is not None

    tool.params.model_validate(params)
