"""The registry finds components by name and checks what a canvas stores for them."""

from typing import Any

import pytest

from canvas.document.document import Document, Entry
from components import registry
from components.nodes.flow.message import message
from components.nodes.flow.user_fill_up import user_fill_up


def entry(component: str, params: dict[str, Any] | None = None) -> Entry:
    return Entry(id="X:1", component=component, params=params or {}, name="My node")


def findings(component: str, params: dict[str, Any]) -> list[tuple[str, str | None, str]]:
    return registry.check(Document(entries={"X:1": entry(component, params)}, raw={}))


@pytest.mark.parametrize("name", ["Message", "message", "MESSAGE"])
def test_a_component_is_found_in_any_case(name: str):
    assert registry.find(name) is message


def test_component_is_found_by_an_older_name():
    assert registry.find("Fillup") is user_fill_up
    assert registry.find("Generate") is registry.find("LLM")
    assert registry.find("Parallel") is registry.find("Iteration")


def test_an_unknown_component_is_a_finding():
    assert registry.find("NoSuchThing") is None
    assert findings("NoSuchThing", {}) == [("X:1", None, "Can't import NoSuchThing")]


def test_a_bad_parameter_is_a_finding_with_the_display_name_and_the_field():
    assert findings("Message", {"content": []}) == [
        ("X:1", "content", "My node: [Message] Content [] must not be empty.")
    ]


def test_bad_parameter_of_a_node_without_a_name_is_reported_with_the_node_id():
    document = Document(entries={"DeepL:0": Entry("DeepL:0", "DeepL", {"source_lang": "XX"})}, raw={})

    assert [message.split(":")[:2] for _, _, message in registry.check(document)] == [["DeepL", "0"]]


def test_every_bad_parameter_is_found():
    fields = [field for _, field, _ in findings("Message", {"stream": "yes"})]

    assert sorted(map(str, fields)) == ["content", "stream"]


def test_unknown_parameters_cause_no_finding():
    assert findings("Message", {"content": ["x"], "temperatureEnabled": True, "schema": {}, "copy": 1}) == []


def test_outputs_before_a_run_are_the_declared_ones_or_those_of_the_component():
    assert registry.default_outputs(entry("Message")) == ("content", "downloads")
    assert registry.default_outputs(entry("Message", {"outputs": {"content": {}}})) == ("content",)
    assert registry.default_outputs(entry("Message", {"outputs": []})) == ()
    assert registry.default_outputs(entry("NoSuchThing")) == ()
