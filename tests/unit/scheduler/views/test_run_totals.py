"""Totals of runs: edges by the outcomes, held against the edges that routing follows."""

from collections import Counter
from collections.abc import Sequence
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.graph.canvas import Canvas, Node
from canvas.outcome import Routed
from canvas.routing.decision_builder import DecisionBuilder
from canvas.state.order_key import OrderKey
from canvas.state.run_state import ActivationStatus, RunStatus, Scope
from scheduler.views.run_totals import edge_counts
from store.monitoring.node_counts import NodeOutcomes
from store.primitives.outcome_codec import STORED_NAMES
from tests.builders import canvas_of, default, goto, seeded_random
from tests.canvases_at_random import CanvasCase, random_cases
from tests.player import Player

follow_edges = DecisionBuilder.follow_edges


def outcomes_of(player: Player) -> list[NodeOutcomes]:
    """Return the outcomes of the finished activations of a run, one by one."""
    return [
        NodeOutcomes(
            row.node, STORED_NAMES[type(row.outcome)], row.outcome.to if isinstance(row.outcome, Routed) else (), 1
        )
        for row in player.rows.values()
        if row.status is ActivationStatus.DONE and row.outcome is not None
    ]


@settings(deadline=None, max_examples=60)
@given(random_cases(), st.integers(0, 9999))
def test_counted_edges_are_those_that_routing_has_followed(story: CanvasCase, seed: int) -> None:
    followed = Counter[str]()

    def count(self: DecisionBuilder, source: Node, targets: Sequence[int], scope: Scope, order_key: OrderKey) -> None:
        followed.update(f"{source.id}>{self.canvas.nodes[target].id}" for target in targets)
        follow_edges(self, source, targets, scope, order_key)

    with patch.object(DecisionBuilder, "follow_edges", count):
        player = Player(story.canvas, story.script, seeded_random(seed)).play_and_answer()

    if player.status is RunStatus.SUCCEEDED and not _ends_without_successors(story.canvas, player):
        assert edge_counts(story.canvas, outcomes_of(player)) == followed


def _ends_without_successors(canvas: Canvas, player: Player) -> bool:
    """Whether a container may have ended without following its edges, since an edge led out of its body."""
    return bool(canvas.containers_with_escaping_edges) and bool(player.rows)


def outcome(node: str, kind: str = "Finished", to: Sequence[str] = (), number: int = 1) -> NodeOutcomes:
    return NodeOutcomes(node, kind, to, number)


def test_router_leads_to_the_nodes_that_it_chose() -> None:
    canvas = canvas_of("switch -> one, two")

    edges = edge_counts(canvas, [outcome("switch", "Chose", ["one"], 3), outcome("switch", "Chose", ["one", "two"])])

    assert edges == {"switch>one": 4, "switch>two": 1}


def test_failure_leads_to_its_goto_or_where_its_default_value_goes() -> None:
    canvas = canvas_of(
        "begin -> plain, jumps, defaults -> after; rescue -> after", jumps=goto("rescue"), defaults=default("sorry")
    )

    edges = edge_counts(canvas, [outcome(node, "Failed") for node in ("plain", "jumps", "defaults")])

    assert edges == {"jumps>rescue": 1, "defaults>after": 1}


def test_item_visit_that_ends_its_container_follows_no_edge() -> None:
    canvas = canvas_of("begin -> each -> say", "each: item -> work")

    edges = edge_counts(
        canvas, [outcome("item", "Repeated", number=2), outcome("item", "Left"), outcome("each", "Expanded")]
    )

    assert edges == {"each>say": 1, "item>work": 2}


def test_node_that_the_canvas_does_not_have_is_left_out() -> None:
    assert edge_counts(canvas_of("begin -> say"), [outcome("gone")]) == {}
