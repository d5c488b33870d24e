"""A worker's way to the outside world: one HTTP client for all, and what each tenant has configured beside it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from knowledge.bases.search import Library
from knowledge.memory.memories import Memories
from knowledge.memory_router import TenantMemories
from knowledge.retriever import TenantRetriever
from providers.databases import databases
from providers.http.address_policy import Guard
from providers.http.client import Outgoing
from providers.interfaces import BrowserSettings, Sandbox, Services
from providers.mail import PORTS, MailServers
from providers.ragflow import RagflowServer
from providers.sandboxes.factory import sandbox_of
from worker.services.mcp import McpServers
from worker.services.tts import SpeechOf


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """What a deployment lets its nodes reach. `of_tenant` adds to the common services what a tenant has."""

    guard: Guard = field(default_factory=Guard)
    timeout: float = 15.0  # seconds of one request, where the caller does not say
    user_agent: str | None = None
    contact: str | None = None  # whom vendors may write to
    base_urls: Mapping[str, str] = field(default_factory=dict[str, str])
    vendor_keys: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    speech_model: str | None = None
    speech_kept: int = 7 * 86400  # seconds
    voices: Mapping[str, str] = field(default_factory=dict[str, str])  # of speech models, by factory
    ragflow: tuple[str, str] | None = field(default=None, repr=False)  # URL and key of a RAGFlow server to search
    knowledge_memory: int = 512 * 1024 * 1024  # bytes of the indexes of our own knowledge bases
    sandbox: str = "none"  # a provider of `providers.sandboxes.factory`
    sandbox_config: str = field(default="", repr=False)  # its settings, a JSON object
    sandbox_url: str | None = None
    sandbox_must_isolate: bool = False
    sandbox_allow_root: bool = False
    trino_use_tls: bool = False
    own_database: tuple[str, int, str] | None = None  # host, port and name of what no canvas may ask
    smtp_ports: frozenset[int] = PORTS
    browser_executable: str | None = None
    browser_profiles: Path | None = None
    browser_upload_bytes: int = 100 * 1024 * 1024
    of_tenant: Callable[[UUID, Services], Services] = field(default=lambda _, services: services)


class ServiceFactory:
    """The services of every tenant, over one client."""

    def __init__(
        self,
        reach: ServiceConfig,
        speech: SpeechOf,
        library: Library,
        memories: Memories,
        mcp: McpServers | None = None,
    ) -> None:
        self._reach = reach
        self._speech = speech
        self._library = library
        self._memories = memories
        self._mcp = mcp
        self._http = Outgoing(reach.guard, timeout=reach.timeout, user_agent=reach.user_agent, contact=reach.contact)
        self._ragflow = RagflowServer(self._http, *reach.ragflow) if reach.ragflow else None
        self._common = Services(
            self._http,
            retriever=self._ragflow,
            sandbox=_sandbox(reach, self._http),
            databases=databases.reached(reach.guard, reach.own_database, trino_use_tls=reach.trino_use_tls),
            base_urls=reach.base_urls,
            vendor_keys=reach.vendor_keys,
            mail=MailServers(reach.guard, ports=reach.smtp_ports),
        )

    def of(self, tenant_id: UUID) -> Services:
        """What a tenant's node may reach, in one attempt."""
        reach = self._reach
        browser = BrowserSettings(
            guard=reach.guard,
            executable=reach.browser_executable,
            profiles=reach.browser_profiles / tenant_id.hex if reach.browser_profiles else None,
            upload_url_max_bytes=reach.browser_upload_bytes,
        )
        own = replace(
            self._common,
            speech=self._speech(tenant_id, self._http),
            browser=browser,
            retriever=TenantRetriever(tenant_id, self._library, self._memories, self._ragflow),
            memories=TenantMemories(tenant_id, self._memories, self._ragflow),
            mcp=self._mcp.of(tenant_id, self._http) if self._mcp is not None else None,
        )
        return reach.of_tenant(tenant_id, own)

    async def close(self) -> None:
        """Close the client's connections."""
        await self._http.aclose()


def _sandbox(reach: ServiceConfig, http: Outgoing) -> Sandbox | None:
    if reach.sandbox == "local":
        given = {"must_isolate": reach.sandbox_must_isolate, "allow_root": reach.sandbox_allow_root}
    else:
        given = {"endpoint": reach.sandbox_url}
    return sandbox_of(reach.sandbox, reach.sandbox_config, http, reach.guard, given)
