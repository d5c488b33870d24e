"""Normalization of the tags of an agent."""

from hypothesis import given
from hypothesis import strategies as st

from store.agents.canvas_list import TAG_LENGTH, normalize_tags


def test_a_tag_that_differs_in_case_or_blanks_only_is_the_same_tag():
    assert normalize_tags(["Sales,  support ", "sales", "SUPPORT", "big   deals"]) == ["Sales", "support", "big deals"]


def test_tag_is_truncated_to_64_characters():
    assert normalize_tags(["x" * 100]) == ["x" * 64]


@given(st.lists(st.text()))
def test_normalizing_normalized_tags_changes_nothing(texts: list[str]):
    tags = normalize_tags(texts)

    assert normalize_tags([",".join(tags)]) == tags
    assert all(0 < len(tag) <= TAG_LENGTH and "," not in tag for tag in tags)
