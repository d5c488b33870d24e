"""Titles of versions: those that authors chose, and default ones."""

from datetime import UTC, datetime

import pytest

from store.agents.version_titles import chosen_title, default_title

NOON = datetime(2026, 11, 28, 12, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize("owner", ["acme", "a b_c", "", None])
@pytest.mark.parametrize("agent", ["Triage", "two\nlines_", "", None])
def test_default_title_is_not_one_that_an_author_chose(owner: str | None, agent: str | None) -> None:
    assert chosen_title(default_title(owner, agent, NOON)) == ""


@pytest.mark.parametrize("title", ["", "First", "2026-11-28 12:00:05", "release_2026-11-28", "a_b_2026-11-28 12:00"])
def test_other_titles_stay(title: str) -> None:
    assert chosen_title(title) == title


def test_default_title_is_that_of_ragflow() -> None:
    assert default_title("acme", "Triage", NOON) == "acme_Triage_2026-11-28 12:00:05"
