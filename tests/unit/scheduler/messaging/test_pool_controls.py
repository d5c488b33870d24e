"""Celery's `pool_grow` and `pool_shrink`: refused in words by pools of threads, carried out by pools of processes."""

from unittest.mock import Mock

import pytest
from celery.worker.control import Panel

from scheduler.messaging import pool_controls
from scheduler.messaging.pool_controls import REFUSAL


class PoolOfProcesses:
    def __init__(self) -> None:
        self.size = 4

    def grow(self, n: int) -> None:
        self.size += n

    def shrink(self, n: int) -> None:
        self.size -= n


def state_of(pool: object) -> Mock:
    state = Mock()
    state.consumer.pool = pool
    state.consumer.controller.autoscaler = None
    return state


@pytest.fixture(autouse=True)
def registered() -> None:
    pool_controls.register()


@pytest.mark.parametrize("command", ["pool_grow", "pool_shrink"])
def test_pool_of_threads_refuses_the_command_and_says_what_to_do(command: str):
    assert Panel.data[command](state_of(object()), n=2) == {"error": REFUSAL}


@pytest.mark.parametrize(("command", "size"), [("pool_grow", 6), ("pool_shrink", 2)])
def test_pool_of_processes_carries_out_the_command(command: str, size: int):
    pool = PoolOfProcesses()

    reply = Panel.data[command](state_of(pool), n=2)

    assert "ok" in reply
    assert pool.size == size


def test_commands_that_are_registered_twice_still_answer():
    pool_controls.register()

    assert Panel.data["pool_grow"](state_of(PoolOfProcesses())) == {"ok": "pool will grow"}
