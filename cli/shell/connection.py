"""A command's way to canvases and runs: the verbs that change them, with the database and the bus behind."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import redis
from sqlalchemy.exc import OperationalError

import telemetry
from canvas.errors import ExecutorError, NotFound
from cli.shell import output, servers
from cli.shell.options import LOCAL
from cli.shell.servers import Found
from scheduler.bootstrap import Role, build_coordinator
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.redis_bus import Bus
from settings import Settings, load, renamed_variables
from store.db.database import Database
from store.db.transaction import Transaction
from store.maintenance import migrate
from store.runs import external_ids
from store.tenants import tenants

POOL = 4  # connections; a command does a few things at a time


@dataclass(frozen=True, slots=True)
class Connection:
    """Rows can be read and written, and runs started; who carries them out is not said."""

    lifecycle: Lifecycle
    found: Found

    @property
    def database(self) -> Database:
        """The pool of this command."""
        return self.lifecycle.coordinator.database

    @property
    def bus(self) -> Bus:
        """Where runs are heard."""
        return self.lifecycle.coordinator.dispatch.bus

    @property
    def versions(self) -> VersionCache:
        """The versions this command has compiled."""
        return self.lifecycle.coordinator.versions

    def tenant(self, name: str) -> UUID:
        """The tenant of that name, as `tenant_of` finds it."""
        with self.database.transaction() as tx:
            return tenant_of(tx, name)


@contextmanager
def opened() -> Generator[Connection]:
    """A connection for one command, to a database that has every table."""
    settings = load()
    only_errors(settings)
    with servers.found(settings) as found:
        migrated(found)
        with connected(found) as connection:
            yield connection


@contextmanager
def connected(found: Found) -> Generator[Connection]:
    """A connection to the servers that were found."""
    database_url, redis_url, broker_url = found.settings.servers()
    coordinator = build_coordinator(
        make_app(broker_url, publishers=POOL),
        database_url,
        redis_url,
        found.settings,
        Role("easel-cli", POOL, plans_once=False),
    )
    try:
        yield Connection(Lifecycle(coordinator), found)
    finally:
        coordinator.dispatch.bus.close()
        coordinator.database.close()


def migrated(found: Found) -> None:
    """See to the tables: an empty database and the embedded one get them; raises ExecutorError for an older one."""
    if found.up is not None:
        return
    database_url, _, _ = found.settings.servers()
    if not found.is_embedded and not _lacks_all(database_url):
        return
    migrate.upgrade(database_url)


def redis_answers(redis_url: str) -> None:
    """Raises ExecutorError if Redis is away: rows can be written all the same, but nobody here could work on them."""
    with redis.Redis.from_url(redis_url, socket_timeout=2, socket_connect_timeout=2) as client:
        try:
            client.ping()
        except redis.RedisError as error:
            raise ExecutorError(f"Redis does not answer: {error} Check REDIS_URL.") from error


def _lacks_all(database_url: str) -> bool:
    """Whether a named database is empty. Raises ExecutorError if it does not answer, or lacks some tables."""
    database = Database(database_url, pool_size=1, application="easel-cli")
    try:
        missing = migrate.missing(database)
        with database.transaction() as tx:
            is_empty = tx.scalar(migrate.HAS_REVISIONS) is False
    except OperationalError as error:
        raise ExecutorError(f"The database does not answer: {error.orig} Check DATABASE_URL.") from error
    finally:
        database.close()
    if missing and not is_empty:
        raise ExecutorError(f"The database lacks the migrations {', '.join(missing)}. Run `easel migrate`.")
    return is_empty


def only_errors(settings: Settings) -> None:
    """Log errors only in a process that runs a command, unless a level is set; warn of renamed settings."""
    for old, new in renamed_variables().items():
        output.tell(f"{old} is now {new}; the next release no longer reads {old}.", output.YELLOW)
    telemetry.configure(
        settings.log_level if "log_level" in settings.model_fields_set else "error", settings.log_format
    )


def tenant_of(tx: Transaction, name: str = LOCAL) -> UUID:
    """The tenant of that name; the local one comes to be at first use. Raises NotFound for another unknown one."""
    if name == LOCAL:
        return tenants.ensure_tenant(tx, name)
    found = tenants.find_tenant(tx, name)
    if found is None:
        known = ", ".join(tenant.name for tenant in tenants.all_tenants(tx)) or "none yet"
        raise NotFound(f'There is no tenant "{name}". There is: {known}.')
    return found.id


def run_of(tx: Transaction, tenant_id: UUID, written: str) -> UUID:
    """The tenant's run that a person means: by its id, or by the external id that another service gave it.

    Raises NotFound.
    """
    run_id = external_ids.find_run(tx, tenant_id, written)
    if run_id is None:
        raise NotFound(f"There is no run {written}. `easel runs` lists them.")
    return run_id
