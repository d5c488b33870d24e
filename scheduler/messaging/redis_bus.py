"""The bus: Redis channels that carry echoes of a run's events, pieces of its speech, and calls to stop its attempts.

Nothing on the bus is a fact. Losing everything on it costs a listener a look at the rows and an attempt the wait for
its next renewal.
"""

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import UUID

import orjson
import redis
import redis.asyncio
import redis.asyncio.retry
import structlog
from redis.backoff import NoBackoff
from redis.retry import Retry

from scheduler.messaging.circuit_breaker import ANSWERS_WITHIN, CircuitBreaker
from scheduler.messaging.event_notifier import EventNotification, EventNotifier
from store.runs.external_ids import uuid_of

log = structlog.get_logger()

T = TypeVar("T")

CALL_OFF = "easel:call-off"
FLUSH_MARKER = "easel:here"
TRACE_KEPT = 600  # seconds
ASKED_AT_ONCE = 500  # runs whose keys one command asks for, so that Redis has time for others in between
PROVES_ITSELF_EVERY = 0.5  # seconds between two signs of life that a subscription asks for
SUBSCRIPTION_TIMEOUT = 2.0  # seconds without any; a socket whose other end has gone says nothing, and no error either

AT_ONCE = 500  # messages that one command puts into a queue, so that it is answered in time
MOST_WAITING = 5000  # pieces of a process; what speakers have to say beyond that is read in their rows

_REACH: dict[str, Any] = {
    "socket_timeout": ANSWERS_WITHIN,
    "socket_connect_timeout": ANSWERS_WITHIN,
    "socket_keepalive": True,
}
_CLOSED = (redis.ConnectionError,)
"""A connection that was closed while it lay idle is opened anew, once. Who is silent is not asked twice."""


def channel(run_id: UUID) -> str:
    """The channel on which a run's echoes and pieces travel."""
    return f"easel:run:{run_id}"


def cancel_keys(run_id: UUID, conversation_id: UUID, names: Collection[str] = ()) -> tuple[str, ...]:
    """Keys that cancel a run, whoever sets them: run and session id, with and without hyphens, and its external ids."""
    named = [key for name in names for key in external_keys(name)]
    return (*run_keys(run_id), *dict.fromkeys(named), *session_keys(conversation_id))


def run_keys(run_id: UUID) -> tuple[str, str]:
    """Keys of a run's own id."""
    return f"{run_id}-cancel", f"{run_id.hex}-cancel"


def external_keys(external_id: str) -> tuple[str, ...]:
    """Keys that cancel the run of an external id; of one that is a UUID with and without hyphens, in both cases."""
    parsed = uuid_of(external_id)
    spelled: tuple[str, ...] = (external_id,)
    if parsed is not None:
        spelled = (external_id, str(parsed), parsed.hex, str(parsed).upper(), parsed.hex.upper())
    return tuple(f"{each}-cancel" for each in dict.fromkeys(spelled))


def session_keys(conversation_id: UUID) -> tuple[str, str]:
    """Keys that cancel everything of a session."""
    return f"{conversation_id}-cancel", f"{conversation_id.hex}-cancel"


def _called_off(data: Any) -> UUID | None:
    try:
        return UUID(json.loads(data)["run"])
    except (ValueError, LookupError, TypeError, AttributeError):  # not one of ours: the channel is open to others
        return None


class Listener(Protocol):
    """A subscription to one run's channel."""

    def get(self, timeout: float) -> dict[str, Any] | None:
        """The next message, or None after `timeout` seconds."""
        ...


class Bus:
    """A process's connection to Redis for hints that are no tasks. Calls that fail are logged and forgotten.

    No call takes longer than half a second, and while Redis keeps silent most take no time at all.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._redis: redis.Redis = redis.Redis.from_url(
            url, **_REACH, health_check_interval=10, retry=Retry(NoBackoff(), 1, supported_errors=_CLOSED)
        )
        self._silence = CircuitBreaker()
        self._is_marked = False
        self._echoes = EventNotifier(lambda echoes: self._ask(lambda: self._publish(echoes)))
        self._echoing = self._redis.connection_pool.make_connection()  # its thread's own

    def echo(self, run_id: UUID, number: int, *, is_over: bool = False) -> None:
        """Tell listeners that events up to `number` are stored; soon, and without waiting for Redis."""
        self._echoes.put(EventNotification(run_id, number, is_over))

    def deliver(self, queue: str, messages: Sequence[bytes], echo: EventNotification | None = None) -> None:
        """Put messages into a queue, if this Redis is the broker as well, and echo an event: one round trip.

        Raises redis.RedisError if it does not take them; the sender of messages has a silence of his own.
        """
        try:
            for first in range(0, len(messages), AT_ONCE):
                with self._redis.pipeline(transaction=False) as pipe:
                    pipe.lpush(queue, *messages[first : first + AT_ONCE])
                    if echo is not None and first == 0:
                        pipe.publish(channel(echo.run_id), echo.said)
                    pipe.execute()
        except redis.ResponseError:  # of the list, which may be full or read-only; the echo went out
            raise
        except redis.RedisError as error:
            self._silence.begins()
            if echo is not None:
                log.warning("bus_unreachable", error=str(error))
            raise

    def call_off(self, run_id: UUID) -> None:
        """Tell every worker to stop this run's attempts. It is tried although Redis has kept silent of late."""
        said = json.dumps({"run": str(run_id)})
        self._ask(lambda: self._redis.publish(CALL_OFF, said), insists=True)

    def set_cancel_key(self, run_id: UUID, seconds: int = 3600) -> None:
        """Mark a run as cancelled for whoever looks at keys."""
        self._ask(lambda: self._redis.set(f"{run_id}-cancel", "x", ex=seconds))

    def clear_cancel_keys(self, run_id: UUID, conversation_id: UUID) -> None:
        """Forget cancels of a run that is over, or about to start. External ids:
        scheduler/messaging/external_cancel_keys.py.
        """
        self.delete_keys(cancel_keys(run_id, conversation_id))

    def delete_keys(self, keys: Collection[str]) -> None:
        """Delete keys."""
        if keys:
            self._ask(lambda: self._redis.delete(*keys))

    def which_are_set(self, keys: Sequence[str]) -> set[str]:
        """Of these keys, those that are set; none if Redis cannot tell."""
        values: Any = self._ask(lambda: self._redis.mget(keys)) if keys else None
        return {key for key, value in zip(keys, values or [], strict=False) if value is not None}

    def show_trace(self, task_id: UUID, message_id: UUID, told: Sequence[Mapping[str, Any]]) -> None:
        """Show a turn's tool calls under the key that readers of RAGFlow's know, for ten minutes."""
        shown = json.dumps(told, ensure_ascii=False)
        self._ask(lambda: self._redis.set(f"{task_id.hex}-{message_id.hex}-logs", shown, ex=TRACE_KEPT))

    def cancelled(self, runs: Mapping[UUID, UUID], names: Mapping[UUID, Collection[str]] | None = None) -> set[UUID]:
        """Of these runs (run -> conversation), the ones that a key cancels; those that Redis can tell of.

        `names`: external ids of those runs that have some.
        """
        asked = list(runs.items())
        named = names or {}
        found: set[UUID] = set()
        for first in range(0, len(asked), ASKED_AT_ONCE):
            part = asked[first : first + ASKED_AT_ONCE]
            keys = [(run, key) for run, of in part for key in cancel_keys(run, of, named.get(run, ()))]
            values: Any = self._ask(lambda keys=keys: self._redis.mget([key for _, key in keys]))
            if values is None:
                break
            found |= {run for (run, _), value in zip(keys, values, strict=True) if value is not None}
        return found

    def is_session_cancelled(self, conversation_id: UUID) -> bool:
        """Whether a key cancels a whole conversation; False if Redis cannot tell."""
        return bool(self._ask(lambda: self._redis.exists(*session_keys(conversation_id))))

    def has_forgotten(self) -> bool:
        """Whether Redis has been emptied since this was asked last; False if that was never, or it cannot tell."""
        answer: Any = self._ask(lambda: (self._redis.set(FLUSH_MARKER, "here", get=True),))
        if answer is None:
            return False
        was_marked, self._is_marked = self._is_marked, True
        return was_marked and answer[0] is None

    def calls_to_stop(self) -> Iterator[UUID | None]:
        """Runs whose attempts are called off, as they come; None every so often, first of all once Redis listens.

        Raises redis.RedisError when Redis goes away, or is not heard of for some seconds.
        """
        client = redis.Redis.from_url(self.url, **_REACH, retry=Retry(NoBackoff(), 0))
        with client, client.pubsub() as subscription:
            subscription.subscribe(CALL_OFF)
            is_subscribed = False
            heard = asked = time.monotonic()
            while True:
                message = subscription.get_message(timeout=0.25)
                now = time.monotonic()
                if message is not None:
                    heard = now
                    is_subscribed = is_subscribed or message["type"] == "subscribe"
                elif now - heard > SUBSCRIPTION_TIMEOUT:
                    raise redis.TimeoutError(f"Redis was not heard of for {SUBSCRIPTION_TIMEOUT:g} s.")
                if now - asked > PROVES_ITSELF_EVERY:
                    asked = now
                    subscription.ping()
                if is_subscribed:
                    is_call = message is not None and message["type"] == "message"
                    yield _called_off(message["data"]) if message is not None and is_call else None

    def ping(self) -> None:
        """Raise redis.RedisError if Redis does not answer."""
        self._redis.ping()

    def close(self) -> None:
        """Close the connections."""
        self._echoes.close()
        self._echoing.disconnect()
        self._redis.close()

    def _publish(self, echoes: Sequence[EventNotification]) -> None:
        """Publish in one round trip. On a bare connection: a client's command costs more than Redis takes for it."""
        commands = [("PUBLISH", channel(echo.run_id), echo.said) for echo in echoes]
        try:
            self._publish_once(commands)
        except redis.ConnectionError:  # it was closed while it lay idle
            self._publish_once(commands)

    def _publish_once(self, commands: Sequence[tuple[Any, ...]]) -> None:
        wire = self._echoing
        try:
            wire.send_packed_command(wire.pack_commands(commands))
            for _ in commands:
                wire.read_response()
        except BaseException:
            wire.disconnect()  # answers that were not read would be taken for others'
            raise

    def _ask(self, command: Callable[[], T], *, insists: bool = False) -> T | None:
        """What Redis says; None if it cannot be asked. `insists`: ask it although it has kept silent of late."""
        if self._silence.holds() and not insists:
            return None
        try:
            said = command()
        except redis.RedisError as error:
            self._silence.begins()
            log.warning("bus_unreachable", error=str(error))
            return None
        self._silence.ends()
        return said


def async_redis(url: str, **options: Any) -> redis.asyncio.Redis:
    """A client for an event loop, which gives up as soon as the bus does."""
    again = redis.asyncio.retry.Retry(NoBackoff(), 1, supported_errors=_CLOSED)
    return redis.asyncio.Redis.from_url(url, **_REACH, retry=again, **options)


_Command = tuple[str, str, bytes]


@dataclass(slots=True)
class _Batch:
    """Pieces that go out together."""

    commands: list[_Command] = field(default_factory=list)
    gone: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class TextDeltaPublisher:
    """A worker's way to listeners: pieces of speech, from its event loop. What is lost lies in its turn's row.

    Speakers do not wait: what they send while one batch is on its way goes out as the next, in one round trip.
    """

    def __init__(self, url: str) -> None:
        self._pool = redis.asyncio.ConnectionPool.from_url(
            url, **{**_REACH, "socket_timeout": None}, retry=redis.asyncio.retry.Retry(NoBackoff(), 0)
        )  # a batch has its time as a whole; one for each answer would cost a task each
        self._connection = self._pool.make_connection()
        self._silence = CircuitBreaker()
        self._batch: _Batch | None = None  # the one to come
        self._sending: asyncio.Task[None] | None = None

    def send(self, run_id: UUID, turn: UUID, epoch: int, offset: int, text: str) -> "asyncio.Future[None]":
        """Say `text`, which stands at `offset` (code points) of the turn's text. Done once it has gone, or was lost."""
        if self._batch is None:
            self._batch = _Batch()
        said = orjson.dumps({"t": str(turn), "ep": epoch, "o": offset, "x": text})
        if len(self._batch.commands) < MOST_WAITING:
            self._batch.commands.append(("PUBLISH", channel(run_id), said))
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
        if self._silence.holds():
            return
        try:
            try:
                await self._ask(commands)
            except redis.ConnectionError:
                await self._ask(commands)  # it was closed while it lay idle
        except (redis.RedisError, OSError, TimeoutError) as error:
            self._silence.begins()
            log.warning("text_delta_not_sent", error=str(error) or f"Redis did not answer within {ANSWERS_WITHIN:g} s")
        else:
            self._silence.ends()

    async def _ask(self, commands: list[_Command]) -> None:
        refused: redis.ResponseError | None = None
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                await self._connection.send_packed_command(self._connection.pack_commands(commands))
                for _ in commands:
                    try:
                        await self._connection.read_response()
                    except redis.ResponseError as error:
                        refused = error  # the others have answers too
        except BaseException:
            await self._connection.disconnect(nowait=True)  # answers that were not read would be taken for others'
            raise
        if refused is not None:
            raise refused
