"""What an added model is taken to be good for."""

import pytest

from canvas.errors import InvalidRequest
from cli.models.models import add, kinds_for


def test_a_model_is_good_for_what_is_said_else_for_what_its_name_says_else_for_chat():
    assert kinds_for("OpenAI", "text-embedding-3-small", ()) == ["embedding"]
    assert kinds_for("OpenAI", "text-embedding-3-small", ("rerank",)) == ["rerank"]
    assert kinds_for("Mine", "m", ()) == ["chat"]


def test_a_kind_that_nobody_knows_is_refused_before_a_key_is_asked_for():
    with pytest.raises(InvalidRequest, match="Not a kind of model: smell"):
        add("OpenAI", ["m"], ["smell"])
