"""Builds what nodes may reach outside: one HTTP client for all tenants, and what each tenant has configured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from canvas.ids import TenantId
from knowledge.bases.search import KnowledgeBaseSearch
from knowledge.memory.memories import MemoryStore
from knowledge.memory_router import TenantMemories
from knowledge.retriever import TenantRetriever
from providers.address_policy import Guard
from providers.databases import databases
from providers.http.client import HttpClient
from providers.interfaces import BrowserSettings, Sandbox, Services
from providers.mail import MailServers
from providers.ragflow import RagflowClient
from providers.sandboxes.factory import create_sandbox
from worker.services.mcp import McpServers
from worker.services.tts import FindSpeech


class ServiceSettings(Protocol):
    """The settings of what nodes may reach; `settings.Settings` has them all and explains them."""

    @property
    def http_timeout(self) -> timedelta: ...
    @property
    def http_user_agent(self) -> str | None: ...
    @property
    def contact(self) -> str | None: ...
    @property
    def ragflow_url(self) -> str | None: ...
    @property
    def ragflow_api_key(self) -> SecretStr | None: ...
    @property
    def sandbox(self) -> str: ...
    @property
    def sandbox_config(self) -> SecretStr | None: ...
    @property
    def sandbox_url(self) -> str | None: ...
    @property
    def sandbox_must_isolate(self) -> bool: ...
    @property
    def sandbox_allow_root(self) -> bool: ...
    @property
    def trino_use_tls(self) -> bool: ...
    @property
    def mail_ports(self) -> frozenset[int]: ...
    @property
    def browser_executable(self) -> str | None: ...
    @property
    def browser_upload_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """What the environment of a process adds to the settings of its services."""

    guard: Guard = field(default_factory=Guard)
    base_urls: Mapping[str, str] = field(default_factory=dict[str, str])  # of tools' vendors, by class in capitals
    vendor_keys: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    own_database: tuple[str, int, str] | None = None  # host, port and name of the database that no canvas may query
    browser_profiles: Path | None = None  # folder
    of_tenant: Callable[[TenantId, Services], Services] = field(default=lambda _, services: services)
    """Returns a tenant's services, from those that it would have otherwise."""


class ServiceFactory:
    """The services of every tenant, over one HTTP client."""

    def __init__(
        self,
        settings: ServiceSettings,
        config: ServiceConfig,
        speech: FindSpeech,
        library: KnowledgeBaseSearch,
        memories: MemoryStore,
        mcp: McpServers,
    ) -> None:
        self._settings = settings
        self._config = config
        self._speech = speech
        self._library = library
        self._memories = memories
        self._mcp = mcp
        self._http = HttpClient(
            config.guard,
            timeout=settings.http_timeout.total_seconds(),
            user_agent=settings.http_user_agent,
            contact=settings.contact,
        )
        self._ragflow = (
            RagflowClient(self._http, settings.ragflow_url, _reveal(settings.ragflow_api_key))
            if settings.ragflow_url
            else None
        )
        self._common = Services(
            self._http,
            retriever=self._ragflow,
            sandbox=self._sandbox(),
            databases=databases.database_servers(
                config.guard, config.own_database, trino_use_tls=settings.trino_use_tls
            ),
            base_urls=config.base_urls,
            vendor_keys=config.vendor_keys,
            mail=MailServers(config.guard, ports=settings.mail_ports),
        )

    def of(self, tenant_id: TenantId) -> Services:
        """Return what a tenant's node may reach, for one attempt."""
        config = self._config
        browser = BrowserSettings(
            guard=config.guard,
            executable=self._settings.browser_executable,
            profiles=config.browser_profiles / tenant_id.hex if config.browser_profiles else None,
            upload_url_max_bytes=self._settings.browser_upload_bytes,
        )
        services = replace(
            self._common,
            speech=self._speech(tenant_id, self._http),
            browser=browser,
            retriever=TenantRetriever(tenant_id, self._library, self._memories, self._ragflow),
            memories=TenantMemories(tenant_id, self._memories, self._ragflow),
            mcp=self._mcp.of(tenant_id, self._http),
        )
        return config.of_tenant(tenant_id, services)

    async def close(self) -> None:
        """Close the client's connections."""
        await self._http.aclose()

    def _sandbox(self) -> Sandbox | None:
        settings = self._settings
        if settings.sandbox == "local":
            options = {"must_isolate": settings.sandbox_must_isolate, "allow_root": settings.sandbox_allow_root}
        else:
            options = {"endpoint": settings.sandbox_url}
        config = _reveal(settings.sandbox_config)
        return create_sandbox(settings.sandbox, config, self._http, self._config.guard, options)


def _reveal(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret is not None else ""
