"""The read set of a node, computed from its parameters."""

from typing import Any

import pytest

from canvas.graph import parallel_items
from tests.builders import canvas_of, content
from worker.context.read_set import IMPLICIT_GLOBALS, ReadSet, compute_read_set


def test_a_node_reads_itself_and_what_its_texts_refer_to():
    read_set = reads(
        "begin -> one -> work", work={"script": "{one@result} and {env.count}", "nested": [{"ref": "one@n"}]}
    )

    assert read_set.nodes == {"work", "one"}
    assert {"one@result", "one@n", "env.count"} <= read_set.names
    assert read_set.mentions == {"one"}


def test_unknown_nodes_are_not_read():
    assert reads("begin -> work", work={"script": "{Ghost:0@result}"}).nodes == {"work"}


def test_model_node_reads_query_and_files_implicitly():
    assert reads("begin -> model", of="model").names >= IMPLICIT_GLOBALS
    assert not reads("begin -> work").names & IMPLICIT_GLOBALS


def test_streaming_model_reads_what_its_message_refers_to():
    read_set = reads("begin -> one -> model -> say", of="model", say=content("{one@result} {model@content}"))

    assert "one" in read_set.nodes
    assert read_set.mentions == set()


def test_a_node_in_a_body_reads_its_containers_item():
    read_set = reads("begin -> each", "each: item -> work", work={"script": "{item}"})

    assert "item" in read_set.nodes


def test_a_node_in_a_loop_reads_the_loops_variables():
    variables = [{"variable": "count", "type": "number"}]
    read_set = reads("begin -> loop", "loop: visit -> work", loop={"loop_variables": variables})

    assert {"loop", "visit"} <= read_set.nodes
    assert "loop@count" in read_set.names


def test_an_item_node_reads_what_its_container_iterates_over_and_collects():
    outputs = {"all": {"ref": "work@result"}}
    read_set = reads(
        "begin -> list -> each", "each: item -> work", of="item", each={"items_ref": "list@result", "outputs": outputs}
    )

    assert {"list", "each", "item"} <= read_set.nodes
    assert read_set.collects == {"each": {"all": ("work", "result")}}
    assert read_set.items == {"list", "list@result"}


def test_list_may_be_the_item_of_the_outer_iteration():
    parts = ("begin -> eacho", "eacho: itemo -> each", "each: item -> work")

    assert reads(*parts, of="item", each={"items_ref": "{item}"}).items == {"itemo", "itemo@item"}


def test_list_may_be_a_variable():
    assert reads("begin -> each", "each: item -> work", of="item", each={"items_ref": "{env.x}"}).items == {"env.x"}


def test_body_node_that_reads_results_reads_their_sources():
    parts = ("begin -> each", "each: item -> work -> loop", "loop: visit -> late")
    each = {"outputs": {"all": {"ref": "work@result"}}}
    watching = {"script": "{each@all}"}

    assert reads(*parts, of="work", each=each, work=watching).collects == {"each": {"all": ("work", "result")}}
    assert reads(*parts, of="late", each=each, late=watching).collects == {"each": {"all": ("work", "result")}}
    assert reads(*parts, of="work", each=each).collects == {}


def test_results_of_parallel_items_are_not_read_while_they_are_collected():
    each = {"outputs": {"all": {"ref": "work@result"}}, "max_concurrency": 2}

    assert reads("begin -> each", "each: item -> work", each=each, work={"script": "{each@all}"}).collects == {}


def test_node_in_overlapping_items_does_not_read_its_own_outputs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parallel_items, "AT_ONCE", 8)
    parts = ("begin -> each", "each: item -> work")

    assert "work" not in reads(*parts).nodes
    assert "work" in reads(*parts, each={"max_concurrency": 1}).nodes


def test_only_the_item_node_reads_what_its_container_refers_to():
    parts, each = ("begin -> list -> each", "each: item -> work"), {"items_ref": "list@result"}

    assert "list" in reads(*parts, of="item", each=each).nodes
    assert "list" not in reads(*parts, of="work", each=each).nodes
    assert "each" not in reads(*parts, of="work", each=each).nodes


def test_history_and_files_are_read_only_where_referred_to():
    using = reads("begin -> work", work={"script": "{sys.history} {sys.files}"})
    not_using = reads("begin -> work", work={"script": "{sys.query}"})

    assert (using.uses_history, using.uses_files) == (True, True)
    assert (not_using.uses_history, not_using.uses_files) == (False, False)


def test_an_output_that_others_may_assign_is_read_by_its_owner():
    assert "work@total" in reads("begin -> work", work={"outputs": {"total": {"value": 0}}}).names


def reads(*parts: str, of: str = "work", **params: Any) -> ReadSet:
    canvas = canvas_of(*parts, **params)
    return compute_read_set(canvas, canvas.node(of))
