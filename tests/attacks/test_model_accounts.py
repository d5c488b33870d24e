"""Model accounts: an operator names their hosts, which may be private, but never metadata services and the like.

`socket.getaddrinfo` is replaced by a name server whose answers can change between two lookups.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import pytest

from canvas.errors import ModelError
from providers.address_policy import Guard
from providers.errors import ProviderError
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
from tests.attacks.wire import KNOWN, LOCALHOST, Wire, local_server, reply, tls

NO_RETRIES = RetryPolicy(retries=0)
RECORDING = Recording("a.wav", b"RIFF", "audio/wav")
KEYS = {"bedrock_ak": "AKIA", "bedrock_sk": "s3cret-key"}
OFF_LIMITS = ("169.254.169.254", "0xa9fea9fe", "0251.0376.0251.0376", "[::ffff:a9fe:a9fe]", "[fe80::1]", "0.0.0.0",
              *hosts.OFF_LIMITS_BY_NAME)  # fmt: skip
PRIVATE = ("127.0.0.1", "10.0.0.1", "192.168.0.1", "100.64.0.1", "[::1]", "private.example", "loopback.example")

EntryPoint = Callable[[str, RequestLimits], Awaitable[str]]


def spec_of(base_url: str, dialect: str, kind: str) -> ModelSpec:
    account = VendorAccount(
        "OpenAI-API-Compatible",
        base_url=base_url,
        api_key="" if dialect == "bedrock" else "sk-s3cret-key",
        models={"m": AccountModel(kinds=frozenset({kind}))},
        extra={"dialect": dialect, **(KEYS if dialect == "bedrock" else {})},
    )
    return resolve("m@OpenAI-API-Compatible", [account], kind=kind)


def chat(dialect: str) -> EntryPoint:
    async def entry_point(base_url: str, limits: RequestLimits) -> str:
        spec = spec_of(base_url, dialect, "chat")
        request = ChatRequest([{"role": "user", "content": "the prompt"}], retries=0)
        completion = await open_chat(spec, limits, retry_policy=NO_RETRIES).complete(request)
        return str(completion.error or "")

    return entry_point


async def embedding(base_url: str, limits: RequestLimits) -> str:
    return await _error_of(open_embedder(spec_of(base_url, "openai", "embedding"), limits, NO_RETRIES).embed(["text"]))


async def ranking(base_url: str, limits: RequestLimits) -> str:
    return await _error_of(open_reranker(spec_of(base_url, "openai", "rerank"), limits, NO_RETRIES).rank("q", ["text"]))


async def transcription(base_url: str, limits: RequestLimits) -> str:
    opened = open_transcriber(spec_of(base_url, "openai", "asr"), limits, NO_RETRIES)
    return await _error_of(opened.transcribe(RECORDING))


async def speech(base_url: str, limits: RequestLimits) -> str:
    http = HttpClient(limits.hosts.guard, tls=tls())
    tts = OpenAISpeech(spec_of(base_url, "openai", "tts"), http, "t", trusted=limits.hosts.private)
    try:
        return await _error_of(tts.synthesize(base_url))
    finally:
        await http.aclose()


async def _error_of(request: Awaitable[Any]) -> str:
    try:
        await request
    except (ProviderError, ModelError) as failed:
        return str(failed)
    return ""


ENTRY_POINTS: Mapping[str, EntryPoint] = {
    **{f"chat ({each})": chat(each) for each in ("openai", "azure", "anthropic", "gemini", "bedrock")},
    "embedding": embedding,
    "ranking": ranking,
    "transcription": transcription,
    "speech": speech,
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of names, one for each lookup; the last one is repeated. Other names are those of `KNOWN`."""
    addresses: dict[str, list[str]] = {}
    original = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *more: Any, **kwargs: Any) -> Any:
        text = host.decode() if isinstance(host, bytes) else str(host)
        results = (
            [addresses[text].pop(0) if len(addresses[text]) > 1 else addresses[text][0]]
            if text in addresses
            else KNOWN.get(text)
        )
        if results is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [each for address in results for each in original(address, port, *more, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return addresses


def outcomes(entry_point: str, attacks: Iterable[str], limits: RequestLimits | None = None) -> Mapping[str, str]:
    """Return the error of each host's account; all run in one event loop."""

    async def work() -> dict[str, str]:
        try:
            return {
                host: await ENTRY_POINTS[entry_point](f"http://{host}:80/v1", limits or RequestLimits())
                for host in attacks
            }
        finally:
            await close_connections()

    return asyncio.run(work())


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_model_account_with_a_metadata_host_is_refused(entry_point: str, wire: Wire, names: dict[str, list[str]]):
    results = outcomes(entry_point, OFF_LIMITS)

    assert {host: error for host, error in results.items() if not error} == {}
    assert wire.connections == []
    assert "s3cret" not in str(results)


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_model_account_may_name_a_private_host(entry_point: str, wire: Wire, names: dict[str, list[str]]):
    results = outcomes(entry_point, PRIVATE)

    assert [host for host, error in results.items() if "not allowed" in error] == []
    assert {address for address, _ in wire.connections} == {"127.0.0.1", "10.0.0.1", "192.168.0.1", "100.64.0.1", "::1"}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_model_account_with_a_private_host_is_refused_when_the_deployment_forbids_it(
    entry_point: str, wire: Wire, names: dict[str, list[str]]
):
    limits = RequestLimits(hosts=ModelAddressPolicy(Guard(allowed=("192.168.0.0/16",)), private=False))

    results = outcomes(entry_point, [*PRIVATE, "public.example"], limits)

    assert {host for host, error in results.items() if "not allowed" in error} == {*PRIVATE} - {"192.168.0.1"}
    assert {address for address, _ in wire.connections} == {"192.168.0.1", "93.184.216.34"}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_model_request_connects_to_the_address_that_was_checked(
    entry_point: str, wire: Wire, names: dict[str, list[str]]
):
    """The address of the first lookup is checked and connected to; the next connection is checked again."""
    names["rebound.example"] = [LOCALHOST, "169.254.169.254"]

    async def work() -> tuple[int, str]:
        async with local_server(reply(b"{}")) as server:
            wire.own_ports.add(server.port)
            url = f"http://rebound.example:{server.port}/v1"
            await ENTRY_POINTS[entry_point](url, RequestLimits())
            requests, wire.connections[:] = len(server.requests), []
            error = await ENTRY_POINTS[entry_point](f"{url}?", RequestLimits())
            await close_connections()
            return requests, error

    requests, error = asyncio.run(work())

    assert requests == 1
    assert "169.254.169.254" in error
    assert wire.connections == []


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_model_request_ignores_a_proxy_in_the_environment(
    entry_point: str, variable: str, wire: Wire, names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
):
    async def work() -> tuple[int, int]:
        async with local_server(reply(b"{}")) as proxy, local_server(reply(b"{}")) as server:
            wire.own_ports |= {proxy.port, server.port}
            monkeypatch.setenv(variable, proxy.url())
            await ENTRY_POINTS[entry_point](server.url("/v1"), RequestLimits())
            await close_connections()
            return len(proxy.requests), len(server.requests)

    assert asyncio.run(work()) == (0, 1)
