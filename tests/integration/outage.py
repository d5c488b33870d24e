"""The product on one database, with nodes that wait at a gate, for tests of database outages."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from pydantic import SecretStr
from sqlalchemy import text

import local_engine
from api.app import ApiConfig
from canvas.outcome import Finished
from components import registry
from components.base import Component, Params
from components.context import NodeContext
from settings import Settings
from store.db.database import Database
from store.primitives.ids import new_id
from store.tenants import tenants
from tests.integration.api.conftest import Server, serving
from tests.integration.api.talking import Client, canvas, message

GATED_CANVAS = canvas(
    ("begin", "Begin", {}, ["StringTransform:0"]),
    ("StringTransform:0", "StringTransform", {}, ["Message:0"]),
    ("Message:0", "Message", message("done"), []),
)
LEASE = timedelta(seconds=6)  # a busy machine renews it in time, and a test waits until it has expired

ATTEMPTS = text("select attempt, crash_count, status from activations where node_id like 'StringTransform%'")
RUNS = text("select status, count(*) from runs group by status")
LEASES_EXPIRED = text("select bool_and(lease_until < now()) from activations where status = 'running'")


@dataclass
class Gate:
    """A gate at which the StringTransform nodes wait until it is opened."""

    waiting_runs: set[str] = field(default_factory=set)
    _open: threading.Event = field(default_factory=threading.Event)

    async def pass_through(self, params: Params, ctx: NodeContext) -> Finished:
        self.waiting_runs.add(ctx.run_id)
        while not self._open.is_set():
            await asyncio.sleep(0.01)
        return Finished()

    def open(self) -> None:
        self._open.set()


@dataclass
class Product:
    """The running product and a client of it."""

    client: Client
    url: str
    database: Database
    gate: Gate
    agent: str

    def post_run(self, key: str) -> httpx2.Response:
        """Post a run under an idempotency key."""
        return self.client.http.post(
            f"/api/v1/agents/{self.agent}/runs", json={"query": "hi"}, headers={"Idempotency-Key": key}
        )

    def readiness(self) -> tuple[int, str]:
        """Return the status of /readyz and its text about the database."""
        reply = httpx2.get(f"{self.url}/readyz", timeout=10)
        return reply.status_code, reply.json()["checks"]["database"]

    def rows(self, statement: Any) -> list[tuple[Any, ...]]:
        return self.database.run_with_retry(lambda tx: [tuple(row) for row in tx.rows(statement)])

    def wait_for_runs(self, count: int) -> list[str]:
        """Wait until all runs, which must be `count`, have ended; return their statuses."""
        runs = self.client.http.get("/api/v1/runs").json()["runs"]
        assert len(runs) == count
        return [self.client.wait_for(run["id"], "succeeded", "failed", "cancelled")["status"] for run in runs]

    @property
    def leases_have_expired(self) -> bool:
        return bool(self.rows(LEASES_EXPIRED)[0][0])

    @property
    def has_running_attempts(self) -> bool:
        """Whether any attempt has not reported yet."""
        return any(status == "running" for _, _, status in self.rows(ATTEMPTS))


@contextmanager
def run_product(database_url: str, redis_url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Product]:
    """Run the product with short leases on this database, until the block ends."""
    gate = Gate()
    components = {**registry.COMPONENTS, "stringtransform": Component("StringTransform", Params, gate.pass_through)}
    monkeypatch.setattr(registry, "COMPONENTS", components)
    base_settings = Settings(
        home=home, files_dir=home / "files", secret_key=SecretStr("a secret that is long"), lease=LEASE,
        renew_every=LEASE / 4,
    )  # fmt: skip
    config = ApiConfig(base_settings.with_servers(database_url, redis_url))
    database = Database(database_url, pool_size=1)
    with database.transaction() as tx:
        tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
        _, token = tenants.create_token(tx, tenant_id, "test", "api")
    with local_engine.run_engine(base_settings, database_url, redis_url, threads=8), serving(config) as url:
        client = Server(url, database, config).client_of(tenant_id, token)
        try:
            yield Product(client, url, database, gate, client.agent(GATED_CANVAS))
        finally:
            gate.open()
            client.http.close()
            database.close()


def execute_autocommit(database_url: str, *statements: str) -> None:
    """Execute statements in autocommit mode, outside of a transaction."""
    with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
