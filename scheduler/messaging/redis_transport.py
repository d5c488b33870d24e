"""Celery's Redis transport, for hints, and for connections that break while messages are being worked on.

Kombu writes down in Redis what each process has in hand, and crosses it out when a task ends: two transactions a
message, dearer than everything else that Celery does for one. A hint needs none of that. What a dying worker had in
hand is a row that is ready, and the sweeper sends its hint again within seconds (decision 15), long before the
visibility timeout would. So of queues that carry hints only, account is kept in memory; of others as kombu does it.

Kombu puts unacknowledged messages back when a channel closes, and acknowledges them when their tasks end. On a
connection that has broken neither can be done, and what it then raises ends the whole worker with everything it has in
flight (kombu 5.7). Here such messages are let go of: their rows are held by leases, or are ready and hinted anew.

Kombu takes one message with each command, and goes once around its event loop for it. Where hints stand in line, more
are taken with the next command, up to what the process has room for; where few come, they are left for others.

Kombu decodes messages in its event loop, and an error over one that it cannot read ends the whole worker, too. Here
each is decoded by itself, and one that cannot be read is dropped with a log line (`scheduler/messaging/consumer.py`).
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

from scheduler.messaging.celery_app import Capacity
from scheduler.messaging.malformed_messages import FIRST_BYTES, is_of_broker, not_understood

MOST_AT_ONCE = 16  # hints that one command takes; what others cannot have meanwhile
LOOKS_EVERY = 0.05  # seconds, for room, where nobody tells that there is some


class QoS(redis.QoS):
    """What a channel has in hand: as much as its prefetch count allows, whether it is written down in Redis or not."""

    def append(self, message: Any, delivery_tag: str) -> None:
        """Take a message in hand."""
        if self.channel.is_hint(message):
            virtual.QoS.append(self, message, delivery_tag)
        else:
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """A message is done."""
        if self._hint(delivery_tag) is not None:
            virtual.QoS.ack(self, delivery_tag)
        else:
            super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """A message will not be worked on here; `requeue`: it goes to the end of its queue."""
        hint = self._hint(delivery_tag)
        if hint is None:
            super().reject(delivery_tag, requeue=requeue)
            return
        if requeue:
            self.channel.put_back([hint], last=True)
        virtual.QoS.ack(self, delivery_tag)

    def restore_unacked(self, client: Any = None) -> None:
        """Put back everything in hand; hints in one go, so that a process that goes down is quick about it."""
        in_hand: Any = self._delivered
        hints = {tag: message for tag, message in in_hand.items() if self.channel.is_hint(message)}
        if hints:
            self.channel.put_back(list(hints.values()))
        for tag in hints:
            del in_hand[tag]
        super().restore_unacked(client)

    def _hint(self, delivery_tag: str) -> Any:
        """The message, if it is a hint in hand."""
        in_hand: Any = self._delivered
        message = in_hand.get(delivery_tag)
        return message if message is not None and self.channel.is_hint(message) else None


class Channel(redis.Channel):
    """A channel that writes down no hints, and asks nothing of a connection that is gone."""

    QoS = QoS
    hint_queues: tuple[str, ...] = ()  # a transport option
    own_queues: tuple[str, ...] = ()  # likewise: how queues begin that a process fills for itself
    room: Capacity | None = None  # likewise: how many hints to take; worker/fastpath/admission.py
    from_transport_options = (*redis.Channel.from_transport_options, "hint_queues", "own_queues", "room")
    _will_look = False  # for room
    _asking: Any = None
    _has_blmpop = True  # until the server refuses it, as Redis before 7 does
    _asked_for = 1  # messages, by the command that is on its way

    def is_hint(self, message: Any) -> bool:
        """Whether losing this message costs time and nothing else."""
        return self._is_of_hints(message.delivery_info.get("routing_key") or "")

    def _is_of_hints(self, queue: str) -> bool:
        return queue in self.hint_queues or queue.startswith(self.own_queues)

    def put_back(self, messages: list[Any], *, last: bool = False) -> None:
        """Put messages back into their queues, to be taken next and in their old order, or last."""
        with self.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
            for message in messages if last else reversed(messages):
                came = message.delivery_info
                self._do_restore_message(message._raw, came["exchange"], came["routing_key"], pipe, last)
            pipe.execute()

    def close(self) -> None:
        """Put back what was not begun, if there is anybody to give it to."""
        if self._is_cut_off():
            self.do_restore = False
        super().close()

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message, if it came over a connection that is still there."""
        if not self._is_cut_off():
            super().basic_ack(delivery_tag, multiple=multiple)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back, likewise."""
        if not self._is_cut_off():
            super().basic_reject(delivery_tag, requeue=requeue)

    # -- taking several ------------------------------------------------------------------------------------------
    def _brpop_start(self, timeout: Any = None) -> None:
        """Ask for the next message, or for several if the last command found as many as it asked for."""
        room = self._room()
        if not room:
            return
        self._asked_for = self._may_take(self._asked_for, room)
        if self._asked_for == 1:
            super()._brpop_start(timeout)
            return
        queues = self._queue_cycle.consume(len(self.active_queues))
        keys = [self._q_for_pri(queue, step) for step in self.priority_steps for queue in queues]
        self._in_poll = self.client.connection
        self._brpop_sent_at = monotonic()
        command = ("BLMPOP", timeout or self.brpop_timeout, len(keys), *keys, "RIGHT", "COUNT", self._asked_for)
        self.client.connection.send_command(*command)

    def _brpop_read(self, **options: Any) -> Any:
        """Hand on what has come. Raises Empty if nothing has."""
        asked_for, self._asked_for = self._asked_for, 1
        queue, messages = self._come(asked_for, options)
        self._queue_cycle.rotate(queue)
        for message in messages:
            self._hand_on(message, queue)
        self._asked_for = 2 * asked_for if len(messages) == asked_for else 1
        return True

    def _hand_on(self, raw: bytes, queue: str) -> None:
        """Deliver one message; what cannot be read as one is dropped."""
        try:
            message = _decoded(raw)
            self.connection._deliver(message, queue)
        except Exception as error:
            if is_of_broker(error, self.connection_errors):
                raise
            not_understood(queue, error, bytes=len(raw), begins=repr(raw[:FIRST_BYTES]))

    def _receive_one(self, c: Any) -> Any:
        """The same for what is sent to all processes at once."""
        try:
            return super()._receive_one(c)
        except Empty:
            raise
        except Exception as error:
            if is_of_broker(error, self.connection_errors):
                raise
            not_understood("sent to all", error)
            raise Empty from error

    def _come(self, asked_for: int, options: dict[str, Any]) -> tuple[str, Sequence[bytes]]:
        """A queue, and messages of it. Raises Empty if there are none."""
        command = "BRPOP" if asked_for == 1 else "BLMPOP"
        try:
            found = self.client.parse_response(self.client.connection, command, **options)
        except self.ResponseError as error:
            if asked_for == 1:
                raise
            self._has_blmpop = False
            raise Empty from error
        except self.connection_errors:
            self.client.connection.disconnect()  # so that it is opened anew at the next turn
            raise
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        if not found:
            raise Empty
        queue, come = found
        return bytes_to_str(queue).rsplit(self.sep, 1)[0], [come] if asked_for == 1 else come

    def _room(self) -> int:
        """How many messages there is room for. If there is none, Celery's loop turns again when there may be."""
        of_celery = self.qos.can_consume_max_estimate()
        room = MOST_AT_ONCE if of_celery is None else max(1, of_celery)
        hub: Any = get_event_loop()
        if self.room is None or hub is None or not self._has_only_hints():
            return room
        room = min(room, self.room(partial(hub.call_soon, _turn)))
        if not room and not self._will_look:
            self._will_look = True
            hub.call_later(LOOKS_EVERY, self._looks)
        return room

    def _looks(self) -> None:
        self._will_look = False

    def _has_only_hints(self) -> bool:
        return all(map(self._is_of_hints, self.active_queues))

    def _may_take(self, wanted: int, room: int) -> int:
        """How many of so many messages there is room for; one, where others than hints may be among them."""
        if wanted == 1 or not self._has_blmpop or self.global_keyprefix:
            return 1
        return min(wanted, MOST_AT_ONCE, room) if self._has_only_hints() else 1

    def _create_client(self, asynchronous: bool = False) -> Any:
        """A client on a pool of connections. Kombu makes one for each command, which costs more than the command."""
        if asynchronous:  # these hold a connection of their own
            return super()._create_client(asynchronous)
        if self._asking is None or self._asking.connection_pool is not self.pool:
            self._asking = super()._create_client()
        return self._asking

    def _is_cut_off(self) -> bool:
        transport: Any = self.connection
        return transport is None or transport.client is None


def _decoded(raw: bytes) -> dict[str, Any]:
    """A message as kombu writes it. Raises ValueError, or whatever a decoder raises, for anything else."""
    message = loads(bytes_to_str(raw))
    properties = message.get("properties") if isinstance(message, dict) else None
    if not isinstance(properties, dict):
        raise ValueError("The message has no properties.")
    came = properties.get("delivery_info")
    if not isinstance(properties.get("delivery_tag"), str) or not isinstance(came, dict):
        raise ValueError("The message has no delivery tag, or no way by which it came.")
    if not isinstance(came.get("routing_key"), str) or not isinstance(message.get("headers") or {}, dict):
        raise ValueError("The message has no routing key, or its headers are no object.")
    return message


def _turn() -> None:
    """Nothing: that the loop turns is what was wanted."""


class Transport(redis.Transport):
    """Redis with such channels."""

    Channel = Channel
