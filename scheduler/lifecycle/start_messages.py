"""Messages of other services that start runs (`scheduler.start`): what they ask for, and what becomes of a refusal.

A start that is refused leaves a row under the id that its sender gave, so that the sender finds the reason where it
looks for the run (store/runs/refused_starts.py). A message that names no tenant, or no usable id, leaves one line in
the log. Neither the log nor what Celery shows of a task (events, inspection) has any value of a message but its ids
and, in a reason, the option that was wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from celery.worker.request import Request
from sqlalchemy.exc import SQLAlchemyError

from canvas.document import json_checks
from canvas.errors import ExecutorError, InvalidRequest
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.lifecycle.start_options import check_options, check_size, start_for_service
from store.db.transaction import Transaction
from store.primitives.db_errors import is_outage
from store.runs import external_ids, refused_starts
from store.tenants import tenants

log = structlog.get_logger()

NAMES = ("tenant_id", "run_id", "agent_id")
SHOWN = 500  # characters of a reason, and of a query, that a row or a line shows
INTERNAL = "The start failed for a reason that is not the sender's. The log of the scheduler has it."


@dataclass(frozen=True, slots=True)
class Message:
    """What came: the three ids as they were sent, and the options."""

    ids: Mapping[str, Any]
    options: Mapping[str, Any]
    defect: str = ""  # what is wrong with the arguments as such


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose message it is, and what it calls the run."""

    tenant_id: UUID
    external_id: str


class QuietRequest(Request):
    """A task of which Celery's log, events and inspection show the ids, and never a value of an option."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._argsrepr = shown_arguments(self._args)
        self._kwargsrepr = shown_options(self._kwargs)
        self._request_dict.update(argsrepr=self._argsrepr, kwargsrepr=self._kwargsrepr)

    def info(self, safe: bool = False) -> dict[str, Any]:
        """What inspection shows, which asks for the values of other tasks as well."""
        told: dict[str, Any] = super().info(safe=True)
        return told


def shown_arguments(args: Any) -> str:
    """Positional arguments as Flower shows them: ids, cut off where they are no ids."""
    return repr(tuple(str(each)[:64] for each in args[: len(NAMES)])) if isinstance(args, Sequence) else "()"


def shown_options(options: Any) -> str:
    """Options as Flower shows them: their names."""
    if not isinstance(options, Mapping):
        return "{}"
    told = {str(name)[:64]: str(value)[:64] if name in NAMES else ... for name, value in options.items()}
    return repr(told).replace("Ellipsis", "...")


def read(args: Sequence[Any], options: Mapping[str, Any]) -> Message:
    """The message of these arguments. The ids may come by position or by name."""
    ids: dict[str, Any] = dict(zip(NAMES, args, strict=False))
    twice = sorted(ids.keys() & options.keys())
    ids |= {name: value for name, value in options.items() if name in NAMES}
    rest = {name: value for name, value in options.items() if name not in NAMES}
    missing = [name for name in NAMES if name not in ids]
    if len(args) > len(NAMES):
        defect = f"{len(args)} positional arguments came. Send {', '.join(NAMES)}, and options by their names."
    elif twice:
        defect = f"{', '.join(twice)} came twice, by position and by name. Send it once."
    elif missing:
        defect = f"{', '.join(missing)} is missing. Send {', '.join(NAMES)}, in this order."
    else:
        defect = ""
    return Message(ids, rest, defect)


def carry_out(lifecycle: Lifecycle, message: Message, most_bytes: int) -> None:
    """Start what a message asks for, or write down why not. Raises SQLAlchemyError while the database is away."""
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
    except Exception as error:  # noqa: BLE001 (whatever a bug of ours raises: the sender must learn that nothing started)
        _fail(lifecycle, message, sender, error)


def _sender(tx: Transaction, message: Message) -> Sender:
    """Whose message it is. Raises InvalidRequest for an unknown tenant, and for what cannot be the id of a run."""
    written = message.ids.get("tenant_id")
    if written is None or "run_id" not in message.ids:
        raise InvalidRequest(message.defect)
    tenant_id = tenants.id_of(tx, written) if isinstance(written, str) and written.isprintable() else None
    if tenant_id is None:
        raise InvalidRequest(f"There is no tenant {str(written)[:64]!r}. Send the id or the name of a tenant.")
    return Sender(tenant_id, external_ids.checked(message.ids["run_id"]))


def _agent(written: Any) -> UUID:
    agent_id = external_ids.uuid_of(written) if isinstance(written, str) else None
    if agent_id is None:
        raise InvalidRequest(
            f"{str(written)[:64]!r} is not the id of an agent. Send the agent's id, not its title, which may change."
        )
    return agent_id


def _without_nulls(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given: null is no choice, as over HTTP."""
    return {name: value for name, value in options.items() if value is not None}


def _fail(lifecycle: Lifecycle, message: Message, sender: Sender | None, error: Exception) -> None:
    log.error("start_failed", **_named(message), kind=type(error).__name__, error=str(error).partition("\n")[0][:SHOWN])
    _refuse(lifecycle, message, sender, ExecutorError(INTERNAL))


def _refuse(lifecycle: Lifecycle, message: Message, sender: Sender | None, error: ExecutorError) -> None:
    """Leave a row and a line. Raises SQLAlchemyError while the database is away: the message comes again then."""
    reason = _storable(error.message[:SHOWN])
    row_id: UUID | None = None
    if sender is not None:
        shown = _shown(message)
        written = message.ids.get("agent_id")
        agent_id = external_ids.uuid_of(written) if isinstance(written, str) else None

        def put(tx: Transaction) -> UUID | None:
            return refused_starts.put(tx, sender.tenant_id, sender.external_id, agent_id, shown, reason)

        row_id = lifecycle.coordinator.database.carry_out(put)
        lifecycle.coordinator.dispatch.counters.run("refused")
    log.warning(
        "start_refused",
        **_named(message),
        code=error.code,
        error=reason,
        row=row_id.hex if row_id is not None else None,
    )


def _named(message: Message) -> dict[str, str]:
    """The ids of a message for a line of the log."""
    return {name: str(message.ids[name])[:64] for name in NAMES if name in message.ids}


def _storable(reason: str) -> str:
    """A reason without the characters that no column takes: it may cite what came."""
    return reason.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _shown(message: Message) -> dict[str, Any]:
    """What the row shows of a message: the beginning of the query, and the agent as it was written."""
    query = message.options.get("query")
    shown = {"query": query[:SHOWN] if isinstance(query, str) else None, "agent": str(message.ids.get("agent_id"))[:64]}
    try:
        return json_checks.copied(shown)
    except InvalidRequest:
        return {"query": None}
