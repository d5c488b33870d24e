"""Celery's Redis transport, for connections that break while messages are being worked on.

Kombu puts unacknowledged messages back when a channel closes, and acknowledges them when their tasks end. On a
connection that has broken neither can be done, and what it then raises ends the whole worker with everything it has in
flight (kombu 5.7). Here such messages are let go of: their rows are held by leases, or are ready and hinted anew.
"""

from typing import Any

from kombu.transport import redis


class Channel(redis.Channel):
    """A channel that asks nothing of a connection that is gone."""

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

    def _is_cut_off(self) -> bool:
        transport: Any = self.connection
        return transport is None or transport.client is None


class Transport(redis.Transport):
    """Redis with such channels."""

    Channel = Channel
