"""Private addresses in every spelling, at every entry point: all are refused before any connection."""

import asyncio
from collections.abc import Iterable, Mapping

import pytest
from pydantic import SecretStr

from canvas.errors import ToolError
from components.browsing.loop import ActionFailed
from components.browsing.page import parse_web_address
from providers.interfaces import HttpCall, Program
from providers.sandboxes.ssh import SshSandbox, SshSettings
from tests.attacks import entry_points, hosts, urls
from tests.attacks.entry_points import Clients, EntryPoint
from tests.attacks.wire import Wire

REFUSALS = {"address_refused", "refused", "skipped"}


def outcomes(entry_point: EntryPoint, attacks: Iterable[str], clients: Clients) -> Mapping[str, str]:
    """Return the outcome of each attack; all run in one event loop."""

    async def work() -> dict[str, str]:
        try:
            return {attack: await entry_point(attack, clients) for attack in attacks}
        finally:
            await clients.http.aclose()

    return asyncio.run(work())


@pytest.mark.parametrize("entry_point", entry_points.HOSTS)
def test_non_public_host_is_refused_in_every_spelling(entry_point: str, wire: Wire):
    results = outcomes(entry_points.HOSTS[entry_point], hosts.REFUSED, Clients(wire))

    assert {host: outcome for host, outcome in results.items() if outcome not in REFUSALS} == {}
    assert [address for address in wire.connections if address[0] != "93.184.216.34"] == []


@pytest.mark.parametrize("entry_point", entry_points.HOSTS)
def test_public_host_is_connected_to_at_the_checked_address(entry_point: str, wire: Wire):
    results = outcomes(entry_points.HOSTS[entry_point], hosts.PUBLIC, Clients(wire))

    assert set(results.values()).isdisjoint({"address_refused", "refused"})
    assert {address for address, _ in wire.connections} == {"93.184.216.34"}


@pytest.mark.parametrize("entry_point", entry_points.URLS)
def test_disguised_url_never_connects_to_a_private_address(entry_point: str, wire: Wire):
    results = outcomes(entry_points.URLS[entry_point], urls.DISGUISED, Clients(wire))

    assert len(results) == len(urls.DISGUISED)
    assert {address for address, _ in wire.connections} <= {"93.184.216.34"}
    assert "" not in results.values()


@pytest.mark.parametrize(
    "entry_point", [name for name in entry_points.URLS if name not in ("Invoke's proxy", "Crawler's proxy")]
)
def test_url_with_another_scheme_than_http_is_refused(entry_point: str, wire: Wire):
    results = outcomes(entry_points.URLS[entry_point], urls.OTHER_SCHEMES, Clients(wire))

    assert {url: outcome for url, outcome in results.items() if not outcome} == {}
    assert wire.connections == []


@pytest.mark.parametrize("entry_point", entry_points.URLS)
def test_url_with_a_port_of_another_protocol_is_refused(entry_point: str, wire: Wire):
    attacks = [f"http://public.example:{port}/" for port in urls.OTHER_PORTS]

    results = outcomes(entry_points.URLS[entry_point], attacks, Clients(wire))

    assert {url: outcome for url, outcome in results.items() if outcome not in REFUSALS} == {}
    assert {port for _, port in wire.connections} <= {80}


@pytest.mark.parametrize("url", [url for url in urls.OTHER_SCHEMES if "://" in url and url.isprintable()])
def test_browser_address_with_another_scheme_than_http_is_refused(url: str):
    with pytest.raises(ActionFailed, match=r"not a (valid|web) address"):
        parse_web_address(url)


@pytest.mark.parametrize(
    "variable", ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
)
@pytest.mark.parametrize("entry_point", entry_points.HOSTS)
def test_tools_ignore_a_proxy_in_the_environment(
    entry_point: str, variable: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, "http://198.51.100.7:3128")

    outcomes(entry_points.HOSTS[entry_point], hosts.PUBLIC, Clients(wire))

    assert {address for address, _ in wire.connections} == {"93.184.216.34"}


# -- hosts of an operator ----------------------------------------------------------------------------------------------
async def by_base_url(host: str, clients: Clients) -> str:
    """Send a trusted request, as to `TOOL_*_BASE_URL`, sandboxes and RAGFlow."""
    try:
        await clients.http.send(HttpCall("GET", f"http://{host}/", trusted=True))
    except ToolError as error:
        return error.code
    return ""


async def by_ssh(host: str, clients: Clients) -> str:
    settings = SshSettings(host=host, username="u", password=SecretStr("p"))
    try:
        await SshSandbox(settings, clients.guard, resolve=clients.wire.resolve).run(
            Program("python", "def main(): ...", {}, 1, "k")
        )
    except ToolError as error:
        return error.code
    return ""


OPERATORS: Mapping[str, EntryPoint] = {"a base URL": by_base_url, "a machine of programs": by_ssh}


@pytest.mark.parametrize("entry_point", OPERATORS)
def test_operator_host_of_a_metadata_service_is_refused(entry_point: str, wire: Wire):
    results = outcomes(OPERATORS[entry_point], [*hosts.OFF_LIMITS, *hosts.OFF_LIMITS_BY_NAME], Clients(wire))

    assert {host: outcome for host, outcome in results.items() if not outcome} == {}
    assert wire.connections == []


@pytest.mark.parametrize("entry_point", OPERATORS)
def test_operator_host_may_be_private(entry_point: str, wire: Wire):
    outcomes(OPERATORS[entry_point], ["private.example", "[::1]"], Clients(wire))

    assert {address for address, _ in wire.connections} == {"10.0.0.1", "::1"}
