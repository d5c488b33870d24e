"""What a run is between two decisions: statuses, their legal moves, and the rows a decision reads and writes.

The tables here are drawn in docs/state-machine.md, and a test keeps the two the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from canvas.outcome import Outcome
from canvas.place import Place, from_json, to_json

ENGINE = 1
"""Number of the deciding rules. A coordinator leaves a run alone whose number is higher than its own."""

MAX_ORDINAL = 1000
"""Activations of one node in one scope; a cycle that goes on fails there (engine 4.7-12)."""


class RunStatus(StrEnum):
    """Where a run is."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing will ever happen to the run again."""
        return self in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED)


class Status(StrEnum):
    """Where an activation is. `open` is a container whose body runs, `saying` a Message whose turn is to come."""

    QUEUED = "queued"
    READY = "ready"
    RUNNING = "running"
    REPORTED = "reported"
    WAITING = "waiting"
    SAYING = "saying"
    OPEN = "open"
    DONE = "done"
    CLOSED = "closed"


RUN_MOVES: Mapping[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: frozenset({RunStatus.RUNNING, RunStatus.CANCELLED}),
    RunStatus.RUNNING: frozenset(
        {RunStatus.WAITING, RunStatus.STOPPING, RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED}
    ),
    RunStatus.WAITING: frozenset({RunStatus.RUNNING, RunStatus.STOPPING, RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.STOPPING: frozenset({RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.SUCCEEDED: frozenset(),
    RunStatus.FAILED: frozenset(),
    RunStatus.CANCELLED: frozenset(),
}

ACTIVATION_MOVES: Mapping[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.READY, Status.CLOSED}),
    Status.READY: frozenset({Status.RUNNING, Status.CLOSED}),
    Status.RUNNING: frozenset({Status.REPORTED}),
    Status.REPORTED: frozenset({Status.DONE, Status.READY, Status.WAITING, Status.SAYING, Status.OPEN}),
    Status.WAITING: frozenset({Status.READY, Status.CLOSED}),
    Status.SAYING: frozenset({Status.DONE, Status.CLOSED}),
    Status.OPEN: frozenset({Status.DONE, Status.SAYING, Status.CLOSED}),
    Status.DONE: frozenset(),
    Status.CLOSED: frozenset(),
}

Step = tuple[str, int, int]
ScopeKey = tuple[Step, ...]
"""Where in nested containers we are, outermost first: (container id, its ordinal, item)."""


def scope_text(key: ScopeKey) -> str:
    """A scope as the rows spell it: "" outside, "Iteration:A#0.3" in the fourth item of its first entry."""
    return "/".join(f"{_quoted(node)}#{ordinal}.{item}" for node, ordinal, item in key)


def scope_key(text: str) -> ScopeKey:
    """The inverse of `scope_text`."""
    steps: list[Step] = []
    for part in text.split("/") if text else ():
        node, _, numbers = part.rpartition("#")
        ordinal, _, item = numbers.partition(".")
        steps.append((node.replace("%2F", "/").replace("%25", "%"), int(ordinal), int(item)))
    return tuple(steps)


def entry_text(key: ScopeKey) -> str:
    """The entry of the innermost container around a scope, whichever its item: "Iteration:A#0"; "" outside."""
    return scope_text(key).rpartition(".")[0]


def _quoted(node_id: str) -> str:
    return node_id.replace("%", "%25").replace("/", "%2F")


def activation_id(run_id: UUID, node_id: str, scope: ScopeKey, ordinal: int) -> UUID:
    """Ids follow from what they name, so deciding twice activates the same rows."""
    return uuid5(run_id, f"{node_id}\n{scope_text(scope)}\n{ordinal}")


@dataclass(slots=True)
class Container:
    """An Iteration or Loop whose body runs; kept in the scope where the container stands."""

    activation: UUID
    ordinal: int
    place: Place
    count: int | None  # items; None: until an item visit leaves
    concurrency: int
    next: int = 0  # item to open next
    open: int = 0  # item scopes that are open
    still: int = 0  # of these, how many wait for something outside of the run
    waves: int = 0  # waves that finished items or passes have used
    failed_item: int = -1  # of side-by-side items: the first that failed, in item order
    error: str = ""
    failed_at: tuple[int, str] = (0, "")  # wave and place (hex) of that failure

    @property
    def side_by_side(self) -> bool:
        """Whether items run at the same time, each on its own copy of the values."""
        return self.count is not None and self.concurrency > 1


@dataclass(slots=True)
class Scope:
    """One open scope: what is alive and reached in it. Numbers are node numbers of the version."""

    key: ScopeKey
    region: bytes = b""
    limits: tuple[tuple[str, int], ...] = ()  # enclosing regions (hex) and the revision up to which they are read
    trail: Place = field(default_factory=lambda: Place(0))  # of the container: every pass begins with its trail
    last_wave: int = 0
    alive: int = 0
    still: int = 0
    reached: dict[int, Place] = field(default_factory=dict[int, Place])
    places: dict[int, Place] = field(default_factory=dict[int, Place])  # of what is alive, where speech is ordered
    ordinals: dict[int, int] = field(default_factory=dict[int, int])  # next ordinal, above 0
    containers: dict[int, Container] = field(default_factory=dict[int, Container])
    leaving: Place | None = None  # where an ExitLoop has reported, of several the last in canonical order
    left_by: UUID | None = None  # its activation, which stored the container's outputs
    escaped: bool = False  # an edge out of the body was taken: no further pass, and nothing of the container's follows
    counted_still: bool = False  # the container around it counts this scope as still

    @property
    def is_empty(self) -> bool:
        """Whether the pass is over."""
        return not self.alive and not self.reached

    @property
    def is_still(self) -> bool:
        """Whether everything alive here waits for something outside of the run."""
        return self.alive != 0 and not self.alive & ~self.still


@dataclass(slots=True)
class Held:
    """A `node_finished` that comes after its Message's `message_end`."""

    activation: UUID
    node_id: str
    error: str | None
    key: str  # hex of the speaker's place: several come in the order in which they started


@dataclass(slots=True)
class Speech:
    """A turn that has not been closed: a Message's, or the default value that a failed node leaves to be heard."""

    turn: UUID
    number: int
    scope: ScopeKey
    place: Place | None = None  # known once the Message is activated
    started: bool = False  # `node_started` is out
    opened: bool = False
    said: bool = False  # the whole text is there
    error: str | None = None  # of a failed node whose default is heard
    end: dict[str, Any] = field(default_factory=dict[str, Any])
    held: list[Held] = field(default_factory=list[Held])


@dataclass(slots=True)
class OpenForm:
    """A form that waits for a person."""

    node_id: str
    place: str  # hex
    scope: ScopeKey
    inputs: dict[str, Any]
    tips: str


@dataclass(slots=True)
class Failing:
    """The failure that ends the run, in canonical order the last of the earliest failing wave (decisions.md 21)."""

    wave: int
    place: str  # hex
    node_id: str
    error: str
    code: str


@dataclass(slots=True)
class RunState:
    """The run's row as a decision sees it, and the scopes that the reports name with those around them."""

    run_id: UUID
    status: RunStatus
    revision: int = 0
    last_event: int = 0
    asked: str | None = None
    turn: UUID | None = None
    max_running: int = 256
    live: int = 0  # activations that are ready or running
    queued: int = 0
    speeches: list[Speech] = field(default_factory=list[Speech])
    forms: dict[UUID, OpenForm] = field(default_factory=dict[UUID, OpenForm])
    failing: Failing | None = None
    last: tuple[str, UUID, str] | None = None  # (place in hex, activation, node id) of the last in canonical order
    scopes: dict[ScopeKey, Scope] = field(default_factory=dict[ScopeKey, Scope])


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker stored about an activation, without values."""

    activation: UUID
    node_id: str
    scope: ScopeKey
    ordinal: int
    place: Place
    outcome: Outcome
    error: str | None = None  # `_ERROR` among the outputs
    strikes: int = 0
    turn: UUID | None = None
    retake: bool = False  # the Message's text does not go on from what was said in its turn
    spoke: bool = False  # the attempt left text in the turn
    usage: Mapping[str, int] = field(default_factory=dict[str, int])


def run_to_json(state: RunState) -> dict[str, Any]:
    """The part of a run's row that is one JSON column."""
    return {
        "live": state.live,
        "queued": state.queued,
        "max_running": state.max_running,
        "speeches": [
            {
                "turn": str(s.turn),
                "number": s.number,
                "scope": scope_text(s.scope),
                "place": to_json(s.place) if s.place else None,
                "started": s.started,
                "opened": s.opened,
                "said": s.said,
                "error": s.error,
                "end": s.end,
                "held": [[str(h.activation), h.node_id, h.error, h.key] for h in s.held],
            }
            for s in state.speeches
        ],
        "forms": {
            str(activation): [f.node_id, f.place, scope_text(f.scope), f.inputs, f.tips]
            for activation, f in state.forms.items()
        },
        "failing": [f.wave, f.place, f.node_id, f.error, f.code] if (f := state.failing) else None,
        "last": [state.last[0], str(state.last[1]), state.last[2]] if state.last else None,
    }


def fill_run(state: RunState, data: Mapping[str, Any]) -> RunState:
    """Put the JSON column's content into a state that has the row's other columns already."""
    state.live = data["live"]
    state.queued = data["queued"]
    state.max_running = data["max_running"]
    state.speeches = [
        Speech(
            turn=UUID(s["turn"]),
            number=s["number"],
            scope=scope_key(s["scope"]),
            place=from_json(s["place"]) if s["place"] else None,
            started=s["started"],
            opened=s["opened"],
            said=s["said"],
            error=s["error"],
            end=s["end"],
            held=[Held(UUID(h[0]), h[1], h[2], h[3]) for h in s["held"]],
        )
        for s in data["speeches"]
    ]
    state.forms = {
        UUID(activation): OpenForm(f[0], f[1], scope_key(f[2]), f[3], f[4]) for activation, f in data["forms"].items()
    }
    state.failing = Failing(*data["failing"]) if data["failing"] else None
    state.last = (data["last"][0], UUID(data["last"][1]), data["last"][2]) if data["last"] else None
    return state


def scope_to_json(scope: Scope) -> dict[str, Any]:
    """A scope's row; what is empty is left out."""
    data: dict[str, Any] = {
        "region": scope.region.hex(),
        "limits": scope.limits,
        "trail": to_json(scope.trail),
        "last_wave": scope.last_wave,
        "alive": f"{scope.alive:x}",
        "still": f"{scope.still:x}" if scope.still else "",
        "reached": _places_to_json(scope.reached),
        "places": _places_to_json(scope.places),
        "ordinals": scope.ordinals,
        "containers": {
            number: [
                str(c.activation),
                c.ordinal,
                to_json(c.place),
                c.count,
                c.concurrency,
                c.next,
                c.open,
                c.still,
                c.waves,
                c.failed_item,
                c.error,
                c.failed_at,
            ]
            for number, c in scope.containers.items()
        },
        "leaving": to_json(scope.leaving) if scope.leaving else None,
        "left_by": str(scope.left_by) if scope.left_by else None,
        "escaped": scope.escaped,
        "counted_still": scope.counted_still,
    }
    return {name: value for name, value in data.items() if value or name in ("trail", "alive")}


def scope_from_json(key: ScopeKey, data: Mapping[str, Any]) -> Scope:
    """The inverse of `scope_to_json`."""
    return Scope(
        key=key,
        region=bytes.fromhex(data.get("region", "")),
        limits=tuple((region, revision) for region, revision in data.get("limits", ())),
        trail=from_json(data["trail"]),
        last_wave=data.get("last_wave", 0),
        alive=int(data["alive"], 16),
        still=int(data.get("still", "0"), 16),
        reached=_places_from_json(data.get("reached", {})),
        places=_places_from_json(data.get("places", {})),
        ordinals={int(number): ordinal for number, ordinal in data.get("ordinals", {}).items()},
        containers={
            int(number): Container(UUID(c[0]), c[1], from_json(c[2]), *c[3:11], failed_at=(c[11][0], c[11][1]))
            for number, c in data.get("containers", {}).items()
        },
        leaving=from_json(data["leaving"]) if data.get("leaving") else None,
        left_by=UUID(data["left_by"]) if data.get("left_by") else None,
        escaped=data.get("escaped", False),
        counted_still=data.get("counted_still", False),
    )


def _places_to_json(places: Mapping[int, Place]) -> dict[str, Any]:
    return {str(number): to_json(place) for number, place in places.items()}


def _places_from_json(data: Mapping[str, Sequence[Any]]) -> dict[int, Place]:
    return {int(number): from_json(list(place)) for number, place in data.items()}
