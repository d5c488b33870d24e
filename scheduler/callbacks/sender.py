"""The sender of callbacks: a thread of the sweeper that claims what is due, sends it, and records what came of it.

It asks the database twice a second, so a callback leaves within a moment of the commit that it is about, and nothing is
lost with a message. Every sweeper has one: a delivery is claimed by one of them. The thread has its own event loop, and
one more thread for the database, so neither a slow receiver nor a slow database delays the sweeper.
"""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.errors import ExecutorError, ToolError
from providers.interfaces import HttpCall, StreamingHttp
from scheduler.callbacks.bodies import body_of
from scheduler.callbacks.retries import DEFAULT_SCHEDULE, RetrySchedule, parse_retry_after
from scheduler.callbacks.signature import signed_headers
from scheduler.coordinator.version_cache import VersionCache
from store.db.database import Database
from store.primitives.encryption import EncryptionKey
from store.tenants import callback_deliveries, callbacks
from store.tenants.callback_deliveries import AttemptResult, DeliveryStatus, DueDelivery

log = structlog.get_logger()
T = TypeVar("T")

POLL = 0.5  # seconds between two looks at an empty queue
PAUSE_AFTER_OUTAGE = 2.0  # seconds
MAX_ERROR = 500  # characters of an error, and of an answer that refuses
ENDING = 2.0  # seconds that requests have when the sender ends; what is not recorded is sent again
GONE = 410


@dataclass(frozen=True, slots=True)
class SendingLimits:
    """How callbacks are sent. `requests`: at the same time. `of_each`: how many of one callback are claimed together.

    A callback with as many open requests is left out, so it never has twice as many.
    """

    timeout: float = 10.0  # seconds of a request, from the look-up of its host to the status of the answer
    requests: int = 16
    of_each: int = 4
    schedule: RetrySchedule = DEFAULT_SCHEDULE
    public_url: str | None = None


@dataclass(frozen=True, slots=True)
class _Message:
    """What an attempt sends."""

    body: bytes = field(repr=False)
    secrets: list[str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class CallbackSender:
    """One sender. `key` is called when the first secret is opened: a sweeper without callbacks needs no key."""

    database: Database
    versions: VersionCache
    http: StreamingHttp
    key: Callable[[], EncryptionKey]
    limits: SendingLimits = SendingLimits()
    count: Callable[[str], None] = lambda result: None  # delivered | retried | dead

    def run(self, ending: threading.Event) -> None:
        """Send what is due until `ending` is set."""
        while not ending.is_set():
            try:
                with ThreadPoolExecutor(1, thread_name_prefix="easel-callbacks-db") as reader:
                    asyncio.run(self._run(ending, reader))
            except Exception as error:  # noqa: BLE001 (a thread that ended would send nothing, and nobody would notice)
                log.error("callback_sender_failed", error=_first_line(error))
                ending.wait(PAUSE_AFTER_OUTAGE)

    async def _run(self, ending: threading.Event, reader: ThreadPoolExecutor) -> None:
        running: dict[asyncio.Task[None], UUID] = {}
        while not ending.is_set():
            free = self.limits.requests - len(running)
            at_work = Counter(running.values())
            busy = [callback for callback, count in at_work.items() if count >= self.limits.of_each]
            try:
                claimed = await self._in_thread(reader, lambda free=free, busy=busy: self._claim(free, busy))
            except Exception as error:  # noqa: BLE001 (whatever it is, the next look may succeed)
                log.warning("callbacks_not_claimed", error=_first_line(error))
                claimed = []
                await asyncio.sleep(PAUSE_AFTER_OUTAGE)
            for delivery in claimed:
                running[asyncio.create_task(self._deliver(delivery, reader))] = delivery.callback_id
            if running:
                done, _ = await asyncio.wait(running, timeout=POLL, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del running[task]
            else:
                await asyncio.sleep(POLL)
        if running:
            _, late = await asyncio.wait(running, timeout=ENDING)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _in_thread(self, reader: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(reader, work)

    # -- in the thread for the database -----------------------------------------------------------------------------
    def _claim(self, free: int, busy: list[UUID]) -> list[DueDelivery]:
        if free <= 0:
            return []
        with self.database.transaction() as tx:
            if not callback_deliveries.has_due(tx):
                return []
            return callback_deliveries.claim_due(tx, most=free, most_of_each=self.limits.of_each, busy=busy)

    def _prepare(self, delivery: DueDelivery) -> _Message:
        """Return what to send: the stored body, or a new one, which is stored, and the secrets that sign."""
        with self.database.transaction() as tx:
            body = delivery.body
            if body is None:
                body = body_of(tx, self.versions, delivery, self.limits.public_url)
                callback_deliveries.put_body(tx, delivery.tenant_id, delivery.id, body)
            columns = delivery.secret_columns
            if columns["sealed_secret"] is None:
                secrets = callbacks.tenant_secrets(tx, delivery.tenant_id, self.key(), delivery.now)
            else:
                secrets = callbacks.unseal_secrets(
                    self.key(), delivery.tenant_id, delivery.callback_id, columns, delivery.now
                )
        return _Message(body.encode(), secrets)

    def _record(
        self, delivery: DueDelivery, at: datetime, result: AttemptResult, retry_after: timedelta | None
    ) -> None:
        status, wait = self._next(delivery, result, retry_after)
        with self.database.transaction() as tx:
            recorded = callback_deliveries.record(
                tx, delivery.tenant_id, delivery.id, delivery.attempt, result, at=at, status=status, wait=wait
            )
            if recorded and result.status == GONE:
                callbacks.disable_gone(tx, delivery.tenant_id, delivery.callback_id)
        if not recorded:  # a replay, or another sender after the claim ended, has begun a later attempt
            return
        self.count("retried" if status is DeliveryStatus.PENDING else status.value)
        if status is DeliveryStatus.DEAD:
            log.warning(
                "callback_dead",
                delivery_id=delivery.id.hex,
                callback_id=delivery.callback_id.hex,
                tenant_id=str(delivery.tenant_id),
                run_id=delivery.run_id.hex if delivery.run_id is not None else None,
                attempts=delivery.attempt,
                status=result.status,
            )

    def _next(
        self, delivery: DueDelivery, result: AttemptResult, retry_after: timedelta | None
    ) -> tuple[DeliveryStatus, timedelta]:
        """Return what a delivery is after an attempt, and the time until the next one."""
        if result.status is not None and 200 <= result.status < 300:
            return DeliveryStatus.DELIVERED, timedelta(0)
        if delivery.url is None or delivery.is_disabled or result.status == GONE:
            return DeliveryStatus.DEAD, timedelta(0)
        now = delivery.now + timedelta(milliseconds=result.elapsed_ms)  # the database's clock, as `round_at`
        chance = random.random()  # noqa: S311 (jitter needs no secrecy)
        wait = self.limits.schedule.next_wait(delivery.tries, delivery.round_at, now, chance, retry_after)
        return (DeliveryStatus.PENDING, wait) if wait is not None else (DeliveryStatus.DEAD, timedelta(0))

    # -- in the event loop ------------------------------------------------------------------------------------------
    async def _deliver(self, delivery: DueDelivery, reader: ThreadPoolExecutor) -> None:
        """Make one attempt and record it. If that fails, the claim ends, and the delivery is due again."""
        at, started = datetime.now(UTC), time.monotonic()
        retry_after: timedelta | None = None
        status: int | None = None
        try:
            if delivery.url is None:
                error = "The callback was deleted."
            elif delivery.is_disabled:
                error = "The callback is disabled. Enable it, then replay the delivery."
            else:
                message = await self._in_thread(reader, lambda: self._prepare(delivery))
                status, retry_after, error = await self._send(delivery, delivery.url, message, at)
        except (ExecutorError, OSError) as problem:  # no address, no answer, or a secret that does not open
            error = problem.message if isinstance(problem, ExecutorError) else _first_line(problem)
        except SQLAlchemyError as problem:
            error = "The database did not answer while the body was made."
            log.warning("callback_not_prepared", delivery_id=delivery.id.hex, error=_first_line(problem))
        except Exception as problem:  # noqa: BLE001 (a bug that concerns one delivery must not stop the others)
            error = "The body could not be made. The sweeper's log has the reason."
            log.error("callback_not_prepared", delivery_id=delivery.id.hex, error=_first_line(problem))
        result = AttemptResult(status, round((time.monotonic() - started) * 1000), error[:MAX_ERROR])
        try:
            await self._in_thread(reader, lambda: self._record(delivery, at, result, retry_after))
        except Exception as problem:  # noqa: BLE001 (likewise)
            log.warning("callback_not_recorded", delivery_id=delivery.id.hex, error=_first_line(problem))

    async def _send(
        self, delivery: DueDelivery, url: str, message: _Message, at: datetime
    ) -> tuple[int, timedelta | None, str]:
        """Send an attempt; return the status of the answer, its `Retry-After`, and why it is not a success.

        Raises ToolError if there is no answer. Of an answer that accepts, the body is not read.
        """
        headers = signed_headers(delivery.id, at, message.body, message.secrets)
        call = HttpCall("POST", url, headers=headers, content=message.body, timeout=self.limits.timeout)
        async with self.http.stream(call) as answer:
            if 200 <= answer.status < 300:
                return answer.status, None, ""
            retry_after = parse_retry_after(answer.headers.get("retry-after"), at)
            text = b""
            with suppress(ToolError):
                async for part in answer.chunks:
                    text += part
                    if len(text) >= MAX_ERROR:
                        break
        shown = text[:MAX_ERROR].decode("utf-8", "replace").replace("\0", "").strip()
        return answer.status, retry_after, shown or f"The receiver answered with status {answer.status}."


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:MAX_ERROR] or type(error).__name__
