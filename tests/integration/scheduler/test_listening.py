"""One ear for a process: confirmed before it is used, told of what it missed, deaf without Redis but never stuck."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import redis

from scheduler.messaging.redis_bus import channel
from scheduler.messaging.subscriptions import NAME, QUEUE_SIZE, EventSubscriptions, Subscription
from store.primitives.ids import new_id

T = TypeVar("T")


def run(test: Callable[[], Awaitable[T]]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(20):
            return await test()

    return asyncio.run(limited())


async def first(subscription: Subscription, seconds: float = 5) -> object:
    """The first message that says something."""
    while (message := await subscription.get(seconds)) == {}:
        pass
    return message


@asynccontextmanager
async def listening(url: str) -> AsyncGenerator[EventSubscriptions]:
    ear = EventSubscriptions(url)
    await ear.start()
    try:
        yield ear
    finally:
        await ear.close()


def test_nothing_is_missed_after_a_subscription_is_handed_out(redis_url: str) -> None:
    async def listen() -> list[object]:
        heard: list[object] = []
        async with listening(redis_url) as ear:
            for _ in range(20):
                run_id = new_id()
                async with ear.subscribe(run_id) as subscription:
                    with redis.Redis.from_url(redis_url) as bus:
                        bus.publish(channel(run_id), json.dumps({"n": 1}))
                    heard.append(await first(subscription))
        return heard

    assert run(listen) == [{"n": 1}] * 20


def test_message_reaches_all_subscriptions_of_its_run_only(redis_url: str) -> None:
    async def listen() -> tuple[object, ...]:
        mine, other = new_id(), new_id()
        async with (
            listening(redis_url) as ear,
            ear.subscribe(mine) as a,
            ear.subscribe(mine) as b,
            ear.subscribe(other) as c,
        ):
            with redis.Redis.from_url(redis_url) as bus:
                bus.publish(channel(mine), '{"n": 2}')
            return await first(a), await first(b), await first(c, 0.05)

    assert run(listen) == ({"n": 2}, {"n": 2}, None)


def test_slow_subscription_gets_an_empty_message(redis_url: str) -> None:
    async def listen() -> list[object]:
        async with listening(redis_url) as ear, ear.subscribe(new_id()) as subscription:
            for number in range(QUEUE_SIZE + 5):
                subscription.deliver({"n": number})
            return [await subscription.get(0.05) for _ in range(QUEUE_SIZE + 2)]

    heard = run(listen)
    assert {} in heard[-2:]
    assert heard[-1] is None or heard[-1] == {}


def test_without_redis_a_listener_waits_in_vain_but_not_for_long() -> None:
    async def listen() -> object:
        async with listening("redis://127.0.0.1:1/0") as ear, ear.subscribe(new_id()) as subscription:
            return await subscription.get(0.05)

    assert run(listen) is None


def test_subscription_gets_an_empty_message_after_a_reconnect(redis_url: str) -> None:
    async def listen() -> object:
        run_id = new_id()
        async with listening(redis_url) as ear, ear.subscribe(run_id) as subscription:
            assert await subscription.get(5) == {}
            with redis.Redis.from_url(redis_url) as bus:
                for client in bus.client_list(_type="pubsub"):
                    if client["name"] == NAME:
                        bus.client_kill_filter(_id=client["id"])
                assert await subscription.get(10) == {}
                bus.publish(channel(run_id), '{"n": 3}')
            return await subscription.get(5)

    assert run(listen) == {"n": 3}


def test_closed_subscription_is_removed(redis_url: str) -> None:
    async def listen() -> tuple[int, int]:
        async with listening(redis_url) as ear:
            async with ear.subscribe(new_id()) as first, ear.subscribe(first.run_id):
                there = len(ear.subscriptions)
            return there, len(ear.subscriptions)

    assert run(listen) == (2, 0)
