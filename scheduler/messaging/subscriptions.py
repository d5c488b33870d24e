"""Subscriptions to runs: one Redis connection per process, whose messages are distributed to all readers.

Redis confirms a subscription before `subscribe` returns it, so a reader that reads the rows afterwards misses nothing.
A subscription gets no messages while Redis is unreachable. When Redis is back, or when a reader was too slow, the
reader gets an empty message and reads the rows.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson
import redis.asyncio
import structlog
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from canvas.ids import RunId
from scheduler.messaging.redis_bus import channel

log = structlog.get_logger()

Notification: TypeAlias = dict[str, Any]
"""{"n": last event, "over": bool}, {"t": stream, "ep": epoch, "o": offset, "x": text}, or {}: something was missed."""

QUEUE_SIZE = 1000  # messages that a subscription queues
CONFIRM_TIMEOUT = 1.0  # seconds to wait for Redis to confirm
RECONNECT_DELAY = 1.0  # seconds between attempts to connect
NAME = "easel-listening"  # the name in Redis's list of clients
_KEEPALIVE_CHANNEL = "easel:listening"  # an unused channel, which keeps the connection subscribed


@dataclass(eq=False, slots=True)
class Subscription:
    """One reader's queue of messages about one run."""

    run_id: RunId
    queue_size: int = QUEUE_SIZE
    _messages: "deque[Notification]" = field(default_factory=deque["Notification"])
    _has_missed: bool = False
    _waiting: "asyncio.Future[None] | None" = None

    def deliver(self, message: Notification) -> None:
        """Queue a message; if the queue is full, record that the reader has missed some."""
        if len(self._messages) < self.queue_size:
            self._messages.append(message)
        else:
            self._has_missed = True
        self.wake()

    def wake(self) -> None:
        """End the wait of the reader, if it waits, without a message."""
        if self._waiting is not None:
            _wake(self._waiting)

    async def get(self, timeout: float) -> Notification | None:
        """Return the next message, or None after `timeout` seconds, or when `wake` was called."""
        if not self._messages and not self._has_missed:
            loop = asyncio.get_running_loop()
            self._waiting = waiting = loop.create_future()
            timer = loop.call_later(timeout, _wake, waiting)  # a task for each wait would cost more than the message
            try:
                await waiting
            finally:
                timer.cancel()
                self._waiting = None
        return self.poll()

    def poll(self) -> Notification | None:
        """Return the next message without waiting; None if there is none."""
        if self._messages:
            return self._messages.popleft()
        if self._has_missed:
            self._has_missed = False
            return {}
        return None


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


class EventSubscriptions:
    """All subscriptions of a process. They belong to one event loop."""

    def __init__(self, url: str) -> None:
        self._redis = redis.asyncio.Redis.from_url(
            url, socket_connect_timeout=CONFIRM_TIMEOUT, socket_keepalive=True, client_name=NAME
        )
        self._listeners: dict[str, set[Subscription]] = {}
        self._confirmed: dict[str, asyncio.Event] = {}
        self._pubsub: PubSub | None = None  # None: not connected
        self._is_away = False  # the last attempt to connect has failed
        self._sending = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start receiving; return at once, even if Redis is unreachable."""
        self._task = asyncio.create_task(self._listen(), name="easel-listening")

    async def close(self) -> None:
        """Stop receiving, and close the connection."""
        ending = [*self._leaving, *([self._task] if self._task is not None else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._redis.aclose()

    @property
    def subscriptions(self) -> list[Subscription]:
        """All present subscriptions."""
        return [subscription for listeners in self._listeners.values() for subscription in listeners]

    @asynccontextmanager
    async def subscribe(self, run_id: RunId, queue_size: int = QUEUE_SIZE) -> AsyncGenerator[Subscription]:
        """Subscribe to a run until the block ends; `queue_size`: messages that are queued for a slow reader."""
        name = channel(run_id)
        subscription = Subscription(run_id, queue_size)
        self._listeners.setdefault(name, set()).add(subscription)
        try:
            await self._subscribe(name)
            yield subscription
        finally:
            self._remove(name, subscription)

    async def _subscribe(self, name: str) -> None:
        confirmed = self._confirmed.get(name)
        if confirmed is None:
            confirmed = self._confirmed[name] = asyncio.Event()
            await self._update_channel(name)
        if not self._is_away:
            try:
                await asyncio.wait_for(confirmed.wait(), CONFIRM_TIMEOUT)
            except TimeoutError:
                log.warning("subscription_not_confirmed", channel=name)

    def _remove(self, name: str, subscription: Subscription) -> None:
        """Remove a subscription without waiting, since the caller may have been cancelled."""
        listeners = self._listeners[name]
        listeners.discard(subscription)
        if not listeners:
            del self._listeners[name]
            self._confirmed.pop(name, None)
            leaving = asyncio.create_task(self._update_channel(name))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _update_channel(self, name: str) -> None:
        """Subscribe to a channel, or unsubscribe if it has no readers. After a reconnect `_listen` does this."""
        async with self._sending:
            if self._pubsub is None:
                return
            try:
                has_readers = name in self._listeners
                await (self._pubsub.subscribe(name) if has_readers else self._pubsub.unsubscribe(name))
            except (RedisError, OSError, AttributeError) as error:  # the last: redis-py, closed while it sends
                log.warning("bus_unreachable", channel=name, error=str(error))

    async def _listen(self) -> None:
        while True:
            pubsub = self._redis.pubsub()
            try:
                names = {_KEEPALIVE_CHANNEL, *self._listeners}
                await pubsub.subscribe(*names)
                self._pubsub, self._is_away = pubsub, False
                if late := self._listeners.keys() - names:
                    await pubsub.subscribe(*late)
                self._mark_all_missed()
                while True:
                    message = await pubsub.get_message(timeout=CONFIRM_TIMEOUT)
                    if message is not None:
                        self._distribute(message)
            except (RedisError, OSError) as error:
                self._is_away = True
                for confirmed in self._confirmed.values():
                    confirmed.set()  # readers do not wait for an unreachable Redis
                log.warning("bus_unreachable", error=str(error))
            finally:
                self._pubsub = None
                await pubsub.aclose()
            await asyncio.sleep(RECONNECT_DELAY)

    def _mark_all_missed(self) -> None:
        for subscription in self.subscriptions:
            subscription.deliver({})

    def _distribute(self, message: dict[str, Any]) -> None:
        name = message["channel"].decode()
        if message["type"] == "subscribe" and name in self._confirmed:
            self._confirmed[name].set()
        elif message["type"] == "message" and (listeners := self._listeners.get(name)):
            try:
                notification = orjson.loads(message["data"])
            except ValueError:
                return  # not from Easel
            if isinstance(notification, dict):
                for subscription in listeners:
                    subscription.deliver(notification)
