"""Checks of `easel doctor`: each function checks one thing, and advises what to do about a defect."""

import asyncio
import http.client
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from tempfile import TemporaryFile
from urllib.parse import parse_qs, urlsplit

import redis
from celery import Celery
from kombu.exceptions import KombuError, OperationalError
from sqlalchemy.exc import DBAPIError

from canvas.errors import ExecutorError
from cli.agents import drafts
from cli.shell.servers import CommandServers
from components import registry
from embedded import MIN_POSTGRES_VERSION
from providers.models.vendors.accounts import accounts_from_toml
from providers.sandboxes.factory import read_local_settings
from providers.sandboxes.local import Isolation, examine_isolation
from scheduler.messaging.celery_app import NODES, RUNS
from settings import Settings
from store.agents import canvas_secrets
from store.db.database import Database
from store.db.poolers import StatementsMixed, advice_for
from store.maintenance import migrate, vectors
from store.monitoring import queue_probes, server_info
from store.monitoring.server_info import LockUse, ServerInfo
from store.primitives.encryption import CannotUnseal, EncryptionKey
from store.tenants import model_accounts, tenants
from telemetry import METRICS_PORTS, VERSION

TESTED_PYTHON = (3, 11), (3, 13)  # from, to
OLDEST_REDIS = 6
# between two clocks, beyond which leases and logs mislead people who compare them
MAX_CLOCK_SKEW = timedelta(seconds=2)
_TIMEOUT_OF = "COMPONENT_EXEC_TIMEOUT_"
_SANDBOX = frozenset({"SANDBOX_PROVIDER_TYPE", "SANDBOX_EXECUTOR_MANAGER_URL"})
_OPENSSH = frozenset(
    f"SSH_{name}" for name in ("AUTH_SOCK", "AGENT_PID", "CLIENT", "CONNECTION", "TTY", "ASKPASS", "ORIGINAL_COMMAND")
)
MAX_PROBE_AGE = timedelta(seconds=15)  # age of the latest queue probe that is too old; one is sent every second
WORKER_TIMEOUT = 1.5  # seconds for workers to answer
MAX_DRAFTS = 100  # drafts that are searched for encrypted secrets; each may have megabytes
RENEWALS, STREAMS, SWEEPER, RESERVE = 1, 4, 2, 10  # connections beside the pools that settings name


class Level(StrEnum):
    """Result of a check. WARN: it works, with a risk."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: its subject, what was found, and advice."""

    level: Level
    about: str
    found: str
    advice: str = ""


def release() -> CheckResult:
    """Report the release of Easel."""
    return CheckResult(Level.OK, "easel", VERSION)


def python() -> CheckResult:
    """Check the version of Python."""
    found = ".".join(map(str, sys.version_info[:3]))
    if TESTED_PYTHON[0] <= sys.version_info[:2] <= TESTED_PYTHON[1]:
        return CheckResult(Level.OK, "python", found)
    advice = "Easel is tested on 3.11 to 3.13. Use one of these versions."
    return CheckResult(Level.WARN, "python", found, advice)


def writable_home(settings: Settings) -> CheckResult:
    """Check that the folder of local state can be written."""
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o711)
        with TemporaryFile(dir=settings.home):
            pass
    except OSError as error:
        reason = f"{settings.home} cannot be written: {error.strerror}"
        return CheckResult(Level.FAIL, "home", reason, "Set EASEL_HOME to a folder that you may write to.")
    return CheckResult(Level.OK, "home", str(settings.home))


def secret_key(settings: Settings) -> CheckResult:
    """Check where the key comes from that encrypts secrets in the database."""
    if settings.secret_key is not None:
        return CheckResult(Level.OK, "secret key", "from EASEL_SECRET_KEY")
    stored = f"stored in {settings.home / 'secret.key'}"
    if settings.database_url is None:
        return CheckResult(Level.OK, "secret key", stored)
    advice = "Set EASEL_SECRET_KEY to the same value on every machine, or other machines cannot decrypt stored keys."
    return CheckResult(Level.WARN, "secret key", stored, advice)


def models_file(settings: Settings) -> CheckResult:
    """Check the file of model accounts for all tenants."""
    if settings.models_file is None:
        return CheckResult(Level.OK, "models file", "none (EASEL_MODELS_FILE)")
    try:
        accounts = accounts_from_toml(settings.models_file)
    except ExecutorError as error:
        return CheckResult(Level.FAIL, "models file", error.message, "Correct the file, or unset EASEL_MODELS_FILE.")
    return CheckResult(Level.OK, "models file", f"{settings.models_file}, {len(accounts)} accounts")


def find_unread_variables(environment: Mapping[str, str], settings: Settings) -> Iterator[CheckResult]:
    """Yield a warning for each variable of RAGFlow that is set and has no effect here, with its replacement."""
    components = {component.name.upper() for component in registry.COMPONENTS.values()}
    if environment.get("COMPONENT_EXEC_TIMEOUT") and not settings.plugins:  # it is the time limit of plugins' tools
        found = "COMPONENT_EXEC_TIMEOUT is set and has no effect: every component has its own time limit"
        advice = "Set COMPONENT_EXEC_TIMEOUT_<CLASS> for each component that needs more, such as _EXESQL or _LLM."
        yield CheckResult(Level.WARN, "time limits", found, advice)
    named = (name.removeprefix(_TIMEOUT_OF) for name in environment if name.startswith(_TIMEOUT_OF))
    if unknown := sorted(set(named) - components):
        found = f"no component has the name {', '.join(unknown)}"
        yield CheckResult(Level.WARN, "time limits", found, f"Write {_TIMEOUT_OF}<CLASS> with the name of a component.")
    if environment.get("MAX_CONCURRENT_CHATS"):
        found = "MAX_CONCURRENT_CHATS is set and has no effect"
        advice = "Limit an account instead: `easel models add VENDOR --concurrency N`."
        yield CheckResult(Level.WARN, "model calls", found, advice)
    sandbox = sorted(name for name in environment if _is_of_ragflows_sandbox(name, environment))
    if sandbox and settings.sandbox == "none":
        advice = "Set EASEL_SANDBOX to a provider, and EASEL_SANDBOX_CONFIG to its settings (docs/tools.md, Sandboxes)."
        found = f"set and without effect: {', '.join(sandbox)}; CodeExec has no sandbox"
        yield CheckResult(Level.WARN, "sandbox", found, advice)


def _is_of_ragflows_sandbox(name: str, environment: Mapping[str, str]) -> bool:
    """Return whether a variable configures RAGFlow's sandbox. Other programs use the prefixes SSH_ and LOCAL_ too."""
    if name in _SANDBOX or name.startswith(("AGENTRUN_", "E2B_")):
        return True
    provider = environment.get("SANDBOX_PROVIDER_TYPE", "").lower()
    return provider in ("ssh", "local") and name.startswith(f"{provider.upper()}_") and name not in _OPENSSH


def local_sandbox(settings: Settings) -> Iterator[CheckResult]:
    """Check what isolates the programs of the local sandbox on this machine, if the deployment uses that sandbox."""
    if settings.sandbox != "local":
        return
    config = settings.sandbox_config.get_secret_value() if settings.sandbox_config else ""
    try:
        named = read_local_settings(config, {"must_isolate": settings.sandbox_must_isolate})
    except ExecutorError as error:
        yield CheckResult(Level.FAIL, "sandbox", error.message, "Correct EASEL_SANDBOX_CONFIG.")
    else:
        yield isolation(asyncio.run(examine_isolation()), must_isolate=named.must_isolate)


def isolation(found: Isolation, *, must_isolate: bool) -> CheckResult:
    """Report what isolates programs: bubblewrap, Easel itself, or nothing."""
    if found.bubblewrap is None:
        without = "bubblewrap is not installed"
    elif not found.bubblewrap.defect:
        return CheckResult(Level.OK, "sandbox", f"bubblewrap {found.bubblewrap.version} isolates programs")
    else:
        without = f"bubblewrap {found.bubblewrap.version} does not work here ({found.bubblewrap.defect})"
    if not found.defect:
        advice = "Workers use bubblewrap 0.8 or later where it works (docs/operations.md, Isolated programs)."
        return CheckResult(Level.OK, "sandbox", f"Easel itself isolates programs; {without}", advice)
    why = f"{without}; {found.defect}"
    advice = "Let workers create user namespaces, and install bubblewrap (docs/operations.md, Isolated programs)."
    if must_isolate:
        return CheckResult(Level.FAIL, "sandbox", f"programs are refused, because nothing isolates them: {why}", advice)
    unprotected = "programs have limits, but are not isolated from the network and the worker's files"
    return CheckResult(Level.WARN, "sandbox", f"{unprotected}: {why}", advice)


def server_source(found: CommandServers) -> CheckResult:
    """Report which servers this command uses."""
    if found.up is not None:
        return CheckResult(Level.OK, "servers", f"those of `easel up` at {found.up.url}")
    if found.is_embedded:
        return CheckResult(Level.OK, "servers", "embedded, for this command only; `easel up` keeps them running")
    return CheckResult(Level.OK, "servers", "named by DATABASE_URL and REDIS_URL")


def database(database: Database, settings: Settings) -> Iterator[CheckResult]:
    """Check the database: whether it answers, its version, tables, clock, connections and locks."""
    try:
        missing = migrate.missing_revisions(database)
        with database.transaction() as tx:
            sent = datetime.now(UTC)
            about = server_info.server_info(tx)
            skew = about.clock - (sent + (datetime.now(UTC) - sent) / 2)
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split())
        if isinstance(error.orig, StatementsMixed):
            yield CheckResult(Level.FAIL, "database", reason)
        else:
            advice = advice_for(error) or "Check DATABASE_URL and the server."
            yield CheckResult(Level.FAIL, "database", f"does not answer: {reason}", advice)
        return
    if about.major < MIN_POSTGRES_VERSION:
        advice = f"Use PostgreSQL {MIN_POSTGRES_VERSION} or later."
        yield CheckResult(Level.FAIL, "database", f"PostgreSQL {about.version}", advice)
    else:
        yield CheckResult(Level.OK, "database", f"PostgreSQL {about.version}")
    if missing:
        yield CheckResult(Level.FAIL, "migrations", f"missing: {', '.join(missing)}", "Run `easel migrate`.")
    else:
        yield CheckResult(Level.OK, "migrations", f"at {migrate.newest_revision()}")
    if about.is_pooled:
        yield pooler(about)
    yield clocks(skew)
    yield connections(about.max_connections, settings)
    if not missing:
        with database.transaction() as tx:
            yield locks(server_info.lock_use(tx), about.max_connections, settings)


def pooler(about: ServerInfo) -> CheckResult:
    """Check that the role has the time limits, which a pooler does not pass on."""
    if about.has_time_limits:
        return CheckResult(Level.OK, "pooler", "keeps prepared statements apart; time limits are set")
    advice = (
        "Set them for the role: alter role easel set statement_timeout = '10s', and the others of docs/operations.md"
        " (PgBouncer). Without them a process that hangs keeps its run locked."
    )
    return CheckResult(Level.WARN, "pooler", "drops the time limits that processes ask for", advice)


def clocks(skew: timedelta) -> CheckResult:
    """Check how far the clocks of this machine and of the database are apart."""
    found = f"{abs(skew.total_seconds()):.1f} s apart from the database's"
    if abs(skew) <= MAX_CLOCK_SKEW:
        return CheckResult(Level.OK, "clock", found)
    return CheckResult(Level.WARN, "clock", found, "Synchronize both machines by NTP.")


def connections(most: int, settings: Settings) -> CheckResult:
    """Check that the database allows the connections of one process of each kind."""
    pools = settings.worker_pool + RENEWALS + settings.api_pool + STREAMS + settings.scheduler_threads + SWEEPER
    found = f"max_connections is {most}; one process of each kind opens up to {pools}"
    if pools + RESERVE <= most:
        return CheckResult(Level.OK, "connections", found)
    advice = f"Raise max_connections to {pools + RESERVE} or more, or lower EASEL_WORKER_POOL and EASEL_API_POOL."
    return CheckResult(Level.FAIL, "connections", found, advice)


def locks(found: LockUse, max_connections: int, settings: Settings) -> CheckResult:
    """Check that the lock table has room for statements over all weeks: lists of runs, and the sweeper.

    They may use half of it. Statements of running runs name their week and lock one partition.
    """
    needed = found.of_runs * settings.api_pool + found.of_all
    shown = (
        f"lists of runs may lock {needed} of {found.capacity} at a time, with {found.weeks} partitions of each table"
    )
    if 2 * needed <= found.capacity:
        return CheckResult(Level.OK, "locks", shown)
    most = -(-2 * needed // max_connections // 64) * 64
    advice = f"Set max_locks_per_transaction to {most} and restart PostgreSQL, or keep fewer weeks (EASEL_RETENTION)."
    return CheckResult(Level.WARN, "locks", shown, advice)


def redis_server(url: str) -> CheckResult:
    """Check the Redis of event notifications and text deltas."""
    try:
        with closing(redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2)) as client:
            about: dict[str, str] = client.info("server")  # pyright: ignore[reportAssignmentType] (sync client)
    except (redis.RedisError, ValueError, OSError) as error:
        advice = _tls_advice(error, "REDIS_URL") or "Check REDIS_URL and the server."
        return CheckResult(Level.FAIL, "redis", f"does not answer: {error}", advice)
    name = "Valkey" if "valkey_version" in about else "Redis"
    version = str(about.get("valkey_version") or about.get("redis_version") or "0")
    if int(version.split(".")[0]) < OLDEST_REDIS:
        return CheckResult(Level.FAIL, "redis", f"{name} {version}", f"Use Redis {OLDEST_REDIS} or later, or Valkey.")
    return _check_verification(CheckResult(Level.OK, "redis", f"{name} {version}"), url)


def broker(app: Celery) -> CheckResult:
    """Check Celery's broker."""
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, timeout=2)
            kind = connection.transport.driver_type
    except (KombuError, OperationalError, OSError, redis.RedisError) as error:
        names = "CELERY_BROKER_URL (REDIS_URL, if that is not set)"
        advice = _tls_advice(error, names) or f"Check {names} and the server."
        return CheckResult(Level.FAIL, "broker", f"does not answer: {error}", advice)
    return _check_verification(CheckResult(Level.OK, "broker", kind), app.conf.broker_url)


def _tls_advice(error: Exception, names: str) -> str:
    """Return advice about a refused certificate; "" for another error."""
    if "CERTIFICATE_VERIFY_FAILED" not in str(error):
        return ""
    return f"Name the authority that signed the server's certificate in {names}: ?ssl_ca_certs=/path/to/ca.pem"


def _check_verification(finding: CheckResult, url: str) -> CheckResult:
    """Return the finding, or a warning if the URL disables the verification of the server's certificate."""
    named = parse_qs(urlsplit(url).query)
    if "none" not in named.get("ssl_cert_reqs", []):
        return finding
    advice = "Any server in between can read the password and the messages. Replace ssl_cert_reqs=none by ssl_ca_certs."
    return CheckResult(Level.WARN, finding.about, f"{finding.found}; its certificate is not verified", advice)


def workers(app: Celery, found: CommandServers) -> CheckResult:
    """Check that workers and schedulers consume both queues."""
    if found.is_embedded and found.up is None:
        return CheckResult(Level.OK, "workers", "none; `easel run` brings its own, `easel up` keeps some running")
    inspection = app.control.inspect(timeout=WORKER_TIMEOUT)
    answers = inspection.active_queues() or {}
    queues = {str(queue["name"]) for served in answers.values() for queue in served}
    missing = [program for queue, program in ((NODES, "worker"), (RUNS, "scheduler")) if queue not in queues]
    if not missing:
        return CheckResult(Level.OK, "workers", ", ".join(sorted(answers)))
    advice = " and ".join(f"`easel {program}`" for program in missing)
    level = Level.FAIL if "worker" in missing else Level.WARN
    return CheckResult(level, "workers", f"no {' and no '.join(missing)} answers", f"Start {advice}.")


def sweeper(database: Database, found: CommandServers) -> CheckResult:
    """Check that a sweeper runs, and that queue probes return."""
    if found.is_embedded and found.up is None:
        return CheckResult(Level.OK, "sweeper", "none; `easel run` brings its own, `easel up` keeps one running")
    with database.transaction() as tx:
        sight = queue_probes.last_observation(tx)
        came_back = queue_probes.latest_return(tx, NODES)
        clock = server_info.server_info(tx).clock
    if sight is None or clock - sight.until > MAX_PROBE_AGE:
        advice = "Start `easel sweeper`. Without it, lost messages and lost workers are not detected."
        found_at = "none has ever run here" if sight is None else f"none has run for {_format_age(clock - sight.until)}"
        return CheckResult(Level.FAIL, "sweeper", found_at, advice)
    worked = f"ran {_format_age(clock - sight.until)} ago"
    if came_back is None or clock - came_back > MAX_PROBE_AGE:
        advice = "The queue of nodes is long, or no worker consumes it. Start more `easel worker`."
        return CheckResult(
            Level.WARN, "sweeper", f"{worked}; no queue probe returned within {MAX_PROBE_AGE.seconds} s", advice
        )
    return CheckResult(Level.OK, "sweeper", f"{worked}; its queue probes return")


def _format_age(age: timedelta) -> str:
    seconds = max(0, round(age.total_seconds()))
    return f"{seconds} s" if seconds < 120 else f"{timedelta(seconds=seconds)} h"


def models(database: Database, settings: Settings) -> CheckResult:
    """Check that there are model accounts, and that their stored keys can be decrypted."""
    with database.transaction() as tx:
        rows, closed = 0, list[str]()
        key = EncryptionKey.from_secret(settings.encryption_secret())
        for tenant in tenants.list_tenants(tx):
            rows += len(model_accounts.list_accounts(tx, tenant.id))
            closed += [
                f"{tenant.name}: {vendor} ({at})" for vendor, at in model_accounts.list_unreadable(tx, tenant.id, key)
            ]
    if closed:
        advice = "Set EASEL_SECRET_KEY to the key that encrypted them, or add the accounts again."
        return CheckResult(Level.FAIL, "models", f"keys of accounts cannot be decrypted: {', '.join(closed)}", advice)
    if rows or settings.models_file is not None:
        return CheckResult(Level.OK, "models", f"{rows} accounts in the database")
    advice = "Only the built-in models `echo` and `scripted` answer. `easel models add VENDOR` adds a vendor's models."
    return CheckResult(Level.WARN, "models", "no account", advice)


def metrics(settings: Settings) -> CheckResult:
    """Report which processes of this machine serve metrics, and where."""
    port = settings.metrics_port
    if port is None:
        return CheckResult(Level.OK, "metrics", "only those of the API (EASEL_METRICS_PORT)")
    ports = range(port, min(port + METRICS_PORTS, 65536))
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.metrics_host, settings.metrics_host)  # noqa: S104 (read, not bound)
    shown = [f"{process} at {host}:{at}" for at in ports if (process := _find_process(host, at)) is not None]
    if shown:
        return CheckResult(Level.OK, "metrics", ", ".join(shown))
    advice = (
        "Set EASEL_METRICS_PORT and EASEL_METRICS_HOST for workers, schedulers and sweepers; they log `metrics_served`."
    )
    return CheckResult(
        Level.WARN, "metrics", f"no process serves any on {host}, ports {ports[0]} to {ports[-1]}", advice
    )


def _find_process(host: str, port: int) -> str | None:
    """Return the kind and version of the Easel process that serves metrics there, or None."""
    connection = http.client.HTTPConnection(host, port, timeout=1)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode(errors="replace")
        found = re.search(r'^easel_process_info\{process="(\w+)",version="([^"]+)"\}', page, re.MULTILINE)
        return f"{found[1]} {found[2]}" if found else None
    return None


def pgvector(database: Database) -> CheckResult:
    """Check that the database has pgvector, which searches in knowledge bases use."""
    advice = vectors.advice_for(database)
    level = Level.WARN if advice else Level.OK
    return CheckResult(
        level, "knowledge bases", "searched without an index" if advice else "searched with pgvector", advice
    )


def share_links(database: Database) -> CheckResult:
    """Check that every share link names its agent; those of earlier releases do not."""
    with database.transaction() as tx:
        unbound = tenants.count_unbound_links(tx)
    if not unbound:
        return CheckResult(Level.OK, "share links", "each names its agent")
    advice = "`easel tokens list` lists them; `easel tokens bind TOKEN --agent AGENT` names the agent."
    return CheckResult(Level.WARN, "share links", f"{unbound} name no agent, and do not work", advice)


def secrets_of_canvases(database: Database) -> CheckResult:
    """Check that secrets of canvases can be decrypted, tried on one of the canvases that were changed last."""
    with database.transaction() as tx:
        found = canvas_secrets.find_sealed_draft(tx, MAX_DRAFTS)
    if found is None:
        return CheckResult(Level.OK, "canvas secrets", f"none in the {MAX_DRAFTS} canvases that were changed last")
    tenant_id, canvas_id, draft = found
    try:
        drafts.canvas_secrets_of(tenant_id, canvas_id).open_document(draft)
    except CannotUnseal as error:
        advice = "Set EASEL_SECRET_KEY to the key that encrypted them, or enter them again."
        return CheckResult(Level.FAIL, "canvas secrets", f"agent {canvas_id.hex}: {error.message}", advice)
    return CheckResult(Level.OK, "canvas secrets", "can be decrypted")
