"""The bus: Redis channels that carry echoes of a run's events, pieces of its speech, and calls to stop its attempts.

Nothing on the bus is a fact. Losing everything on it costs a listener a look at the rows and an attempt the wait for
its next renewal.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

import redis
import redis.asyncio
import structlog

log = structlog.get_logger()

CALL_OFF = "easel:call-off"
TRACE_KEPT = 600  # seconds


def channel(run_id: UUID) -> str:
    """The channel on which a run's echoes and pieces travel."""
    return f"easel:run:{run_id}"


def cancel_keys(run_id: UUID, conversation_id: UUID) -> tuple[str, str, str, str]:
    """Keys that cancel a run, whoever sets them: run and session id, with and without hyphens (decisions.md 9)."""
    return (
        f"{run_id}-cancel",
        f"{conversation_id}-cancel",
        f"{run_id.hex}-cancel",
        f"{conversation_id.hex}-cancel",
    )


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
    """A process's connection to Redis for hints that are no tasks. Calls that fail are logged and forgotten."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._redis: redis.Redis = redis.Redis.from_url(
            url, socket_timeout=2, socket_connect_timeout=1, socket_keepalive=True, health_check_interval=10
        )

    def echo(self, run_id: UUID, number: int, *, is_over: bool = False) -> None:
        """Tell listeners that events up to `number` are stored."""
        self._publish(channel(run_id), {"n": number, "over": is_over})

    def call_off(self, run_id: UUID) -> None:
        """Tell every worker to stop this run's attempts."""
        self._publish(CALL_OFF, {"run": str(run_id)})

    def _publish(self, to: str, message: dict[str, Any]) -> None:
        try:
            self._redis.publish(to, json.dumps(message))
        except redis.RedisError as error:
            log.warning("bus_unreachable", channel=to, error=str(error))

    def set_cancel_key(self, run_id: UUID, seconds: int = 3600) -> None:
        """Mark a run as cancelled for whoever looks at keys."""
        try:
            self._redis.set(f"{run_id}-cancel", "x", ex=seconds)
        except redis.RedisError as error:
            log.warning("bus_unreachable", error=str(error))

    def clear_cancel_keys(self, run_id: UUID, conversation_id: UUID) -> None:
        """Forget cancels of a run that is over, or about to start."""
        try:
            self._redis.delete(*cancel_keys(run_id, conversation_id))
        except redis.RedisError as error:
            log.warning("bus_unreachable", error=str(error))

    def show_trace(self, task_id: UUID, message_id: UUID, told: Sequence[Mapping[str, Any]]) -> None:
        """Show a turn's tool calls under the key that readers of RAGFlow's know (engine 5.7), for ten minutes."""
        try:
            self._redis.set(f"{task_id.hex}-{message_id.hex}-logs", json.dumps(told, ensure_ascii=False), ex=TRACE_KEPT)
        except redis.RedisError as error:
            log.warning("bus_unreachable", error=str(error))

    def cancelled(self, runs: dict[UUID, UUID]) -> set[UUID]:
        """Of these runs (run -> conversation), the ones that a key cancels; none if Redis is away."""
        if not runs:
            return set()
        keys = [(run, key) for run, conversation in runs.items() for key in cancel_keys(run, conversation)]
        try:
            found: list[Any] = self._redis.mget([key for _, key in keys])  # pyright: ignore[reportAssignmentType] (sync client)
        except redis.RedisError as error:
            log.warning("bus_unreachable", error=str(error))
            return set()
        return {run for (run, _), value in zip(keys, found, strict=True) if value is not None}

    def calls_to_stop(self) -> Iterator[UUID | None]:
        """Runs whose attempts are called off, as they come; None every so often. Ends when Redis goes away."""
        with self._redis.pubsub(ignore_subscribe_messages=True) as subscription:
            subscription.subscribe(CALL_OFF)
            while True:
                message = subscription.get_message(timeout=0.25)
                yield _called_off(message["data"]) if message else None

    def ping(self) -> None:
        """Raise redis.RedisError if Redis does not answer."""
        self._redis.ping()

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()


class Pieces:
    """A worker's way to listeners: pieces of speech, from its event loop. What is lost lies in its turn's row."""

    def __init__(self, url: str) -> None:
        self._redis = redis.asyncio.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=1)

    async def send(self, run_id: UUID, turn: UUID, epoch: int, offset: int, text: str) -> None:
        """Say `text`, which stands at `offset` (code points) of the turn's text."""
        message = {"t": str(turn), "ep": epoch, "o": offset, "x": text}
        try:
            await self._redis.publish(channel(run_id), json.dumps(message))
        except redis.RedisError as error:
            log.warning("piece_not_sent", error=str(error))

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
