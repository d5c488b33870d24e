"""Snapshots of runs for the pages that show them live: one reader per run and process for all its clients.

A reader has the only subscription to its run, and relays what it receives: text at most every 50 ms, with what is
adjacent joined, and the number of the last event at most every 250 ms. All clients are given it at the same moment, so
they wake once for many notifications and share one read of the events.

A reader takes a snapshot when an event notification has come, and by a timer, since a claim sends no notification.
Between two snapshots are at least 250 ms and twenty times as long as the last one took, so that a large run slows its
own picture down and not the database. A reader ends with its last client.

A snapshot is encoded once. Its members have versions, so a client that was slow gets those that it does not have, and
rows that it has missed are read again by their revision: no client has a queue of snapshots.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from api.events.event_reader import EventReader
from api.events.live_frames import call_frames, frame_of, steps_frame
from api.events.notification_relay import NotificationRelay
from canvas.budget import usage_json
from canvas.ids import ActivationId, RunId, TenantId
from canvas.state.run_state import RunStatus
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging.subscriptions import EventSubscriptions, Subscription
from scheduler.views.json_values import milliseconds
from scheduler.views.run_totals import (
    NODE_COUNTS,
    budgets_json,
    count_by_status,
    edge_counts,
    first_failure,
    node_list,
    wait_json,
)
from store.db.database import Database
from store.db.transaction import Transaction
from store.monitoring import live_snapshots
from store.monitoring.live_snapshots import LiveSnapshot
from store.monitoring.node_counts import NodeCounts
from store.primitives.json_codec import encode
from store.runs.activation_list import ActivationListRow

log = structlog.get_logger()

MAX_ROWS = 2_000  # activations of a frame
TEXT_INTERVAL = 0.05  # seconds between two relays of text to the clients
MIN_PAUSE = 0.25  # seconds between two snapshots of a run
PAUSE_FACTOR = 20.0  # the pause after a snapshot, as a multiple of its duration
WAITS_INTERVAL = 2.0  # seconds between two explanations of what a run waits for
WORK_INTERVAL = 1.0  # seconds until the next snapshot without a notification: work may lose its lease
IDLE_INTERVAL = 2.0  # the same, if nothing is at work: an answer may come, or a notification may be lost
RETRY_INTERVAL = 2.0  # seconds until the next try after an error of the database
TASK = "easel-live-snapshots"  # the name of the task of a reader
RELAY_TASK = "easel-live-relay"  # of the task that relays its notifications
QUEUE_SIZE = 100  # messages that are queued for a reader while it pauses
LISTEN_INTERVAL = 60.0  # seconds; nothing happens then

LimitOf = Callable[[str], float]
"""Seconds that one attempt of a component may take."""


@dataclass(frozen=True, slots=True)
class Member:
    """An encoded member of `state`. `version`: the number of the snapshot in which it last changed."""

    version: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment, encoded. `rows`: frames with what has changed since revision `since`, and differs from the
    snapshot before; None: too much.
    """

    number: int
    now: datetime
    since: int
    revision: int
    status: RunStatus
    members: Mapping[str, Member]
    rows: bytes | None
    interval: float  # seconds until the next snapshot, if no notification comes

    def state_frame(self, versions: Mapping[str, int]) -> bytes:
        """Return the frame `state` with the members that are newer than these versions; no bytes if there are none."""
        newer = [
            f'"{name}":'.encode() + member.data
            for name, member in self.members.items()
            if member.version > versions.get(name, 0)
        ]
        if not newer:
            return b""
        head = f'{{"now":{milliseconds(self.now)},"revision":{self.revision},'.encode()
        return frame_of("state", head + b",".join(newer) + b"}")

    @property
    def versions(self) -> Mapping[str, int]:
        """The version of each member."""
        return {name: member.version for name, member in self.members.items()}


@dataclass(slots=True)
class _Picture:
    """What a reader knows of its run: the last snapshot, and what the next one is compared with."""

    since: int
    last: Snapshot | None = None
    rows: Mapping[str, tuple[ActivationListRow, int | None]] = field(default_factory=dict[str, Any])
    calls: Mapping[UUID, ActivationId] = field(default_factory=dict[UUID, ActivationId])  # of changed activations
    nodes: Mapping[str, list[Any]] = field(default_factory=dict[str, list[Any]])  # without the time of work
    waits_at: float = 0.0  # when `waits` was last read


def pause_after(seconds: float) -> float:
    """Return the pause after a snapshot that took so many seconds."""
    return max(MIN_PAUSE, PAUSE_FACTOR * seconds)


class SnapshotReader:
    """Takes the snapshots of one run for all its clients. It belongs to one event loop."""

    def __init__(
        self,
        events: EventReader,
        subscriptions: EventSubscriptions,
        versions: VersionCache,
        limit_of: LimitOf,
        count: Callable[[float], None],
        tenant_id: TenantId,
        run_id: RunId,
    ) -> None:
        self._events, self._subscriptions, self._versions = events, subscriptions, versions
        self._limit_of, self._count = limit_of, count
        self._tenant_id, self._run_id = tenant_id, run_id
        self._clients = set[Subscription]()
        self._requested = True
        self._news = Subscription(run_id, QUEUE_SIZE)  # for the next snapshot
        self._relay = NotificationRelay(TEXT_INTERVAL, MIN_PAUSE)
        self._is_listening = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._picture = _Picture(since=0)
        self._last_event = 0  # that the last snapshot has seen
        self._task: asyncio.Task[None] | None = None

    @property
    def last(self) -> Snapshot | None:
        """The last snapshot; None before the first."""
        return self._picture.last

    @property
    def number(self) -> int:
        """The number of the last snapshot; 0 before the first."""
        return self.last.number if self.last is not None else 0

    @property
    def has_clients(self) -> bool:
        """Whether anybody watches the run."""
        return bool(self._clients)

    def add(self, client: Subscription) -> None:
        """Add a client, which is awakened after each snapshot."""
        self._clients.add(client)

    async def listen(self) -> None:
        """Begin to relay notifications if this is the first client. Return when the run is subscribed to."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen(), name=RELAY_TASK)
        await self._is_listening.wait()

    def start(self, revision: int) -> None:
        """Take a snapshot soon, for a client that has the rows of a revision; begin to take them if this is the first.

        The rows of the first snapshot are those that have changed since that revision.
        """
        if self._task is None:
            self._picture.since = revision
            self._task = asyncio.create_task(self._work(), name=TASK)
        self.request()

    def remove(self, client: Subscription) -> None:
        """Remove a client. The reader ends with its last client."""
        self._clients.discard(client)
        if not self._clients:
            self.cancel()

    def cancel(self) -> None:
        """End the reader."""
        for task in (self._task, self._listening):
            if task is not None:
                task.cancel()

    def request(self) -> None:
        """Take the next snapshot as soon as the pause is over."""
        self._requested = True
        self._news.wake()

    async def _listen(self) -> None:
        """Relay the notifications of the run, and begin again after an error."""
        while True:
            try:
                async with self._subscriptions.subscribe(self._run_id) as subscription:
                    self._is_listening.set()
                    await self._relay_from(subscription)
            except Exception:  # its clients wait for notifications, so the task must not end
                log.exception("live_relay_failed", run_id=str(self._run_id))
            finally:
                self._is_listening.set()  # no client waits for a subscription that does not come
            await asyncio.sleep(RETRY_INTERVAL)
            self.request()  # what was missed is in the next snapshot, and in the rows of the events
            self._relay.add({})

    async def _relay_from(self, subscription: Subscription) -> None:
        """Relay notifications to the next snapshot at once, and to the clients when it is time."""
        clock = asyncio.get_running_loop().time
        while True:
            due_at = self._relay.due_at
            seconds = LISTEN_INTERVAL if due_at is None else max(0.0, due_at - clock())
            notification = await subscription.get(seconds)
            while notification is not None:
                self._news.deliver(notification)
                self._relay.add(notification)
                notification = subscription.poll()
            for message in self._relay.take_due(clock()):
                for client in self._clients:
                    client.deliver(message)

    async def _work(self) -> None:
        while True:
            self._requested = False
            began = time.monotonic()
            interval = RETRY_INTERVAL
            try:
                seconds = await self._events.in_thread(self._take)
            except SQLAlchemyError as error:
                seconds = time.monotonic() - began
                log.warning("live_snapshot_failed", run_id=str(self._run_id), error=str(error).splitlines()[0])
            except Exception:  # its clients wait for snapshots, so the task must not end
                seconds = time.monotonic() - began
                log.exception("live_snapshot_failed", run_id=str(self._run_id))
            else:
                self._count(seconds)
                interval = self.last.interval if self.last is not None else IDLE_INTERVAL
            for client in self._clients:
                client.wake()
            await asyncio.sleep(pause_after(seconds))
            await self._wait(interval - pause_after(seconds))

    async def _wait(self, seconds: float) -> None:
        """Wait until a snapshot is requested, events are stored that the last one has not seen, or time is over."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while not self._requested and (left := until - clock()) > 0:
            notification = await self._news.get(left)
            while notification is not None:
                self._requested |= self._is_news(notification)
                notification = self._news.poll()

    def _is_news(self, notification: Mapping[str, Any]) -> bool:
        match notification:
            case {"n": int() as number, **more}:
                is_over = self.last is not None and self.last.status.is_over
                return number > self._last_event or (bool(more.get("over")) and not is_over)
            case {"t": _}:
                return False  # text
            case _:
                return True

    # -- in a thread --------------------------------------------------------------------------------------------------
    def _take(self, database: Database) -> float:
        """Take a snapshot and encode it; return how many seconds that took."""
        began = time.monotonic()
        picture = self._picture
        with database.transaction() as tx:
            found = live_snapshots.read_snapshot(
                tx,
                self._tenant_id,
                self._run_id,
                since=picture.since,
                limit=MAX_ROWS,
                known_calls=picture.calls.keys(),
            )
            if found is not None:
                self._picture = self._next_picture(tx, picture, found)
                self._last_event = found.run.last_event
        return time.monotonic() - began

    def _next_picture(self, tx: Transaction, picture: _Picture, found: LiveSnapshot) -> _Picture:
        run, changes = found.run, found.changes
        number = self.number + 1
        canvas = self._versions.get_or_empty(tx, run.version_id).canvas
        nodes = {each.node_id: node_list(canvas, each) for each in found.counts}
        without_time = {node_id: _without_work_ms(counts) for node_id, counts in nodes.items()}
        waits_at, is_first = picture.waits_at, picture.last is None
        values: dict[str, Any] = {
            "status": run.status,
            "counts": count_by_status(found.counts),
            "nodes": nodes if is_first or without_time != picture.nodes else None,
            "edges": edge_counts(canvas, found.outcomes),
            "progress": {"activated": run.activated or 0, "active": run.active or 0, "queued": run.queued or 0},
            "usage": usage_json(run.usage),
            "budget": budgets_json(tx, self._tenant_id, self._run_id) if run.budgeted else None,
            "waits": None,
            "first_failure": first_failure(tx, canvas, self._run_id, run.failing),
            "error": run.error or None,
        }
        if picture.last is None or picture.last.status != run.status or time.monotonic() >= waits_at + WAITS_INTERVAL:
            waits_at = time.monotonic()
            values["waits"] = wait_json(tx, self._tenant_id, self._run_id, canvas, self._limit_of)
        unread = {name for name in ("nodes", "waits") if values[name] is None}
        values = {name: value for name, value in values.items() if name not in unread}
        rows = {row.id: (row, changes.last_finished.get(row.id)) for row in changes.rows}
        changed = [row for row in changes.rows if picture.rows.get(row.id) != rows[row.id]]
        new_calls = {call.id: call.activation_id for call in found.calls}
        known = {call: step for call, step in {**picture.calls, **new_calls}.items() if step.hex in rows}
        encoded = steps_frame(run.revision, changed, changes.last_finished) + call_frames(found.calls)
        return _Picture(
            since=run.revision,
            last=Snapshot(
                number=number,
                now=run.now,
                since=picture.since,
                revision=run.revision,
                status=RunStatus(run.status),
                members=next_members(picture.last, number, values),
                rows=None if changes.has_more else encoded,
                interval=_interval_of(found.counts),
            ),
            rows={} if changes.has_more else rows,
            calls={} if changes.has_more else known,
            nodes=without_time,
            waits_at=waits_at,
        )


def next_members(last: Snapshot | None, number: int, values: Mapping[str, Any]) -> Mapping[str, Member]:
    """Return the members with new versions of those whose data has changed; those without a value stay as they are."""
    members = dict(last.members) if last is not None else {}
    for name, value in values.items():
        data = encode(value).encode()
        known = members.get(name)
        if known is None or known.data != data:
            members[name] = Member(number, data)
    return members


def _without_work_ms(counts: list[Any]) -> list[Any]:
    at = NODE_COUNTS.index("work_ms")
    return [*counts[:at], *counts[at + 1 :]]


def _interval_of(counts: Sequence[NodeCounts]) -> float:
    """Return the seconds until the next snapshot without a notification.

    Activations that are ready may be claimed, and reports applied, at any moment.
    """
    states = {state for each in counts for state in each.states}
    if states & {"ready", "reported"}:
        return MIN_PAUSE
    return WORK_INTERVAL if states & {"delayed", "running", "unresponsive"} else IDLE_INTERVAL


class SnapshotReaders:
    """The snapshot readers of a process, by tenant and run."""

    def __init__(
        self,
        events: EventReader,
        subscriptions: EventSubscriptions,
        versions: VersionCache,
        limit_of: LimitOf,
        count: Callable[[float], None],
    ) -> None:
        self._make = partial(SnapshotReader, events, subscriptions, versions, limit_of, count)
        self._readers: dict[tuple[TenantId, RunId], SnapshotReader] = {}

    def __len__(self) -> int:
        return len(self._readers)

    @contextmanager
    def watch(self, tenant_id: TenantId, run_id: RunId, client: Subscription) -> Generator[SnapshotReader]:
        """Yield the reader of a run, started if the run has none, and add the client to its clients."""
        key = (tenant_id, run_id)
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = self._make(tenant_id, run_id)
        reader.add(client)
        try:
            yield reader
        finally:
            reader.remove(client)
            if not reader.has_clients and self._readers.get(key) is reader:
                del self._readers[key]

    def close(self) -> None:
        """End all readers."""
        for reader in self._readers.values():
            reader.cancel()
        self._readers.clear()
