"""Private addresses in every spelling, at every door: all are refused, and nothing is dialled."""

import asyncio
from collections.abc import Iterable, Mapping

import pytest
from pydantic import SecretStr

from canvas.errors import ToolError
from components.browsing.loop import ActionFailed
from components.browsing.page import parse_web_address
from providers.interfaces import HttpCall, Program
from providers.sandboxes.ssh import SshSandbox, SshSettings
from tests.attacks import doors, hosts, urls
from tests.attacks.doors import Door, Way
from tests.attacks.wire import Wire

SAID_NO = {"address_refused", "refused", "skipped"}


def outcomes(door: Door, attacks: Iterable[str], way: Way) -> Mapping[str, str]:
    """What comes of each attack; the whole table in one event loop."""

    async def work() -> dict[str, str]:
        try:
            return {attack: await door(attack, way) for attack in attacks}
        finally:
            await way.http.aclose()

    return asyncio.run(work())


@pytest.mark.parametrize("door", doors.HOSTS)
def test_a_host_that_is_not_public_is_refused_in_every_spelling(door: str, wire: Wire):
    found = outcomes(doors.HOSTS[door], hosts.REFUSED, Way(wire))

    assert {host: outcome for host, outcome in found.items() if outcome not in SAID_NO} == {}
    assert [address for address in wire.dialled if address[0] != "93.184.216.34"] == []


@pytest.mark.parametrize("door", doors.HOSTS)
def test_a_public_host_is_dialled_at_the_address_that_was_checked(door: str, wire: Wire):
    found = outcomes(doors.HOSTS[door], hosts.PUBLIC, Way(wire))

    assert set(found.values()).isdisjoint({"address_refused", "refused"})
    assert {address for address, _ in wire.dialled} == {"93.184.216.34"}


@pytest.mark.parametrize("door", doors.URLS)
def test_an_address_that_is_disguised_leads_nowhere_private(door: str, wire: Wire):
    found = outcomes(doors.URLS[door], urls.DISGUISED, Way(wire))

    assert len(found) == len(urls.DISGUISED)
    assert {address for address, _ in wire.dialled} <= {"93.184.216.34"}
    assert "" not in found.values()


@pytest.mark.parametrize("door", [name for name in doors.URLS if name not in ("Invoke's proxy", "Crawler's proxy")])
def test_only_addresses_of_the_web_are_asked(door: str, wire: Wire):
    found = outcomes(doors.URLS[door], urls.OTHER_SCHEMES, Way(wire))

    assert {url: outcome for url, outcome in found.items() if not outcome} == {}
    assert wire.dialled == []


@pytest.mark.parametrize("door", doors.URLS)
def test_no_door_of_the_web_leads_to_ports_where_something_else_is_spoken(door: str, wire: Wire):
    attacks = [f"http://public.example:{port}/" for port in urls.OTHER_PORTS]

    found = outcomes(doors.URLS[door], attacks, Way(wire))

    assert {url: outcome for url, outcome in found.items() if outcome not in SAID_NO} == {}
    assert {port for _, port in wire.dialled} <= {80}


@pytest.mark.parametrize("url", [url for url in urls.OTHER_SCHEMES if "://" in url and url.isprintable()])
def test_a_model_sends_its_browser_to_addresses_of_the_web_only(url: str):
    with pytest.raises(ActionFailed, match=r"not a (valid|web) address"):
        parse_web_address(url)


@pytest.mark.parametrize(
    "variable", ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
)
@pytest.mark.parametrize("door", doors.HOSTS)
def test_a_proxy_that_the_environment_names_is_no_way_for_tools(
    door: str, variable: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, "http://198.51.100.7:3128")

    outcomes(doors.HOSTS[door], hosts.PUBLIC, Way(wire))

    assert {address for address, _ in wire.dialled} == {"93.184.216.34"}


# -- what an operator names -------------------------------------------------------------------------------------------
async def by_a_base_url(host: str, way: Way) -> str:
    """As tools ask at `TOOL_*_BASE_URL`, and sandboxes and RAGFlow where the settings say."""
    try:
        await way.http.send(HttpCall("GET", f"http://{host}/", trusted=True))
    except ToolError as error:
        return error.code
    return ""


async def by_ssh(host: str, way: Way) -> str:
    settings = SshSettings(host=host, username="u", password=SecretStr("p"))
    try:
        await SshSandbox(settings, way.guard, resolve=way.wire.resolve).run(
            Program("python", "def main(): ...", {}, 1, "k")
        )
    except ToolError as error:
        return error.code
    return ""


OPERATORS: Mapping[str, Door] = {"a base URL": by_a_base_url, "a machine of programs": by_ssh}


@pytest.mark.parametrize("door", OPERATORS)
def test_not_even_an_operator_leads_us_to_what_tells_a_machine_its_keys(door: str, wire: Wire):
    found = outcomes(OPERATORS[door], [*hosts.OFF_LIMITS, *hosts.OFF_LIMITS_BY_NAME], Way(wire))

    assert {host: outcome for host, outcome in found.items() if not outcome} == {}
    assert wire.dialled == []


@pytest.mark.parametrize("door", OPERATORS)
def test_what_an_operator_names_may_be_private(door: str, wire: Wire):
    outcomes(OPERATORS[door], ["private.example", "[::1]"], Way(wire))

    assert {address for address, _ in wire.dialled} == {"10.0.0.1", "::1"}
