"""What cannot have run yet is not read by surprise: the author hears of it before the run does."""

from collections.abc import Sequence

import pytest

from canvas.document.document import Document
from canvas.validation import check
from tests.builders import Params, document_of, goto, says

Told = Sequence[tuple[str, str | None, str | None]]


def foreseen(document: Document) -> Told:
    """What follows from the order of the nodes: (code, node, field)."""
    errors, suspicions = check.check(document)
    assert errors == []
    codes = {"reads_nothing", "never_said", "never_called"}
    return [(found.code, found.node, found.field) for found in suspicions if found.code in codes]


def test_a_node_that_runs_later_has_nothing_to_read():
    document = document_of("begin -> say -> step", say=says("{step@result}"))

    assert foreseen(document) == [("reads_nothing", "say", "content[0]")]


def test_a_node_on_another_branch_may_have_run():
    document = document_of("begin -> say, step; step -> last", say=says("{step@result} {last@result}"))

    assert foreseen(document) == []


def test_a_node_that_never_runs_has_nothing_to_read():
    document = document_of("begin -> say", "step", say=says("{step@result}"))

    assert foreseen(document) == [("reads_nothing", "say", "content[0]")]


def test_what_never_runs_reads_whatever_it_likes():
    document = document_of("begin -> step", "say", say=says("{say@content}"))

    assert foreseen(document) == []


def test_a_node_cannot_read_its_own_output_the_first_time_it_runs():
    document = document_of("begin -> step", step={"script": "{step@result}"})

    assert foreseen(document) == [("reads_nothing", "step", "script")]


@pytest.mark.parametrize("target", ["say", "pick"])
def test_in_a_cycle_everybody_may_have_run(target: str):
    document = document_of("begin -> say -> pick; pick -> say, out", say=says(f"{{{target}@content}}"))

    assert foreseen(document) == []


def test_a_pass_sees_what_earlier_passes_have_left():
    document = document_of("begin -> loop", "loop: visit -> say -> step", say=says("{step@result} {say@content}"))

    assert foreseen(document) == []


def test_a_body_does_not_see_what_comes_after_its_container():
    document = document_of("begin -> loop -> step", "loop: visit -> say", say=says("{step@result} {loop@n}"))

    assert foreseen(document) == [("reads_nothing", "say", "content[0]")]


def test_a_way_out_after_a_failure_leads_to_what_runs_later():
    document = document_of("begin -> step -> say", "rescue", step={**goto("rescue"), "script": "{rescue@result}"})

    assert foreseen(document) == [("reads_nothing", "step", "script")]


def test_output_set_by_an_assigner_is_never_reported_as_unset():
    assigner: Params = {"variables": [{"variable": "step@result", "operator": "set", "parameter": "x"}]}
    document = document_of("begin -> write -> say -> step", say=says("{step@result}"))
    write = document.entries["write"]
    entries = {**document.entries, "write": type(write)("write", "VariableAssigner", assigner, ("say",))}

    assert foreseen(Document(entries=entries, raw={})) == []


def test_an_alternative_that_can_never_be_taken_is_told_by_its_place():
    document = document_of(
        "begin -> say -> step", say={"content": ["plain", "{step@result} {step@other}", "{begin@x}"]}
    )

    assert foreseen(document) == [("never_said", "say", "content[1]")]


def test_if_no_alternative_can_be_taken_each_is_told_what_it_reads():
    document = document_of("begin -> say -> step", say={"content": ["{step@result}", "{step@other}"]})

    assert foreseen(document) == [("reads_nothing", "say", "content[0]"), ("reads_nothing", "say", "content[1]")]


def test_a_model_before_a_message_that_does_not_listen_is_never_called():
    deaf = document_of("begin -> model -> say", say=says("Done."))
    listening = document_of("begin -> model -> say", say=says("{model@content}"))
    elsewhere = document_of("begin -> model -> say -> step", say=says("Done."), step={"script": "{model@content}"})

    assert foreseen(deaf) == [("never_called", "model", None)]
    assert foreseen(listening) == []
    assert foreseen(elsewhere) == []
