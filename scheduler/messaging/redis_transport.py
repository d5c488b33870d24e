"""Celery's Redis transport, changed in four ways.

Unacknowledged task messages: kombu records in Redis which messages each process holds, and removes the record when a
task ends. These two transactions per message cost more than everything else that Celery does for it. Task messages
that may be lost ("droppable": those of `droppable_queues` and `own_queues`) need no record: the activation of a lost
worker is a ready row, and the sweeper sends its task message again within seconds, long before the visibility timeout
would (docs/decisions/0015-task-messages-are-not-acknowledged.md). They are recorded in memory only.

Broken connections: kombu requeues unacknowledged messages when a channel closes, and acknowledges messages when tasks
end. On a broken connection both raise, which ends the worker with everything in flight (kombu 5.7). Here such messages
are dropped: their rows are leased, or ready and sent again.

Batches: kombu fetches one message per command and per cycle of its event loop. Here, while a queue has droppable
messages, the next command fetches more, up to the process's capacity; with few messages they are left for others.

Malformed messages: kombu decodes messages in its event loop, and an error there ends the worker, too. Here each message
is decoded by itself, and a malformed one is dropped with a log line (`scheduler/messaging/consumer.py`).
"""

from collections.abc import Sequence
from functools import partial
from queue import Empty
from time import monotonic
from typing import Any

from kombu.asynchronous import get_event_loop
from kombu.transport import redis, virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads
from redis.exceptions import ConnectionError as RedisConnectionError

from scheduler.messaging.celery_app import Capacity
from scheduler.messaging.malformed_messages import FIRST_BYTES, is_of_broker, log_malformed

MAX_BATCH = 16  # messages that one command fetches; other processes cannot get them meanwhile
CAPACITY_CHECK_INTERVAL = 0.05  # seconds between checks of the capacity while there is none


class QoS(redis.QoS):
    """The unacknowledged messages of a channel, up to its prefetch count, recorded in Redis or in memory only."""

    def append(self, message: Any, delivery_tag: str) -> None:
        """Record an unacknowledged message."""
        if self.channel.is_droppable(message):
            virtual.QoS.append(self, message, delivery_tag)
        else:
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message."""
        if self._find_droppable(delivery_tag) is not None:
            virtual.QoS.ack(self, delivery_tag)
        else:
            super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Reject a message; with `requeue` it goes to the end of its queue."""
        message = self._find_droppable(delivery_tag)
        if message is None:
            super().reject(delivery_tag, requeue=requeue)
            return
        if requeue:
            self.channel.requeue([message], last=True)
        virtual.QoS.ack(self, delivery_tag)

    def restore_unacked(self, client: Any = None) -> None:
        """Requeue all unacknowledged messages; droppable ones in one round trip, so that a shutdown is quick."""
        unacknowledged: Any = self._delivered
        droppable = {tag: message for tag, message in unacknowledged.items() if self.channel.is_droppable(message)}
        if droppable:
            self.channel.requeue(list(droppable.values()))
        for tag in droppable:
            del unacknowledged[tag]
        super().restore_unacked(client)

    def _find_droppable(self, delivery_tag: str) -> Any:
        """Return an unacknowledged message if it is droppable, else None."""
        unacknowledged: Any = self._delivered
        message = unacknowledged.get(delivery_tag)
        return message if message is not None and self.channel.is_droppable(message) else None


class RedisChannel(redis.Channel):
    """A channel that does not record droppable messages in Redis, and uses no broken connection."""

    QoS = QoS
    droppable_queues: tuple[str, ...] = ()  # transport option: queues whose messages are droppable
    own_queues: tuple[str, ...] = ()  # transport option: prefixes of queues that a process sends to itself
    capacity: Capacity | None = None  # transport option: how many messages to fetch; worker/fastpath/admission.py
    from_transport_options = (*redis.Channel.from_transport_options, "droppable_queues", "own_queues", "capacity")
    _is_check_scheduled = False  # a check of the capacity is scheduled
    _command_client: Any = None  # the client for commands
    _has_blmpop = True  # until the server refuses it, as Redis before 7 does
    _requested = 1  # number of messages that the command in flight requests

    def is_droppable(self, message: Any) -> bool:
        """Whether a message is droppable: losing it costs time only."""
        return self._is_droppable_queue(message.delivery_info.get("routing_key") or "")

    def _is_droppable_queue(self, queue: str) -> bool:
        return queue in self.droppable_queues or queue.startswith(self.own_queues)

    def requeue(self, messages: list[Any], *, last: bool = False) -> None:
        """Requeue messages in their old order: as the next ones, or with `last` as the last ones."""
        with self.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
            for message in messages if last else reversed(messages):
                came = message.delivery_info
                self._do_restore_message(message._raw, came["exchange"], came["routing_key"], pipe, last)
            pipe.execute()

    def close(self) -> None:
        """Close the channel, and requeue unacknowledged messages if the connection is intact."""
        if self._is_cut_off():
            self.do_restore = False
        super().close()

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message if its connection is intact."""
        if not self._is_cut_off():
            super().basic_ack(delivery_tag, multiple=multiple)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Reject a message if its connection is intact."""
        if not self._is_cut_off():
            super().basic_reject(delivery_tag, requeue=requeue)

    # -- batches -------------------------------------------------------------------------------------------------
    def _brpop_start(self, timeout: Any = None) -> None:
        """Request the next message, or several if the last command got as many as it requested."""
        capacity = self._free_capacity()
        if not capacity:
            return
        self._requested = self._batch_size(self._requested, capacity)
        if self._requested == 1:
            super()._brpop_start(timeout)
            return
        queues = self._queue_cycle.consume(len(self.active_queues))
        keys = [self._q_for_pri(queue, step) for step in self.priority_steps for queue in queues]
        self._in_poll = self.client.connection
        self._brpop_sent_at = monotonic()
        command = ("BLMPOP", timeout or self.brpop_timeout, len(keys), *keys, "RIGHT", "COUNT", self._requested)
        self.client.connection.send_command(*command)

    def _brpop_read(self, **options: Any) -> Any:
        """Deliver the received messages. Raises Empty if there are none."""
        asked_for, self._requested = self._requested, 1
        queue, messages = self._read_batch(asked_for, options)
        self._queue_cycle.rotate(queue)
        for message in messages:
            self._deliver_message(message, queue)
        self._requested = 2 * asked_for if len(messages) == asked_for else 1
        return True

    def _deliver_message(self, raw: bytes, queue: str) -> None:
        """Deliver one message; drop a malformed one."""
        try:
            message = _decode_message(raw)
            self.connection._deliver(message, queue)
        except Exception as error:
            if is_of_broker(error, self.connection_errors):
                raise
            log_malformed(queue, error, bytes=len(raw), begins=repr(raw[:FIRST_BYTES]))

    def _receive_one(self, c: Any) -> Any:
        """Receive a broadcast message; drop a malformed one."""
        try:
            return super()._receive_one(c)
        except Empty:
            raise
        except Exception as error:
            if is_of_broker(error, self.connection_errors):
                raise
            log_malformed("sent to all", error)
            raise Empty from error

    def _read_batch(self, asked_for: int, options: dict[str, Any]) -> tuple[str, Sequence[bytes]]:
        """Return a queue and messages of it. Raises Empty if there are none.

        The shape of the reply counts, since kombu may have sent another command than the last one of this channel.
        After the reply of any other command the connection is closed, and ConnectionError raised.
        """
        command = "BRPOP" if asked_for == 1 else "BLMPOP"
        try:
            found = self.client.parse_response(self.client.connection, command, **options)
        except self.ResponseError as error:
            if asked_for == 1:
                raise
            self._has_blmpop = False
            raise Empty from error
        except self.connection_errors:
            self.client.connection.disconnect()  # so that it is opened again in the next cycle
            raise
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        if not found:
            raise Empty
        match found:
            case [bytes() as queue, bytes() as message]:
                messages = [message]
            case [bytes() as queue, list() as messages] if all(isinstance(message, bytes) for message in messages):
                pass
            case _:
                self.client.connection.disconnect()
                raise RedisConnectionError(f"Redis answered a request for messages with {str(found)[:100]}.")
        return bytes_to_str(queue).rsplit(self.sep, 1)[0], messages

    def _free_capacity(self) -> int:
        """Return how many messages may be fetched. If it is 0, Celery's loop is woken when that may have changed."""
        of_celery = self.qos.can_consume_max_estimate()
        capacity = MAX_BATCH if of_celery is None else max(1, of_celery)
        hub: Any = get_event_loop()
        if self.capacity is None or hub is None or not self._has_only_droppable():
            return capacity
        capacity = min(capacity, self.capacity(partial(hub.call_soon, _wake_loop)))
        if not capacity and not self._is_check_scheduled:
            self._is_check_scheduled = True
            hub.call_later(CAPACITY_CHECK_INTERVAL, self._end_capacity_check)
        return capacity

    def _end_capacity_check(self) -> None:
        self._is_check_scheduled = False

    def _has_only_droppable(self) -> bool:
        return all(map(self._is_droppable_queue, self.active_queues))

    def _batch_size(self, count: int, capacity: int) -> int:
        """Return how many of `count` messages to request; 1 if not all queues have only droppable messages."""
        if not self._has_blmpop or not self._has_only_droppable():
            return 1
        return min(count, MAX_BATCH, capacity)

    def _create_client(self, asynchronous: bool = False) -> Any:
        """Return a client, the same for all commands: kombu creates one per command, which costs more than it."""
        if asynchronous:  # these have a connection of their own
            return super()._create_client(asynchronous)
        if self._command_client is None or self._command_client.connection_pool is not self.pool:
            self._command_client = super()._create_client()
        return self._command_client

    def _is_cut_off(self) -> bool:
        transport: Any = self.connection
        return transport is None or transport.client is None


def _decode_message(raw: bytes) -> dict[str, Any]:
    """Decode a message in kombu's format. Raises ValueError, or an error of the decoder, for any other."""
    message = loads(bytes_to_str(raw))
    properties = message.get("properties") if isinstance(message, dict) else None
    if not isinstance(properties, dict):
        raise ValueError("The message has no properties.")
    came = properties.get("delivery_info")
    if not isinstance(properties.get("delivery_tag"), str) or not isinstance(came, dict):
        raise ValueError("The message has no delivery tag, or no delivery info.")
    if not isinstance(came.get("routing_key"), str) or not isinstance(message.get("headers") or {}, dict):
        raise ValueError("The message has no routing key, or its headers are not an object.")
    return message


def _wake_loop() -> None:
    """Do nothing; scheduling this function wakes the event loop."""


class RedisTransport(redis.Transport):
    """kombu's Redis transport with the changed channel."""

    Channel = RedisChannel
