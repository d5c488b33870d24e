"""Start messages of other services (`scheduler.start`): parsing, execution, and refusal.

A refused start is stored as a row under the id that its sender chose, so that the sender finds the reason where it
looks for the run (store/runs/refused_starts.py). A message without a tenant, or without a valid id, is only logged.
Neither the log nor what Celery shows of a task (events, inspection) contains values of a message except its ids and, in
a reason, the wrong option.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from celery.worker.request import Request
from sqlalchemy.exc import SQLAlchemyError

from canvas.document import json_checks
from canvas.errors import ExecutorError, InvalidRequest
from canvas.ids import CanvasId, RunId, TenantId
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.lifecycle.start_options import check_options, check_size, start_for_service
from store.db.db_errors import is_outage
from store.db.transaction import Transaction
from store.runs import external_ids, refused_starts
from store.tenants import tenants

log = structlog.get_logger()

NAMES = ("tenant_id", "run_id", "agent_id")
SHOWN = 500  # characters of a reason, and of a query, in a row or log line
INTERNAL = "The start failed for a reason that is not the sender's. The log of the scheduler has it."


@dataclass(frozen=True, slots=True)
class StartMessage:
    """A start message: the three ids as they were sent, and the options."""

    ids: Mapping[str, Any]
    options: Mapping[str, Any]
    defect: str = ""  # an error in the arguments as such


@dataclass(frozen=True, slots=True)
class Sender:
    """The tenant of a message, and the sender's id of the run."""

    tenant_id: TenantId
    external_id: str


class QuietRequest(Request):
    """A Celery request whose log, events and inspection show the ids, and never the value of an option."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._argsrepr = format_arguments(self._args)
        self._kwargsrepr = format_options(self._kwargs)
        self._request_dict.update(argsrepr=self._argsrepr, kwargsrepr=self._kwargsrepr)

    def info(self, safe: bool = False) -> dict[str, Any]:
        """Return what inspection shows, without values even if it asks for them."""
        shown: dict[str, Any] = super().info(safe=True)
        return shown


def format_arguments(args: Any) -> str:
    """Return positional arguments as Flower shows them: ids, each cut to 64 characters."""
    return repr(tuple(str(each)[:64] for each in args[: len(NAMES)])) if isinstance(args, Sequence) else "()"


def format_options(options: Any) -> str:
    """Return options as Flower shows them: their names only."""
    if not isinstance(options, Mapping):
        return "{}"
    shown = {str(name)[:64]: str(value)[:64] if name in NAMES else ... for name, value in options.items()}
    return repr(shown).replace("Ellipsis", "...")


def parse_message(args: Sequence[Any], options: Mapping[str, Any]) -> StartMessage:
    """Return the message of a task's arguments. The ids may be positional or named."""
    ids: dict[str, Any] = dict(zip(NAMES, args, strict=False))
    twice = sorted(ids.keys() & options.keys())
    ids |= {name: value for name, value in options.items() if name in NAMES}
    rest = {name: value for name, value in options.items() if name not in NAMES}
    missing = [name for name in NAMES if name not in ids]
    if len(args) > len(NAMES):
        defect = f"There are {len(args)} positional arguments. Send {', '.join(NAMES)}, and options by their names."
    elif twice:
        defect = f"{', '.join(twice)} was sent twice, by position and by name. Send it once."
    elif missing:
        defect = f"{', '.join(missing)} is missing. Send {', '.join(NAMES)}, in this order."
    else:
        defect = ""
    return StartMessage(ids, rest, defect)


def carry_out(lifecycle: Lifecycle, message: StartMessage, most_bytes: int) -> None:
    """Start the run of a message, or store why it was refused. Raises SQLAlchemyError during a database outage."""
    database = lifecycle.coordinator.database
    sender: Sender | None = None
    try:
        with database.transaction() as tx:
            sender = _sender(tx, message)
        if message.defect:
            raise InvalidRequest(message.defect)
        agent_id = _agent(message.ids["agent_id"])
        check_options(message.options)
        check_size(message.options, most_bytes)
        start_for_service(lifecycle, sender.tenant_id, sender.external_id, agent_id, _without_nulls(message.options))
    except InvalidRequest as error:
        _refuse(lifecycle, message, sender, error)
    except SQLAlchemyError as error:
        if is_outage(error):
            raise
        _fail(lifecycle, message, sender, error)
    except Exception as error:  # noqa: BLE001 (also after a bug the sender must learn that no run was started)
        _fail(lifecycle, message, sender, error)


def _sender(tx: Transaction, message: StartMessage) -> Sender:
    """Return the sender of a message. Raises InvalidRequest for an unknown tenant or an invalid run id."""
    written = message.ids.get("tenant_id")
    if written is None or "run_id" not in message.ids:
        raise InvalidRequest(message.defect)
    tenant_id = tenants.find_tenant_id(tx, written) if isinstance(written, str) and written.isprintable() else None
    if tenant_id is None:
        raise InvalidRequest(f"There is no tenant {str(written)[:64]!r}. Send the id or the name of a tenant.")
    return Sender(tenant_id, external_ids.validate(message.ids["run_id"]))


def _agent(written: Any) -> CanvasId:
    agent_id = _parse_agent_id(written)
    if agent_id is None:
        raise InvalidRequest(
            f"{str(written)[:64]!r} is not the id of an agent. Send the agent's id, not its title, which may change."
        )
    return agent_id


def _parse_agent_id(written: Any) -> CanvasId | None:
    parsed = external_ids.uuid_of(written) if isinstance(written, str) else None
    return CanvasId(parsed) if parsed is not None else None


def _without_nulls(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are set: null means not set, as over HTTP."""
    return {name: value for name, value in options.items() if value is not None}


def _fail(lifecycle: Lifecycle, message: StartMessage, sender: Sender | None, error: Exception) -> None:
    log.error(
        "start_failed", **_ids_for_log(message), kind=type(error).__name__, error=str(error).partition("\n")[0][:SHOWN]
    )
    _refuse(lifecycle, message, sender, ExecutorError(INTERNAL))


def _refuse(lifecycle: Lifecycle, message: StartMessage, sender: Sender | None, error: ExecutorError) -> None:
    """Store and log a refusal. Raises SQLAlchemyError during a database outage: the message is then requeued."""
    reason = _escape_reason(error.message[:SHOWN])
    row_id: RunId | None = None
    if sender is not None:
        shown = _fields_for_row(message)
        agent_id = _parse_agent_id(message.ids.get("agent_id"))

        def store(tx: Transaction) -> RunId | None:
            return refused_starts.save_refusal(tx, sender.tenant_id, sender.external_id, agent_id, shown, reason)

        row_id = lifecycle.coordinator.database.run_with_retry(store)
        lifecycle.coordinator.dispatch.counters.run("refused")
    log.warning(
        "start_refused",
        **_ids_for_log(message),
        code=error.code,
        error=reason,
        row=row_id.hex if row_id is not None else None,
    )


def _ids_for_log(message: StartMessage) -> dict[str, str]:
    """Return the ids of a message for a log line."""
    return {name: str(message.ids[name])[:64] for name in NAMES if name in message.ids}


def _escape_reason(reason: str) -> str:
    """Return a reason without characters that cannot be stored: it may quote the message."""
    return reason.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _fields_for_row(message: StartMessage) -> dict[str, Any]:
    """Return what the row stores of a message: the beginning of the query, and the agent as it was written."""
    query = message.options.get("query")
    shown = {"query": query[:SHOWN] if isinstance(query, str) else None, "agent": str(message.ids.get("agent_id"))[:64]}
    try:
        return json_checks.copy_storable(shown)
    except InvalidRequest:
        return {"query": None}
