"""People at an API: they start runs, answer forms, send further turns, and stop what they have started."""

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
from tests.simulator.world import Process

TENANT = UUID(int=7)
CANVAS = UUID(int=8)


@dataclass(eq=False)
class Errand:
    """One run that somebody wants; the key makes a repetition harmless. `after`: the errand whose session it is in."""

    play: int
    run_id: UUID
    stops: float  # how likely at each look
    on_busy: str = "refuse"
    after: "Errand | None" = None
    begins_at: float = 0.0
    is_given_up: bool = False  # refused, and that is fine
    went_to: UUID | None = None  # the run that does it: this one, or one that waited and was answered
    conversation_id: UUID | None = None
    answers: int = 0

    @property
    def start(self) -> Start:
        """The request, the same whenever it is sent."""
        session = self.after.conversation_id if self.after is not None else None
        return Start(
            TENANT,
            CANVAS,
            UUID(int=self.play),
            RunRequest(query="hello", inputs={"answer": "yes"} if self.after is not None else None),
            run_id=self.run_id,
            conversation_id=session,
            on_busy=self.on_busy,
            idempotency=("runs", str(self.run_id), b"digest"),
        )


@dataclass(eq=False)
class People:
    """Everybody's errands, at one API process after another."""

    installation: Installation
    errands: list[Errand]
    process: Process = field(init=False)
    lives: int = 0

    def come(self) -> Process:
        """An API process begins, and people go on where they were."""
        self.lives += 1
        self.process = Process(f"api{self.lives}")
        for number, errand in enumerate(self.errands):
            self.installation.world.spawn(self.process, str(number), lambda errand=errand: self._run(errand))
        return self.process

    @property
    def is_done(self) -> bool:
        """Whether every errand is."""
        committed = self.installation.server["runs"].rows
        for errand in self.errands:
            if errand.is_given_up:
                continue
            row = committed.get(errand.went_to) if errand.went_to is not None else None
            if row is None or row.committed is None or row.committed["status"] not in OVER:
                return False
        return True

    def _run(self, errand: Errand) -> None:
        world = self.installation.world
        lifecycle = Lifecycle(self.installation.coordinator())
        if errand.begins_at > world.now:
            world.sleep(errand.begins_at - world.now)
        while errand.after is not None and errand.after.conversation_id is None:
            if errand.after.is_given_up:
                errand.is_given_up = True
                return
            world.sleep(0.3)
        while errand.went_to is None and not errand.is_given_up:
            self._carefully(lambda: self._start(lifecycle, errand))
        while not errand.is_given_up and not self._is_over(errand):
            world.sleep(world.between(0.1, 2))
            self._carefully(lambda: self._look(lifecycle, errand))

    def _start(self, lifecycle: Lifecycle, errand: Errand) -> None:
        try:
            started = lifecycle.start_run(errand.start)
        except (Conflict, VersionGone) as error:
            self.installation.world.tell(f"refused: {error}")
            errand.is_given_up = True
            return
        errand.conversation_id, errand.went_to = started.conversation_id, started.run_id

    def _look(self, lifecycle: Lifecycle, errand: Errand) -> None:
        world, run_id = self.installation.world, errand.went_to
        assert run_id is not None
        with lifecycle.coordinator.database.transaction() as tx:
            row = run_rows.read(tx, TENANT, run_id)
        if row is None or row["status"] in OVER:
            return
        if world.chance(errand.stops):
            world.count("cancel")
            lifecycle.cancel_run(TENANT, run_id)
        elif row["status"] == "waiting":
            try:
                lifecycle.resume_run(TENANT, run_id, RunRequest(query="yes", inputs={"answer": "yes"}))
                errand.answers += 1
            except Conflict:
                return

    def _is_over(self, errand: Errand) -> bool:
        row = self.installation.server["runs"].rows.get(errand.went_to)
        return row is not None and row.committed is not None and row.committed["status"] in OVER

    def _carefully(self, do: object) -> None:
        """People try again when something goes wrong."""
        world = self.installation.world
        assert callable(do)
        try:
            do()
        except InvalidRequest as error:
            world.tell(f"told off: {error}")
            world.sleep(0.5)
        except SQLAlchemyError as error:
            world.tell(f"HTTP 503: {error.args[0]}")
            world.sleep(0.5)
