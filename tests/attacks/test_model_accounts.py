"""Accounts of models: an operator names their hosts, private ones too, and still none leads to what is nobody's server.

Names are looked up by `socket.getaddrinfo`, which stands here for a name server: whoever asks a second time is told
something else.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import pytest

from canvas.errors import ModelError
from providers.errors import ProviderError
from providers.http.address_policy import Guard
from providers.http.client import HttpClient
from providers.models.audio.transcription import Recording, open_transcriber
from providers.models.audio.tts import OpenAISpeech
from providers.models.chat.catalogue import RequestLimits, open_chat, resolve
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.factory import open_embedder, open_reranker
from providers.models.transport.clients import close_connections
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.types.chat import ChatRequest, ModelSpec
from providers.models.vendors.accounts import AccountModel, VendorAccount
from tests.attacks import hosts
from tests.attacks.wire import HERE, KNOWN, Wire, reply, served, tls

AT_ONCE = RetryPolicy(retries=0)
RECORDING = Recording("a.wav", b"RIFF", "audio/wav")
KEYS = {"bedrock_ak": "AKIA", "bedrock_sk": "s3cret-key"}
OFF_LIMITS = ("169.254.169.254", "0xa9fea9fe", "0251.0376.0251.0376", "[::ffff:a9fe:a9fe]", "[fe80::1]", "0.0.0.0",
              *hosts.OFF_LIMITS_BY_NAME)  # fmt: skip
PRIVATE = ("127.0.0.1", "10.0.0.1", "192.168.0.1", "100.64.0.1", "[::1]", "private.example", "loopback.example")

Door = Callable[[str, RequestLimits], Awaitable[str]]


def spec_of(base_url: str, dialect: str, kind: str) -> ModelSpec:
    account = VendorAccount(
        "OpenAI-API-Compatible",
        base_url=base_url,
        api_key="" if dialect == "bedrock" else "sk-s3cret-key",
        models={"m": AccountModel(kinds=frozenset({kind}))},
        extra={"dialect": dialect, **(KEYS if dialect == "bedrock" else {})},
    )
    return resolve("m@OpenAI-API-Compatible", [account], kind=kind)


def chat(dialect: str) -> Door:
    async def door(base_url: str, limits: RequestLimits) -> str:
        spec = spec_of(base_url, dialect, "chat")
        request = ChatRequest([{"role": "user", "content": "the prompt"}], retries=0)
        said = await open_chat(spec, limits, retry_policy=AT_ONCE).complete(request)
        return str(said.error or "")

    return door


async def embedding(base_url: str, limits: RequestLimits) -> str:
    return await _told(open_embedder(spec_of(base_url, "openai", "embedding"), limits, AT_ONCE).embed(["text"]))


async def ranking(base_url: str, limits: RequestLimits) -> str:
    return await _told(open_reranker(spec_of(base_url, "openai", "rerank"), limits, AT_ONCE).rank("q", ["text"]))


async def transcription(base_url: str, limits: RequestLimits) -> str:
    opened = open_transcriber(spec_of(base_url, "openai", "asr"), limits, AT_ONCE)
    return await _told(opened.transcribe(RECORDING))


async def speech(base_url: str, limits: RequestLimits) -> str:
    http = HttpClient(limits.hosts.guard, tls=tls())
    spoken = OpenAISpeech(spec_of(base_url, "openai", "tts"), http, "t", trusted=limits.hosts.private)
    try:
        return await _told(spoken.synthesize(base_url))
    finally:
        await http.aclose()


async def _told(asking: Awaitable[Any]) -> str:
    try:
        await asking
    except (ProviderError, ModelError) as failed:
        return str(failed)
    return ""


DOORS: Mapping[str, Door] = {
    **{f"chat ({each})": chat(each) for each in ("openai", "azure", "anthropic", "gemini", "bedrock")},
    "embedding": embedding,
    "ranking": ranking,
    "transcription": transcription,
    "speech": speech,
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What names stand for, an address for each time that somebody asks; the last one stays. Others are as known."""
    told: dict[str, list[str]] = {}
    really = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *more: Any, **given: Any) -> Any:
        text = host.decode() if isinstance(host, bytes) else str(host)
        found = [told[text].pop(0) if len(told[text]) > 1 else told[text][0]] if text in told else KNOWN.get(text)
        if found is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [each for address in found for each in really(address, port, *more, **given)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return told


def outcomes(door: str, attacks: Iterable[str], limits: RequestLimits | None = None) -> Mapping[str, str]:
    """What each host's account is told; all of them in one event loop."""

    async def work() -> dict[str, str]:
        try:
            return {host: await DOORS[door](f"http://{host}:80/v1", limits or RequestLimits()) for host in attacks}
        finally:
            await close_connections()

    return asyncio.run(work())


@pytest.mark.parametrize("door", DOORS)
def test_no_account_leads_to_what_tells_a_machine_its_keys(door: str, wire: Wire, names: dict[str, list[str]]):
    found = outcomes(door, OFF_LIMITS)

    assert {host: told for host, told in found.items() if not told} == {}
    assert wire.dialled == []
    assert "s3cret" not in str(found)


@pytest.mark.parametrize("door", DOORS)
def test_an_account_leads_to_private_hosts_since_an_operator_named_them(
    door: str, wire: Wire, names: dict[str, list[str]]
):
    found = outcomes(door, PRIVATE)

    assert [host for host, told in found.items() if "not allowed" in told] == []
    assert {address for address, _ in wire.dialled} == {"127.0.0.1", "10.0.0.1", "192.168.0.1", "100.64.0.1", "::1"}


@pytest.mark.parametrize("door", DOORS)
def test_where_a_deployment_says_so_accounts_lead_to_public_hosts_only(
    door: str, wire: Wire, names: dict[str, list[str]]
):
    listed = RequestLimits(hosts=ModelAddressPolicy(Guard(allowed=("192.168.0.0/16",)), private=False))

    found = outcomes(door, [*PRIVATE, "public.example"], listed)

    assert {host for host, told in found.items() if "not allowed" in told} == {*PRIVATE} - {"192.168.0.1"}
    assert {address for address, _ in wire.dialled} == {"192.168.0.1", "93.184.216.34"}


@pytest.mark.parametrize("door", DOORS)
def test_a_name_of_an_account_leads_where_it_was_checked_to_lead(door: str, wire: Wire, names: dict[str, list[str]]):
    """Its first answer is checked and connected to; a second one, for the next connection, is checked again."""
    names["rebound.example"] = [HERE, "169.254.169.254"]

    async def work() -> tuple[int, str]:
        async with served(reply(b"{}")) as server:
            wire.ours.add(server.port)
            url = f"http://rebound.example:{server.port}/v1"
            await DOORS[door](url, RequestLimits())
            asked, wire.dialled[:] = len(server.asked), []
            told = await DOORS[door](f"{url}?", RequestLimits())
            await close_connections()
            return asked, told

    asked, told = asyncio.run(work())

    assert asked == 1
    assert "169.254.169.254" in told
    assert wire.dialled == []


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("door", DOORS)
def test_a_proxy_that_the_environment_names_gets_no_prompt_and_no_key(
    door: str, variable: str, wire: Wire, names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
):
    async def work() -> tuple[int, int]:
        async with served(reply(b"{}")) as proxy, served(reply(b"{}")) as server:
            wire.ours |= {proxy.port, server.port}
            monkeypatch.setenv(variable, proxy.url())
            await DOORS[door](server.url("/v1"), RequestLimits())
            await close_connections()
            return len(proxy.asked), len(server.asked)

    assert asyncio.run(work()) == (0, 1)
