"""What runs do in a schedule: canvases and scripts, each with what its run comes to if nobody disturbs it."""

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
from tests.builders import At, canvas_of, chose, failed, says, script_of, usual
from tests.canvases_at_random import story_at_random
from tests.player import Player, seeded

FEWEST, MOST = 3, 7  # activations of a run
DRAWN = 48
_MENTION = re.compile(r"\{(\w+)@\w+\}")

Script = Callable[[At], Outcome]


@dataclass(frozen=True, eq=False)
class Play:
    """A canvas, what its nodes do, and how its run ends undisturbed."""

    name: str
    canvas: Canvas
    script: Script
    status: RunStatus
    places: dict[tuple[str, str, int], str]
    spoken: list[tuple[str, str, int]]

    @property
    def document(self) -> Document:
        """What a run's globals are taken from: this one has none."""
        return Document(entries={}, raw={})

    def text(self, node_id: str, scope: ScopeKey) -> str:
        """What a speaking node says: a Message what it mentions, a model something of its own."""
        node = self.canvas.node(node_id)
        if node.kind is not NodeKind.MESSAGE:
            return f"({node_id} says, in {scope_text(scope) or 'the open'}, a thing)"
        template = str((node.params.get("content") or ["text"])[0])
        whole = _MENTION.sub(lambda found: self.text(found[1], scope), template)
        return f"{whole}; {node_id} {scope_text(scope)}"


def play_of(name: str, canvas: Canvas, script: Script) -> Play:
    """A play, with what it comes to."""
    player = Player(canvas, script, seeded(0)).play_out()
    rows = player.rows.values()
    key = {row.id: (row.node, scope_text(row.scope), row.ordinal) for row in rows}
    return Play(
        name,
        canvas,
        script,
        player.status,
        {key[row.id]: row.place.key.hex() for row in rows},
        [key[turn] for turn in player.spoken_streams],
    )


def _by_hand() -> list[Play]:
    """Shapes that chance draws too rarely."""

    def back_twice(at: At) -> Outcome:
        return chose("work" if at.visit < 2 else "say")

    circle = canvas_of("begin -> work -> aside, pick; pick -> work, say", "begin -> beside -> say")
    return [
        play_of("a chain", canvas_of("begin -> one -> two -> say", say=says("done")), usual),
        play_of("a fan", canvas_of("begin -> a, b, c, d; a, b, c, d -> say"), usual),
        play_of("a form beside work", canvas_of("begin -> form, work; form, work -> say"), usual),
        play_of("a circle", circle, script_of(pick=back_twice)),
        play_of("speakers", canvas_of("begin -> model1, model2; model1 -> say1; model2 -> say2"), usual),
        play_of("a failure", canvas_of("begin -> a, b; a -> say; b -> c"), script_of(b=failed("broken"))),
        play_of("items", canvas_of("begin -> each -> say", "each: item -> ask -> model", each=_at_once(2)), usual),
        play_of("a message behind a form", canvas_of("begin -> form -> say1; begin -> model -> say2"), usual),
    ]


def _at_once(number: int) -> dict[str, Any]:
    return {"max_concurrency": number}


@cache
def plays() -> tuple[Play, ...]:
    """Every play there is. A number names the same one in every process."""
    made = _by_hand()
    seed = 0
    while len(made) < DRAWN:
        seed += 1
        fatal = 4 if seed % 3 == 0 else 0
        story = story_at_random(seeded(seed), fatal=fatal, forms=seed % 2 == 0, circles=seed % 4 == 1)
        play = play_of(f"drawn {seed}", story.canvas, story.script)
        if FEWEST <= len(play.places) <= MOST:
            made.append(play)
    wide = canvas_of("begin -> a, b, c, d, e, f, g, h; a, b, c, d, e, f, g, h -> say", say=says("done"))
    made.append(play_of("a wide fan", wide, usual))
    made.append(
        play_of("items at once", canvas_of("begin -> each -> say", "each: item -> ask", each=_at_once(6)), usual)
    )
    return tuple(made)


def named(identity: UUID) -> Play:
    """The play that a version id names."""
    return plays()[identity.int & 0xFFFF]
