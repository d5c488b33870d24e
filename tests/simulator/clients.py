"""API clients: they start runs, answer forms, send further turns, and cancel runs."""

from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from canvas.errors import Conflict, InvalidRequest
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import Start
from scheduler.lifecycle.lifecycle import Lifecycle
from store.agents.versions import VersionGone
from store.runs import run_rows
from tests.simulator.invariants import OVER
from tests.simulator.processes import Installation
from tests.simulator.simulation import Process

TENANT = UUID(int=7)
CANVAS = UUID(int=8)


@dataclass(eq=False)
class ClientRequest:
    """A request to start a run, repeated with the same key. `after`: the request whose session it continues."""

    scenario: int
    run_id: UUID
    cancel_probability: float  # at each poll
    on_busy: str = "refuse"
    after: "ClientRequest | None" = None
    begins_at: float = 0.0
    is_refused: bool = False  # the start was refused, which is a valid outcome
    accepted_run: UUID | None = None  # the started run, or a waiting one that the request answered
    conversation_id: UUID | None = None
    answers: int = 0

    @property
    def start(self) -> Start:
        """The start request, the same in each repetition."""
        session = self.after.conversation_id if self.after is not None else None
        return Start(
            TENANT,
            CANVAS,
            UUID(int=self.scenario),
            RunRequest(query="hello", inputs={"answer": "yes"} if self.after is not None else None),
            run_id=self.run_id,
            conversation_id=session,
            on_busy=self.on_busy,
            idempotency=("runs", str(self.run_id), b"digest"),
        )


@dataclass(eq=False)
class Clients:
    """All client requests, sent through one API process after another."""

    installation: Installation
    requests: list[ClientRequest]
    process: Process = field(init=False)
    process_count: int = 0

    def start_process(self) -> Process:
        """Start an API process; the clients continue their requests there."""
        self.process_count += 1
        self.process = Process(f"api{self.process_count}")
        for number, request in enumerate(self.requests):
            self.installation.simulation.spawn(self.process, str(number), lambda request=request: self._run(request))
        return self.process

    @property
    def is_done(self) -> bool:
        """Whether every request was refused or its run is over."""
        committed = self.installation.server["runs"].rows
        for request in self.requests:
            if request.is_refused:
                continue
            row = committed.get(request.accepted_run) if request.accepted_run is not None else None
            if row is None or row.committed is None or row.committed["status"] not in OVER:
                return False
        return True

    def _run(self, request: ClientRequest) -> None:
        simulation = self.installation.simulation
        lifecycle = Lifecycle(self.installation.coordinator())
        if request.begins_at > simulation.now:
            simulation.sleep(request.begins_at - simulation.now)
        while request.after is not None and request.after.conversation_id is None:
            if request.after.is_refused:
                request.is_refused = True
                return
            simulation.sleep(0.3)
        while request.accepted_run is None and not request.is_refused:
            self._wait_after_error(lambda: self._start(lifecycle, request))
        while not request.is_refused and not self._is_over(request):
            simulation.sleep(simulation.between(0.1, 2))
            self._wait_after_error(lambda: self._poll(lifecycle, request))

    def _start(self, lifecycle: Lifecycle, request: ClientRequest) -> None:
        try:
            started = lifecycle.start_run(request.start)
        except (Conflict, VersionGone) as error:
            self.installation.simulation.trace(f"refused: {error}")
            request.is_refused = True
            return
        request.conversation_id, request.accepted_run = started.conversation_id, started.run_id

    def _poll(self, lifecycle: Lifecycle, request: ClientRequest) -> None:
        simulation, run_id = self.installation.simulation, request.accepted_run
        assert run_id is not None
        with lifecycle.coordinator.database.transaction() as tx:
            row = run_rows.read(tx, TENANT, run_id)
        if row is None or row["status"] in OVER:
            return
        if simulation.chance(request.cancel_probability):
            simulation.count("cancel")
            lifecycle.cancel_run(TENANT, run_id)
        elif row["status"] == "waiting":
            try:
                lifecycle.resume_run(TENANT, run_id, RunRequest(query="yes", inputs={"answer": "yes"}))
                request.answers += 1
            except Conflict:
                return

    def _is_over(self, request: ClientRequest) -> bool:
        row = self.installation.server["runs"].rows.get(request.accepted_run)
        return row is not None and row.committed is not None and row.committed["status"] in OVER

    def _wait_after_error(self, operation: object) -> None:
        """Run an operation; after an error, wait before the caller repeats it."""
        simulation = self.installation.simulation
        assert callable(operation)
        try:
            operation()
        except InvalidRequest as error:
            simulation.trace(f"HTTP 400: {error}")
            simulation.sleep(0.5)
        except SQLAlchemyError as error:
            simulation.trace(f"HTTP 503: {error.args[0]}")
            simulation.sleep(0.5)
