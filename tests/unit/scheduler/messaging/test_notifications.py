"""Notifications of two decisions in one transaction are sent together after its commit."""

from dataclasses import fields, replace
from typing import Any

import pytest

from canvas.state.run_state import RunStatus
from scheduler.messaging.notifications import Notifications, RunEnd
from store.primitives.ids import new_id
from store.runs.new_activations import TaskMessage

RUN = new_id()
ONE, TWO = (TaskMessage(RUN, new_id(), "LLM", "LLM:0") for _ in range(2))
NOTHING = Notifications(RUN, [])
PROMOTED: Any = object()
ALL = Notifications(RUN, [ONE], PROMOTED, range(1, 3), RunStatus.STOPPING, cancel_requested=True, end=RunEnd(new_id()))


def test_later_notifications_follow_or_replace_the_earlier_ones():
    end = RunEnd(new_id())

    both = ALL.followed_by(Notifications(RUN, [TWO], events=range(3, 4), status=RunStatus.FAILED, end=end))

    assert both == Notifications(
        RUN, [ONE, TWO], PROMOTED, range(1, 4), RunStatus.FAILED, cancel_requested=True, end=end
    )


@pytest.mark.parametrize("name", [field.name for field in fields(Notifications) if field.name != "run_id"])
def test_notification_of_either_decision_alone_is_kept(name: str):
    one = replace(NOTHING, **{name: getattr(ALL, name)})

    assert one.followed_by(NOTHING) == NOTHING.followed_by(one) == one
