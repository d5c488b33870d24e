"""A command's way to canvases and runs: the database, the bus, and the verbs that change runs."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import telemetry
from canvas.errors import ExecutorError, NotFound
from cli import servers
from cli.servers import Found
from scheduler.broker import make_app
from scheduler.bus import Bus
from scheduler.coordinator import Coordinator
from scheduler.dispatch import Dispatch
from scheduler.lifecycle import Lifecycle
from scheduler.versions import Versions
from settings import Settings, load
from store import migrate, tenants
from store.database import Database, Transaction

LOCAL = "local"  # the tenant of whoever uses the command line


class Connected(Protocol):
    """What commands work with: a `Connection`, or an engine that also carries out runs."""

    @property
    def lifecycle(self) -> Lifecycle: ...
    @property
    def database(self) -> Database: ...
    @property
    def bus(self) -> Bus: ...
    @property
    def versions(self) -> Versions: ...


@dataclass(frozen=True, slots=True)
class Connection:
    """Rows can be read and written, and runs started; who carries them out is somebody else's affair."""

    lifecycle: Lifecycle
    database: Database
    bus: Bus
    versions: Versions
    found: Found


@contextmanager
def opened() -> Generator[Connection]:
    """A connection for one command, to a database that has every table."""
    with servers.found(load()) as found:
        migrated(found)
        with connected(found) as connection:
            yield connection


@contextmanager
def connected(found: Found) -> Generator[Connection]:
    """A connection to the servers that were found."""
    settings = found.settings
    database_url, redis_url = urls_of(settings)
    only_errors(settings)
    database, bus = Database(database_url, pool_size=4, application="easel-cli"), Bus(redis_url)
    versions, dispatch = Versions(), Dispatch(make_app(settings.broker_url or redis_url, publishers=2), bus)
    coordinator = Coordinator(database, dispatch, versions, settings.form_expiry, settings.max_running)
    try:
        yield Connection(Lifecycle(coordinator), database, bus, versions, found)
    finally:
        bus.close()
        database.close()


def migrated(found: Found) -> None:
    """See to the tables: an empty database and the embedded one get them; raises ExecutorError for an older one."""
    database_url, _ = urls_of(found.settings)
    if found.up is not None:
        return
    if found.is_embedded:
        migrate.upgrade(database_url)
        return
    database = Database(database_url, pool_size=1, application="easel-cli")
    try:
        missing = migrate.missing(database)
        with database.transaction() as tx:
            is_empty = tx.scalar(migrate.HAS_REVISIONS) is False
    finally:
        database.close()
    if missing and not is_empty:
        raise ExecutorError(f"The database lacks the migrations {', '.join(missing)}. Run `easel migrate`.")
    if missing:
        migrate.upgrade(database_url)


def only_errors(settings: Settings) -> None:
    """Keep the log of this process down to what a person who runs a command should know, unless a level is set."""
    telemetry.configure(settings.log_level if "log_level" in settings.model_fields_set else "error", settings.log_format)


def urls_of(settings: Settings) -> tuple[str, str]:
    """Database and Redis of settings in which servers are named."""
    assert settings.database_url is not None
    return settings.database_url, settings.redis_url or ""


def tenant_of(tx: Transaction, name: str = LOCAL) -> UUID:
    """The tenant of that name; the local one comes to be at first use. Raises NotFound for another unknown one."""
    if name == LOCAL:
        return tenants.ensure_tenant(tx, name)
    found = tenants.find_tenant(tx, name)
    if found is None:
        known = ", ".join(tenant.name for tenant in tenants.all_tenants(tx)) or "none yet"
        raise NotFound(f'There is no tenant "{name}". There is: {known}.')
    return found.id
