"""Which outputs a node may have."""

from typing import Any

import pytest

from canvas.document import component_names
from canvas.document.document import Entry
from components.checks.known_outputs import outputs_of


def output_names(component: str, **params: Any) -> set[str] | None:
    found = outputs_of(Entry("x", component, params))
    return None if found is None else set(found)


def test_outputs_are_those_of_the_component_and_those_its_author_declared():
    assert output_names("LLM", outputs={"structured": {}}) == {"content", "thinking", "structured"}
    assert output_names("StringTransform", outputs=[]) == {"result"}


@pytest.mark.parametrize(
    ("component", "params", "outputs"),
    [
        ("Begin", {"inputs": {"order": {}}}, {"order"}),
        ("UserFillUp", {"inputs": [{"key": "why"}]}, {"why", "tips"}),
        ("Loop", {"loop_variables": [{"variable": "n"}, 7]}, {"n"}),
        ("VariableAggregator", {"groups": [{"group_name": "first"}]}, {"first"}),
    ],
)
def test_outputs_are_named_after_the_authors_fields(component: str, params: dict[str, Any], outputs: set[str]):
    assert output_names(component, **params) == outputs


def test_node_with_a_default_value_has_the_output_result():
    assert output_names("Invoke", exception_default_value="sorry") == {"result", "status_code"}
    assert output_names("LLM", exception_default_value="sorry") == {"content", "thinking", "result"}


def test_a_webhook_and_an_unknown_component_may_have_any_output():
    assert output_names("Begin", mode="Webhook") is None
    assert output_names("NoSuchThing") is None


def test_a_tool_has_the_outputs_of_its_calls():
    assert output_names("DuckDuckGo") == {"formalized_content", "json"}


def test_every_built_in_component_declares_its_outputs():
    undeclared = {name for name in component_names.COMPONENTS if output_names(name) is None}

    assert undeclared == set()
