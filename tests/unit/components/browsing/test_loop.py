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
    """A page with one button: a click on element 2 fails, every other action succeeds."""

    def __init__(self) -> None:
        self.actions: list[PageAction] = []
        self.views = 0

    async def view(self) -> PageView:
        self.views += 1
        return PageView("https://e.com/", "Title", [PageElement("button", "Send")], f"look {self.views}")

    async def act(self, action: PageAction) -> str:
        self.actions.append(action)
        if isinstance(action, ClickAction) and action.index == 2:
            raise ActionFailed("there is no element 2")
        return "HTTP 404" if isinstance(action, GotoAction) else ""


def run_with_replies(*replies: Any, max_steps: int = 10) -> tuple[str, FakePage, Sequence[str]]:
    """Run a task with these model replies, repeating the last one; return the result, the page and the questions."""
    page, questions = FakePage(), list[str]()

    async def ask(instructions: str, question: str) -> str:
        questions.append(question)
        reply = replies[min(len(questions), len(replies)) - 1]
        return reply if isinstance(reply, str) else json.dumps({"thought": "t", "actions": reply})

    return asyncio.run(run_task("Buy milk", page, ask, max_steps)), page, questions


DONE = {"action": "done", "result": "bought"}
CLICK = {"action": "click", "index": 1}


def test_result_of_the_done_action_is_the_result_of_the_task():
    result, page, questions = run_with_replies([CLICK], [DONE])

    assert result == "bought"
    assert page.actions == [ClickAction(action="click", index=1)]
    assert len(questions) == 2


@pytest.mark.parametrize(
    ("result", "text"), [(None, ""), (7, "7"), (1.5, "1.5"), ("x", "x"), ({"a": "ü"}, '{"a": "ü"}'), ([1], "[1]")]
)
def test_a_result_becomes_text(result: Any, text: str):
    assert run_with_replies([{"action": "done", "result": result}])[0] == text


def test_question_contains_the_task_the_page_and_earlier_steps():
    _, _, questions = run_with_replies([{"action": "goto", "url": "e.com"}, CLICK], [DONE])

    assert "# Task\nBuy milk" in questions[0]
    assert '[1] button "Send"' in questions[0]
    assert questions[0].endswith("look 1")
    assert "Steps left after this one: 9" in questions[0]
    assert "1. thought \"t\"; goto(url='e.com'): HTTP 404; click(index=1)" in questions[1]


def test_actions_after_a_failed_action_are_skipped():
    _, page, questions = run_with_replies([{"action": "click", "index": 2}, CLICK, DONE], [DONE])

    assert page.actions == [ClickAction(action="click", index=2)]
    assert "click(index=2) FAILED: there is no element 2" in questions[1]


def test_actions_after_done_are_skipped():
    _, page, _ = run_with_replies([DONE, CLICK])

    assert page.actions == []


def test_invalid_reply_uses_up_a_step_and_its_error_is_in_the_next_question():
    result, _, questions = run_with_replies("I would click", [DONE], max_steps=2)

    assert result == "bought"
    assert "your reply could not be used) The reply is not valid JSON" in questions[1]


@pytest.mark.parametrize("reply", ["nonsense", [CLICK]])
def test_a_task_that_is_not_done_after_max_steps_fails_the_node(reply: Any):
    with pytest.raises(NodeFailure, match=r"max_steps \(3\)"):
        run_with_replies(reply, max_steps=3)


def test_notes_remain_after_old_steps_are_dropped():
    note = {"action": "extract", "text": "milk costs 2"}
    replies: list[Any] = [[note], *[[CLICK]] * (MAX_STEPS_SHOWN + 2), [DONE]]

    _, _, questions = run_with_replies(*replies, max_steps=30)

    assert "# Your notes\n- milk costs 2" in questions[-1]
    assert "noted" not in questions[-1]
    assert f"{len(replies) - 1}. thought" in questions[-1]
    assert questions[-1].count("click(index=1)") == MAX_STEPS_SHOWN


def test_oldest_notes_beyond_the_limit_are_dropped():
    notes = [[{"action": "extract", "text": f"{at}" * (MAX_NOTE_CHARS + 10)}] for at in range(9)]

    _, _, questions = run_with_replies(*notes, [DONE])

    assert "8888" in questions[-1]
    assert "0000" not in questions[-1]
    assert len(questions[-1]) < MAX_NOTES_CHARS + 5000
