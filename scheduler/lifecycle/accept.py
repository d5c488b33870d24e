"""Acceptance of requests in one transaction: a run is started, or the forms of a waiting run are answered.

A repeated request gets the response of the first one. A conversation has one active run; a start that arrives meanwhile
is refused, queued, or replaces it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from canvas.errors import Conflict, NotFound
from canvas.ids import ActivationId, CanvasId, RunId, SessionId, TenantId, VersionId
from canvas.state.checkpoint import run_to_json
from canvas.state.run_state import RunState, RunStatus
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.form_answers import ParsedAnswers, parse_answers, retry_budget_stopped
from scheduler.coordinator.run_start import RunRequest, turn_globals
from scheduler.messaging import external_cancel_keys
from scheduler.messaging.notifications import Notifications
from store.agents import conversation_runs, conversations, versions
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.runs import external_ids, reports, reused_activations, run_rows, values
from store.runs.external_ids import ExternalId
from store.runs.reused_activations import ReusedActivation
from store.runs.run_rows import RunRow
from store.tenants import audit, budgets, callbacks, idempotency
from store.tenants.audit import Action, Actor
from store.tenants.budgets import BudgetLimits
from store.tenants.callbacks import RunCallback

FIRST_REQUEST = "first_request"
"""Key in a run's baseline: the request that started it, once an answer to a form has replaced its request."""

WEBHOOK = "webhook"
MCP = "mcp"
RERUN, FORK = "rerun", "fork"  # of copies
DEBUG = "debug"
SCHEDULE = "schedule"
"""Kinds in the `origin` of runs that neither copy a run nor were started by a request for a run."""

ON_BUSY = ("refuse", "enqueue", "interrupt")


class RunNotWaiting(Conflict):
    """Raised for an answer to a run that does not wait."""


class RunIsWaiting(Exception):
    """Raised if the active run of the conversation waits for an answer: the start is its answer."""


@dataclass(frozen=True, slots=True)
class RunCopy:
    """What a rerun or fork has of its source. A run of one node alone has no source, and also begins with values.

    `origin`: {kind, run_id, from, edits, weeks}, as stored with the run. `baseline`: what the run begins with in place
    of what its conversation's previous run left. `reused`: the activations that it takes over.
    """

    source_run: RunId | None
    source_message: UUID | None
    origin: Mapping[str, Any]
    baseline: Mapping[str, Any]
    reused: Sequence[ReusedActivation] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """A request to start a run. The caller chooses the version: a draft is snapshotted before it runs."""

    tenant_id: TenantId
    canvas_id: CanvasId
    version_id: VersionId
    request: RunRequest
    run_id: RunId | None = None
    conversation_id: SessionId | None = None
    conversation_name: str = ""
    conversation_source: str = "workflow"
    history: tuple[tuple[str, Any], ...] = ()  # (role, content) of earlier messages, for a new conversation
    on_busy: str = "refuse"
    idempotency: tuple[str, str, bytes] | None = None  # (route, key, SHA-256 of the request)
    budget: Mapping[str, int] = field(default_factory=dict)  # limits of the run, by measure
    external: ExternalId | None = None  # the id that the service sending the start uses for the run
    token_id: UUID | None = None  # the share link through which a new conversation is started
    copy: RunCopy | None = None  # of a rerun or fork, which has a new conversation
    origin: str | None = None  # WEBHOOK, MCP or SCHEDULE, as the kind in the `origin` of the run
    origin_details: Mapping[str, Any] = field(default_factory=dict)  # what `origin` says beside the kind
    by: Actor | None = None  # whom the audit log names for a copy; None: it has no row
    callbacks: tuple[RunCallback, ...] = ()  # of this run, beside those of its agent


@dataclass(frozen=True, slots=True)
class Started:
    """An accepted run. `resumed`: it had been waiting. `repeated`: the response of an earlier request."""

    run_id: RunId
    conversation_id: SessionId
    message_id: UUID
    after: int  # events of this answer have greater numbers
    resumed: bool = False
    repeated: bool = False
    queued: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the response as stored for repeated requests (see `from_first`); the run's id is stored beside it."""
        return {
            "conversation_id": str(self.conversation_id),
            "message_id": str(self.message_id),
            "after": self.after,
            "resumed": self.resumed,
        }

    @staticmethod
    def from_first(first: idempotency.FirstResponse) -> "Started | None":
        """Return the response to the first request with a key; None if it has started no run."""
        reply = first.reply
        if first.run_id is None or reply is None:
            return None
        conversation_id, message_id = SessionId(UUID(reply["conversation_id"])), UUID(reply["message_id"])
        return Started(first.run_id, conversation_id, message_id, reply["after"], reply["resumed"], repeated=True)


def accept(
    coordinator: Coordinator, tx: Transaction, start: Start, *, is_new: bool = False
) -> tuple[Started, Notifications | None, Sequence[RunId]]:
    """Start a run; return the accepted run, its notifications, and the runs that it interrupts.

    `is_new`: its id was generated just now, so there is no such run. Raises Conflict if its conversation is busy and
    `on_busy` is "refuse", RunIsWaiting if this start answers a form. A deleted version shows as
    `versions.is_version_gone`.
    """
    assert start.run_id is not None  # chosen at the latest by `start_run`
    started = Started(start.run_id, start.conversation_id or SessionId(new_id()), new_id(), 0)
    if start.external is not None and not external_ids.is_free(tx, started.run_id):
        started = replace(started, run_id=RunId(new_id()))  # another tenant, or this one, has a run of that id
    first = find_first_request(tx, start.tenant_id, start.external, start.idempotency, started)
    if first is None and not is_new and run_rows.tenant_of(tx, started.run_id) is not None:
        first = idempotency.FirstResponse(started.run_id, None)
    if first is not None:
        return replay_first_response(tx, start.tenant_id, first), None, ()
    versions.lock(tx, start.tenant_id, start.canvas_id, start.version_id)  # before the conversation: order of locks
    conversation = _conversation(tx, start, started.conversation_id)
    busy: RunId | None = conversation["active_run"]
    if busy is not None:
        _check_busy(tx, start, busy)
    is_interrupt = busy is not None and start.on_busy == "interrupt"
    superseded = conversation_runs.list_open_runs(tx, started.conversation_id) if is_interrupt else ()
    row = _create(coordinator, tx, start, started, is_interrupt=is_interrupt)
    if start.by is not None and start.copy is not None:
        action = Action.RUN_FORKED if start.copy.origin["kind"] == FORK else Action.RUN_RERUN
        source = start.copy.source_run
        audit.record(tx, start.tenant_id, start.by, action, started.run_id, {"source": source.hex if source else None})
    bus = coordinator.dispatch.bus
    if start.external is not None:
        # before the commit: later ones count
        external_cancel_keys.delete_keys_of(tx, bus, [start.external.text], started.run_id)
    if busy is not None:
        conversation_runs.mark_queued(tx, conversation, started.conversation_id)
        return replace(started, queued=True), None, superseded
    applied = coordinator.start_queued_run(tx, row, conversation)
    if not is_new or start.conversation_id is not None:  # a new id in a new conversation has no cancel key yet
        bus.clear_cancel_keys(started.run_id, started.conversation_id)  # before the commit: later ones count
    return started, applied, ()


def _create(coordinator: Coordinator, tx: Transaction, start: Start, started: Started, *, is_interrupt: bool) -> RunRow:
    state = RunState(started.run_id, RunStatus.QUEUED, max_running=coordinator.max_running)
    request = start.request.to_json()
    if is_interrupt:
        request["options"] |= {conversation_runs.ON_BUSY: "interrupt"}
    copy = start.copy
    created = run_rows.create(
        tx,
        {
            "id": started.run_id,
            "tenant_id": start.tenant_id,
            "canvas_id": start.canvas_id,
            "version_id": start.version_id,
            "conversation_id": started.conversation_id,
            "message_id": started.message_id,
            "status": RunStatus.QUEUED.value,
            "state": run_to_json(state),
            "request": request,
            "baseline": copy.baseline if copy is not None else {},
            **_origin(start),
            **({"external_id": start.external.text} if start.external is not None else {}),
        },
        has_budget=bool(start.budget),
        reuses=copy is not None and bool(copy.reused),
        has_callback=bool(start.callbacks),
        is_announced=copy is None or copy.origin.get("kind") != DEBUG,
    )
    callbacks.put_of_run(tx, start.tenant_id, started.run_id, start.callbacks)
    if copy is not None and copy.reused:
        assert copy.source_run is not None, "reused activations are those of a source"
        assert copy.source_message is not None
        reused_activations.put(tx, started.run_id, copy.reused)
        reused_activations.copy_citations(tx, started.run_id, started.message_id, copy.source_run, copy.source_message)
    budgets.put_limits(tx, start.tenant_id, BudgetLimits("run", started.run_id, start.budget), is_of_request=True)
    return created


def _origin(start: Start) -> dict[str, Any]:
    """Return the columns that say where a run comes from."""
    if start.copy is not None:
        return {"origin": start.copy.origin, "source_run": start.copy.source_run}
    return {"origin": {"kind": start.origin, **start.origin_details}} if start.origin is not None else {}


def _conversation(tx: Transaction, start: Start, conversation_id: SessionId) -> Mapping[str, Any]:
    """Lock the conversation of a start, or create it; return the columns of its row that runs need."""
    if start.conversation_id is not None:
        row = conversation_runs.lock(tx, start.tenant_id, conversation_id)
        if row is None:
            raise NotFound("Session not found!", session_id=conversation_id.hex)
        return row
    conversations.create(
        tx,
        start.tenant_id,
        start.canvas_id,
        start.version_id,
        start.request.user_id,
        start.conversation_name,
        start.conversation_source,
        conversation_id=conversation_id,
        token_id=start.token_id,
    )
    conversation_runs.import_history(tx, conversation_id, start.history)
    return {"active_run": None, "last_run": None, "has_queue": False, "messages": len(start.history)}


def _check_busy(tx: Transaction, start: Start, active: RunId) -> None:
    """Check whether a start is allowed while its conversation has an active run. Raises Conflict, RunIsWaiting."""
    row = run_rows.read(tx, start.tenant_id, active)
    status = row["status"] if row is not None else ""
    if status == RunStatus.WAITING:
        raise RunIsWaiting
    if start.on_busy == "refuse":
        session = start.conversation_id.hex if start.conversation_id is not None else ""
        raise Conflict("This agent session is already running.", session_id=session, run_id=active.hex, status=status)


def replay_first_response(tx: Transaction, tenant_id: TenantId, first: idempotency.FirstResponse) -> Started:
    """Return the response to the first request; for one that chose its run's id, the response is built from the row."""
    started = Started.from_first(first)
    if started is not None:
        return started
    run_id = first.run_id
    row = run_rows.read(tx, tenant_id, run_id) if run_id is not None else None
    if run_id is None or row is None:
        raise Conflict(f"The run id {run_id} is already in use. Choose another.", run_id=str(run_id))
    return Started(run_id, row["conversation_id"], row["message_id"], 0, repeated=True)


def answer_forms(
    coordinator: Coordinator,
    tx: Transaction,
    row: RunRow,
    request: RunRequest,
    started: Started,
    budget: Mapping[str, int] | None = None,
    told: Sequence[RunCallback] = (),
) -> Notifications:
    """Answer the forms of a locked, waiting run.

    `budget`: new limits of the run. With them, or with neither inputs nor query, the nodes that a budget has stopped
    continue. `told`: further callbacks of the run.
    """
    run_id, conversation_id = row.id, row.conversation_id
    if told:
        callbacks.put_of_run(tx, row.tenant_id, run_id, told)
        callbacks.flag_run(tx, row.tenant_id, run_id)
    canvas = coordinator.versions.canvas(tx, row.version_id)
    answered = parse_answers(canvas, row.state["forms"], request.inputs, request.query)
    if budget:
        budgets.put_limits(tx, row.tenant_id, BudgetLimits("run", run_id, budget))
        budgets.flag_run(tx, row.tenant_id, run_id)
    if budget or (not request.inputs and not request.query):
        answered = retry_budget_stopped(answered, row.state["forms"])
    answers = _answers(answered, request)
    conversation = conversation_runs.lock(tx, row.tenant_id, conversation_id)
    if conversation is None:
        raise NotFound("Session not found!", session_id=conversation_id.hex)  # deleted; its run is being cancelled
    number = conversation_runs.append_user_message(tx, conversation, conversation_id, run_id, request.query)
    if row.baseline is not None and FIRST_REQUEST not in row.baseline:
        row = row._replace(baseline={**row.baseline, FIRST_REQUEST: row.request})
    run_rows.next_turn(
        tx,
        run_id,
        baseline=row.baseline,
        request={**request.to_json(), "inputs": request.inputs},
        message_id=started.message_id,
        history_upto=number,
        first_event=row.last_event + 1,
    )
    _set_globals(tx, row, request, number)
    if answers is None and not answered.resolutions:
        return coordinator.show_forms_again(tx, row)
    return coordinator.resume(tx, row, answers, answered.resolutions)


def _set_globals(tx: Transaction, row: RunRow, request: RunRequest, history_upto: int) -> None:
    """Store the globals of a new request, as variables written by the forms that it answers."""
    assert row.baseline is not None, "the whole row was read"
    known = values.load_final(tx, row.id, with_large=False).variables
    seen = {**row.baseline["globals"], **{name: value for name, (value, _) in known.items()}}
    changed = turn_globals({"globals": seen}, request, datetime.now())  # local time, as upstream
    for activation in row.state["forms"]:
        reports.put_variables(tx, row.id, ActivationId(UUID(activation)), changed)
    if request.files:
        run_rows.set_baseline(
            tx,
            row.id,
            baseline={**row.baseline, "files": list(request.files)},
            previous_run=row.previous_run,
            history_upto=history_upto,
        )


def find_first_request(
    tx: Transaction,
    tenant_id: TenantId,
    external: ExternalId | None,
    key: tuple[str, str, bytes] | None,
    started: Started,
) -> idempotency.FirstResponse | None:
    """Return the first request with this external id or idempotency key; None if both now belong to this start.

    An external id that comes with the idempotency key of an earlier request leads to the run of that request.
    """
    if external is not None:
        earlier = external_ids.claim(tx, tenant_id, external, started.run_id)
        if earlier is not None:
            return idempotency.FirstResponse(earlier, None)
    first = claim_idempotency_key(tx, tenant_id, key, started)
    if first is not None and first.run_id is not None and external is not None:
        external_ids.remap(tx, tenant_id, external, first.run_id)
    return first


def claim_idempotency_key(
    tx: Transaction, tenant_id: TenantId, key: tuple[str, str, bytes] | None, started: Started
) -> idempotency.FirstResponse | None:
    """Return the first request with this idempotency key; None without a key, or if this start is the first."""
    return idempotency.claim(tx, tenant_id, *key, started.run_id, started.to_json()) if key is not None else None


def _answers(answered: ParsedAnswers, request: RunRequest) -> Mapping[str, Any] | None:
    """Return the answers in a request: its inputs, or its query if exactly one field is open; None if it has neither.

    A form without fields (of an Answer) is answered by any query, which its node reads from the request itself.
    """
    forms = answered.forms
    if answered.inputs and forms:
        return answered.inputs
    open_fields = {name: field for form in forms.values() for name, field in form[3].items()}
    if len(open_fields) == 1 and request.query:
        (name,) = open_fields
        field = open_fields[name]
        if not isinstance(field, Mapping):
            return {name: request.query}
        if "file" not in str(field.get("type") or "").lower():  # a text does not answer a file field
            return {name: {**field, "value": request.query}}
    return {} if request.query and not all(form[3] for form in forms.values()) else None
