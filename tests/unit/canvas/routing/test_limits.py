"""A run that has no end meets a limit, which says what would go beyond it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import parsing
from canvas.errors import InvalidCanvas
from canvas.routing import decide
from canvas.routing.decision_builder import TOO_MANY
from canvas.state.checkpoint import fill_run, run_to_json
from canvas.state.run_state import RunState, RunStatus
from tests.builders import RUN_ID, canvas_of, chose, default, goto, items, rounds, script_of, seeded
from tests.canvases_at_random import Story, stories
from tests.player import Player

BODY = "loop: visit -> work"


def test_a_loop_without_end_fails_at_its_limit_and_names_what_would_go_beyond_it():
    canvas = canvas_of("begin -> loop -> say", BODY)

    player = Player(canvas, script_of(visit=rounds(10**9)), max_activations=21).play()

    assert player.status is RunStatus.FAILED
    assert len(player.rows) == 21
    assert player.error == (
        'Node "work" (work) would be activation 22 of this run, and 21 are allowed. '
        "End the cycle or shorten the list that leads here, or raise EASEL_MAX_ACTIVATIONS."
    )


def test_a_list_that_is_too_long_fails_before_its_first_item():
    canvas = canvas_of("begin -> each -> say", "each: item -> work")

    player = Player(canvas, script_of(each=items(10**7)), max_activations=100_000).play()

    assert player.error.startswith('Node "item" (item) would be activation 20000003 of this run, and 100000 are')
    assert player.ran == ["begin", "each"]


@pytest.mark.parametrize(("number", "most"), [(400, 500), (125, 500), (124, 500)])
def test_a_list_whose_items_cannot_all_fit_fails_before_its_first_item(number: int, most: int):
    """Each item is a visit and three nodes; what may be chosen or not is not counted."""
    canvas = canvas_of("begin -> each -> say", "each: item -> work, aside; work, aside -> pick; pick -> more, other")
    script = script_of(each=items(number), pick=chose("more"))

    player = Player(canvas, script, max_activations=most).play()

    fits = 4 * number + 3 <= most
    assert ("each" in player.ran, "work" in player.ran) == (True, fits)
    assert "would be activation" in player.error


@pytest.mark.parametrize("at_once", [1, 4])
def test_loops_inside_loops_meet_the_limit_of_the_run_together(at_once: int):
    canvas = canvas_of("begin -> each -> say", "each: item -> loop", BODY)
    script = script_of(each=items(100, at_once=at_once), visit=rounds(1000))

    player = Player(canvas, script, max_activations=300).play()

    assert player.status is RunStatus.FAILED
    assert "300 are allowed" in player.error
    assert len(player.rows) == 300


def test_what_catches_failures_of_a_node_does_not_catch_the_limit():
    canvas = canvas_of("begin -> loop -> say", "begin -> after", BODY, work=goto("after"), loop=default("never mind"))

    player = Player(canvas, script_of(visit=rounds(10**9)), max_activations=9).play()

    assert (player.status, player.texts) == (RunStatus.FAILED, {})
    assert player.failing == (-1, player.error.split('"')[1])


def test_a_run_that_needs_just_what_it_may_succeeds():
    canvas = canvas_of("begin -> loop -> say", BODY)
    script = script_of(visit=rounds(3))
    needed = len(Player(canvas, script).play().rows)

    assert Player(canvas, script, max_activations=needed).play().status is RunStatus.SUCCEEDED
    assert Player(canvas, script, max_activations=needed - 1).play().status is RunStatus.FAILED


def test_a_run_that_was_begun_before_there_was_a_limit_has_none():
    canvas = canvas_of("begin -> say")
    begun = decide.begin(canvas, RunState(RUN_ID, RunStatus.RUNNING, max_activations=1), None).run
    stored = run_to_json(begun)
    assert (stored.pop("max_activations"), stored.pop("activated")) == (1, 1)

    old = fill_run(RunState(RUN_ID, RunStatus.RUNNING), stored)

    assert (old.max_activations, old.activation_count) == (0, 0)


@given(stories(), st.integers(1, 25), st.integers(0, 9999))
def test_whatever_is_drawn_no_run_goes_beyond_its_limit_and_every_run_ends(story: Story, most: int, seed: int):
    player = Player(story.canvas, story.script, seeded(seed), max_activations=most).play_out()

    assert len(player.rows) <= most
    assert player.status is RunStatus.FAILED or TOO_MANY not in player.run_json


# -- canvases --------------------------------------------------------------------------------------------------------
def drawn(nodes: int, *, edges: int = 0) -> dict[str, object]:
    """A document of so many nodes, the first of which lead to all others as long as there are edges left."""
    names = ["begin", *(f"n{number}" for number in range(1, nodes))]
    components: dict[str, object] = {}
    for name in names:
        targets = names[1 : 1 + min(edges, nodes - 1)]
        edges -= len(targets)
        components[name] = {"obj": {"component_name": "Begin", "params": {}}, "downstream": targets}
    return {"components": components}


def test_a_canvas_of_too_many_nodes_is_refused_before_anybody_works_out_what_it_does():
    with pytest.raises(InvalidCanvas, match="has 5001 nodes, and 5000 are allowed"):
        parsing.parse(drawn(5001))

    assert len(parsing.parse(drawn(5000)).entries) == 5000


def test_a_canvas_of_too_many_edges_is_refused():
    with pytest.raises(InvalidCanvas, match="has 50001 edges, and 50000 are allowed"):
        parsing.parse(drawn(300, edges=50_001))
