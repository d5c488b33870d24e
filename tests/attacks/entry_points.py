"""Entry points: every way in which an author, a model or a caller chooses the host that Easel connects to.

    outcome = await URLS["Crawler"](url, clients)

`HOSTS` take the name of a host, `URLS` a whole URL. An outcome is the code of the failure, or "" if there is none.
Hosts of sandboxes, of models and of a RAGFlow server are settings of the operator and may be private.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from api.http.errors import RequestRefused
from api.requests.uploads import fetch_file
from canvas.errors import ExecutorError, ToolError
from canvas.outcome import Failed
from components import tools
from components.browsing.uploads import fetch_files, read_sources
from components.context import NodeContext
from components.nodes.agent.tool_set import parse_entry, tool_function
from components.nodes.data.invoke import InvokeParams, invoke
from components.tools.framework.tool_node import tool_component
from providers.address_policy import Guard
from providers.databases.databases import DatabaseServers
from providers.databases.drivers import Target
from providers.http.browser_proxy import BrowserProxy
from providers.http.client import HttpClient
from providers.interfaces import Services
from providers.mail import MailServers
from providers.mcp.session import McpServer, McpSession
from tests.attacks.wire import Wire, tls
from tests.fakes import FakeContext

REFUSED = "address_refused"


@dataclass
class WarningLog:
    """A log that collects the reasons of warnings."""

    reasons: list[str] = field(default_factory=list[str])

    def warning(self, event: str, **fields: Any) -> None:
        self.reasons.append(str(fields.get("reason", "")))


@dataclass
class Clients:
    """The real clients, over a network that records connections."""

    wire: Wire
    guard: Guard = field(default_factory=Guard)
    base_urls: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.http = HttpClient(self.guard, tls=tls(), resolve=self.wire.resolve)
        self.mail = MailServers(self.guard, tls=tls(), resolve=self.wire.resolve)
        self.databases = DatabaseServers(self.guard, resolve=self.wire.resolve, open_session=self._record_targets)

    @property
    def services(self) -> Services:
        return Services(self.http, databases=self.databases, mail=self.mail, base_urls=self.base_urls)

    async def _record_targets(self, kind: str, targets: Sequence[Target]) -> Any:
        """Record the targets of a database driver; drivers in C would connect unrecorded."""
        self.wire.connections += [(target.address, target.port) for target in targets]
        raise ToolError("Database Connection Failed! \nnobody answers here", retryable=True)


EntryPoint = Callable[[str, Clients], Awaitable[str]]


# -- by a URL ---------------------------------------------------------------------------------------------------------
async def by_invoke(url: str, clients: Clients) -> str:
    return await _node("Invoke", {"url": url}, clients)


async def by_proxy_of_invoke(url: str, clients: Clients) -> str:
    return await _node("Invoke", {"url": "http://public.example/", "proxy": url}, clients)


async def by_crawler(url: str, clients: Clients) -> str:
    return await _node("Crawler", {"query": url}, clients)


async def by_proxy_of_crawler(url: str, clients: Clients) -> str:
    return await _node("Crawler", {"query": "http://public.example/", "proxy": url}, clients)


async def by_searxng(url: str, clients: Clients) -> str:
    return await _node("SearXNG", {"query": "x", "searxng_url": url}, clients)


async def by_searxng_tool_call(url: str, clients: Clients) -> str:
    return await _function("SearXNG", {}, {"query": "x", "searxng_url": url}, clients)


async def by_crawler_tool_call(url: str, clients: Clients) -> str:
    return await _function("Crawler", {}, {"query": url}, clients)


async def by_upload(url: str, clients: Clients) -> str:
    try:
        await fetch_file(clients.http, url)
    except RequestRefused as refused:
        cause = refused.__cause__
        return cause.code if isinstance(cause, ExecutorError) else "refused"
    return ""


async def by_upload_of_browser(url: str, clients: Clients) -> str:
    """A file that cannot be fetched is skipped with a warning."""
    log = WarningLog()
    ctx = FakeContext(services=clients.services, log=log)
    with TemporaryDirectory() as folder:
        files = await fetch_files(read_sources([{"url": url}], _as_context(ctx)), Path(folder), 1000, _as_context(ctx))
    if files:
        return ""
    return REFUSED if any(_is_refusal(reason) for reason in log.reasons) else "skipped"


async def by_egress(url: str, clients: Clients) -> str:
    """Request a page without TLS from the proxy, as a browser does."""
    return await _through_egress(f"GET {url} HTTP/1.1\r\n\r\n", clients)


async def by_mcp(url: str, clients: Clients) -> str:
    return await _mcp(url, "streamable-http", clients)


async def by_mcp_over_sse(url: str, clients: Clients) -> str:
    return await _mcp(url, "sse", clients)


# -- by a host --------------------------------------------------------------------------------------------------------
async def by_exesql(host: str, clients: Clients) -> str:
    params = {"db_type": "postgres", "host": host, "database": "d", "username": "u", "password": "p", "port": 5432}
    return await _node("ExeSQL", {**params, "sql": "SELECT 1"}, clients)


async def by_email(host: str, clients: Clients) -> str:
    account = {"smtp_server": host, "email": "a@x.test", "password": "pass", "sender_name": "A"}
    return await _node("Email", {**account, "to_email": "b@x.test"}, clients)


async def by_qweather(host: str, clients: Clients) -> str:
    return await _node("QWeather", {"query": "x", "web_apikey": "key-1234", "api_host": host}, clients)


async def by_tunnel(host: str, clients: Clients) -> str:
    """Open a tunnel through the proxy, as a browser does for a page with TLS."""
    return await _through_egress(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n", clients)


URLS: Mapping[str, EntryPoint] = {
    "Invoke": by_invoke,
    "Invoke's proxy": by_proxy_of_invoke,
    "Crawler": by_crawler,
    "Crawler's proxy": by_proxy_of_crawler,
    "SearXNG": by_searxng,
    "a model's SearXNG": by_searxng_tool_call,
    "a model's Crawler": by_crawler_tool_call,
    "an upload": by_upload,
    "Browser's uploads": by_upload_of_browser,
    "Browser": by_egress,
    "MCP": by_mcp,
    "MCP over SSE": by_mcp_over_sse,
}
HOSTS: Mapping[str, EntryPoint] = {
    **{
        name: lambda host, clients, entry_point=entry_point: entry_point(f"http://{host}/", clients)
        for name, entry_point in URLS.items()
    },
    "ExeSQL": by_exesql,
    "Email": by_email,
    "QWeather": by_qweather,
    "Browser's tunnels": by_tunnel,
}


# -- helpers ----------------------------------------------------------------------------------------------------------
async def _node(name: str, params: Mapping[str, Any], clients: Clients) -> str:
    ctx = FakeContext(services=clients.services, limits={name: 5.0})
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
        return "refused"  # when the canvas is saved
    return outcome.code if isinstance(outcome, Failed) else ""


async def _function(name: str, params: Mapping[str, Any], arguments: Mapping[str, Any], clients: Clients) -> str:
    entry = parse_entry({"component_name": name, "name": name, "params": {"max_retries": 0, **params}}, lambda _: None)
    ctx = FakeContext(services=clients.services, limits={name: 5.0})
    run = await tool_function(entry, 0).call(arguments, _as_context(ctx))
    return run.code if run.error is not None else ""


async def _mcp(url: str, server_type: str, clients: Clients) -> str:
    """Open an MCP session; the transport's recorded failure is more precise than the SDK's error."""
    session = McpSession(McpServer.of("id", "name", url, server_type, headers={}, variables={}), clients.http)
    try:
        await session.open()
    except ExecutorError as error:
        failure = session._transport.failure
        if failure is not None:
            return failure.code
        return "refused" if "URL" in error.message else error.code  # before any connection
    finally:
        await session.close()
    return ""


async def _through_egress(head: str, clients: Clients) -> str:
    """Pass a request to the proxy without a socket; return the outcome of its reply."""
    egress = BrowserProxy(clients.guard, resolve=clients.wire.resolve)
    reader = asyncio.StreamReader()
    reader.feed_data(head.encode("utf-8", "surrogateescape"))
    reader.feed_eof()
    writer = _CollectingWriter()
    await egress._handle_request(reader, cast(asyncio.StreamWriter, writer))
    status = writer.data.split(b" ", 2)[1] if writer.data else b""
    return {b"403": REFUSED, b"400": "refused", b"502": ToolError.code}.get(status, "")


class _CollectingWriter:
    """A writer that collects its data."""

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
