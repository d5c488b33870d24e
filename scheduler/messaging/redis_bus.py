"""Redis pub/sub: event notifications and text deltas of runs, cancel requests to workers, and cancel keys.

Nothing sent here is a fact. If all of it is lost, a reader reads the rows instead, and an attempt learns of a cancel at
its next lease renewal.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import orjson
import redis
import redis.asyncio
import redis.asyncio.retry
import structlog
from redis.backoff import NoBackoff
from redis.retry import Retry

from canvas.ids import ActivationId, RunId, SessionId
from scheduler.messaging.circuit_breaker import ANSWER_TIMEOUT, CircuitBreaker
from scheduler.messaging.event_notifier import EventNotification, EventNotifier
from store.runs.external_ids import uuid_of

log = structlog.get_logger()

T = TypeVar("T")

ReadEventMessages = Callable[[EventNotification], Sequence[bytes]]
"""Returns the events that a notification announces, each encoded as a message to subscribers."""

CANCEL_CHANNEL = "easel:call-off"
SCHEDULES_CHANNEL = "easel:schedules"
FLUSH_MARKER = "easel:here"
TRACE_TTL = 600  # seconds
TICKS_TO_ANSWER = 5  # parts of ANSWER_TIMEOUT
RUNS_PER_QUERY = 500  # runs whose keys one command reads, so that Redis serves others in between
PING_INTERVAL = 0.5  # seconds between two pings of a subscription
SUBSCRIPTION_TIMEOUT = 2.0  # seconds without any message or pong; a socket whose other end is gone raises no error

MESSAGES_PER_PUSH = 500  # messages that one command pushes to a queue, so that it is answered in time
_REPLY_OF_EXEC = 3  # its place in a pipeline that begins with MULTI and two commands
EVENTS_PER_PIPELINE = 50  # at most 16 KiB each, so that Redis answers in time
MAX_PENDING_DELTAS = 5000  # text deltas that wait to be sent; further ones are dropped, and readers read the rows

_CONNECTION_OPTIONS: dict[str, Any] = {
    "socket_timeout": ANSWER_TIMEOUT,
    "socket_connect_timeout": ANSWER_TIMEOUT,
    "socket_keepalive": True,
}
_RETRIED_ERRORS = (redis.ConnectionError,)
"""A connection that was closed while idle is opened again, once. A command that timed out is not repeated."""


def channel(run_id: RunId) -> str:
    """Return the channel of a run's event notifications and text deltas to the event streams of the API."""
    return f"easel:run:{run_id}"


def events_channel(run_id: RunId) -> str:
    """Return the channel of a run's events and text deltas to subscribers outside of Easel, docs/events.md."""
    return f"easel:events:{run_id.hex}"


def cancel_keys(run_id: RunId, conversation_id: SessionId, names: Collection[str] = ()) -> tuple[str, ...]:
    """Return the keys that cancel a run: of run and session id, with and without hyphens, and of its external ids."""
    named = [key for name in names for key in external_keys(name)]
    return (*run_keys(run_id), *dict.fromkeys(named), *session_keys(conversation_id))


def run_keys(run_id: RunId) -> tuple[str, ...]:
    """Return the cancel keys of a run's own id."""
    return _keys_of((str(run_id), run_id.hex))


def external_keys(external_id: str) -> tuple[str, ...]:
    """Return the keys that cancel the run of an external id; of a UUID with and without hyphens, in both cases."""
    parsed = uuid_of(external_id)
    spelled: tuple[str, ...] = (external_id,)
    if parsed is not None:
        spelled = (external_id, str(parsed), parsed.hex, str(parsed).upper(), parsed.hex.upper())
    return _keys_of(tuple(dict.fromkeys(spelled)))


def session_keys(conversation_id: SessionId) -> tuple[str, ...]:
    """Return the keys that cancel all runs of a session."""
    return _keys_of((str(conversation_id), conversation_id.hex))


def _keys_of(spelled: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of an id: `{id}-cancel`, which RAGFlow sets, and `cancel:{id}`, as its documents have it."""
    return (*(f"{each}-cancel" for each in spelled), *(f"cancel:{each}" for each in spelled))


def _run_to_cancel(data: Any) -> RunId | None:
    try:
        return RunId(UUID(json.loads(data)["run"]))
    except (ValueError, LookupError, TypeError, AttributeError):  # not from Easel: any program may publish here
        return None


class Bus:
    """A process's connection to Redis for everything but tasks. Calls that fail are logged and not repeated.

    No call takes longer than half a second. While Redis does not answer, most calls return at once.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._redis: redis.Redis = redis.Redis.from_url(
            url,
            **_CONNECTION_OPTIONS,
            health_check_interval=10,
            retry=Retry(NoBackoff(), 1, supported_errors=_RETRIED_ERRORS),
        )
        self._breaker = CircuitBreaker()
        self._is_marked = False
        self._notifier = EventNotifier(lambda notifications: self._run_command(lambda: self._publish(notifications)))
        self._notifier_connection = self._redis.connection_pool.make_connection()  # its thread's own
        self._event_publisher: EventNotifier | None = None

    def publish_events(self, read: ReadEventMessages) -> None:
        """From now on publish the events themselves to those who have subscribed to a run, on a thread of its own."""

        def publish(notifications: Sequence[EventNotification]) -> None:
            for notification in notifications:
                self._run_command(lambda each=notification: self._publish_events(each.run_id, read(each)))

        self._event_publisher = EventNotifier(publish, "easel-events")

    def notify_event(self, notification: EventNotification) -> None:
        """Notify readers that events are stored; soon, and without waiting for Redis."""
        self._notifier.add(notification)

    def push_tasks(
        self,
        queue: str,
        messages: Sequence[bytes],
        notification: EventNotification | None = None,
        *,
        fetches: bool = False,
    ) -> bytes | None:
        """Push messages to a queue of this Redis, which must be the broker too, and publish an event notification.

        With `fetches`, also take the oldest message from the queue, and return it; None if another consumer has it.
        Takes one round trip. Raises redis.RedisError; the sender of messages has a circuit breaker of its own.
        """
        fetched: bytes | None = None
        try:
            for first in range(0, len(messages), MESSAGES_PER_PUSH):
                with self._redis.pipeline(transaction=False) as pipe:
                    is_fetching = fetches and not first
                    if is_fetching:  # consumers that wait for messages get those that are left after the transaction
                        pipe.execute_command("MULTI")
                    pipe.lpush(queue, *messages[first : first + MESSAGES_PER_PUSH])
                    if is_fetching:
                        pipe.rpop(queue)
                        pipe.execute_command("EXEC")
                    if notification is not None and not first:
                        pipe.publish(channel(notification.run_id), notification.payload)
                        pipe.publish(events_channel(notification.run_id), notification.public_payload)
                    replies = pipe.execute()
                if is_fetching:
                    pushed, fetched = replies[_REPLY_OF_EXEC]
                    if isinstance(pushed, redis.ResponseError):  # the pipeline raises errors of its own replies only
                        raise pushed
                if notification is not None and not first:
                    self._on_published(notification, replies[-1])
            return fetched
        except redis.ResponseError:  # of the list, which may be full or read-only; the notification was published
            raise
        except redis.RedisError as error:
            self._breaker.record_failure()
            if notification is not None:
                log.warning("bus_unreachable", error=str(error))
            raise

    def requeue_task(self, queue: str, message: bytes) -> None:
        """Put a message that was taken from a queue back, as its next one. If that fails, the message is lost."""
        self._run_command(lambda: self._redis.rpush(queue, message))

    def publish_cancel(self, run_id: RunId) -> None:
        """Request every worker to stop this run's attempts; also tried while the circuit breaker is open."""
        message = json.dumps({"run": str(run_id)})
        self._run_command(lambda: self._redis.publish(CANCEL_CHANNEL, message), insists=True)

    def set_cancel_key(self, run_id: RunId, seconds: int = 3600) -> None:
        """Set the cancel key of a run, for programs that read it."""
        self._run_command(lambda: self._redis.set(f"{run_id}-cancel", "x", ex=seconds))

    def clear_cancel_keys(self, run_id: RunId, conversation_id: SessionId) -> None:
        """Delete the cancel keys of a run that is over, or about to start.

        For those of external ids see scheduler/messaging/external_cancel_keys.py.
        """
        self.delete_keys(cancel_keys(run_id, conversation_id))

    def delete_keys(self, keys: Collection[str]) -> None:
        """Delete keys."""
        if keys:
            self._run_command(lambda: self._redis.delete(*keys))

    def find_set_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that are set; none if Redis does not answer."""
        values: Any = self._run_command(lambda: self._redis.mget(keys)) if keys else None
        return {key for key, value in zip(keys, values or [], strict=False) if value is not None}

    def publish_trace(self, task_id: UUID, message_id: UUID, calls: Sequence[Mapping[str, Any]]) -> None:
        """Publish the tool calls of one answer for ten minutes, under the key that RAGFlow uses."""
        trace = json.dumps(calls, ensure_ascii=False)
        self._run_command(lambda: self._redis.set(f"{task_id.hex}-{message_id.hex}-logs", trace, ex=TRACE_TTL))

    def find_cancelled(
        self, runs: Mapping[RunId, SessionId], names: Mapping[RunId, Collection[str]] | None = None
    ) -> set[RunId]:
        """Return those of the runs (run -> conversation) that a key cancels, as far as Redis answers.

        `names`: external ids of the runs that have some.
        """
        pairs = list(runs.items())
        external = names or {}
        to_cancel: set[RunId] = set()
        for first in range(0, len(pairs), RUNS_PER_QUERY):
            part = pairs[first : first + RUNS_PER_QUERY]
            keys = [(run, key) for run, of in part for key in cancel_keys(run, of, external.get(run, ()))]
            values: Any = self._run_command(lambda keys=keys: self._redis.mget([key for _, key in keys]))
            if values is None:
                break
            to_cancel |= {run for (run, _), value in zip(keys, values, strict=True) if value is not None}
        return to_cancel

    def is_session_cancelled(self, conversation_id: SessionId) -> bool:
        """Whether a key cancels a whole conversation; False if Redis does not answer."""
        return bool(self._run_command(lambda: self._redis.exists(*session_keys(conversation_id))))

    def was_flushed(self) -> bool:
        """Whether Redis was emptied since the last call; False at the first call, or if Redis does not answer."""
        answer: Any = self._run_command(lambda: (self._redis.set(FLUSH_MARKER, "here", get=True),))
        if answer is None:
            return False
        was_marked, self._is_marked = self._is_marked, True
        return was_marked and answer[0] is None

    def cancel_requests(self) -> Iterator[RunId | None]:
        """Yield runs whose attempts must stop, as requests arrive; None at intervals, and once when subscribed.

        Raises redis.RedisError if the connection breaks, or nothing arrives for SUBSCRIPTION_TIMEOUT.
        """
        for data in self._subscribe(CANCEL_CHANNEL):
            yield _run_to_cancel(data) if data is not None else None

    def publish_schedule_change(self) -> None:
        """Have the processes that fire schedules look when the next one is due."""
        self._run_command(lambda: self._redis.publish(SCHEDULES_CHANNEL, "changed"))

    def schedule_changes(self) -> Iterator[bool]:
        """Yield True when a schedule has changed; False at intervals, and once when subscribed.

        Raises redis.RedisError as `cancel_requests` does.
        """
        for data in self._subscribe(SCHEDULES_CHANNEL):
            yield data is not None

    def _subscribe(self, name: str) -> Iterator[Any]:
        """Yield the data of a channel's messages; None at intervals, and once when subscribed."""
        client = redis.Redis.from_url(self.url, **_CONNECTION_OPTIONS, retry=Retry(NoBackoff(), 0))
        with client, client.pubsub() as subscription:
            subscription.subscribe(name)
            is_subscribed = False
            last_message = last_ping = time.monotonic()
            while True:
                message = subscription.get_message(timeout=0.25)
                now = time.monotonic()
                if message is not None:
                    last_message = now
                    is_subscribed = is_subscribed or message["type"] == "subscribe"
                elif now - last_message > SUBSCRIPTION_TIMEOUT:
                    raise redis.TimeoutError(f"Redis has sent nothing for {SUBSCRIPTION_TIMEOUT:g} s.")
                if now - last_ping > PING_INTERVAL:
                    last_ping = now
                    subscription.ping()
                if is_subscribed:
                    is_message = message is not None and message["type"] == "message"
                    yield message["data"] if message is not None and is_message else None

    def ping(self) -> None:
        """Raise redis.RedisError if Redis does not answer."""
        self._redis.ping()

    def close(self) -> None:
        """Close the connections."""
        self._notifier.close()
        if self._event_publisher is not None:
            self._event_publisher.close()
        self._notifier_connection.disconnect()
        self._redis.close()

    def _publish(self, notifications: Sequence[EventNotification]) -> None:
        """Publish in one round trip, on a bare connection: a command of redis-py's client costs more than the send."""
        commands = [
            ("PUBLISH", name(notification.run_id), payload)
            for notification in notifications
            for name, payload in ((channel, notification.payload), (events_channel, notification.public_payload))
        ]
        try:
            receivers = self._publish_once(commands)
        except redis.ConnectionError:  # it was closed while idle
            receivers = self._publish_once(commands)
        for notification, subscribers in zip(notifications, receivers[1::2], strict=True):
            self._on_published(notification, subscribers)

    def _on_published(self, notification: EventNotification, subscribers: int) -> None:
        """Publish the events that a notification announces, if it had subscribers outside of Easel."""
        if subscribers and self._event_publisher is not None:
            self._event_publisher.add(notification)

    def _publish_events(self, run_id: RunId, messages: Sequence[bytes]) -> None:
        for first in range(0, len(messages), EVENTS_PER_PIPELINE):
            with self._redis.pipeline(transaction=False) as pipe:
                for message in messages[first : first + EVENTS_PER_PIPELINE]:
                    pipe.publish(events_channel(run_id), message)
                pipe.execute()

    def _publish_once(self, commands: Sequence[tuple[Any, ...]]) -> list[int]:
        """Publish messages; return how many subscribers received each."""
        connection = self._notifier_connection
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            answers: list[Any] = [connection.read_response() for _ in commands]
            return answers
        except BaseException:
            connection.disconnect()  # later commands would read the answers that were not read here
            raise

    def _run_command(self, command: Callable[[], T], *, insists: bool = False) -> T | None:
        """Return the answer of Redis; None if it fails. `insists`: send it even while the circuit breaker is open."""
        if self._breaker.is_open() and not insists:
            return None
        try:
            answer = command()
        except redis.RedisError as error:
            self._breaker.record_failure()
            log.warning("bus_unreachable", error=str(error))
            return None
        self._breaker.record_success()
        return answer


def async_redis(url: str, **options: Any) -> redis.asyncio.Redis:
    """Return a client for an event loop, with the timeouts of the bus."""
    again = redis.asyncio.retry.Retry(NoBackoff(), 1, supported_errors=_RETRIED_ERRORS)
    return redis.asyncio.Redis.from_url(url, **_CONNECTION_OPTIONS, retry=again, **options)


_Command = tuple[str, str, bytes]


@asynccontextmanager
async def _time_to_answer() -> AsyncGenerator[None]:
    """Limit how long Redis may take to answer. Raises TimeoutError.

    The time is measured in ticks of the event loop. While the loop is blocked or has no processor, its answer may be
    there but cannot be read, so that time counts as one tick, however long it is.
    """
    loop = asyncio.get_running_loop()
    tick = ANSWER_TIMEOUT / TICKS_TO_ANSWER
    async with asyncio.timeout(None) as limit:

        def count(left: int) -> None:
            nonlocal timer
            if left:
                timer = loop.call_later(tick, count, left - 1)
            else:
                limit.reschedule(loop.time())

        timer = loop.call_later(tick, count, TICKS_TO_ANSWER - 1)
        try:
            yield
        finally:
            timer.cancel()


@dataclass(slots=True)
class _Batch:
    """Text deltas that are sent in one round trip."""

    commands: list[_Command] = field(default_factory=list)
    gone: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class TextDeltaPublisher:
    """Publishes text deltas from a worker's event loop. A lost delta is in the row of its stream.

    Writers do not wait: deltas that are sent while one batch is in flight form the next batch, in one round trip.
    """

    def __init__(self, url: str) -> None:
        # `_time_to_answer` limits a whole batch, its connection included; a limit for each answer costs a task each
        self._pool = redis.asyncio.ConnectionPool.from_url(
            url,
            **{**_CONNECTION_OPTIONS, "socket_timeout": None, "socket_connect_timeout": None},
            retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
        )
        self._connection = self._pool.make_connection()
        self._breaker = CircuitBreaker()
        self._batch: _Batch | None = None  # the one to come
        self._sending: asyncio.Task[None] | None = None

    def send(
        self, run_id: RunId, stream_id: ActivationId, epoch: int, offset: int, text: str
    ) -> "asyncio.Future[None]":
        """Publish a text delta at `offset` (code points) of a stream. The future is done once it was sent, or lost."""
        if self._batch is None:
            self._batch = _Batch()
        if len(self._batch.commands) < 2 * MAX_PENDING_DELTAS:
            delta = {"t": str(stream_id), "ep": epoch, "o": offset, "x": text}
            public = {"run_id": run_id.hex, "turn": stream_id.hex, "epoch": epoch, "offset": offset, "text": text}
            self._batch.commands.append(("PUBLISH", channel(run_id), orjson.dumps(delta)))
            self._batch.commands.append(("PUBLISH", events_channel(run_id), orjson.dumps(public)))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
        return self._batch.gone

    async def close(self) -> None:
        """Close the connection."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._connection.disconnect(nowait=True)

    async def _send(self) -> None:
        while self._batch is not None:
            batch, self._batch = self._batch, None
            try:
                await self._deliver(batch.commands)
            finally:
                if not batch.gone.done():
                    batch.gone.set_result(None)

    async def _deliver(self, commands: list[_Command]) -> None:
        if self._breaker.is_open():
            return
        try:
            try:
                await self._publish(commands)
            except redis.ConnectionError:
                await self._publish(commands)  # the connection was closed while idle
        except (redis.RedisError, OSError, TimeoutError) as error:
            self._breaker.record_failure()
            log.warning("text_delta_not_sent", error=str(error) or f"Redis did not answer within {ANSWER_TIMEOUT:g} s")
        else:
            self._breaker.record_success()

    async def _publish(self, commands: list[_Command]) -> None:
        refused: redis.ResponseError | None = None
        try:
            async with _time_to_answer():
                await self._connection.send_packed_command(self._connection.pack_commands(commands))
                for _ in commands:
                    try:
                        await self._connection.read_response()
                    except redis.ResponseError as error:
                        refused = error  # the answers of the other commands must be read, too
        except BaseException:
            await self._connection.disconnect(nowait=True)  # later commands would read the answers not read here
            raise
        if refused is not None:
            raise refused
