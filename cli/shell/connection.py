"""The connection of a command to the database and Redis, with the lifecycle operations on runs."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import redis
from sqlalchemy.exc import OperationalError

import telemetry
from canvas.errors import ExecutorError, NotFound
from canvas.ids import RunId, TenantId
from cli.shell import output, servers
from cli.shell.options import LOCAL_TENANT
from cli.shell.servers import CommandServers
from scheduler.bootstrap import Role, build_coordinator
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.redis_bus import Bus
from settings import Settings, load, renamed_variables
from store.db.database import Database
from store.db.transaction import Transaction
from store.files.blobs import Blobs
from store.maintenance import migrate
from store.runs import external_ids
from store.tenants import tenants

POOL = 4  # connections; a command does a few things at a time


@dataclass(frozen=True, slots=True)
class CommandConnection:
    """Reads and writes rows and starts runs. Workers execute the runs, here or in other processes."""

    lifecycle: Lifecycle
    servers: CommandServers

    @property
    def database(self) -> Database:
        """The pool of this command."""
        return self.lifecycle.coordinator.database

    @property
    def blobs(self) -> Blobs:
        """The file storage of the deployment."""
        blobs = self.database.large.blobs
        assert blobs is not None  # since `build_coordinator` always sets a file storage
        return blobs

    @property
    def bus(self) -> Bus:
        """The Redis bus with the notifications of runs."""
        return self.lifecycle.coordinator.dispatch.bus

    @property
    def versions(self) -> VersionCache:
        """The canvas versions that this command has compiled."""
        return self.lifecycle.coordinator.versions

    def tenant(self, name: str) -> TenantId:
        """Return the id of the tenant, like `find_tenant_id`."""
        with self.database.transaction() as tx:
            return find_tenant_id(tx, name)


@contextmanager
def open_connection() -> Generator[CommandConnection]:
    """Open the connection of one command, to a database that has every table."""
    settings = load()
    configure_logging(settings)
    with servers.open_servers(settings) as found:
        ensure_migrated(found)
        with connect(found) as connection:
            yield connection


@contextmanager
def connect(found: CommandServers) -> Generator[CommandConnection]:
    """Connect to these servers until the block ends."""
    database_url, redis_url, broker_url = found.settings.servers()
    coordinator = build_coordinator(
        make_app(broker_url, publishers=POOL),
        database_url,
        redis_url,
        found.settings,
        Role("easel-cli", POOL, generic_plans=False),
    )
    try:
        yield CommandConnection(Lifecycle(coordinator), found)
    finally:
        coordinator.dispatch.bus.close()
        coordinator.database.close()


def ensure_migrated(found: CommandServers) -> None:
    """Create or migrate the tables of the embedded database, and create those of an empty one.

    Raises ExecutorError for another database that lacks migrations.
    """
    if found.up is not None:
        return
    database_url, _, _ = found.settings.servers()
    if not found.is_embedded and not _is_empty(database_url):
        return
    migrate.upgrade(database_url)


def require_redis(redis_url: str) -> None:
    """Raise ExecutorError if Redis does not answer: without it, the run would be stored and not executed here."""
    with redis.Redis.from_url(redis_url, socket_timeout=2, socket_connect_timeout=2) as client:
        try:
            client.ping()
        except redis.RedisError as error:
            raise ExecutorError(f"Redis does not answer: {error} Check REDIS_URL.") from error


def _is_empty(database_url: str) -> bool:
    """Return whether a database is empty. Raises ExecutorError if it does not answer or lacks some migrations."""
    database = Database(database_url, pool_size=1, application="easel-cli")
    try:
        missing = migrate.missing_revisions(database)
        with database.transaction() as tx:
            is_empty = tx.scalar(migrate.HAS_REVISIONS) is False
    except OperationalError as error:
        raise ExecutorError(f"The database does not answer: {error.orig} Check DATABASE_URL.") from error
    finally:
        database.close()
    if missing and not is_empty:
        raise ExecutorError(f"The database lacks the migrations {', '.join(missing)}. Run `easel migrate`.")
    return is_empty


def configure_logging(settings: Settings) -> None:
    """Configure logging for a command: errors only, unless a level is set. Warn about renamed settings."""
    for old, new in renamed_variables().items():
        output.print_message(f"{old} is now {new}; the next release no longer reads {old}.", output.YELLOW)
    telemetry.configure(
        settings.log_level if "log_level" in settings.model_fields_set else "error", settings.log_format
    )


def find_tenant_id(tx: Transaction, name: str = LOCAL_TENANT) -> TenantId:
    """Return the id of the tenant. Creates the local tenant at first use; raises NotFound for another unknown name."""
    if name == LOCAL_TENANT:
        return tenants.ensure_tenant(tx, name)
    found = tenants.find_tenant(tx, name)
    if found is None:
        known = ", ".join(tenant.name for tenant in tenants.list_tenants(tx)) or "none yet"
        raise NotFound(f'There is no tenant "{name}". Tenants: {known}.')
    return found.id


def find_run_id(tx: Transaction, tenant_id: TenantId, written: str) -> RunId:
    """Return the id of the tenant's run with this id or external id. Raises NotFound."""
    run_id = external_ids.find_run(tx, tenant_id, written)
    if run_id is None:
        raise run_not_found(written)
    return run_id


def run_not_found(written: str) -> NotFound:
    """Return the error about an id that names no run of the tenant."""
    return NotFound(f"There is no run {written}. `easel runs` lists them.")
