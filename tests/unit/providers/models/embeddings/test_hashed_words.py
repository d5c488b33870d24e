"""The built-in models for embeddings and ranks."""

import asyncio
from math import isclose, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import ModelError
from providers.models.chat.catalogue import resolve
from providers.models.embeddings.factory import EMBEDDING, RERANK, open_embedder, open_reranker
from providers.models.embeddings.hashed_words import VECTOR_LENGTH, vector_of
from providers.models.vendors.accounts import VendorAccount


def similarity(a: str, b: str) -> float:
    return sum(x * y for x, y in zip(vector_of(a), vector_of(b), strict=True))


@given(st.text(max_size=50))
def test_every_text_has_a_vector_of_length_1(text: str):
    vector = vector_of(text)

    assert len(vector) == VECTOR_LENGTH
    assert isclose(sqrt(sum(number * number for number in vector)), 1)


def test_texts_that_share_words_are_near_each_other():
    assert similarity("Refunds take five days.", "how long does a REFUND take?") > similarity(
        "Refunds take five days.", "Opening hours"
    )
    assert similarity("退款需要五天", "退款") > similarity("退款需要五天", "营业时间")
    assert similarity("", "refund") == 0


def test_vectors_are_the_same_on_every_machine():
    assert [index for index, number in enumerate(vector_of("widget")) if number] == [331]


@pytest.mark.parametrize("name", ["echo", "scripted", "echo@Easel"])
def test_built_in_embedder_is_opened_by_name_and_identifies_itself(name: str):
    embedder = open_embedder(resolve(name, [], kind=EMBEDDING))
    embedded = asyncio.run(embedder.embed(["a b", ""]))

    assert embedder.model == "hashed-words@Easel"
    assert (len(embedded.vectors), embedded.tokens) == (2, 2)


def test_built_in_reranker_ranks_by_shared_words():
    reranker = open_reranker(resolve("echo", [], kind=RERANK))

    first, second, third = asyncio.run(reranker.rank("widget price", ["nothing", "widget", "the price of a widget"]))

    assert first == 0
    assert second > third > 0 or third > second > 0


def test_unsupported_embedding_model_never_falls_back_to_the_built_in_one():
    with pytest.raises(ModelError, match="cannot be used as embedding"):
        open_embedder(resolve("titan@Bedrock", [VendorAccount("Bedrock")], kind=EMBEDDING))
