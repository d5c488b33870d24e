"""Limits of a run and of a canvas, and the errors that name what exceeds them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import parsing
from canvas.errors import InvalidCanvas
from canvas.routing import decide
from canvas.routing.decision_builder import TOO_MANY
from canvas.state.checkpoint import fill_run, run_to_json
from canvas.state.run_state import RunState, RunStatus
from tests.builders import RUN_ID, canvas_of, default, goto, items, rounds, routed_to, script_of, seeded_random
from tests.canvases_at_random import CanvasCase, random_cases
from tests.player import Player

BODY = "loop: visit -> work"


def test_endless_loop_fails_at_the_activation_limit_and_names_the_next_node():
    canvas = canvas_of("begin -> loop -> say", BODY)

    player = Player(canvas, script_of(visit=rounds(10**9)), max_activations=21).play()

    assert player.status is RunStatus.FAILED
    assert len(player.rows) == 21
    assert player.error == (
        'Node "work" (work) would be activation 22 of this run, and 21 are allowed. '
        "End the cycle or shorten the list that leads here, or raise EASEL_MAX_ACTIVATIONS."
    )


def test_iteration_over_too_long_a_list_fails_before_its_first_item():
    canvas = canvas_of("begin -> each -> say", "each: item -> work")

    player = Player(canvas, script_of(each=items(10**7)), max_activations=100_000).play()

    assert player.error.startswith('Node "item" (item) would be activation 20000003 of this run, and 100000 are')
    assert player.reported_nodes == ["begin", "each"]


@pytest.mark.parametrize(("number", "limit"), [(400, 500), (125, 500), (124, 500)])
def test_iteration_whose_items_exceed_the_limit_fails_before_its_first_item(number: int, limit: int):
    """Each item is a visit and three nodes; nodes that a router may skip are not counted."""
    canvas = canvas_of("begin -> each -> say", "each: item -> work, aside; work, aside -> pick; pick -> more, other")
    script = script_of(each=items(number), pick=routed_to("more"))

    player = Player(canvas, script, max_activations=limit).play()

    fits = 4 * number + 3 <= limit
    assert ("each" in player.reported_nodes, "work" in player.reported_nodes) == (True, fits)
    assert "would be activation" in player.error


@pytest.mark.parametrize("at_once", [1, 4])
def test_nested_loops_share_the_activation_limit_of_the_run(at_once: int):
    canvas = canvas_of("begin -> each -> say", "each: item -> loop", BODY)
    script = script_of(each=items(100, at_once=at_once), visit=rounds(1000))

    player = Player(canvas, script, max_activations=300).play()

    assert player.status is RunStatus.FAILED
    assert "300 are allowed" in player.error
    assert len(player.rows) == 300


def test_goto_and_default_do_not_catch_the_activation_limit():
    canvas = canvas_of("begin -> loop -> say", "begin -> after", BODY, work=goto("after"), loop=default("never mind"))

    player = Player(canvas, script_of(visit=rounds(10**9)), max_activations=9).play()

    assert (player.status, player.texts) == (RunStatus.FAILED, {})
    assert player.failure == (-1, player.error.split('"')[1])


def test_run_that_needs_exactly_the_activation_limit_succeeds():
    canvas = canvas_of("begin -> loop -> say", BODY)
    script = script_of(visit=rounds(3))
    needed = len(Player(canvas, script).play().rows)

    assert Player(canvas, script, max_activations=needed).play().status is RunStatus.SUCCEEDED
    assert Player(canvas, script, max_activations=needed - 1).play().status is RunStatus.FAILED


def test_run_stored_without_an_activation_limit_is_not_limited():
    canvas = canvas_of("begin -> say")
    state = decide.begin(canvas, RunState(RUN_ID, RunStatus.RUNNING, max_activations=1), None).run
    stored = run_to_json(state)
    assert (stored.pop("max_activations"), stored.pop("activated")) == (1, 1)

    old = fill_run(RunState(RUN_ID, RunStatus.RUNNING), stored)

    assert (old.max_activations, old.activation_count) == (0, 0)


@given(random_cases(), st.integers(1, 25), st.integers(0, 9999))
def test_every_run_of_a_random_canvas_ends_within_its_activation_limit(story: CanvasCase, limit: int, seed: int):
    player = Player(story.canvas, story.script, seeded_random(seed), max_activations=limit).play_and_answer()

    assert len(player.rows) <= limit
    assert player.status is RunStatus.FAILED or TOO_MANY not in player.run_json


# -- canvases --------------------------------------------------------------------------------------------------------
def document_of_size(nodes: int, *, edges: int = 0) -> dict[str, object]:
    """Return a document with this many nodes and edges."""
    names = ["begin", *(f"n{number}" for number in range(1, nodes))]
    components: dict[str, object] = {}
    for name in names:
        targets = names[1 : 1 + min(edges, nodes - 1)]
        edges -= len(targets)
        components[name] = {"obj": {"component_name": "Begin", "params": {}}, "downstream": targets}
    return {"components": components}


def test_canvas_with_too_many_nodes_is_refused_when_it_is_parsed():
    with pytest.raises(InvalidCanvas, match="has 5001 nodes, and 5000 are allowed"):
        parsing.parse(document_of_size(5001))

    assert len(parsing.parse(document_of_size(5000)).entries) == 5000


def test_canvas_with_too_many_edges_is_refused_when_it_is_parsed():
    with pytest.raises(InvalidCanvas, match="has 50001 edges, and 50000 are allowed"):
        parsing.parse(document_of_size(300, edges=50_001))
