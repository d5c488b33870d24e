"""Resolves the hosts of models for their transport, and checks every address before a connection is made.

    connector = aiohttp.TCPConnector(resolver=CheckedResolver(hosts))

Operators name the hosts in accounts, and private hosts are common. A host is resolved for each new connection, and the
connection goes to one of the addresses that were checked; TLS compares the certificate with the name.
See docs/decisions/0029-addresses-of-models.md.
"""

import socket
from dataclasses import dataclass, field

from aiohttp.abc import AbstractResolver, ResolveResult

from providers.address_policy import Guard, Resolve, make_resolver, resolve_checked

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


class CheckedResolver(AbstractResolver):
    """The resolver of aiohttp's connector. It gives checked addresses only, so no other one is connected to."""

    def __init__(self, hosts: ModelAddressPolicy, resolve: Resolve = resolve_model_host) -> None:
        self._hosts = hosts
        self._resolve = resolve

    async def check(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host. Raises AddressRefused, and ToolError for a name unknown at present."""
        return await resolve_checked(
            host, port, self._hosts.guard, trusted=self._hosts.private, subject="The base URL", resolve=self._resolve
        )

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the first addresses of a host, of both families: aiohttp tries them in parallel (RFC 8305)."""
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in (await self.check(host, port))[:MAX_ADDRESSES]
        ]

    async def close(self) -> None:
        """Do nothing: the threads that resolve names belong to the process."""
