"""Which documents match a metadata filter."""

from typing import Any

import pytest

from canvas.errors import ToolError
from knowledge.bases.metadata_filters import matching_documents, parse_conditions

DOCUMENTS: dict[str, dict[str, Any]] = {
    "old": {"year": 2019, "author": "Ann Lee", "signed": "2019-05-01", "tags": ["law", "tax"]},
    "new": {"year": "2024", "author": "Bob", "signed": "2024-02-29", "final": True},
    "bare": {},
}


@pytest.mark.parametrize(
    ("key", "operator", "value", "found"),
    [
        ("year", "=", "2024", {"new"}),
        ("year", "≠", 2024, {"old"}),
        ("year", ">", "2019", {"new"}),
        ("year", "≥", 2019, {"old", "new"}),
        ("year", "<", "2024", {"old"}),
        ("year", "<=", "2024", {"old", "new"}),
        ("year", "in", "2019, 2020", {"old"}),
        ("year", "in", [2024, 2025], {"new"}),
        ("year", "not in", "[2019]", {"new"}),
        ("author", "contains", "LEE", {"old"}),
        ("author", "not contains", "lee", {"new"}),
        ("author", "start with", "b", {"new"}),
        ("author", "end with", "lee", {"old"}),
        ("author", "is", "bob", {"new"}),
        ("author", ">", 5, {"old", "new"}),  # as texts, since one of the two is nothing else
        ("final", ">", "[1]", set()),
        ("signed", "≥", "2024-01-01", {"new"}),
        ("author", "<", "2024-01-01", set()),  # a date is compared with dates alone
        ("tags", "=", "tax", {"old"}),
        ("tags", "≠", "tax", set()),
        ("final", "=", "True", {"new"}),
        ("author", "empty", None, {"bare"}),
        ("author", "not empty", None, {"old", "new"}),
        ("nothing", "=", "", set()),
    ],
)
def test_a_condition_finds_the_documents_it_describes(key: str, operator: str, value: Any, found: set[str]) -> None:
    conditions = parse_conditions([{"key": key, "op": operator, "value": value}])

    assert matching_documents(DOCUMENTS, conditions, "and") == found


def test_and_needs_all_conditions_and_or_needs_one() -> None:
    conditions = parse_conditions([{"key": "year", "op": ">", "value": 2000}, {"name": "author", "value": "bob"}])

    assert matching_documents(DOCUMENTS, conditions, "and") == {"new"}
    assert matching_documents(DOCUMENTS, conditions, "or") == {"old", "new"}


def test_operators_of_the_api_are_parsed_and_conditions_without_a_key_left_out() -> None:
    written = [{"name": "year", "comparison_operator": "not is", "value": 1}, {"value": 3}, "text"]

    (condition,) = parse_conditions(written)

    assert (condition.key, condition.operator) == ("year", "≠")


def test_unknown_operator_is_named_in_the_error() -> None:
    with pytest.raises(ToolError, match='operator "near"'):
        parse_conditions([{"key": "year", "op": "near", "value": 1}])


def test_code_in_a_value_is_compared_as_text() -> None:
    conditions = parse_conditions([{"key": "author", "op": "=", "value": "__import__('os').getcwd()"}])

    assert matching_documents(DOCUMENTS, conditions, "and") == set()
