"""Parsing of vectors from valid and invalid answers."""

import json
import struct
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import ErrorCode, ProviderError
from providers.models.embeddings.openai_embeddings import batch_size, truncate_text, vectors_in
from providers.models.text.context_window import count_tokens

floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def answer(*vectors: Any, order: Sequence[int] | None = None) -> dict[str, Any]:
    items = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return {"object": "list", "data": [items[at] for at in order] if order else items}


def packed(vector: Sequence[float]) -> str:
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


@given(st.lists(st.lists(floats32, min_size=3, max_size=3), min_size=1, max_size=5), st.randoms(), st.booleans())
def test_every_text_gets_its_own_vector_for_any_order_and_encoding(
    vectors: list[list[float]], chance: Any, in_base64: bool
):
    order = chance.sample(range(len(vectors)), len(vectors))
    response = answer(*(packed(vector) if in_base64 else vector for vector in vectors), order=order)

    assert vectors_in(response, len(vectors)) == vectors


def test_vectors_without_an_index_are_in_the_order_of_the_texts():
    response = {"data": [{"embedding": [1, 0]}, {"embedding": [0, 1]}]}

    assert vectors_in(response, 2) == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("response", "complaint"),
    [
        (answer([1.0]), "contains 1 vectors for 2 texts"),
        (answer([1.0], [1.0], [1.0]), "contains 3 vectors for 2 texts"),
        (answer([1.0], [1.0, 2.0]), "vectors of several lengths: 1, 2"),
        (
            {"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [2.0]}]},
            "has wrong indexes of vectors",
        ),
        (
            {"data": [{"index": 1, "embedding": [1.0]}, {"index": 2, "embedding": [2.0]}]},
            "has wrong indexes of vectors",
        ),
        (answer([1.0], []), "an invalid vector"),
        (answer([1.0], None), "an invalid vector"),
        (answer([1.0], {"0": 1.0}), "an invalid vector"),
        (answer([1.0], ["1.0"]), "not a number"),
        (answer([1.0], [True]), "not a number"),
        (answer([1.0], json.loads("[NaN]")), "not a number"),
        (answer([1.0], json.loads("[Infinity]")), "not a number"),
        (answer([1.0], [10**400]), "not a number"),
        (answer([1.0], packed([float("nan")])), "not a number"),
        (answer([1.0], "AAA"), "base64"),
        (answer([1.0], "?"), "base64"),
        (answer([1.0], "AAAAAAA="), "base64"),
        ({}, "contains no vectors"),
        (None, "contains no vectors"),
        ([[1.0], [2.0]], "contains no vectors"),
        ({"data": "x"}, "contains no vectors"),
    ],
)
def test_invalid_answer_is_an_error_with_its_reason(response: Any, complaint: str):
    with pytest.raises(ProviderError, match=complaint) as failed:
        vectors_in(response, 2)

    assert failed.value.code is ErrorCode.MODEL_ERROR


def test_vectors_of_a_later_batch_are_as_long_as_those_before():
    with pytest.raises(ProviderError, match="several lengths: 2, 3"):
        vectors_in(answer([1.0, 2.0]), 1, length=3)


def test_error_instead_of_vectors_has_the_vendors_message():
    with pytest.raises(ProviderError, match="insufficient balance") as failed:
        vectors_in({"error": {"message": "insufficient balance"}}, 1)

    assert failed.value.code is ErrorCode.QUOTA_EXCEEDED


@given(st.text(max_size=200), st.integers(1, 20))
def test_truncated_text_is_never_empty_and_fits_the_model(text: str, tokens: int):
    sent = truncate_text(text, tokens)

    assert sent
    assert text.startswith(sent) or sent == " "
    assert count_tokens(sent) <= max(tokens, 1)


@pytest.mark.parametrize(("own", "used"), [(None, 32), (5, 5), (0, 32), (-1, 32), ("5", 32), (True, 32)])
def test_account_can_set_the_batch_size(own: Any, used: int):
    assert batch_size(own, 32) == used
