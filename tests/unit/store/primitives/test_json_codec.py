"""Encoding and decoding of JSON."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.primitives.json_codec import decode, encode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(
        st.characters(exclude_categories=["Cs"])
    ),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)  # fmt: skip


@given(VALUES)
def test_decoding_encoded_json_returns_the_value(value: Any):
    assert decode(encode(value).encode()) == value


@pytest.mark.parametrize("large", [2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**40])
def test_integers_of_any_size_stay_integers(large: int):
    again = decode(encode({"n": [large]}))

    assert again == {"n": [large]}
    assert isinstance(again["n"][0], int)


def test_nan_and_infinity_become_null():
    assert encode([float("nan"), float("inf")]) == "[null,null]"
