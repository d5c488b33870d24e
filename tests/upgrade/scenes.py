"""What runs in a recorded database, and how each of them comes to its end.

The recorder brings every scene somewhere in the middle; the release that recorded it, and later every newer one, goes
on from the rows alone with `go_on`, which gives what became of each run in a form that can be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from canvas.errors import Conflict
from providers.models.chat.scripted import Script
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import Started
from scheduler.messaging.celery_app import NODES
from scheduler.sweeper import sweeper as sweeping
from scheduler.sweeper.sweeper import Sweeper
from store.maintenance import migrate
from store.monitoring import queue_probes
from store.runs import run_rows
from tests.builders import says
from tests.integration.engine import FORM, Bench, Run
from tests.integration.worker.provider import MODEL, WHOLE

CONVERSATION = "in a conversation"
NEXT_TURN, NEXT_QUERY = "the next turn of the conversation", "Who am I?"
IDEMPOTENCY = ("runs", "order 7", sha256(b"body").digest())  # of the request that started the finished run
MOST_ROUNDS = 50  # of answering and sweeping until every run is over


@dataclass(frozen=True, slots=True)
class Scene:
    """A canvas, drawn as in `tests/builders.py`, and what people answer when it asks."""

    parts: Sequence[str]
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    query: str = "hello"
    answers: Sequence[str] = ()

    def start(self, bench: Bench, **options: Any) -> Run:
        return bench.start(*self.parts, query=self.query, **self.params, **options)


def asks(prompt: str, **more: Any) -> dict[str, Any]:
    """A model node."""
    return {"llm_id": "scripted", "prompts": [{"role": "user", "content": prompt}], **more}


def items(*names: str, prompt: str = "about {item@item}", **more: Any) -> dict[str, Any]:
    """An Iteration over these, whose body is one model node."""
    each = {"items_ref": "env.items", "outputs": {"all": {"ref": "model@content"}}, **more}
    return {"variables": {"items": list(names)}, "each": each, "model": asks(prompt), "say": says("{each@all}")}


LINE = ("begin -> model -> say",)
HEARD = {"model": asks("a word"), "say": says("Heard: {model@content}.")}
ITERATION = ("begin -> each -> say", "each: item -> model")
HELPER = {"component_name": "Agent", "name": "Helper", "params": asks("{sys.query}", sys_prompt="You help.")}
ROUNDS = {"maximum_loop_count": 3, "logical_operator": "or"}
REMEMBERS = {"model": asks("{sys.query}", message_history_window_size=12), "say": says("{model@content}")}

SCENES: Mapping[str, Scene] = {
    "never claimed": Scene(LINE, HEARD),
    "claimed by a worker that died": Scene(LINE, HEARD),
    "reported and seen by nobody": Scene(LINE, HEARD),
    "half said": Scene(LINE, {"model": {"llm_id": MODEL}, "say": says("So: {model@content} Bye.")}),
    "asking": Scene(("begin -> form -> say",), {"form": FORM, "say": says("Hello {form@name}.")}, answers=["Ann"]),
    "asking in an iteration": Scene(
        ("begin -> each -> say", "each: item -> form -> saya"),
        {
            "variables": {"items": ["x", "y", "z"]},
            "each": {"items_ref": "env.items"},
            "form": FORM,
            "saya": says("{item@item} is {form@name}. "),
            "say": says("Bye."),
        },
        answers=["Ann", "Bo", "Cy"],
    ),
    "asking in a loop": Scene(
        ("begin -> loop -> say", "loop: visit -> form -> saya"),
        {"loop": ROUNDS, "form": FORM, "saya": says("{form@name}. "), "say": says("Bye.")},
        answers=["Ann", "Bo", "Cy"],
    ),
    "item after item": Scene(ITERATION, items("a", "slow b", "c", max_concurrency=1)),
    "items that overlap": Scene(ITERATION, items("a", "b", "c", "d", "slow e", "f", "g", "h")),
    "items side by side": Scene(ITERATION, items("a", "slow b", "c", "d", max_concurrency=3)),
    "an agent that has asked its helper": Scene(
        ("begin -> model -> say",),
        {
            "model": asks("{sys.query}", component="Agent", sys_prompt="You lead.", tools=[HELPER]),
            "say": says("{model@content}"),
        },
        query="lead on",
    ),
    "said before its turn": Scene(
        ("begin -> model, modelb; model -> say; modelb -> modelc -> sayd",),
        {
            "model": asks("a slow word"),
            "modelb": asks("a word"),
            "modelc": asks("a word"),
            "say": says("First: {model@content}. "),
            "sayd": says("Then."),
        },
    ),
    "stopping": Scene(LINE, HEARD),
    "at work": Scene(LINE, {**HEARD, "model": asks("a slow word")}),
    "queued behind it": Scene(LINE, HEARD),
    "finished": Scene(LINE, HEARD),
    "failed": Scene(
        ("begin -> model -> work",),
        {"model": asks("nobody answers"), "work": {"method": "merge", "script": "{model@content}"}},
    ),
    "cancelled": Scene(("begin -> form -> say",), {"form": FORM}),
    CONVERSATION: Scene(LINE, REMEMBERS, query="I am Ann"),
}

RULES: Sequence[Mapping[str, Any]] = (
    {"model": MODEL, "reply": WHOLE},
    {"last": "I was asked to help", "reply": "It is done"},
    {"system": "You help", "reply": "I was asked to help"},
    {"user": "a word", "reply": "word"},
    {"user": "a slow word", "reply": "slow word"},
    *({"user": {"equals": f"about {name}"}, "reply": f"<{name}>"} for name in ("a", "b", "c", "d", "f", "g", "h")),
    *({"user": {"equals": f"about slow {name}"}, "reply": f"<slow {name}>"} for name in ("b", "e")),
    {"user": "Who am I?", "any": "I am Ann", "reply": "You are Ann"},
    {"user": "I am Ann", "reply": "Welcome"},
)
"""What the model answers. Nobody answers what an agent asks first: another attempt reads that in its journal."""


def go_on(bench: Bench, ids: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Bring every recorded run to its end, take the conversation's next turn, and tell what became of all."""
    recorded = {name: found(bench, UUID(run_id)) for name, run_id in ids.items()}
    bench.script = Script(RULES)
    sweeper = Sweeper(bench.coordinator)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sweeping, "MIN_UNINTERRUPTED", 0.0)  # it believes what it sees at first sight
        for _ in range(MOST_ROUNDS):
            with bench.database.transaction() as tx:
                queue_probes.record_return(tx, NODES, tx.scalar(migrate.NOW))  # so what was hinted before is lost
            sweeper.tick()
            bench.play()
            for name, run in recorded.items():
                answer_in_turn(bench, SCENES[name], run)
            if all(run.row["finished_at"] for run in recorded.values()):
                break
        before = recorded[CONVERSATION]
        drawn = (before.row["canvas_id"], before.row["version_id"])
        after = bench.start(
            drawn=drawn, tenant_id=before.row["tenant_id"], conversation_id=before.conversation_id, query=NEXT_QUERY
        )
        bench.play()
    return {name: became(run) for name, run in {**recorded, NEXT_TURN: after}.items()}


def answer_in_turn(bench: Bench, scene: Scene, run: Run) -> None:
    """Give a run that asks the next answer that it has not had."""
    row = run.row
    if row["status"] != "waiting" or not scene.answers:
        return
    given = run.told.count("user_inputs") - 1
    try:
        bench.lifecycle.resume_run(row["tenant_id"], run.id, RunRequest(query=scene.answers[given]))
    except Conflict as error:
        raise AssertionError(f"{run.id} takes no answer: {error}") from error
    bench.play()


def became(run: Run) -> dict[str, Any]:
    """What a run left: all that its user and its author may rely on."""
    events = run.events
    assert [event.number for event in events] == list(range(1, len(events) + 1)), "a gap among its events"
    return {
        "status": run.status,
        "error": run.row["error"],
        "said": run.said,
        "told": sorted(f"{event.name} {event.node_id or ''}".strip() for event in events),
        "left": {node: run.outputs(node) for node in sorted(run.statuses)},
        "activations": sorted({row.status for row in run.activations}),
    }


def found(bench: Bench, run_id: UUID) -> Run:
    """A recorded run by its id."""
    with bench.database.transaction() as tx:
        row = tx.one_or_none(run_rows.READ, of_run=run_id)
    assert row is not None
    return Run(bench, Started(run_id, row["conversation_id"], row["message_id"], after=0))
