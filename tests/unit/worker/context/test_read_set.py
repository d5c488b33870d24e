"""What a node may look up, worked out from its parameters alone."""

from typing import Any

import pytest

from canvas.graph import parallel_items
from tests.builders import canvas_of, says
from worker.context.read_set import IMPLICIT_GLOBALS, ReadSet, compute_read_set


def test_a_node_reads_itself_and_what_its_texts_refer_to():
    found = reads("begin -> one -> work", work={"script": "{one@result} and {env.count}", "nested": [{"ref": "one@n"}]})

    assert found.nodes == {"work", "one"}
    assert {"one@result", "one@n", "env.count"} <= found.names
    assert found.mentions == {"one"}


def test_unknown_nodes_are_not_read():
    assert reads("begin -> work", work={"script": "{Ghost:0@result}"}).nodes == {"work"}


def test_model_node_reads_query_and_files_implicitly():
    assert reads("begin -> model", of="model").names >= IMPLICIT_GLOBALS
    assert not reads("begin -> work").names & IMPLICIT_GLOBALS


def test_streaming_model_reads_what_its_message_refers_to():
    found = reads("begin -> one -> model -> say", of="model", say=says("{one@result} {model@content}"))

    assert "one" in found.nodes
    assert found.mentions == set()


def test_a_node_in_a_body_reads_its_containers_item():
    found = reads("begin -> each", "each: item -> work", work={"script": "{item}"})

    assert "item" in found.nodes


def test_a_node_in_a_loop_reads_the_loops_variables():
    variables = [{"variable": "count", "type": "number"}]
    found = reads("begin -> loop", "loop: visit -> work", loop={"loop_variables": variables})

    assert {"loop", "visit"} <= found.nodes
    assert "loop@count" in found.names


def test_an_item_node_reads_what_its_container_iterates_over_and_collects():
    outputs = {"all": {"ref": "work@result"}}
    found = reads(
        "begin -> list -> each", "each: item -> work", of="item", each={"items_ref": "list@result", "outputs": outputs}
    )

    assert {"list", "each", "item"} <= found.nodes
    assert found.collects == {"each": {"all": ("work", "result")}}
    assert found.items == {"list", "list@result"}


def test_a_list_may_be_the_item_of_the_iteration_around():
    parts = ("begin -> eacho", "eacho: itemo -> each", "each: item -> work")

    assert reads(*parts, of="item", each={"items_ref": "{item}"}).items == {"itemo", "itemo@item"}


def test_a_list_may_lie_in_a_variable():
    assert reads("begin -> each", "each: item -> work", of="item", each={"items_ref": "{env.x}"}).items == {"env.x"}


def test_body_node_that_reads_results_reads_their_sources():
    parts = ("begin -> each", "each: item -> work -> loop", "loop: visit -> late")
    each = {"outputs": {"all": {"ref": "work@result"}}}
    watching = {"script": "{each@all}"}

    assert reads(*parts, of="work", each=each, work=watching).collects == {"each": {"all": ("work", "result")}}
    assert reads(*parts, of="late", each=each, late=watching).collects == {"each": {"all": ("work", "result")}}
    assert reads(*parts, of="work", each=each).collects == {}


def test_results_of_parallel_items_are_not_read_while_they_grow():
    each = {"outputs": {"all": {"ref": "work@result"}}, "max_concurrency": 2}

    assert reads("begin -> each", "each: item -> work", each=each, work={"script": "{each@all}"}).collects == {}


def test_node_in_overlapping_items_does_not_read_its_own_outputs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parallel_items, "AT_ONCE", 8)
    parts = ("begin -> each", "each: item -> work")

    assert "work" not in reads(*parts).nodes
    assert "work" in reads(*parts, each={"max_concurrency": 1}).nodes


def test_history_and_files_are_read_only_where_referred_to():
    looks = reads("begin -> work", work={"script": "{sys.history} {sys.files}"})
    does_not = reads("begin -> work", work={"script": "{sys.query}"})

    assert (looks.uses_history, looks.uses_files) == (True, True)
    assert (does_not.uses_history, does_not.uses_files) == (False, False)


def test_an_output_that_others_may_assign_is_read_by_its_owner():
    assert "work@total" in reads("begin -> work", work={"outputs": {"total": {"value": 0}}}).names


def reads(*parts: str, of: str = "work", **params: Any) -> ReadSet:
    canvas = canvas_of(*parts, **params)
    return compute_read_set(canvas, canvas.node(of))
