"""Many listeners, one connection: what the bus says of runs, handed out within a process.

A subscription is confirmed by Redis before `to` hands it out, so whoever then reads the rows misses nothing. While
Redis is away a subscription hears nothing, and is told so (an empty message) when it is back or when it could not
keep up: its listener then reads the rows.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

import orjson
import redis.asyncio
import structlog
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from scheduler.messaging.redis_bus import channel

log = structlog.get_logger()

Notification: TypeAlias = dict[str, Any]
"""{"n": last event, "over": bool}, {"t": turn, "ep": epoch, "o": offset, "x": text}, or {}: something was missed."""

ROOM = 1000  # messages a listener may be behind
PATIENCE = 1.0  # seconds to wait for Redis to confirm
AGAIN_AFTER = 1.0  # seconds between attempts to reach Redis
NAME = "easel-listening"  # as Redis lists its clients
_ALIVE = "easel:listening"  # a channel nobody writes to keeps the connection subscribed


@dataclass(eq=False, slots=True)
class Subscription:
    """One listener's messages of one run."""

    run_id: UUID
    _messages: "deque[Notification]" = field(default_factory=deque["Notification"])
    _has_missed: bool = False
    _waiting: "asyncio.Future[None] | None" = None

    def hand(self, message: Notification) -> None:
        """Give the listener a message; one that is too far behind is told that it missed some."""
        if len(self._messages) < ROOM:
            self._messages.append(message)
        else:
            self._has_missed = True
        if self._waiting is not None:
            _wake(self._waiting)

    async def get(self, timeout: float) -> Notification | None:
        """The next message, or None after `timeout` seconds."""
        if not self._messages and not self._has_missed:
            loop = asyncio.get_running_loop()
            self._waiting = waiting = loop.create_future()
            timer = loop.call_later(timeout, _wake, waiting)  # a task for each wait would cost more than the message
            try:
                await waiting
            finally:
                timer.cancel()
                self._waiting = None
        return self.at_once()

    def at_once(self) -> Notification | None:
        """The next message, if there is one already."""
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
    """A process's ear. All of it lives on one event loop."""

    def __init__(self, url: str) -> None:
        self._redis = redis.asyncio.Redis.from_url(
            url, socket_connect_timeout=PATIENCE, socket_keepalive=True, client_name=NAME
        )
        self._listeners: dict[str, set[Subscription]] = {}
        self._confirmed: dict[str, asyncio.Event] = {}
        self._pubsub: PubSub | None = None  # None: not connected
        self._is_away = False  # the last attempt to connect has failed
        self._sending = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to listen; returns at once, whether or not Redis is there."""
        self._task = asyncio.create_task(self._listen(), name="easel-listening")

    async def close(self) -> None:
        """Stop listening."""
        ending = [*self._leaving, *([self._task] if self._task is not None else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._redis.aclose()

    @property
    def subscriptions(self) -> list[Subscription]:
        """Everybody who listens now."""
        return [subscription for listeners in self._listeners.values() for subscription in listeners]

    @asynccontextmanager
    async def to(self, run_id: UUID) -> AsyncGenerator[Subscription]:
        """Listen to a run until the block ends."""
        name = channel(run_id)
        subscription = Subscription(run_id)
        self._listeners.setdefault(name, set()).add(subscription)
        try:
            await self._subscribe(name)
            yield subscription
        finally:
            self._leave(name, subscription)

    async def _subscribe(self, name: str) -> None:
        confirmed = self._confirmed.get(name)
        if confirmed is None:
            confirmed = self._confirmed[name] = asyncio.Event()
            await self._tell(name)
        if not self._is_away:
            try:
                await asyncio.wait_for(confirmed.wait(), PATIENCE)
            except TimeoutError:
                log.warning("subscription_not_confirmed", channel=name)

    def _leave(self, name: str, subscription: Subscription) -> None:
        """Waits for nothing: whoever leaves may be cancelled already."""
        listeners = self._listeners[name]
        listeners.discard(subscription)
        if not listeners:
            del self._listeners[name]
            self._confirmed.pop(name, None)
            leaving = asyncio.create_task(self._tell(name))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _tell(self, name: str) -> None:
        """Tell Redis whether we want a channel; where it is away, it is told everything once it is back."""
        async with self._sending:
            if self._pubsub is None:
                return
            try:
                is_wanted = name in self._listeners
                await (self._pubsub.subscribe(name) if is_wanted else self._pubsub.unsubscribe(name))
            except (RedisError, OSError, AttributeError) as error:  # the last: redis-py, closed while it sends
                log.warning("bus_unreachable", channel=name, error=str(error))

    async def _listen(self) -> None:
        while True:
            pubsub = self._redis.pubsub()
            try:
                names = {_ALIVE, *self._listeners}
                await pubsub.subscribe(*names)
                self._pubsub, self._is_away = pubsub, False
                if late := self._listeners.keys() - names:
                    await pubsub.subscribe(*late)
                self._tell_all_they_missed()
                while True:
                    message = await pubsub.get_message(timeout=PATIENCE)
                    if message is not None:
                        self._hand_out(message)
            except (RedisError, OSError) as error:
                self._is_away = True
                for confirmed in self._confirmed.values():
                    confirmed.set()  # nobody waits for a Redis that is away
                log.warning("bus_unreachable", error=str(error))
            finally:
                self._pubsub = None
                await pubsub.aclose()
            await asyncio.sleep(AGAIN_AFTER)

    def _tell_all_they_missed(self) -> None:
        for subscription in self.subscriptions:
            subscription.hand({})

    def _hand_out(self, message: dict[str, Any]) -> None:
        name = message["channel"].decode()
        if message["type"] == "subscribe" and name in self._confirmed:
            self._confirmed[name].set()
        elif message["type"] == "message" and (listeners := self._listeners.get(name)):
            try:
                heard = orjson.loads(message["data"])
            except ValueError:
                return  # not from us
            if isinstance(heard, dict):
                for subscription in listeners:
                    subscription.hand(heard)
