"""The doors: every way by which somebody else chooses where we connect to, each knocked on as its users do.

    outcome = await DOORS["Crawler"](url, way_out)

`HOSTS` take the name of a host, `URLS` a whole address. An outcome is the failure's code, or "" where there is none.
Hosts of sandboxes, of models and of a RAGFlow server are an operator's settings and may be private: they are no doors.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from api.http.errors import RequestRefused
from api.http.uploads import fetch_file
from canvas.errors import ExecutorError, ToolError
from canvas.outcome import Failed
from components import tools
from components.browsing.uploads import fetch_files, read_sources
from components.context import NodeContext
from components.nodes.agent.tool_set import parse_entry, tool_function
from components.nodes.data.invoke import InvokeParams, invoke
from components.tools.framework.tool_node import tool_component
from providers.databases.databases import DatabaseServers
from providers.databases.drivers import Target
from providers.http.address_policy import Guard
from providers.http.browser_proxy import BrowserProxy
from providers.http.client import HttpClient
from providers.interfaces import Services
from providers.mail import MailServers
from providers.mcp.session import McpServer, McpSession
from tests.attacks.wire import Wire, tls
from tests.fakes import FakeContext

REFUSED = "address_refused"


@dataclass
class Log:
    """Keeps what was warned of."""

    reasons: list[str] = field(default_factory=list[str])

    def warning(self, event: str, **fields: Any) -> None:
        self.reasons.append(str(fields.get("reason", "")))


@dataclass
class Way:
    """The real clients, over a wire that a test watches."""

    wire: Wire
    guard: Guard = field(default_factory=Guard)
    base_urls: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.http = HttpClient(self.guard, tls=tls(), resolve=self.wire.resolve)
        self.mail = MailServers(self.guard, tls=tls(), resolve=self.wire.resolve)
        self.databases = DatabaseServers(self.guard, resolve=self.wire.resolve, open_session=self._dial)

    @property
    def services(self) -> Services:
        return Services(self.http, databases=self.databases, mail=self.mail, base_urls=self.base_urls)

    async def _dial(self, kind: str, targets: Sequence[Target]) -> Any:
        """Where a driver would connect: those in C cannot be watched."""
        self.wire.dialled += [(target.address, target.port) for target in targets]
        raise ToolError("Database Connection Failed! \nnobody answers here", retryable=True)


Door = Callable[[str, Way], Awaitable[str]]


# -- by an address ----------------------------------------------------------------------------------------------------
async def by_invoke(url: str, way: Way) -> str:
    return await _node("Invoke", {"url": url}, way)


async def by_proxy_of_invoke(url: str, way: Way) -> str:
    return await _node("Invoke", {"url": "http://public.example/", "proxy": url}, way)


async def by_crawler(url: str, way: Way) -> str:
    return await _node("Crawler", {"query": url}, way)


async def by_proxy_of_crawler(url: str, way: Way) -> str:
    return await _node("Crawler", {"query": "http://public.example/", "proxy": url}, way)


async def by_searxng(url: str, way: Way) -> str:
    return await _node("SearXNG", {"query": "x", "searxng_url": url}, way)


async def by_a_models_searxng(url: str, way: Way) -> str:
    return await _function("SearXNG", {}, {"query": "x", "searxng_url": url}, way)


async def by_a_models_crawler(url: str, way: Way) -> str:
    return await _function("Crawler", {}, {"query": url}, way)


async def by_upload(url: str, way: Way) -> str:
    try:
        await fetch_file(way.http, url)
    except RequestRefused as refused:
        cause = refused.__cause__
        return cause.code if isinstance(cause, ExecutorError) else "refused"
    return ""


async def by_upload_of_browser(url: str, way: Way) -> str:
    """It leaves out what it cannot have, with a warning."""
    log = Log()
    ctx = FakeContext(services=way.services, log=log)
    with TemporaryDirectory() as folder:
        files = await fetch_files(read_sources([{"url": url}], _as_context(ctx)), Path(folder), 1000, _as_context(ctx))
    if files:
        return ""
    return REFUSED if any(_is_refusal(reason) for reason in log.reasons) else "skipped"


async def by_egress(url: str, way: Way) -> str:
    """As a browser asks its proxy for a page without TLS."""
    return await _through_egress(f"GET {url} HTTP/1.1\r\n\r\n", way)


async def by_mcp(url: str, way: Way) -> str:
    return await _mcp(url, "streamable-http", way)


async def by_mcp_of_old(url: str, way: Way) -> str:
    return await _mcp(url, "sse", way)


# -- by a host --------------------------------------------------------------------------------------------------------
async def by_exesql(host: str, way: Way) -> str:
    params = {"db_type": "postgres", "host": host, "database": "d", "username": "u", "password": "p", "port": 5432}
    return await _node("ExeSQL", {**params, "sql": "SELECT 1"}, way)


async def by_email(host: str, way: Way) -> str:
    account = {"smtp_server": host, "email": "a@x.test", "password": "pass", "sender_name": "A"}
    return await _node("Email", {**account, "to_email": "b@x.test"}, way)


async def by_qweather(host: str, way: Way) -> str:
    return await _node("QWeather", {"query": "x", "web_apikey": "key-1234", "api_host": host}, way)


async def by_tunnel(host: str, way: Way) -> str:
    """As a browser asks its proxy for a page with TLS."""
    return await _through_egress(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n", way)


URLS: Mapping[str, Door] = {
    "Invoke": by_invoke,
    "Invoke's proxy": by_proxy_of_invoke,
    "Crawler": by_crawler,
    "Crawler's proxy": by_proxy_of_crawler,
    "SearXNG": by_searxng,
    "a model's SearXNG": by_a_models_searxng,
    "a model's Crawler": by_a_models_crawler,
    "an upload": by_upload,
    "Browser's uploads": by_upload_of_browser,
    "Browser": by_egress,
    "MCP": by_mcp,
    "MCP over SSE": by_mcp_of_old,
}
HOSTS: Mapping[str, Door] = {
    **{name: lambda host, way, door=door: door(f"http://{host}/", way) for name, door in URLS.items()},
    "ExeSQL": by_exesql,
    "Email": by_email,
    "QWeather": by_qweather,
    "Browser's tunnels": by_tunnel,
}


# -- how to knock -----------------------------------------------------------------------------------------------------
async def _node(name: str, params: Mapping[str, Any], way: Way) -> str:
    ctx = FakeContext(services=way.services, limits={name: 5.0})
    stored = {"delay_after_error": 0, "max_retries": 0, **params}
    try:
        if name == "Invoke":
            outcome: Any = await cast(Any, invoke.run(InvokeParams.model_validate(stored), _as_context(ctx)))
        else:
            tool = tools.find(name)
            assert tool is not None
            outcome = await cast(Any, tool_component(tool).run(tool.params.model_validate(stored), _as_context(ctx)))
    except ExecutorError as error:
        return error.code
    except ValueError:
        return "refused"  # before the canvas can be saved
    return outcome.code if isinstance(outcome, Failed) else ""


async def _function(name: str, params: Mapping[str, Any], arguments: Mapping[str, Any], way: Way) -> str:
    entry = parse_entry({"component_name": name, "name": name, "params": {"max_retries": 0, **params}}, lambda _: None)
    ctx = FakeContext(services=way.services, limits={name: 5.0})
    run = await tool_function(entry, 0).call(arguments, _as_context(ctx))
    return run.code if run.error is not None else ""


async def _mcp(url: str, server_type: str, way: Way) -> str:
    """A session of the SDK's; what it says of an error is less than what our transport has noted."""
    session = McpSession(McpServer.of("id", "name", url, server_type, headers={}, variables={}), way.http)
    try:
        await session.open()
    except ExecutorError as error:
        noted = session._transport.failure
        if noted is not None:
            return noted.code
        return "refused" if "URL" in error.message else error.code  # before anybody was asked
    finally:
        await session.close()
    return ""


async def _through_egress(head: str, way: Way) -> str:
    """The proxy's own answer; its connection is fed by hand, for no socket connects here."""
    egress = BrowserProxy(way.guard, resolve=way.wire.resolve)
    reader = asyncio.StreamReader()
    reader.feed_data(head.encode("utf-8", "surrogateescape"))
    reader.feed_eof()
    said = _Said()
    await egress._handle_request(reader, cast(asyncio.StreamWriter, said))
    status = said.data.split(b" ", 2)[1] if said.data else b""
    return {b"403": REFUSED, b"400": "refused", b"502": ToolError.code}.get(status, "")


class _Said:
    """A stream to nobody."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        return


def _as_context(ctx: FakeContext) -> NodeContext:
    return cast(NodeContext, ctx)


def _is_refusal(reason: str) -> bool:
    return "not allowed" in reason or "Could not resolve" in reason or "host" in reason.lower()
