"""Parsing and scaling of scores from the answers of rerankers."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import ProviderError
from providers.models.embeddings.reranking import scale_scores, scores_in

scores = st.none() | st.floats(allow_nan=False, allow_infinity=False)


def ranked(*pairs: tuple[int, Any], name: str = "relevance_score") -> list[dict[str, Any]]:
    return [{"index": index, name: score, "document": {"text": "t"}} for index, score in pairs]


@pytest.mark.parametrize(
    "response",
    [
        {"results": ranked((2, 0.9), (0, 0.5), (1, 0.1))},
        {"data": ranked((2, 0.9), (0, 0.5), (1, 0.1))},
        {"output": {"results": ranked((2, 0.9), (0, 0.5), (1, 0.1))}, "request_id": "r"},
        ranked((2, 0.9), (0, 0.5), (1, 0.1), name="score"),
        {"rankings": ranked((2, 0.9), (0, 0.5), (1, 0.1), name="logit")},
    ],
)
def test_scores_are_in_the_order_of_the_texts_for_any_list_name(response: Any):
    assert scores_in(response, 3) == [0.5, 0.1, 0.9]


def test_text_missing_from_the_answer_scores_zero():
    raw_scores = scores_in({"results": ranked((1, 3.0), (2, -2.0))}, 3)

    assert scale_scores(raw_scores) == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("response", "complaint"),
    [
        ({"results": ranked((3, 0.1))}, "was not in the request"),
        ({"results": ranked((-1, 0.1))}, "was not in the request"),
        ({"results": ranked((0, 0.1), (0, 0.2))}, "twice"),
        ({"results": [{"relevance_score": 0.1}]}, "was not in the request"),
        ({"results": ranked((0, "high"))}, "not a number"),
        ({"results": ranked((0, json.loads("NaN")))}, "not a number"),
        ({"results": ranked((0, 10**400))}, "not a number"),
        ({"results": []}, "contains no ranks"),
        ({}, "contains no ranks"),
        (None, "contains no ranks"),
        ({"error": {"message": "model not loaded"}}, "model not loaded"),
    ],
)
def test_invalid_answer_is_an_error_with_its_reason(response: Any, complaint: str):
    with pytest.raises(ProviderError, match=complaint):
        scores_in(response, 3)


@pytest.mark.parametrize(
    ("raw_scores", "used"),
    [
        ([0.2, 0.9, 0.0], [0.2, 0.9, 0.0]),
        ([-2.0, 0.0, 2.0], [0.0, 0.5, 1.0]),
        ([3.0, 1.0], [1.0, 0.0]),
        ([7.0, 7.0], [1.0, 1.0]),
        ([-7.0, -7.0], [0.0, 0.0]),
        ([], []),
    ],
)
def test_scores_are_scaled_only_if_one_is_outside_0_to_1(raw_scores: list[float], used: list[float]):
    assert scale_scores(raw_scores) == used


@given(st.lists(scores, max_size=8))
def test_scaled_scores_lie_between_0_and_1_and_keep_their_order(raw_scores: list[float | None]):
    used = scale_scores(raw_scores)

    assert all(0 <= score <= 1 for score in used)
    for (a, b), (x, y) in zip(pairwise(raw_scores), pairwise(used), strict=True):
        assert a is None or b is None or (a <= b) <= (x <= y)
