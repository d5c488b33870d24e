"""Event subscriptions: confirmed before use, signalled after a gap, and never blocked while Redis is unavailable."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import redis

from scheduler.messaging.redis_bus import async_redis, channel
from scheduler.messaging.subscriptions import NAME, QUEUE_SIZE, EventSubscriptions, Subscription
from store.primitives.ids import new_id

T = TypeVar("T")


def run(test: Callable[[], Awaitable[T]]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(20):
            return await test()

    return asyncio.run(limited())


async def first(subscription: Subscription, seconds: float = 30) -> object:
    """Return the first message that is not empty."""
    while (message := await subscription.get(seconds)) == {}:
        pass
    return message


@asynccontextmanager
async def open_subscriptions(url: str) -> AsyncGenerator[EventSubscriptions]:
    subscriptions = EventSubscriptions(url)
    await subscriptions.start()
    try:
        yield subscriptions
    finally:
        await subscriptions.close()


def test_notification_published_right_after_subscribe_is_delivered(redis_url: str) -> None:
    async def listen() -> list[object]:
        messages: list[object] = []
        async with open_subscriptions(redis_url) as subscriptions:
            for _ in range(20):
                run_id = new_id()
                async with subscriptions.subscribe(run_id) as subscription:
                    with redis.Redis.from_url(redis_url) as bus:
                        bus.publish(channel(run_id), json.dumps({"n": 1}))
                    messages.append(await first(subscription))
        return messages

    assert run(listen) == [{"n": 1}] * 20


def test_message_reaches_all_subscriptions_of_its_run_only(redis_url: str) -> None:
    async def listen() -> tuple[object, ...]:
        mine, other = new_id(), new_id()
        async with (
            open_subscriptions(redis_url) as subscriptions,
            subscriptions.subscribe(mine) as a,
            subscriptions.subscribe(mine) as b,
            subscriptions.subscribe(other) as c,
        ):
            with redis.Redis.from_url(redis_url) as bus:
                bus.publish(channel(mine), '{"n": 2}')
            return await first(a), await first(b), await first(c, 0.05)

    assert run(listen) == ({"n": 2}, {"n": 2}, None)


def test_slow_subscription_gets_an_empty_message(redis_url: str) -> None:
    async def listen() -> list[object]:
        async with open_subscriptions(redis_url) as subscriptions, subscriptions.subscribe(new_id()) as subscription:
            for number in range(QUEUE_SIZE + 5):
                subscription.deliver({"n": number})
            return [await subscription.get(0.05) for _ in range(QUEUE_SIZE + 2)]

    messages = run(listen)
    assert {} in messages[-2:]
    assert messages[-1] is None or messages[-1] == {}


def test_subscription_without_redis_times_out_without_a_message() -> None:
    async def listen() -> object:
        async with (
            open_subscriptions("redis://127.0.0.1:1/0") as subscriptions,
            subscriptions.subscribe(new_id()) as subscription,
        ):
            return await subscription.get(0.05)

    assert run(listen) is None


def test_subscription_gets_an_empty_message_after_a_reconnect(redis_url: str) -> None:
    async def listen() -> object:
        run_id = new_id()
        async with open_subscriptions(redis_url) as subscriptions, subscriptions.subscribe(run_id) as subscription:
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
        async with open_subscriptions(redis_url) as subscriptions:
            async with subscriptions.subscribe(new_id()) as first, subscriptions.subscribe(first.run_id):
                while_open = len(subscriptions.subscriptions)
            return while_open, len(subscriptions.subscriptions)

    assert run(listen) == (2, 0)


def test_command_of_an_async_client_is_repeated_once_after_its_connection_broke(redis_url: str) -> None:
    async def command() -> object:
        async with async_redis(redis_url) as client:
            broken = await client.client_id()
            with redis.Redis.from_url(redis_url) as other:
                other.client_kill_filter(_id=broken)
            return await client.ping()

    assert run(command) is True
