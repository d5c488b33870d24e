"""The order in which errors list the known names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.similar_names import nearest_first


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("page_sise", ["agent_id", "page", "page_size", "status"], ["page_size", "page", "agent_id", "status"]),
        ("statuses", ["agent_id", "page", "status"], ["status", "agent_id", "page"]),
        ("zzz", ["b", "a"], ["a", "b"]),
        ("x", [], []),
    ],
)
def test_similar_names_come_first_and_the_others_by_alphabet(name: str, known: list[str], expected: list[str]) -> None:
    assert nearest_first(name, known) == expected


@given(st.text(max_size=20), st.sets(st.text(max_size=20), max_size=20))
def test_every_known_name_is_listed_once(name: str, known: set[str]) -> None:
    assert sorted(nearest_first(name, known)) == sorted(known)


@given(st.sets(st.text(alphabet="abc_", min_size=3, max_size=20), min_size=1, max_size=20), st.data())
def test_the_same_name_comes_before_all_similar_ones(known: set[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(known)))

    assert nearest_first(name, known)[0] == name
