"""The settings of the fast path, and the switch above them."""

from dataclasses import fields

import pytest
from celery.worker.request import Request

from settings import Settings
from worker.fastpath.inline_tasks import InlineTaskRequest, request_class
from worker.fastpath.switches import NO_FAST_PATH, FastPath, fast_path_of


def test_by_default_every_part_is_on():
    assert fast_path_of(Settings()) == FastPath()


@pytest.mark.parametrize("name", [field.name for field in fields(FastPath)])
def test_each_part_has_a_switch_of_its_own(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(f"EASEL_{name.upper()}", "0")

    fast_path = fast_path_of(Settings())

    off = [
        field.name for field in fields(FastPath) if getattr(fast_path, field.name) != getattr(FastPath(), field.name)
    ]
    assert off == [name]
    assert getattr(fast_path, name) == getattr(NO_FAST_PATH, name)


def test_one_switch_turns_off_every_part_whatever_the_others_say(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EASEL_FAST_PATH", "off")
    monkeypatch.setenv("EASEL_CACHE_VALUES", "on")

    assert fast_path_of(Settings()) == NO_FAST_PATH


def test_requests_are_celerys_own_where_no_part_needs_to_hear_of_tasks():
    assert request_class(NO_FAST_PATH) is Request
    assert request_class(FastPath()) is InlineTaskRequest
