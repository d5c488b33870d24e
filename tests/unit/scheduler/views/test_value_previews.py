"""Values as replies show them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.views.value_previews import MAX_SHOWN_BYTES, file_preview, preview, values_json
from store.runs.activation_details import StoredValues


@pytest.mark.parametrize("value", ["x" * (MAX_SHOWN_BYTES - 2), None, 0, {"a": [1, "b"]}, ""])
def test_small_value_is_shown_as_it_is(value: Any) -> None:
    assert preview(value) == value


def test_long_text_is_shown_by_its_beginning() -> None:
    text = "é" * MAX_SHOWN_BYTES

    shown = preview(text)

    assert (shown["bytes"], shown["type"]) == (2 * MAX_SHOWN_BYTES, "text")
    assert shown["$preview"] == "é" * (MAX_SHOWN_BYTES // 2)


def test_large_object_is_shown_by_the_beginning_of_its_json() -> None:
    shown = preview({"items": list(range(10_000))})

    assert shown["type"] == "json"
    assert shown["$preview"].startswith('{"items":[0,1,2')
    assert len(shown["$preview"]) == MAX_SHOWN_BYTES < shown["bytes"]


@given(st.text(min_size=1, max_size=20))
def test_preview_is_a_prefix_that_has_no_broken_characters(part: str) -> None:
    text = part * (MAX_SHOWN_BYTES + 1)

    shown = preview(text)

    assert text.startswith(shown["$preview"])
    assert len(shown["$preview"].encode()) <= MAX_SHOWN_BYTES


def test_value_in_the_file_storage_is_not_read() -> None:
    stored = StoredValues({"big": None, "small": 1, "_spoken": 2}, {"big": ["2026w47/x/y", 5_000_000]})

    assert values_json(stored) == {"big": file_preview(["", 5_000_000]), "small": 1}
    assert file_preview(["", 7]) == {"$preview": "", "bytes": 7, "type": "file"}
