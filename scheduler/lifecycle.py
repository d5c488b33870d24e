"""The verbs of api and cli: start, resume, cancel.

Each is one transaction that writes rows, then hints. An accepted run is a committed row: from there on it cannot be
lost, whatever happens to the broker. Who has held a run looks afterwards, also when the verb was refused: a worker may
have reported meanwhile and found the run taken (protocol.md, "No report is overlooked").
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy.exc import IntegrityError

from canvas.checkpoint import run_to_json
from canvas.errors import Conflict, InvalidRequest, NotFound
from canvas.expiry import reason_of_expiry
from canvas.state import RunState, RunStatus
from scheduler.coordinator import Coordinator
from scheduler.turn_start import Request, turn_globals
from store import activations, conversations, conversing, idempotency, runs, values
from store.database import Transaction
from store.ids import new_id
from store.runs import Applied

T = TypeVar("T")

ON_BUSY = ("refuse", "enqueue", "interrupt")


class NotWaiting(Conflict):
    """Somebody wants to answer a run that does not ask."""


@dataclass(frozen=True, slots=True)
class Start:
    """What starting a run needs. The version is chosen by the caller: a draft is snapshotted before it runs."""

    tenant_id: UUID
    canvas_id: UUID
    version_id: UUID
    request: Request
    run_id: UUID | None = None
    conversation_id: UUID | None = None
    conversation_name: str = ""
    conversation_source: str = "workflow"
    on_busy: str = "refuse"
    idempotency: tuple[str, str, bytes] | None = None  # (route, key, SHA-256 of the request)


@dataclass(frozen=True, slots=True)
class Started:
    """A run that was accepted. `resumed`: it had been waiting, and went on. `repeated`: an earlier reply."""

    run_id: UUID
    conversation_id: UUID
    message_id: UUID
    after: int  # events of this turn have greater numbers
    resumed: bool = False
    repeated: bool = False
    queued: bool = False


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The verbs that change runs. One per process."""

    coordinator: Coordinator

    def start_run(self, start: Start) -> Started:
        """Start a run, or resume the one that waits for this conversation's next turn.

        Raises Conflict if the conversation is busy (unless `on_busy` says otherwise), NotFound for a conversation of
        somebody else, InvalidRequest for a bad choice.
        """
        if start.on_busy not in ON_BUSY:
            raise InvalidRequest(f'"on_busy" is {start.on_busy!r}. Use one of: {", ".join(ON_BUSY)}.')
        start = replace(start, run_id=start.run_id or new_id())  # so that a second try finds what the first one made
        while (waiting := self._waiting_run(start)) is not None:
            try:
                return self.resume_run(start.tenant_id, waiting, start.request, start.idempotency)
            except NotWaiting:
                continue  # somebody else has answered meanwhile
        started, applied, busy = self._carry_out_start(start)
        if applied is not None:
            self.coordinator.dispatch.flush(applied)
        if busy is not None and start.on_busy == "interrupt":
            self.cancel_run(start.tenant_id, busy)
            self.coordinator.advance_run(started.run_id)
        return started

    def resume_run(
        self, tenant_id: UUID, run_id: UUID, request: Request, idempotency: tuple[str, str, bytes] | None = None
    ) -> Started:
        """Give a waiting run its answers; without any it shows its forms once more.

        Raises Conflict if the run does not wait, NotFound for another tenant's.
        """

        def resume(tx: Transaction) -> tuple[Started, Applied | None]:
            row = self._locked(tx, tenant_id, run_id)
            first = _claimed(tx, tenant_id, idempotency, run_id)
            if first is not None:
                return self._repeated(tx, tenant_id, first), None
            if row["status"] != RunStatus.WAITING:
                raise NotWaiting(f"Run {run_id} does not wait for input; it is {row['status']}.", status=row["status"])
            return self._resume(tx, row, request)

        return self._holding(run_id, resume)

    def cancel_run(self, tenant_id: UUID, run_id: UUID) -> RunStatus:
        """Stop a run. A run that is over stays as it is, and no marker is left. The status afterwards."""
        bus = self.coordinator.dispatch.bus

        def cancel(tx: Transaction) -> tuple[tuple[RunStatus, UUID | None], Applied | None]:
            row = self._locked(tx, tenant_id, run_id)
            if RunStatus(row["status"]).is_over or row["asked"] == "cancel":
                return (RunStatus(row["status"]), None), None
            applied = self.coordinator.cancel(tx, row)
            status = RunStatus.CANCELLED if applied.is_over else RunStatus.STOPPING
            return (status, row["conversation_id"]), applied

        status, stopping_in = self._holding(run_id, cancel)
        if status is RunStatus.STOPPING and stopping_in is not None:
            bus.call_off(run_id)
            bus.set_cancel_key(run_id)
            if self._is_over(tenant_id, run_id):  # it has ended before the key was there to be cleared
                bus.clear_cancel_keys(run_id, stopping_in)
        return status

    def cancel_by_key(self, run_id: UUID) -> None:
        """A cancel key was seen: the same as `cancel_run`, whoever set it."""
        with self.coordinator.database.transaction() as tx:
            tenant_id = runs.tenant_of(tx, run_id)
        if tenant_id is not None:
            self.cancel_run(tenant_id, run_id)

    def expire_form(self, run_id: UUID, reason: str) -> None:
        """Nobody has answered a waiting run in time: it fails with that reason.

        If the time was one that the canvas gives a form, the reason names both.
        """

        def expire(tx: Transaction) -> tuple[None, Applied | None]:
            row = runs.lock(tx, run_id)
            if row is None or row["status"] != RunStatus.WAITING or row["expires_at"] > datetime.now(UTC):
                return None, None  # it was answered meanwhile, and may ask anew
            canvas = self.coordinator.versions.canvas(tx, row["version_id"])
            asked = [form[0] for form in row["state"]["forms"].values()]
            told = reason_of_expiry(canvas, asked, self.coordinator.form_expiry) or reason
            return None, self.coordinator.fail(tx, row, told, "form_expired")

        self._holding(run_id, expire)

    def _holding(self, run_id: UUID, verb: Callable[[Transaction], tuple[T, Applied | None]]) -> T:
        """Carry out a verb that holds a run; then tell others, and look."""
        try:
            result, applied = self.coordinator.database.carry_out(verb)
            if applied is not None:
                self.coordinator.dispatch.flush(applied)
        finally:
            self.coordinator.look(run_id)
        return result

    def _is_over(self, tenant_id: UUID, run_id: UUID) -> bool:
        with self.coordinator.database.transaction() as tx:
            row = runs.read(tx, tenant_id, run_id)
        return row is None or RunStatus(row["status"]).is_over

    def _locked(self, tx: Transaction, tenant_id: UUID, run_id: UUID) -> Mapping[str, Any]:
        row = runs.lock(tx, run_id)
        if row is None or row["tenant_id"] != tenant_id:
            raise NotFound(f"There is no run {run_id}.", run_id=str(run_id))
        return row

    def _active_run(self, start: Start) -> UUID | None:
        if start.conversation_id is None:
            return None
        with self.coordinator.database.transaction() as tx:
            return conversations.get(tx, start.tenant_id, start.conversation_id).active_run

    def _waiting_run(self, start: Start) -> UUID | None:
        """The conversation's run that waits for a person, if the next turn answers it."""
        active = self._active_run(start)
        if active is None or active == start.run_id:
            return None
        with self.coordinator.database.transaction() as tx:
            row = runs.read(tx, start.tenant_id, active)
        return active if row is not None and row["status"] == RunStatus.WAITING else None

    def _carry_out_start(self, start: Start) -> tuple[Started, Applied | None, UUID | None]:
        """The start, what it has written, and the run that keeps its conversation busy."""
        database = self.coordinator.database
        try:
            return database.carry_out(lambda tx: self._start(tx, start))
        except IntegrityError:
            return database.carry_out(lambda tx: self._start(tx, start))  # the same run_id came in meanwhile: read it

    def _start(self, tx: Transaction, start: Start) -> tuple[Started, Applied | None, UUID | None]:
        run_id = start.run_id
        assert run_id is not None  # chosen at the latest by `start_run`
        first = _claimed(tx, start.tenant_id, start.idempotency, run_id)
        if first is None and runs.tenant_of(tx, run_id) is not None:
            first = run_id
        if first is not None:
            return self._repeated(tx, start.tenant_id, first), None, None
        conversation_id, busy = self._conversation(tx, start)
        if busy is not None and start.on_busy == "refuse":
            raise Conflict("This agent session is already running.", session_id=str(conversation_id))
        message_id = new_id()
        runs.create(
            tx,
            {
                "id": run_id,
                "tenant_id": start.tenant_id,
                "canvas_id": start.canvas_id,
                "version_id": start.version_id,
                "conversation_id": conversation_id,
                "message_id": message_id,
                "status": RunStatus.QUEUED.value,
                "state": run_to_json(RunState(run_id, RunStatus.QUEUED, max_running=self.coordinator.max_running)),
                "request": start.request.to_json(),
                "base": {},
            },
        )
        started = Started(run_id, conversation_id, message_id, 0, queued=busy is not None)
        if busy is not None:
            return started, None, busy
        row = runs.read(tx, start.tenant_id, run_id)
        assert row is not None  # inserted above
        applied = self.coordinator.fold(tx, row)
        self.coordinator.dispatch.bus.clear_cancel_keys(run_id, conversation_id)  # before the commit: later ones count
        return started, applied, None

    def _conversation(self, tx: Transaction, start: Start) -> tuple[UUID, UUID | None]:
        """The conversation of a start, taken; the run that is active in it."""
        if start.conversation_id is not None:
            row = conversing.lock(tx, start.tenant_id, start.conversation_id)
            if row is None:
                raise NotFound("Session not found!", session_id=str(start.conversation_id))
            return start.conversation_id, row["active_run"]
        made: UUID = conversations.create(
            tx,
            start.tenant_id,
            start.canvas_id,
            start.version_id,
            start.request.user_id,
            start.conversation_name,
            start.conversation_source,
        )
        return made, None

    def _repeated(self, tx: Transaction, tenant_id: UUID, run_id: UUID) -> Started:
        row = runs.read(tx, tenant_id, run_id)
        if row is None:
            raise Conflict(f"The run id {run_id} is taken.", run_id=str(run_id))
        return Started(run_id, row["conversation_id"], row["message_id"], 0, repeated=True)

    def _resume(self, tx: Transaction, row: Mapping[str, Any], request: Request) -> tuple[Started, Applied]:
        """The conversation's next turn goes to a locked run that waits."""
        run_id, conversation_id, message_id = row["id"], row["conversation_id"], new_id()
        answers = _answers(row["state"]["forms"], request)
        conversing.lock(tx, row["tenant_id"], conversation_id)
        number = conversing.user_said(tx, conversation_id, run_id, request.query)
        runs.next_turn(
            tx,
            run_id,
            request={**request.to_json(), "inputs": request.inputs},
            message_id=message_id,
            history_upto=number,
            first_event=row["last_event"] + 1,
        )
        self._set_globals(tx, row, request, number)
        coordinator = self.coordinator
        applied = coordinator.ask_again(tx, row) if answers is None else coordinator.resume(tx, row, answers)
        return Started(run_id, conversation_id, message_id, row["last_event"], resumed=True), applied

    def _set_globals(self, tx: Transaction, row: Mapping[str, Any], request: Request, history_upto: int) -> None:
        """A new turn's globals, as variables written by the forms it answers."""
        known = values.final(tx, row["id"]).variables
        seen = {**row["base"]["globals"], **{name: value for name, (value, _) in known.items()}}
        changed = turn_globals({"globals": seen}, request, datetime.now())  # local time, as upstream
        for activation in row["state"]["forms"]:
            activations.put_variables(tx, row["id"], UUID(activation), changed)
        if request.files:
            runs.set_base(
                tx,
                row["id"],
                base={**row["base"], "files": list(request.files)},
                previous_run=row["previous_run"],
                history_upto=history_upto,
            )


def _claimed(tx: Transaction, tenant_id: UUID, key: tuple[str, str, bytes] | None, run_id: UUID) -> UUID | None:
    """The run of the first request with this idempotency key; None if there is no key, or it is new."""
    return idempotency.claim(tx, tenant_id, key[0], key[1], key[2], run_id) if key is not None else None


def _answers(forms: Mapping[str, Any], request: Request) -> Mapping[str, Any] | None:
    """The answers of a turn: its inputs, or its query where exactly one field is open; None if it has neither.

    What waits and has no fields (an Answer) is answered by any query, and takes it from the request itself.
    """
    if request.inputs:
        return request.inputs
    open_fields = {name: field for form in forms.values() for name, field in form[3].items()}
    if len(open_fields) == 1 and request.query:
        (name,) = open_fields
        field = open_fields[name]
        if not isinstance(field, Mapping):
            return {name: request.query}
        if "file" not in str(field.get("type") or "").lower():  # a sentence is no file
            return {name: {**field, "value": request.query}}
    return {} if request.query and not all(form[3] for form in forms.values()) else None
