"""Opens sockets to model servers: resolves the host once, checks its addresses and connects to one of them.

    connection = await open_checked_socket("ollama.internal", 11434, hosts)

Operators name the hosts in accounts, and private hosts are common. The connection goes to the first checked address
that answers; if an address is slow, the next one is tried in parallel (RFC 8305). TLS is started by the caller, which
checks the certificate against the host name. See docs/decisions/0029-addresses-of-models.md.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, zip_longest

from providers.address_policy import Guard, Resolve, make_resolver, resolve_checked

NEXT_ADDRESS_DELAY = 0.25  # until the next address is tried in parallel to one that does not answer
MAX_ADDRESSES = 8  # addresses of one host that are tried

# separate from look-ups of tools: a canvas may use slow names on purpose
resolve_model_host = make_resolver("lookup-of-models")


@dataclass(frozen=True, slots=True)
class ModelAddressPolicy:
    """The addresses that requests to models may use.

    `private` allows private addresses and this machine; otherwise only those that the guard lists. `by_proxy` allows
    the proxies of the environment.
    """

    guard: Guard = field(default_factory=Guard)
    private: bool = True
    by_proxy: bool = False


async def open_checked_socket(
    host: str, port: int, hosts: ModelAddressPolicy, resolve: Resolve = resolve_model_host
) -> socket.socket:
    """Connect to a host and return the socket.

    Raises AddressRefused, ToolError for a name that cannot be resolved at present, and OSError.
    """
    addresses = await resolve_checked(
        host, port, hosts.guard, trusted=hosts.private, subject="The base URL", resolve=resolve
    )
    return await connect_first(interleave_families(addresses)[:MAX_ADDRESSES], port)


def interleave_families(addresses: Sequence[str]) -> list[str]:
    """Return addresses with IPv6 and IPv4 alternating, beginning with the family of the first."""
    six, four = ([each for each in addresses if (":" in each) is is_six] for is_six in (True, False))
    pairs = zip_longest(six, four) if addresses and ":" in addresses[0] else zip_longest(four, six)
    return [each for each in chain.from_iterable(pairs) if each is not None]


async def connect_first(addresses: Sequence[str], port: int, wait: float = NEXT_ADDRESS_DELAY) -> socket.socket:
    """Connect to the first address that answers, and return the socket. Raises the OSError of the last failure."""
    if len(addresses) == 1:
        return await _connect(addresses[0], port)
    left = list(addresses)
    tries: set[asyncio.Task[socket.socket]] = set()
    last = OSError("there is no address")
    try:
        while left or tries:
            if left:
                tries.add(asyncio.create_task(_connect(left.pop(0), port)))
            done, _ = await asyncio.wait(tries, timeout=wait if left else None, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                tries.discard(each)
                try:
                    opened = each.result()
                except OSError as error:
                    last = error
                else:
                    tries.update(done - {each})  # others may have connected at the same time
                    return opened
        raise last
    finally:
        for each in tries:
            each.add_done_callback(_close_late)
            each.cancel()


def _close_late(late: "asyncio.Task[socket.socket]") -> None:
    """Close a connection that was opened after another one had succeeded."""
    if not late.cancelled() and late.exception() is None:
        late.result().close()


async def _connect(address: str, port: int) -> socket.socket:
    connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    with ExitStack() as on_failure:  # a cancel is a failure too
        on_failure.callback(connection.close)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (address, port))
        on_failure.pop_all()
    return connection
