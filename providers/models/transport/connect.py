"""Sockets to the servers of models: a name is looked up when a connection is opened, checked, and never asked again.

    connection = await dialled("ollama.internal", 11434, hosts)

Which hosts those are an operator says, in accounts: private ones are the normal case for servers of one's own. What is
connected to is an address that was checked; of several the first that answers, and the next is tried beside one that
takes its time (RFC 8305). TLS is not begun here: whoever does it checks the certificate against the name.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, zip_longest

from providers.http.address_policy import Guard, Resolve, addresses_of, looking_up

NEXT_SECONDS = 0.25  # until the next address is tried beside one that does not answer
MOST_ADDRESSES = 8  # of one host that are tried

looked_up = looking_up("lookup-of-models")  # apart from those of tools: names of a canvas may be slow on purpose


@dataclass(frozen=True, slots=True)
class ModelAddressPolicy:
    """Where requests to models may lead.

    `private`: whether to private addresses and to this machine; else only to such as the guard lists. `by_proxy`:
    whether the proxies that the environment names are used.
    """

    guard: Guard = field(default_factory=Guard)
    private: bool = True
    by_proxy: bool = False


async def open_checked_socket(
    host: str, port: int, hosts: ModelAddressPolicy, resolve: Resolve = looked_up
) -> socket.socket:
    """A connection to a host. Raises AddressRefused, ToolError for a name that nobody knows at present, and OSError."""
    found = await addresses_of(host, port, hosts.guard, trusted=hosts.private, subject="The base URL", resolve=resolve)
    return await first_open(interleave_families(found)[:MOST_ADDRESSES], port)


def interleave_families(found: Sequence[str]) -> list[str]:
    """Addresses in their order, but both families in turns, beginning with that of the first."""
    six, four = ([each for each in found if (":" in each) is is_six] for is_six in (True, False))
    turns = zip_longest(six, four) if found and ":" in found[0] else zip_longest(four, six)
    return [each for each in chain.from_iterable(turns) if each is not None]


async def first_open(found: Sequence[str], port: int, wait: float = NEXT_SECONDS) -> socket.socket:
    """A connection to the first of these addresses that answers. Raises the OSError of the last that did not."""
    if len(found) == 1:
        return await _opened(found[0], port)
    left = list(found)
    tries: set[asyncio.Task[socket.socket]] = set()
    last = OSError("there is no address")
    try:
        while left or tries:
            if left:
                tries.add(asyncio.create_task(_opened(left.pop(0), port)))
            done, _ = await asyncio.wait(tries, timeout=wait if left else None, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                tries.discard(each)
                try:
                    opened = each.result()
                except OSError as error:
                    last = error
                else:
                    tries.update(done - {each})  # others may have opened at the same moment
                    return opened
        raise last
    finally:
        for each in tries:
            each.add_done_callback(_closed)
            each.cancel()


def _closed(late: "asyncio.Task[socket.socket]") -> None:
    """Close what nobody needs any more: a connection that was opened beside another."""
    if not late.cancelled() and late.exception() is None:
        late.result().close()


async def _opened(address: str, port: int) -> socket.socket:
    connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    with ExitStack() as on_failure:  # a cancel is a failure too
        on_failure.callback(connection.close)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (address, port))
        on_failure.pop_all()
    return connection
