from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.text.json_in_text import read_json, to_storable_json


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{title: \'T\', "n": 3, "tags": ["a", "b",],', {"title": "T", "n": 3, "tags": ["a", "b"]}),
        ('{"title": "Half a ti', {"title": "Half a ti"}),
        ('[{"title": "A"}, {"title": "B"}]', [{"title": "A"}, {"title": "B"}]),
        ("[]", []),
        ('{"a": NaN, "b": [1e999]}', {"a": None, "b": [None]}),
        ('{"a": "x\\u0000y"}', {"a": "xy"}),
        ("I cannot do that", None),
        ("", None),
        ('"text"', None),
        ("42", None),
        ('{"a": ' * 5000, None),
    ],
)
def test_json_in_an_answer_is_repaired_and_anything_but_objects_and_arrays_is_refused(answer: str, expected: Any):
    assert read_json(answer) == expected


@given(st.text())
def test_json_in_any_text_is_an_object_or_an_array_or_none(answer: str):
    assert isinstance(read_json(answer), dict | list | None)


def test_value_without_a_json_type_becomes_text():
    assert to_storable_json({1: (date(2026, 3, 1), b"x"), "\x00k": True}) == {"1": ["2026-03-01", "b'x'"], "k": True}
