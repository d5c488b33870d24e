"""Scenarios of schedules: a canvas and its script, with the result of its run without faults."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from canvas.document.document import Document
from canvas.graph.canvas import Canvas, NodeKind
from canvas.outcome import Outcome
from canvas.state.run_state import RunStatus, ScopeKey, scope_text
from tests.builders import NodeAttempt, canvas_of, content, default_outcome, failed, routed_to, script_of
from tests.canvases_at_random import random_case
from tests.player import Player, seeded_random

MIN_ACTIVATIONS, MAX_ACTIVATIONS = 3, 7  # activations of a run
GENERATED = 48
_MENTION = re.compile(r"\{(\w+)@\w+\}")

Script = Callable[[NodeAttempt], Outcome]


@dataclass(frozen=True, eq=False)
class Scenario:
    """A canvas, the script of its nodes, and the result of its run without faults."""

    name: str
    canvas: Canvas
    script: Script
    status: RunStatus
    order_keys: dict[tuple[str, str, int], str]
    message_order: list[tuple[str, str, int]]

    @property
    def document(self) -> Document:
        """The document of the canvas, without globals."""
        return Document(entries={}, raw={})

    def text(self, node_id: str, scope: ScopeKey) -> str:
        """Return the text that a node streams: a Message the texts that it references, a model its own."""
        node = self.canvas.node(node_id)
        if node.kind is not NodeKind.MESSAGE:
            return f"({node_id} says, in {scope_text(scope) or 'the open'}, a thing)"
        template = str((node.params.get("content") or ["text"])[0])
        whole = _MENTION.sub(lambda found: self.text(found[1], scope), template)
        return f"{whole}; {node_id} {scope_text(scope)}"


def make_scenario(name: str, canvas: Canvas, script: Script) -> Scenario:
    """Make a scenario, with the result that the player computes."""
    player = Player(canvas, script, seeded_random(0)).play_and_answer()
    rows = player.rows.values()
    key = {row.id: (row.node, scope_text(row.scope), row.ordinal) for row in rows}
    return Scenario(
        name,
        canvas,
        script,
        player.status,
        {key[row.id]: row.order_key.key.hex() for row in rows},
        [key[stream] for stream in player.ended_streams],
    )


def _handwritten() -> list[Scenario]:
    """Scenarios that are generated too rarely."""

    def back_twice(at: NodeAttempt) -> Outcome:
        return routed_to("work" if at.visit < 2 else "say")

    circle = canvas_of("begin -> work -> aside, pick; pick -> work, say", "begin -> beside -> say")
    return [
        make_scenario("a chain", canvas_of("begin -> one -> two -> say", say=content("done")), default_outcome),
        make_scenario("a fan", canvas_of("begin -> a, b, c, d; a, b, c, d -> say"), default_outcome),
        make_scenario("a form beside work", canvas_of("begin -> form, work; form, work -> say"), default_outcome),
        make_scenario("a circle", circle, script_of(pick=back_twice)),
        make_scenario(
            "speakers", canvas_of("begin -> model1, model2; model1 -> say1; model2 -> say2"), default_outcome
        ),
        make_scenario("a failure", canvas_of("begin -> a, b; a -> say; b -> c"), script_of(b=failed("broken"))),
        make_scenario(
            "items",
            canvas_of("begin -> each -> say", "each: item -> ask -> model", each=_max_concurrency(2)),
            default_outcome,
        ),
        make_scenario(
            "a message behind a form", canvas_of("begin -> form -> say1; begin -> model -> say2"), default_outcome
        ),
    ]


def _max_concurrency(number: int) -> dict[str, Any]:
    return {"max_concurrency": number}


@cache
def scenarios() -> tuple[Scenario, ...]:
    """Return all scenarios, in the same order in every process."""
    result = _handwritten()
    seed = 0
    while len(result) < GENERATED:
        seed += 1
        fatal = 4 if seed % 3 == 0 else 0
        case = random_case(seeded_random(seed), fatal=fatal, forms=seed % 2 == 0, cycles=seed % 4 == 1)
        scenario = make_scenario(f"drawn {seed}", case.canvas, case.script)
        if MIN_ACTIVATIONS <= len(scenario.order_keys) <= MAX_ACTIVATIONS:
            result.append(scenario)
    wide = canvas_of("begin -> a, b, c, d, e, f, g, h; a, b, c, d, e, f, g, h -> say", say=content("done"))
    result.append(make_scenario("a wide fan", wide, default_outcome))
    result.append(
        make_scenario(
            "items at once",
            canvas_of("begin -> each -> say", "each: item -> ask", each=_max_concurrency(6)),
            default_outcome,
        )
    )
    return tuple(result)


def scenario_of(identity: UUID) -> Scenario:
    """Return the scenario of a version id."""
    return scenarios()[identity.int & 0xFFFF]
