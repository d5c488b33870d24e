"""RabbitMQ as kombu speaks to it, but for two things that a queue of others needs.

A queue that is there is used as it is. Another service may have declared it first, and its type is the operator's
choice (classic, quorum): RabbitMQ refuses a declaration with other arguments, and a refused declaration would end the
connection again and again.

Prefetch counts are set per consumer: the only way that queues of every type know.
"""

from typing import Any

from amqp.exceptions import NotFound
from kombu.transport import pyamqp


class Channel(pyamqp.Channel):
    """A channel that looks for a queue before it declares it."""

    def queue_declare(  # pyright: ignore[reportIncompatibleMethodOverride] (kombu gives everything by name)
        self, queue: str = "", passive: bool = False, durable: bool = False, **given: Any
    ) -> Any:
        """Declare a queue. A durable one that is there already is used as it is."""
        if durable and not passive and queue:
            found = self._found(queue)
            if found is not None:
                return found
        return super().queue_declare(queue, passive=passive, durable=durable, **given)

    def _found(self, queue: str) -> Any:
        """What RabbitMQ says of a queue; None if there is none. It closes the channel that asks for one in vain."""
        connection: Any = self.connection
        asking: Any = connection.channel()
        try:
            return asking.queue_declare(queue, passive=True)
        except NotFound:
            return None
        finally:
            if asking.is_open:
                asking.close()


class Connection(pyamqp.Connection):
    """A connection with such channels."""

    Channel = Channel


class Transport(pyamqp.Transport):
    """kombu's transport with such connections."""

    Connection = Connection

    def qos_semantics_matches_spec(self, connection: Any) -> bool:
        """Whether prefetch counts are per consumer, as AMQP has it: whatever the server would do besides."""
        return True


class SSLTransport(pyamqp.SSLTransport):
    """The same over TLS."""

    Connection = Connection

    def qos_semantics_matches_spec(self, connection: Any) -> bool:
        """As for Transport."""
        return True
