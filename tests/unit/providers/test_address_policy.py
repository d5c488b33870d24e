"""The guard of outgoing addresses: which hosts a canvas may reach."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.errors import AddressRefused, ToolError
from providers.address_policy import Guard, is_address, is_off_limits, is_public, resolve_checked
from tests.attacks import hosts

CLOSED = Guard()
DNS = {
    "public.example": ["93.184.216.34", "2606:2800:220:1::1"],
    "private.example": ["10.0.0.1"],
    "mixed.example": ["93.184.216.34", "10.0.0.1"],
    "mapped.example": ["::ffff:10.0.0.1"],
    "scoped.example": ["fe80::1%2"],
    "odd_name-1.example": ["93.184.216.34"],
    "xn--bcher-kva.example": ["93.184.216.34"],
    "localhost": ["127.0.0.1"],
}


def resolver(names: Mapping[str, Sequence[str]]) -> Callable[[str, int], Coroutine[Any, Any, Sequence[str]]]:
    async def resolve(name: str, port: int) -> Sequence[str]:
        if name not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return names[name]

    return resolve


def checked_addresses(host: str, guard: Guard = CLOSED, *, trusted: bool = False, subject: str = "Host") -> list[str]:
    return asyncio.run(
        resolve_checked(host, 443, guard, trusted=trusted, subject=subject, resolve=resolver(DNS))  #
    )


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("public.example", ["93.184.216.34", "2606:2800:220:1::1"]),
        ("PUBLIC.example.", ["93.184.216.34", "2606:2800:220:1::1"]),
        ("ｐｕｂｌｉｃ。example", ["93.184.216.34", "2606:2800:220:1::1"]),
        ("bücher.example", ["93.184.216.34"]),
        ("odd_name-1.example", ["93.184.216.34"]),
        ("8.8.8.8", ["8.8.8.8"]),
        ("0x8.0x8.0x8.0x8", ["8.8.8.8"]),
        ("[2606:4700:4700::1111]", ["2606:4700:4700::1111"]),
        ("64:ff9b::808:808", ["64:ff9b::808:808"]),
        ("2002:808:808::1", ["2002:808:808::1"]),
    ],
)
def test_public_host_resolves_to_its_addresses(host: str, addresses: list[str]):
    assert checked_addresses(host) == addresses


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("private.example", "10.0.0.1"),
        ("mixed.example", "10.0.0.1"),
        ("mapped.example", "10.0.0.1"),
        ("scoped.example", "fe80::1%2"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("１２７.０.０.１", "127.0.0.1"),
        ("①27.0.0.1", "127.0.0.1"),
        ("127。0。0。1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("169.254.169.254", "169.254.169.254"),
        ("100.100.100.200", "100.100.100.200"),
        ("168.63.129.16", "168.63.129.16"),
        ("192.0.0.192", "192.0.0.192"),
        ("224.0.0.1", "224.0.0.1"),
        ("255.255.255.255", "255.255.255.255"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("::", "::"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::7f00:1", "::7f00:1"),
        ("64:ff9b::10.0.0.1", "64:ff9b::a00:1"),
        ("64:ff9b:1::808:808", "64:ff9b:1::808:808"),
        ("2002:7f00:1::", "2002:7f00:1::"),
        ("2001:db8::1", "2001:db8::1"),
        ("3fff::1", "3fff::1"),
        ("fd00:ec2::254", "fd00:ec2::254"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("2606:4700::1%eth0", "2606:4700::1%eth0"),
        ("fec0::1", "fec0::1"),
        ("ff02::1", "ff02::1"),
    ],
)
def test_a_host_with_any_address_that_is_not_public_is_refused(host: str, address: str):
    with pytest.raises(AddressRefused) as refused:
        checked_addresses(host)

    assert refused.value.message == f"Host resolves to a non-public address ({address}), which is not allowed."
    assert not refused.value.retryable


def test_refusal_names_the_host_or_the_url_that_was_checked():
    with pytest.raises(AddressRefused, match=r"^URL resolves to a non-public address \(10\.0\.0\.1\), which is not"):
        checked_addresses("private.example", subject="URL")
    with pytest.raises(AddressRefused, match=r"^URL is missing a host\.$"):
        checked_addresses("", subject="URL")
    with pytest.raises(AddressRefused, match=r"^Host must not be empty\.$"):
        checked_addresses(".")


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "localhost.", "a.b.localhost", "metadata", "metadata.google.internal", "ⓛocalhost"],
)
def test_internal_names_are_refused_without_looking_them_up(host: str):
    async def fail_lookup(name: str, port: int) -> Sequence[str]:
        raise AssertionError("looked up")

    with pytest.raises(AddressRefused, match="is not allowed"):
        asyncio.run(resolve_checked(host, 80, CLOSED, resolve=fail_lookup))


@pytest.mark.parametrize(
    "host",
    [
        "nobody.example", "a..b", "-", "a b", "a/b", "a@127.0.0.1", "%6cocalhost", "127.0.0.1:80", "[::1", "a\n", "*",
        "x" * 64 + ".example", "a." * 150 + "b", "\ud800", "999.1.1.1", "0x7f.0x7f.0x7f.0x1ff",
    ],
)  # fmt: skip
def test_a_name_that_cannot_be_resolved_is_refused(host: str):
    with pytest.raises(AddressRefused, match=r"^Could not resolve hostname '"):
        checked_addresses(host)


def test_failed_lookup_of_an_unchecked_host_is_retryable():
    for guard, trusted in ((CLOSED, True), (Guard(allow_any=True), False)):
        with pytest.raises(ToolError, match="Could not resolve") as failed:
            checked_addresses("nobody.example", guard, trusted=trusted)

        assert not isinstance(failed.value, AddressRefused)
        assert failed.value.retryable


def test_name_without_addresses_is_refused_as_unresolvable():
    with pytest.raises(AddressRefused, match="it has no address"):
        asyncio.run(resolve_checked("empty.example", 80, CLOSED, resolve=resolver({"empty.example": []})))


def test_hosts_of_the_deployment_may_be_private():
    assert checked_addresses("localhost", trusted=True) == ["127.0.0.1"]
    assert checked_addresses("mixed.example", trusted=True) == ["93.184.216.34", "10.0.0.1"]


@pytest.mark.parametrize(
    "host", ["10.1.2.3", "192.168.0.1", "100.64.0.1", "127.0.0.1", "[::1]", "[fd00::1]", "198.18.0.1"]
)
def test_trusted_host_may_be_on_any_private_network(host: str):
    assert checked_addresses(host, trusted=True)


@pytest.mark.parametrize("host", hosts.OFF_LIMITS)
def test_link_local_and_reserved_addresses_are_never_allowed(host: str):
    with pytest.raises(AddressRefused):
        checked_addresses(host, trusted=True)
    assert checked_addresses(host, Guard(allow_any=True), trusted=True)


def test_allow_list_permits_single_link_local_addresses():
    guard = Guard.parse(allowed="169.254.20.0/24, metadata")

    assert checked_addresses("169.254.20.10", guard, trusted=True) == ["169.254.20.10"]
    with pytest.raises(AddressRefused, match=r"link-local or reserved address \(169\.254\.169\.254\)"):
        checked_addresses("169.254.169.254", guard, trusted=True)


@settings(max_examples=60, deadline=None)
@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0", "64:ff9b::", "64:ff9b:1::"]))
def test_ipv4_address_embedded_in_ipv6_is_off_limits_like_the_ipv4_address(inner: IPv4Address, around: str):
    assert is_off_limits(IPv6Address(int(IPv6Address(around)) | int(inner))) == is_off_limits(inner)


@pytest.mark.parametrize("switch", ["1", "true", "YES", " on ", True])
def test_the_guard_can_be_switched_off(switch: bool | str):
    guard = Guard.parse(switch)

    assert checked_addresses("private.example", guard) == ["10.0.0.1"]
    assert checked_addresses("localhost", guard) == ["127.0.0.1"]


@pytest.mark.parametrize("switch", ["", "0", "false", "no", "off", "2", False])
def test_any_other_switch_value_leaves_the_guard_on(switch: bool | str):
    assert Guard.parse(switch) == CLOSED


@pytest.mark.parametrize(
    ("allowed", "host", "is_allowed"),
    [
        ("private.example", "PRIVATE.example.", True),
        ("*.example", "private.example", True),
        ("*.ample", "private.example", False),
        ("private", "private.example", False),
        ("10.0.0.0/8", "private.example", True),
        ("10.0.0.0/8", "mapped.example", True),
        ("10.0.0.7/8, 192.168.0.1", "192.168.0.1", True),
        ("10.0.0.2", "private.example", False),
        ("10.0.0.0/8", "127.0.0.1", False),
        ("::1", "[::1]", True),
        (" LocalHost , ", "localhost", True),
        ("127.0.0.0/8", "localhost", False),
    ],
)
def test_single_hosts_and_networks_can_be_allowed(allowed: str, host: str, is_allowed: bool):
    guard = Guard.parse(allowed=allowed)

    if is_allowed:
        assert checked_addresses(host, guard)
    else:
        with pytest.raises(AddressRefused):
            checked_addresses(host, guard)


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "http://searx", "searx:8080", "a b", "1.2.3", "*", "999.1.1.1"])
def test_allowed_entry_that_is_not_a_host_or_network_is_refused(entry: str):
    with pytest.raises(ValueError, match="not a host name, address or network"):
        Guard.parse(allowed=f"good.example,{entry}")


def test_ip_literals_are_recognised_as_addresses():
    hosts = ["127.1", "[::1]", "8.8.8.8", "cafe", "public.example"]

    assert [is_address(host) for host in hosts] == [True, True, True, False, False]


@settings(max_examples=60, deadline=None)
@given(st.ip_addresses(v=4))
def test_ipv4_address_embedded_in_ipv6_is_public_like_the_ipv4_address(inner: IPv4Address):
    mapped = IPv6Address(0xFFFF << 32 | int(inner))
    nat64 = IPv6Address(int(IPv6Address("64:ff9b::")) | int(inner))
    six_to_four = IPv6Address(0x2002 << 112 | int(inner) << 80)

    assert {is_public(outer) for outer in (mapped, nat64, six_to_four)} == {is_public(inner)}


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_any_resolved_host_gives_only_public_addresses(host: str):
    try:
        addresses = checked_addresses(host)
    except AddressRefused:
        return

    assert all(is_public(ip_address(address)) for address in addresses)
