"""kombu's RabbitMQ transport, changed in three ways.

An existing queue is used as it is. Another service may have declared it first, and its type (classic, quorum) is the
operator's choice: RabbitMQ refuses a declaration with other arguments, and closes the connection each time.

Prefetch counts are set per consumer: the only kind that queues of all types support.

The certificate of an `amqps://` server is verified against the host name, too; kombu verifies it only against a CA.
"""

import ssl
from typing import Any

from amqp.exceptions import NotFound
from kombu.transport import pyamqp


class AmqpChannel(pyamqp.Channel):
    """A channel that checks whether a queue exists before it declares it."""

    def queue_declare(  # pyright: ignore[reportIncompatibleMethodOverride] (kombu gives everything by name)
        self, queue: str = "", passive: bool = False, durable: bool = False, **options: Any
    ) -> Any:
        """Declare a queue. A durable queue that exists is used as it is."""
        if durable and not passive and queue:
            existing = self._find_queue(queue)
            if existing is not None:
                return existing
        return super().queue_declare(queue, passive=passive, durable=durable, **options)

    def _find_queue(self, queue: str) -> Any:
        """Return RabbitMQ's description of a queue; None if there is none.

        Uses a channel of its own, since RabbitMQ closes the channel if the queue does not exist.
        """
        connection: Any = self.connection
        channel: Any = connection.channel()
        try:
            return channel.queue_declare(queue, passive=True)
        except NotFound:
            return None
        finally:
            if channel.is_open:
                channel.close()


class AmqpConnection(pyamqp.Connection):
    """A connection with the changed channel."""

    Channel = AmqpChannel


class AmqpTransport(pyamqp.Transport):
    """kombu's transport with the changed connection."""

    Connection = AmqpConnection

    def qos_semantics_matches_spec(self, connection: Any) -> bool:
        """Return True: prefetch counts are set per consumer, as in the AMQP specification."""
        return True


class AmqpTlsTransport(pyamqp.SSLTransport):
    """The transport over TLS. The URL takes the same options as a Redis URL: `?ssl_ca_certs=/path/ca.pem`."""

    Connection = AmqpConnection

    def establish_connection(self) -> Any:
        """Connect. The certificate must be valid for the host of the URL, unless an option of the URL disables that."""
        client: Any = self.client
        options, host = client.ssl, client.hostname
        client.ssl = tls_options(options, host or "localhost")
        try:
            return super().establish_connection()
        finally:
            client.ssl, client.hostname = options, host  # for another host of the same URL they are computed again

    def qos_semantics_matches_spec(self, connection: Any) -> bool:
        """Return True, as AmqpTransport does."""
        return True


def tls_options(url_options: Any, host: str) -> dict[str, Any]:
    """Return the arguments for amqp's TLS socket from the `ssl_...` options of a URL.

    Without options the server needs a certificate that a CA of this machine has signed for `host`.
    """
    options = (
        {key.removeprefix("ssl_"): value for key, value in url_options.items()} if isinstance(url_options, dict) else {}
    )
    options.setdefault("cert_reqs", ssl.CERT_REQUIRED)
    checks_host = options.pop("check_hostname", True) and options["cert_reqs"] != ssl.CERT_NONE
    if checks_host:
        options["server_hostname"] = options.get("server_hostname") or host
    else:
        options.pop("server_hostname", None)  # amqp compares the host name exactly if it has one
    return options
