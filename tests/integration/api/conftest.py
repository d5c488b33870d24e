"""A real API server, with and without a worker, a scheduler and a sweeper."""

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
import uvicorn
from pydantic import SecretStr

import local_engine
from api.app import ApiConfig, create_app
from api.http.http1_protocol import GuardedProtocol
from embedded import EmbeddedServers
from settings import Settings
from store.db.database import Database
from store.primitives.ids import new_id
from store.tenants import tenants
from tests import services as test_services
from tests.integration.api.talking import Client

SECRET = "a secret that is long"
POOL = 4  # connections; as many processes of pytest have servers as there are processors, and PostgreSQL has 60
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""No test uses TLS. To load the certificate authorities would cost each client 30 ms."""


@dataclass(frozen=True)
class Server:
    """A running API server, its database and its config."""

    url: str
    database: Database
    config: ApiConfig

    @property
    def database_url(self) -> str:
        return self.config.settings.servers()[0]

    @property
    def redis_url(self) -> str:
        return self.config.settings.servers()[1]

    def client(self, *, kind: str = "api") -> Client:
        """Create a client with its own tenant."""
        with self.database.transaction() as tx:
            tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
            _, token = tenants.create_token(tx, tenant_id, "test", kind)
        return self.client_of(tenant_id, token)

    def guest(self, client: Client, agent: str) -> Client:
        """Create a client with a share link of another client's agent."""
        with self.database.transaction() as tx:
            _, token = tenants.create_token(tx, client.tenant_id, "link", "beta", canvas_id=UUID(agent))
        return self.client_of(client.tenant_id, token)

    def client_of(self, tenant_id: UUID, token: str) -> Client:
        """Create a client with this token."""
        headers = {"Authorization": f"Bearer {token}"}
        return Client(httpx2.Client(base_url=self.url, headers=headers, timeout=30, verify=NO_TLS), tenant_id, token)


def config_of(database_url: str, redis_url: str) -> ApiConfig:
    """Return the config of an API on these servers. It has a secret, so that the API writes no secret file."""
    return ApiConfig(Settings(database_url=database_url, redis_url=redis_url, secret_key=SecretStr(SECRET)))


def with_settings(config: ApiConfig, **changes: Any) -> ApiConfig:
    """Return the config with other values of some settings."""
    return replace(config, settings=config.settings.model_copy(update=changes))


@contextmanager
def serving(config: ApiConfig) -> Iterator[str]:
    """Run a server in a thread; yield its URL."""
    uvicorn_config = uvicorn.Config(
        create_app(config), port=0, http=GuardedProtocol, ws="none", log_level="error", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(uvicorn_config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert server.started, "The server did not start."
    port: int = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)


@pytest.fixture(scope="package")
def config(services: EmbeddedServers, template: str, home: Path) -> Iterator[ApiConfig]:
    """The config of a database and a Redis that all of these tests share. Each test uses its own tenant."""
    redis_url = test_services.emptied_redis(services.redis_url, "api")
    with test_services.fresh_database(services.database_url, template) as database_url:
        settings = Settings(
            home=home,
            database_url=database_url,
            redis_url=redis_url,
            api_pool=POOL,
            max_canvas_bytes=200_000,
            secret_key=SecretStr(SECRET),
        )
        yield ApiConfig(settings, poll_interval=0.5, keepalive_interval=0.3)


@pytest.fixture(scope="package")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home folder of the engine; `files` in it is the file storage."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="package")
def engine(config: ApiConfig, home: Path) -> Iterator[local_engine.Engine]:
    """The engine that executes runs: a worker, a scheduler and a sweeper."""
    settings = Settings(home=home, files_dir=home / "files", secret_key=SecretStr(SECRET))
    with local_engine.run_engine(settings, *config.settings.servers()[:2], threads=8) as running:
        yield running


@pytest.fixture(scope="package")
def server(config: ApiConfig, engine: local_engine.Engine) -> Iterator[Server]:
    """An API server whose runs are executed."""
    with start_server(config) as server:
        yield server


@pytest.fixture(scope="package")
def workerless_server(services: EmbeddedServers, template: str, config: ApiConfig) -> Iterator[Server]:
    """An API server without a worker: its runs are accepted and not executed."""
    with (
        test_services.fresh_database(services.database_url, template) as database_url,
        start_server(with_settings(config, database_url=database_url)) as server,
    ):
        yield server


@contextmanager
def start_server(config: ApiConfig) -> Iterator[Server]:
    """Run an API server; yield it with its database."""
    database = Database(config.settings.servers()[0], pool_size=2)
    with serving(config) as url:
        yield Server(url, database, config)
    database.close()


@pytest.fixture(scope="module")
def server_with_files(workerless_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An API server without a worker, with a folder for the documents of knowledge bases."""
    config = with_settings(workerless_server.config, files_dir=tmp_path_factory.mktemp("files"))
    with serving(config) as url:
        yield Server(url, workerless_server.database, config)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client with its own tenant."""
    client = server.client()
    yield client
    client.http.close()


@pytest.fixture
def workerless_client(workerless_server: Server) -> Iterator[Client]:
    """A client with its own tenant, whose runs are not executed."""
    client = workerless_server.client()
    yield client
    client.http.close()
