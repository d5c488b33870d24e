"""What one node of a run has read of its conversation, the others have at hand; each has it for himself."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from store.runs.activations import Claim
from worker import histories
from worker.kept import Kept


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "_SEEN", Kept(histories.MOST))


def claim(upto: int = 3) -> Claim:
    return cast(Claim, SimpleNamespace(run_id=RUN, history_upto=upto))


RUN = uuid4()
SAID: list[dict[str, Any]] = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": {"content": "hi"}}]


def test_what_was_read_is_known_to_the_runs_other_nodes():
    histories.keep(claim(), 26, SAID)

    assert histories.known(claim(), 26) == SAID


@pytest.mark.parametrize(("upto", "limit"), [(4, 26), (3, 2)])
def test_another_turn_or_another_window_is_read(upto: int, limit: int):
    histories.keep(claim(), 26, SAID)

    assert histories.known(claim(upto), limit) is None


def test_an_empty_history_is_known_as_well():
    histories.keep(claim(), 26, [])

    assert histories.known(claim(), 26) == []


def test_who_changes_what_he_was_given_changes_it_for_nobody_else():
    histories.keep(claim(), 26, SAID)
    mine: Any = histories.known(claim(), 26)

    mine[1]["content"]["content"] = "bye"
    mine.clear()

    assert histories.known(claim(), 26) == SAID


def test_what_is_large_is_not_kept():
    histories.keep(claim(), 26, [{"role": "user", "content": "x" * (histories.LARGEST + 1)}])

    assert histories.known(claim(), 26) is None
