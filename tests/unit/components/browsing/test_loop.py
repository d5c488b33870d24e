import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from canvas.errors import NodeFailure
from components.browsing.actions import ClickAction, GotoAction, PageAction
from components.browsing.loop import (
    MAX_NOTE_CHARS,
    MAX_NOTES_CHARS,
    MAX_STEPS_SHOWN,
    ActionFailed,
    run_task,
)
from components.browsing.page_view import PageElement, PageView


class FakePage:
    """A page of one button. Clicking on 2 fails; everything else is done."""

    def __init__(self) -> None:
        self.acted: list[PageAction] = []
        self.looks = 0

    async def view(self) -> PageView:
        self.looks += 1
        return PageView("https://e.com/", "Title", [PageElement("button", "Send")], f"look {self.looks}")

    async def act(self, action: PageAction) -> str:
        self.acted.append(action)
        if isinstance(action, ClickAction) and action.index == 2:
            raise ActionFailed("there is no element 2")
        return "HTTP 404" if isinstance(action, GotoAction) else ""


def drive(*replies: Any, max_steps: int = 10) -> tuple[str, FakePage, Sequence[str]]:
    """The result, the page, and the questions that were asked; the last reply is given for ever."""
    page, questions = FakePage(), list[str]()

    async def ask(instructions: str, question: str) -> str:
        questions.append(question)
        reply = replies[min(len(questions), len(replies)) - 1]
        return reply if isinstance(reply, str) else json.dumps({"thought": "t", "actions": reply})

    return asyncio.run(run_task("Buy milk", page, ask, max_steps)), page, questions


DONE = {"action": "done", "result": "bought"}
CLICK = {"action": "click", "index": 1}


def test_the_result_is_what_the_model_ends_with():
    result, page, questions = drive([CLICK], [DONE])

    assert result == "bought"
    assert page.acted == [ClickAction(action="click", index=1)]
    assert len(questions) == 2


@pytest.mark.parametrize(
    ("result", "text"), [(None, ""), (7, "7"), (1.5, "1.5"), ("x", "x"), ({"a": "ü"}, '{"a": "ü"}'), ([1], "[1]")]
)
def test_a_result_becomes_text(result: Any, text: str):
    assert drive([{"action": "done", "result": result}])[0] == text


def test_a_question_has_the_task_the_page_and_what_was_done():
    _, _, questions = drive([{"action": "goto", "url": "e.com"}, CLICK], [DONE])

    assert "# Task\nBuy milk" in questions[0]
    assert '[1] button "Send"' in questions[0]
    assert questions[0].endswith("look 1")
    assert "Steps left after this one: 9" in questions[0]
    assert "1. thought \"t\"; goto(url='e.com'): HTTP 404; click(index=1)" in questions[1]


def test_what_follows_a_failed_action_is_not_done():
    _, page, questions = drive([{"action": "click", "index": 2}, CLICK, DONE], [DONE])

    assert page.acted == [ClickAction(action="click", index=2)]
    assert "click(index=2) FAILED: there is no element 2" in questions[1]


def test_what_follows_done_is_not_done():
    _, page, _ = drive([DONE, CLICK])

    assert page.acted == []


def test_an_unusable_reply_costs_a_step_and_is_answered_with_what_is_wrong():
    result, _, questions = drive("I would click", [DONE], max_steps=2)

    assert result == "bought"
    assert "your reply could not be used) The reply is not valid JSON" in questions[1]


@pytest.mark.parametrize("reply", ["nonsense", [CLICK]])
def test_a_task_that_is_not_done_after_max_steps_fails_the_node(reply: Any):
    with pytest.raises(NodeFailure, match=r"max_steps \(3\)"):
        drive(reply, max_steps=3)


def test_notes_stay_when_steps_are_forgotten():
    note = {"action": "extract", "text": "milk costs 2"}
    replies: list[Any] = [[note], *[[CLICK]] * (MAX_STEPS_SHOWN + 2), [DONE]]

    _, _, questions = drive(*replies, max_steps=30)

    assert "# Your notes\n- milk costs 2" in questions[-1]
    assert "noted" not in questions[-1]
    assert f"{len(replies) - 1}. thought" in questions[-1]
    assert questions[-1].count("click(index=1)") == MAX_STEPS_SHOWN


def test_notes_do_not_grow_without_end():
    notes = [[{"action": "extract", "text": f"{at}" * (MAX_NOTE_CHARS + 10)}] for at in range(9)]

    _, _, questions = drive(*notes, [DONE])

    assert "8888" in questions[-1]
    assert "0000" not in questions[-1]
    assert len(questions[-1]) < MAX_NOTES_CHARS + 5000
