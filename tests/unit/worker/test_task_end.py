"""How a node's Celery task ends."""

import pytest
from celery.exceptions import Retry

from canvas.outcome import OVER_BUDGET, POSTPONED, Failed, Finished, Outcome, Routed, WaitingForInput
from worker.task_end import CANCELLED_BY_OPERATOR, MAX_TEXT, NodeCancelled, NodeFailed, TaskEnd, task_end_of


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (Finished({"result": 1}), "finished"),
        (Routed(("left", "right")), "routed to left, right"),
        (Routed(()), "routed to no node"),
        (WaitingForInput({}), "waits for a person"),
        (Failed("The budget of the run is used up.", OVER_BUDGET), "The budget of the run is used up."),
    ],
)
def test_task_of_a_node_that_did_its_work_or_waits_succeeds(outcome: Outcome, result: str):
    assert task_end_of(outcome).result() == result


@pytest.mark.parametrize(
    ("outcome", "error", "text"),
    [
        (Failed("No route to host."), NodeFailed, "No route to host."),
        (Failed("Task has been canceled", "cancelled"), NodeCancelled, "Task has been canceled"),
        (Failed("Cancelled by an operator.", CANCELLED_BY_OPERATOR), NodeCancelled, "Cancelled by an operator."),
        (Failed("released", "released", retryable=True), Retry, "released"),
        (Failed("waits for Tavily", POSTPONED, retryable=True), Retry, "waits for Tavily"),
        (None, Retry, "Another attempt has the activation"),
    ],
)
def test_task_of_another_end_raises_what_celery_shows(outcome: Outcome | None, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        task_end_of(outcome).result()


def test_long_error_is_shortened():
    end: TaskEnd = task_end_of(Failed("x" * 10_000))

    assert len(end.text) == MAX_TEXT
