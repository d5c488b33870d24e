"""The settings of the fast path, and the switch for all of them."""

from dataclasses import fields

import pytest

from settings import Settings
from worker.fastpath.inline_tasks import InlineTaskRequest, request_class
from worker.fastpath.switches import NO_FAST_PATH, FastPath, fast_path_of


def test_every_part_of_the_fast_path_but_local_continuation_is_on_by_default():
    fast_path = fast_path_of(Settings())

    assert fast_path == FastPath()
    assert [field.name for field in fields(fast_path) if not getattr(fast_path, field.name)] == ["continue_locally_for"]


@pytest.mark.parametrize("name", [field.name for field in fields(FastPath)])
def test_each_part_of_the_fast_path_has_its_own_switch(name: str, monkeypatch: pytest.MonkeyPatch):
    """Local continuation is the only part that is off by default."""
    is_on = bool(getattr(FastPath(), name))
    monkeypatch.setenv(f"EASEL_{name.upper()}", "0" if is_on else "5")

    fast_path = fast_path_of(Settings())

    changed = [
        field.name for field in fields(FastPath) if getattr(fast_path, field.name) != getattr(FastPath(), field.name)
    ]
    assert changed == [name]
    assert bool(getattr(fast_path, name)) is not is_on


def test_fast_path_switch_turns_off_every_part(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EASEL_FAST_PATH", "off")
    monkeypatch.setenv("EASEL_CACHE_VALUES", "on")

    assert fast_path_of(Settings()) == NO_FAST_PATH


def test_request_class_has_no_fast_path_without_it():
    assert not issubclass(request_class(NO_FAST_PATH, lambda _: False), InlineTaskRequest)
    assert issubclass(request_class(FastPath(), lambda _: False), InlineTaskRequest)
