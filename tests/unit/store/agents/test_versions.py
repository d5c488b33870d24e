"""The digest of a version: the same for equal documents only."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from store.agents.versions import digest_of
from store.primitives.json_codec import encode

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
DOCUMENTS = st.dictionaries(
    TEXTS,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
        lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
        max_leaves=8,
    ),
)


@given(DOCUMENTS)
def test_digest_is_the_same_after_storing_and_reading_the_document(document: dict[str, Any]):
    stored = json.loads(encode(document))

    assert digest_of(stored) == digest_of(document)


def test_the_order_of_components_is_part_of_a_document():
    one = {"components": {"begin": {}, "Agent:0": {}}}
    other = {"components": {"Agent:0": {}, "begin": {}}}

    assert digest_of(one) != digest_of(other)
