"""All findings of a canvas at once: errors, then warnings, and never an exception."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.document import parsing
from canvas.errors import InvalidCanvas
from components import registry
from components.checks import check
from components.checks.check import errors_in, findings_of, refusals_of

COMPONENTS = sorted({found.name for found in registry.COMPONENTS.values()} | {"Tool", "NoSuchThing", ""})
IDS = ["begin", "A:0", "B:1", "LoopItem:2", "Message:3", "Iteration:4"]
FIELDS = st.sampled_from(
    sorted({field for found in registry.COMPONENTS.values() for field in found.params.model_fields})
)
TEXTS = st.sampled_from(
    ["", "{item}", "{{ {begin@x} }}", "A:0@content", "{B:1@_ERROR}", "{% if", "sys.query", "goto", "4", *IDS]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["to", "items", "cpn_id", "variable", "value", "ref", "params"]), inner)
    ),
    max_leaves=6,
)
ENTRY = st.fixed_dictionaries(
    {
        "obj": st.fixed_dictionaries(
            {
                "component_name": st.sampled_from(COMPONENTS),
                "params": st.dictionaries(FIELDS, ANYTHING, max_size=5),
            }
        ),
        "downstream": st.lists(st.sampled_from([*IDS, "Nobody:0"]), max_size=3),
        "parent_id": st.none() | st.sampled_from([*IDS, "Nobody:0"]),
    }
)


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.sampled_from(IDS), ENTRY, max_size=5))
def test_check_of_any_document_does_not_fail(components: dict[str, Any]):
    try:
        document = parsing.parse({"components": components})
    except InvalidCanvas:
        return  # refused as a whole

    findings = findings_of(document)

    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities)  # errors before warnings
    assert findings[: severities.count("error")] == errors_in(document)
    assert all(finding.node is None or finding.node in document.entries for finding in findings)
    assert all(finding.code and finding.message.strip() for finding in findings)
    json.dumps([finding.message for finding in findings]).encode()


def components_of(**nodes: tuple[str, dict[str, Any], list[str]]) -> dict[str, Any]:
    return {
        "components": {
            name.replace("__", ":"): {"obj": {"component_name": component, "params": params}, "downstream": downstream}
            for name, (component, params, downstream) in nodes.items()
        }
    }


@pytest.mark.parametrize(
    ("component", "params", "code", "field"),
    [
        ("NoSuchThing", {}, "unknown_component", None),
        ("LLM", {"llm_id": ""}, "no_model", "llm_id"),
        ("LLM", {"llm_id": "echo", "temperature": 7}, "bad_parameter", "temperature"),
        ("Agent", {"llm_id": "echo", "tools": [{"component_name": "Nope"}]}, "bad_parameter", "tools"),
    ],
)
def test_invalid_parameter_is_an_error_with_its_code(
    component: str, params: dict[str, Any], code: str, field: str | None
):
    document = parsing.parse(components_of(begin=("Begin", {}, ["x"]), x=(component, params, [])))

    assert [(it.severity, it.code, it.node, it.field) for it in findings_of(document)] == [("error", code, "x", field)]


def test_a_new_canvas_is_stored_without_a_model_but_not_with_another_error():
    unfinished = parsing.parse(components_of(begin=("Begin", {}, ["x"]), x=("LLM", {"llm_id": ""}, [])))
    broken = parsing.parse(components_of(begin=("Begin", {"mode": 1}, ["x"]), x=("LLM", {"llm_id": ""}, [])))

    assert refusals_of(unfinished, findings_of(unfinished)) == []
    assert [found.field for found in refusals_of(broken, findings_of(broken))] == ["mode"]


def test_warnings_beyond_the_limit_are_replaced_by_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(check, "MAX_WARNINGS", 3)
    text = "".join(f"{{env.x{number}}}" for number in range(9))
    document = parsing.parse(components_of(begin=("Begin", {}, ["x", "no"]), x=("Message", {"content": [text]}, [])))

    codes = [found.code for found in findings_of(document)]

    assert codes == ["edge_to_nowhere", "unknown_reference", "unknown_reference", "unknown_reference", "more"]
