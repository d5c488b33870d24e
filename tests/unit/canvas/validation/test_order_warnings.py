"""Warnings about references to nodes that cannot have run yet, found before the run."""

from collections.abc import Sequence

import pytest

from canvas.document.document import Document
from canvas.validation import check
from tests.builders import Params, content, document_of, goto

FindingList = Sequence[tuple[str, str | None, str | None]]


def order_findings(document: Document) -> FindingList:
    """Return the findings about the order of the nodes: (code, node, field)."""
    errors, warnings = check.check(document)
    assert errors == []
    codes = {"reads_nothing", "never_said", "never_called"}
    return [(found.code, found.node, found.field) for found in warnings if found.code in codes]


def test_reference_to_a_node_that_runs_later_is_a_warning():
    document = document_of("begin -> say -> step", say=content("{step@result}"))

    assert order_findings(document) == [("reads_nothing", "say", "content[0]")]


def test_reference_to_a_node_on_another_branch_has_no_warning():
    document = document_of("begin -> say, step; step -> last", say=content("{step@result} {last@result}"))

    assert order_findings(document) == []


def test_reference_to_a_node_that_never_runs_is_a_warning():
    document = document_of("begin -> say", "step", say=content("{step@result}"))

    assert order_findings(document) == [("reads_nothing", "say", "content[0]")]


def test_references_of_a_node_that_never_runs_have_no_warning():
    document = document_of("begin -> step", "say", say=content("{say@content}"))

    assert order_findings(document) == []


def test_reference_of_a_node_to_its_own_output_is_a_warning():
    document = document_of("begin -> step", step={"script": "{step@result}"})

    assert order_findings(document) == [("reads_nothing", "step", "script")]


@pytest.mark.parametrize("target", ["say", "pick"])
def test_reference_within_a_cycle_has_no_warning(target: str):
    document = document_of("begin -> say -> pick; pick -> say, out", say=content(f"{{{target}@content}}"))

    assert order_findings(document) == []


def test_reference_to_a_later_node_in_a_loop_body_has_no_warning():
    document = document_of("begin -> loop", "loop: visit -> say -> step", say=content("{step@result} {say@content}"))

    assert order_findings(document) == []


def test_reference_from_a_body_to_a_node_after_its_container_is_a_warning():
    document = document_of("begin -> loop -> step", "loop: visit -> say", say=content("{step@result} {loop@n}"))

    assert order_findings(document) == [("reads_nothing", "say", "content[0]")]


def test_reference_of_a_node_to_its_goto_target_is_a_warning():
    document = document_of("begin -> step -> say", "rescue", step={**goto("rescue"), "script": "{rescue@result}"})

    assert order_findings(document) == [("reads_nothing", "step", "script")]


def test_output_set_by_an_assigner_is_never_reported_as_unset():
    assigner: Params = {"variables": [{"variable": "step@result", "operator": "set", "parameter": "x"}]}
    document = document_of("begin -> write -> say -> step", say=content("{step@result}"))
    write = document.entries["write"]
    entries = {**document.entries, "write": type(write)("write", "VariableAssigner", assigner, ("say",))}

    assert order_findings(Document(entries=entries, raw={})) == []


def test_message_alternative_that_is_never_chosen_is_a_warning_with_its_index():
    document = document_of(
        "begin -> say -> step", say={"content": ["plain", "{step@result} {step@other}", "{begin@x}"]}
    )

    assert order_findings(document) == [("never_said", "say", "content[1]")]


def test_every_alternative_has_a_warning_if_none_can_be_chosen():
    document = document_of("begin -> say -> step", say={"content": ["{step@result}", "{step@other}"]})

    assert order_findings(document) == [("reads_nothing", "say", "content[0]"), ("reads_nothing", "say", "content[1]")]


def test_model_whose_content_no_node_reads_is_a_warning():
    unread = document_of("begin -> model -> say", say=content("Done."))
    read_by_message = document_of("begin -> model -> say", say=content("{model@content}"))
    read_by_later_node = document_of(
        "begin -> model -> say -> step", say=content("Done."), step={"script": "{model@content}"}
    )

    assert order_findings(unread) == [("never_called", "model", None)]
    assert order_findings(read_by_message) == []
    assert order_findings(read_by_later_node) == []
