"""The transport for requests to models through a proxy (`providers/models/transport/clients.py` decides when).

The proxy resolves host names, and may see another network than we do. So only these are checked here: an IP address in
the URL, names of metadata services, and all names if models may only use public addresses.
"""

import ssl

import httpx2

from providers.address_policy import is_address, is_metadata_host, resolve_checked
from providers.models.transport.connect import ModelAddressPolicy, resolve_model_host

MAX_IDLE_CONNECTIONS = 100  # idle connections of one client


class ProxyTransport(httpx2.AsyncBaseTransport):
    """The proxy transport of one client. It raises AddressRefused, and errors of httpx2."""

    def __init__(self, proxy: str, tls: ssl.SSLContext, hosts: ModelAddressPolicy) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS)
        self._transport = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, proxy=proxy, limits=limits)
        self._hosts = hosts

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host, port = request.url.host, request.url.port or 443
        if not self._hosts.private or is_address(host) or is_metadata_host(host):
            await resolve_checked(
                host,
                port,
                self._hosts.guard,
                trusted=self._hosts.private,
                subject="The base URL",
                resolve=resolve_model_host,
            )
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self._transport.aclose()
