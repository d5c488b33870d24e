"""Which kinds an added model gets."""

import pytest

from canvas.errors import InvalidRequest
from cli.models.models import add, choose_kinds


def test_kinds_of_a_model_are_the_named_ones_else_by_its_name_else_chat():
    assert choose_kinds("OpenAI", "text-embedding-3-small", ()) == ["embedding"]
    assert choose_kinds("OpenAI", "text-embedding-3-small", ("rerank",)) == ["rerank"]
    assert choose_kinds("Mine", "m", ()) == ["chat"]


def test_unknown_kind_is_refused_before_the_key_is_read():
    with pytest.raises(InvalidRequest, match="Not a kind of model: smell"):
        add("OpenAI", ["m"], ["smell"])
