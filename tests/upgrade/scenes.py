"""The runs of a recorded database, and how each of them is finished.

The recorder stops every scene in the middle. The release that recorded it, and later every newer one, continues from
the rows alone with `finish_runs`, which returns the results of each run in a form that can be compared.
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
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run
from tests.integration.worker.provider import FULL_TEXT, MODEL

CONVERSATION = "in a conversation"
NEXT_TURN, NEXT_QUERY = "the next turn of the conversation", "Who am I?"
IDEMPOTENCY = ("runs", "order 7", sha256(b"body").digest())  # of the request that started the finished run
MAX_ROUNDS = 50  # of answering and sweeping until every run is over


@dataclass(frozen=True, slots=True)
class Scene:
    """A canvas, written as in `tests/builders.py`, and the answers to its forms."""

    parts: Sequence[str]
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    query: str = "hello"
    answers: Sequence[str] = ()

    def start(self, bench: Bench, **options: Any) -> Run:
        return bench.start(*self.parts, query=self.query, **self.params, **options)


def model_params(prompt: str, **more: Any) -> dict[str, Any]:
    """Return the params of a model node."""
    return {"llm_id": "scripted", "prompts": [{"role": "user", "content": prompt}], **more}


def items(*names: str, prompt: str = "about {item@item}", **more: Any) -> dict[str, Any]:
    """Return params of an Iteration over these items, whose body is one model node."""
    each = {"items_ref": "env.items", "outputs": {"all": {"ref": "model@content"}}, **more}
    return {
        "variables": {"items": list(names)},
        "each": each,
        "model": model_params(prompt),
        "say": content("{each@all}"),
    }


LINE = ("begin -> model -> say",)
REPLY = {"model": model_params("a word"), "say": content("Heard: {model@content}.")}
ITERATION = ("begin -> each -> say", "each: item -> model")
HELPER = {"component_name": "Agent", "name": "Helper", "params": model_params("{sys.query}", sys_prompt="You help.")}
ROUNDS = {"maximum_loop_count": 3, "logical_operator": "or"}
REMEMBERS = {"model": model_params("{sys.query}", message_history_window_size=12), "say": content("{model@content}")}

SCENES: Mapping[str, Scene] = {
    "never claimed": Scene(LINE, REPLY),
    "claimed by a worker that died": Scene(LINE, REPLY),
    "reported and seen by nobody": Scene(LINE, REPLY),
    "half said": Scene(LINE, {"model": {"llm_id": MODEL}, "say": content("So: {model@content} Bye.")}),
    "asking": Scene(("begin -> form -> say",), {"form": FORM, "say": content("Hello {form@name}.")}, answers=["Ann"]),
    "asking in an iteration": Scene(
        ("begin -> each -> say", "each: item -> form -> saya"),
        {
            "variables": {"items": ["x", "y", "z"]},
            "each": {"items_ref": "env.items"},
            "form": FORM,
            "saya": content("{item@item} is {form@name}. "),
            "say": content("Bye."),
        },
        answers=["Ann", "Bo", "Cy"],
    ),
    "asking in a loop": Scene(
        ("begin -> loop -> say", "loop: visit -> form -> saya"),
        {"loop": ROUNDS, "form": FORM, "saya": content("{form@name}. "), "say": content("Bye.")},
        answers=["Ann", "Bo", "Cy"],
    ),
    "item after item": Scene(ITERATION, items("a", "slow b", "c", max_concurrency=1)),
    "items that overlap": Scene(ITERATION, items("a", "b", "c", "d", "slow e", "f", "g", "h")),
    "items side by side": Scene(ITERATION, items("a", "slow b", "c", "d", max_concurrency=3)),
    "an agent that has asked its helper": Scene(
        ("begin -> model -> say",),
        {
            "model": model_params("{sys.query}", component="Agent", sys_prompt="You lead.", tools=[HELPER]),
            "say": content("{model@content}"),
        },
        query="lead on",
    ),
    "said before its turn": Scene(
        ("begin -> model, modelb; model -> say; modelb -> modelc -> sayd",),
        {
            "model": model_params("a slow word"),
            "modelb": model_params("a word"),
            "modelc": model_params("a word"),
            "say": content("First: {model@content}. "),
            "sayd": content("Then."),
        },
    ),
    "stopping": Scene(LINE, REPLY),
    "at work": Scene(LINE, {**REPLY, "model": model_params("a slow word")}),
    "queued behind it": Scene(LINE, REPLY),
    "finished": Scene(LINE, REPLY),
    "failed": Scene(
        ("begin -> model -> work",),
        {"model": model_params("nobody answers"), "work": {"method": "merge", "script": "{model@content}"}},
    ),
    "cancelled": Scene(("begin -> form -> say",), {"form": FORM}),
    CONVERSATION: Scene(LINE, REMEMBERS, query="I am Ann"),
}

RULES: Sequence[Mapping[str, Any]] = (
    {"model": MODEL, "reply": FULL_TEXT},
    {"last": "I was asked to help", "reply": "It is done"},
    {"system": "You help", "reply": "I was asked to help"},
    {"user": "a word", "reply": "word"},
    {"user": "a slow word", "reply": "slow word"},
    *({"user": {"equals": f"about {name}"}, "reply": f"<{name}>"} for name in ("a", "b", "c", "d", "f", "g", "h")),
    *({"user": {"equals": f"about slow {name}"}, "reply": f"<slow {name}>"} for name in ("b", "e")),
    {"user": "Who am I?", "any": "I am Ann", "reply": "You are Ann"},
    {"user": "I am Ann", "reply": "Welcome"},
)
"""The answers of the model. The first request of the agent has none: the next attempt reads it in its journal."""


def finish_runs(bench: Bench, ids: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Finish every recorded run, send the conversation's next message, and return the results of all runs."""
    recorded = {name: recorded_run(bench, UUID(run_id)) for name, run_id in ids.items()}
    bench.script = Script(RULES)
    sweeper = Sweeper(bench.coordinator)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sweeping, "MIN_UNINTERRUPTED", 0.0)  # leases expire at the first tick
        patched.setattr(sweeping, "PROBE_SETTLES", 0.0)  # and probes count at once, however quick the rounds are
        for _ in range(MAX_ROUNDS):
            with bench.database.transaction() as tx:
                queue_probes.record_return(tx, NODES, tx.scalar(migrate.NOW))  # so earlier task messages count as lost
            sweeper.tick()
            bench.play()
            for name, run in recorded.items():
                answer_form(bench, SCENES[name], run)
            if all(run.row["finished_at"] for run in recorded.values()):
                break
        before = recorded[CONVERSATION]
        drawn = (before.row["canvas_id"], before.row["version_id"])
        after = bench.start(
            drawn=drawn, tenant_id=before.row["tenant_id"], conversation_id=before.conversation_id, query=NEXT_QUERY
        )
        bench.play()
    return {name: results_of(run) for name, run in {**recorded, NEXT_TURN: after}.items()}


def answer_form(bench: Bench, scene: Scene, run: Run) -> None:
    """Answer the form of a waiting run with the scene's next answer."""
    row = run.row
    if row["status"] != "waiting" or not scene.answers:
        return
    answered = run.event_names.count("user_inputs") - 1
    try:
        bench.lifecycle.resume_run(row["tenant_id"], run.id, RunRequest(query=scene.answers[answered]))
    except Conflict as error:
        raise AssertionError(f"{run.id} takes no answer: {error}") from error
    bench.play()


def results_of(run: Run) -> dict[str, Any]:
    """Return the results of a run that its user and its author may rely on."""
    events = run.events
    assert [event.number for event in events] == list(range(1, len(events) + 1)), "a gap among its events"
    return {
        "status": run.status,
        "error": run.row["error"],
        "said": run.text,
        "told": sorted(f"{event.name} {event.node_id or ''}".strip() for event in events),
        "left": {node: run.outputs(node) for node in sorted(run.statuses)},
        "activations": sorted({row.status for row in run.activations}),
    }


def recorded_run(bench: Bench, run_id: UUID) -> Run:
    """Return a recorded run by its id."""
    with bench.database.transaction() as tx:
        row = tx.one_or_none(run_rows.READ, of_run=run_id)
    assert row is not None
    return Run(bench, Started(run_id, row["conversation_id"], row["message_id"], after=0))
