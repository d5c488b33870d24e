"""Resolves the hosts of outgoing connections and checks every address against the deployment's policy.

    for address in await resolve_checked("example.com", 443, guard): ...

Callers connect to one of the returned addresses (`connect_first`) and never resolve the name again, since a second
look-up may give another address (DNS rebinding).
"""

import asyncio
import re
import socket
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from canvas.errors import AddressRefused, HostUnknown, ToolError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

MAX_NAME_LENGTH = 253  # characters of a host name, from the rules of DNS
MAX_LOOKUPS = 16  # concurrent look-ups; they have threads of their own, so a slow name server delays no other work

_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal"})
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,62})(?:\.[a-z0-9_](?:[a-z0-9_-]{0,62}))*")
_NUMERIC = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}")
_ENTRY_NAME = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?")
_TRUE_VALUES = frozenset({"1", "true", "yes", "on"})

# Not public, although `ipaddress` says so. 168.63.129.16 is a service of Azure that every Azure machine can reach.
_NOT_PUBLIC: tuple[Network, ...] = tuple(
    ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001:db8::/32", "3fff::/20")
)
# Never the address of a legitimate server: unspecified, link-local, multicast and reserved addresses, and the metadata
# services that give a cloud machine its keys (Azure, Alibaba, Oracle, AWS, Google; most of them are link-local).
_OFF_LIMITS: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32", "100.100.100.200/32",
        "192.0.0.192/32", "::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32", "fd20:ce::254/128",
    )
)  # fmt: skip
# Ports of other protocols than HTTP. A mail server or a cache may execute lines of a request body, because it skips the
# lines that it does not understand. Browsers block most of these ports, too.
NON_HTTP_PORTS = frozenset({
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110,
    111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 445, 465, 512, 513, 514, 515, 526, 530, 531,
    532, 540, 548, 554, 556, 563, 587, 601, 636, 873, 989, 990, 993, 995, 1433, 1521, 1719, 1720, 1723, 2049, 2525,
    3306, 3389, 3659, 4045, 4190, 5060, 5061, 5432, 5672, 5900, 6000, 6379, 6380, 6566, 6665, 6666, 6667, 6668, 6669,
    6679, 6697, 10080, 11211, 27017,
})  # fmt: skip

_UNICAST = IPv6Network("2000::/3")  # all global unicast addresses that have been allocated so far
_IPV4_IN_LAST_BITS = IPv6Network("64:ff9b::/96")  # NAT64
_IPV4_IN_MIDDLE_BITS = IPv6Network("2002::/16")  # 6to4
_IPV4_MAYBE_IN_LAST_BITS = (
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("::/96"),
)  # local NAT64; IPv4-compatible (obsolete)


@dataclass(frozen=True, slots=True)
class Guard:
    """The hosts that canvases of a deployment may reach besides the public internet.

    `allowed` has host names (`*.corp.example` for all subdomains), addresses and networks.
    """

    allow_any: bool = False
    allowed: tuple[str, ...] = ()

    @classmethod
    def parse(cls, allow_any: bool | str = False, allowed: str = "") -> "Guard":
        """Parse the values of ALLOW_ANY_HOST and SSRF_ALLOW. Raises ValueError for an invalid entry."""
        is_open = allow_any if isinstance(allow_any, bool) else allow_any.strip().lower() in _TRUE_VALUES
        entries = tuple(entry for text in allowed.split(",") if (entry := text.strip().lower().rstrip(".")))
        for entry in entries:
            if _parse_network(entry) is None and (not _ENTRY_NAME.fullmatch(entry) or _NUMERIC.fullmatch(entry)):
                raise ValueError(f'"{entry}" is not a host name, address or network. Write it without scheme and port.')
        return cls(is_open, entries)

    def admits_name(self, name: str) -> bool:
        """Return whether a host name is allowed, whatever its addresses are."""
        return any(name == entry or (entry[:2] == "*." and name.endswith(entry[1:])) for entry in self.allowed)

    def admits(self, address: Address) -> bool:
        """Return whether an address is allowed although it is not public."""
        networks = (_parse_network(entry) for entry in self.allowed)
        return any(address in network for network in networks if network is not None)


NO_PRIVATE_HOSTS = Guard()
"""What callers without settings allow: public addresses only."""


def make_resolver(thread_prefix: str) -> Resolve:
    """Return a function that resolves names with the operating system, in threads of its own with this name prefix."""
    lookups = ThreadPoolExecutor(MAX_LOOKUPS, thread_name_prefix=thread_prefix)

    async def resolve(host: str, port: int) -> Sequence[str]:
        found = await asyncio.get_running_loop().run_in_executor(
            lookups, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(sockaddr[0]) for *_, sockaddr in found]

    return resolve


resolve_in_thread = make_resolver("lookup")


async def resolve_checked(
    host: str,
    port: int,
    guard: Guard,
    *,
    trusted: bool = False,
    subject: str = "Host",
    is_http: bool = False,
    resolve: Resolve = resolve_in_thread,
) -> list[str]:
    """Return the addresses of a host in the resolver's order, after checking every one of them.

    `trusted` is for hosts from the deployment's own settings or accounts: they may be private, but not link-local
    (clouds serve a machine's keys there) or reserved. `subject` is the first word of the error messages (`URL` if the
    host was part of one). `is_http` also refuses ports of other protocols than HTTP.
    Raises AddressRefused. For a name that cannot be resolved it raises HostUnknown, or, if private names are allowed, a
    retryable ToolError.
    """
    name = _normalize_host(host)
    if not name:
        message = "URL is missing a host." if subject == "URL" else "Host must not be empty."
        raise AddressRefused(message, is_malformed=True)
    is_open = guard.allow_any or guard.admits_name(name)
    is_loopback = name == "localhost" or name.endswith(".localhost")
    if not is_open and (name in _METADATA_NAMES or (is_loopback and not trusted)):
        raise AddressRefused(f"{subject} leads to '{name}', which is not allowed.")
    literal = _parse_literal(name)
    if literal is not None:
        found = [literal]
    else:
        try:
            found = await _resolve_name(name, port, resolve)
        except _InvalidHostName as error:
            text = f"Could not resolve hostname '{name[:MAX_NAME_LENGTH]}': {error}"
            raise AddressRefused(text, is_malformed=True) from error
        except OSError as error:
            text = f"Could not resolve hostname '{name[:MAX_NAME_LENGTH]}': {error.strerror or error}"
            raise (ToolError(text, retryable=True) if is_open or trusted else HostUnknown(text)) from error
    if not is_open:
        unlisted = [address for address in found if not guard.admits(_unmap_ipv4(address))]
        if trusted:
            _refuse_off_limits(unlisted, subject)
        else:
            _refuse_private(unlisted, port if is_http else None, subject)
    return list(dict.fromkeys(str(address) for address in found))


def check_without_look_up(host: str, port: int, guard: Guard) -> bool:
    """Check a host of HTTP requests as far as that needs no name server; return whether the deployment lists it.

    For addresses that are stored now and used later. Raises AddressRefused for a private address, and for names that
    are never allowed.
    """
    name = _normalize_host(host)
    literal = _parse_literal(name)
    if guard.allow_any or guard.admits_name(name) or (literal is not None and guard.admits(_unmap_ipv4(literal))):
        return True
    if name in _METADATA_NAMES or name == "localhost" or name.endswith(".localhost"):
        raise AddressRefused(f"URL leads to '{name}', which is not allowed.")
    if literal is not None:
        _refuse_private([literal], port, "URL")
    elif not _NAME.fullmatch(name):
        raise AddressRefused(f"'{name[:MAX_NAME_LENGTH]}' is not a host name.", is_malformed=True)
    elif port in NON_HTTP_PORTS:
        raise AddressRefused(f"URL leads to port {port}, which is not a port for HTTP and is not allowed.")
    return False


async def connect_first(addresses: Sequence[str], port: int, timeout: float) -> socket.socket:
    """Connect to the first of some checked addresses that answers; return the socket, which does not block.

    `timeout`: seconds for each address. Raises OSError, that of the last address.
    """
    last: OSError | None = None
    for address in addresses:
        connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            async with asyncio.timeout(timeout):
                await asyncio.get_running_loop().sock_connect(connection, (address, port))
            return connection
        except OSError as error:  # a TimeoutError is an OSError
            connection.close()
            last = error
        except BaseException:
            connection.close()
            raise
    assert last is not None  # there is at least one address
    raise last


def is_address(host: str) -> bool:
    """Return whether a host is an IP address in any spelling, so that no look-up is needed."""
    return _parse_literal(_normalize_host(host)) is not None


def is_metadata_host(host: str) -> bool:
    """Return whether a host is a name of a cloud's metadata service, which gives a machine its keys."""
    return _normalize_host(host) in _METADATA_NAMES


def is_public(address: Address) -> bool:
    """Return whether an address, and any IPv4 address embedded in it, belongs to the public internet."""
    if any(address in network for network in _NOT_PUBLIC):
        return False
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast and not address.is_reserved
    if address.scope_id is not None:
        return False
    carried = _embedded_ipv4(address)
    if carried is not None:
        return is_public(carried)
    return address in _UNICAST and address.is_global


def is_off_limits(address: Address) -> bool:
    """Return whether an address, or an IPv4 address embedded in it, is never allowed, not even for trusted hosts."""
    if any(address in network for network in _OFF_LIMITS):
        return True
    if isinstance(address, IPv4Address):
        return False
    carried = _embedded_ipv4(address)
    if carried is None and int(address) > 1 and any(address in network for network in _IPV4_MAYBE_IN_LAST_BITS):
        carried = IPv4Address(int(address) & 0xFFFFFFFF)
    return carried is not None and is_off_limits(carried)


def _refuse_off_limits(found: Sequence[Address], subject: str) -> None:
    for address in found:
        if is_off_limits(address):
            raise AddressRefused(
                f"{subject} leads to a link-local or reserved address ({_unmap_ipv4(address)}), which is not allowed."
            )


def _refuse_private(found: Sequence[Address], port: int | None, subject: str) -> None:
    if found and port in NON_HTTP_PORTS:
        raise AddressRefused(f"{subject} leads to port {port}, which is not a port for HTTP and is not allowed.")
    for address in found:
        if not is_public(address):
            raise AddressRefused(
                f"{subject} resolves to a non-public address ({_unmap_ipv4(address)}), which is not allowed."
            )


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that receives the traffic to this IPv6 address, if there is one."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _IPV4_IN_LAST_BITS:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _IPV4_IN_MIDDLE_BITS:
        return IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    return None


def _unmap_ipv4(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def _normalize_host(host: str) -> str:
    """Return a host in normal form: IDNA, lower case, without brackets and trailing dot.

    Unicode compatibility forms become the characters that they resemble, as a resolver would convert them.
    """
    if len(host) > MAX_NAME_LENGTH + 2:
        return host  # longer than any name or bracketed address, so no later check accepts it
    name = unicodedata.normalize("NFKC", host).replace("\u3002", ".").lower()
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    name = name.removesuffix(".")
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        return name  # not a valid name, so no later check accepts it


def _parse_literal(name: str) -> Address | None:
    """Return the address if the host is one, in any spelling that the operating system accepts (`0x7f.1`)."""
    try:
        return ip_address(name)
    except ValueError:
        pass
    if not _NUMERIC.fullmatch(name):
        return None
    try:
        return IPv4Address(socket.inet_aton(name))
    except OSError:
        return None


class _InvalidHostName(Exception):
    """A text is not a valid host name by the rules of DNS and URLs, or the name has no addresses."""


async def _resolve_name(name: str, port: int, resolve: Resolve) -> list[Address]:
    """Resolve a host name. Raises _InvalidHostName for an invalid name, OSError for an unknown one."""
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name) or _NUMERIC.fullmatch(name.rpartition(".")[2]):
        raise _InvalidHostName("it is not a host name")
    try:
        found = [ip_address(text) for text in await resolve(name, port)]
    except ValueError as error:  # our resolver raises UnicodeError for names that DNS cannot represent
        raise _InvalidHostName("it is not a host name") from error
    if not found:
        raise _InvalidHostName("it has no address")
    return found


@lru_cache(maxsize=256)
def _parse_network(entry: str) -> Network | None:
    try:
        return ip_network(entry, strict=False)
    except ValueError:
        return None
