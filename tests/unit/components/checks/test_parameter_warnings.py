"""Warnings about parameters that a component accepts, but that fail or have no effect when it runs."""

from typing import Any

import pytest

from canvas.document.document import Document, Entry
from components.checks import parameter_warnings

COUNT = {"variable": "n", "type": "number", "input_mode": "constant", "value": 0}
UNTIL = {"variable": "env.n", "operator": "≥", "value": 3}
LOOP = {"loop_variables": [COUNT], "loop_termination_condition": [UNTIL], "maximum_loop_count": 3}
ITEM = {"cpn_id": "sys.query", "operator": "contains", "value": "x"}


def warnings_of(component: str, params: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return (code, field) of every warning about one node."""
    document = Document(entries={"x": Entry("x", component, params, name="My node")}, raw={})
    found = list(parameter_warnings.find_warnings(document))
    assert all(finding.severity == "warning" and finding.node == "x" for finding in found)
    assert all(finding.message.startswith('Node "My node" (x): ') for finding in found)
    return [(finding.code, finding.field) for finding in found]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"maximum_loop_count": "3"}, []),
        ({"maximum_loop_count": 0}, [("loop_never_runs", "maximum_loop_count")]),
        ({"maximum_loop_count": ""}, [("loop_never_runs", "maximum_loop_count")]),
        ({"maximum_loop_count": "many"}, [("not_a_number", "maximum_loop_count")]),
        ({"maximum_loop_count": "inf"}, [("not_a_number", "maximum_loop_count")]),
        ({"loop_termination_condition": []}, [("loop_never_runs", "loop_termination_condition")]),
        ({"loop_termination_condition": [], "logical_operator": "or"}, []),
        ({"logical_operator": ""}, []),
        ({"logical_operator": "xor"}, [("bad_operator", "logical_operator")]),
        ({"loop_variables": [{"variable": ""}]}, []),
        ({"loop_variables": [{**COUNT, "value": None}]}, [("incomplete_row", "loop_variables[0]")]),
        ({"loop_variables": [COUNT, {**COUNT, "type": ""}]}, [("incomplete_row", "loop_variables[1]")]),
        ({"loop_variables": [{**COUNT, "input_mode": "zero"}]}, [("incomplete_row", "loop_variables[0]")]),
        ({"loop_variables": [{**COUNT, "input_mode": "variable"}]}, [("incomplete_row", "loop_variables[0]")]),
        (
            {"loop_termination_condition": [UNTIL, {"variable": "env.n"}]},
            [("incomplete_row", "loop_termination_condition[1]")],
        ),
        (
            {"loop_termination_condition": [{**UNTIL, "operator": "about"}]},
            [("bad_operator", "loop_termination_condition[0].operator")],
        ),
        (
            {"loop_termination_condition": [{**UNTIL, "input_mode": "guess"}]},
            [("bad_mode", "loop_termination_condition[0].input_mode")],
        ),
    ],
)
def test_loop_that_fails_or_never_runs_gets_a_warning(changes: dict[str, Any], expected: list[tuple[str, str]]):
    assert warnings_of("Loop", {**LOOP, **changes}) == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"items_ref": "sys.files"}, []),
        ({}, [("no_list", "items_ref")]),
        ({"items_ref": "sys.files", "max_concurrency": "4"}, []),
        ({"items_ref": "sys.files", "max_concurrency": None}, []),
        ({"items_ref": "sys.files", "max_concurrency": "four"}, [("not_a_number", "max_concurrency")]),
        ({"items_ref": "sys.files", "max_concurrency": 2.5}, [("not_a_number", "max_concurrency")]),
    ],
)
def test_iteration_without_a_list_or_with_an_invalid_concurrency_gets_a_warning(
    params: dict[str, Any], expected: list[tuple[str, str]]
):
    assert warnings_of("Iteration", params) == expected


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([ITEM], []),
        ([{**ITEM, "operator": ">="}], []),
        ([{**ITEM, "operator": "~="}], [("bad_operator", "conditions[0].items[0].operator")]),
        ([ITEM, {"cpn_id": "", "operator": "nonsense"}], []),
        ([], [("never_holds", "conditions[0].items")]),
        ([{"cpn_id": " "}], [("never_holds", "conditions[0].items")]),
    ],
)
def test_switch_branch_that_never_holds_or_fails_gets_a_warning(items: list[Any], expected: list[tuple[str, str]]):
    assert warnings_of("Switch", {"conditions": [{"items": items, "to": ["y"]}], "end_cpn_ids": ["y"]}) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"variable": "env.n", "operator": "+=", "parameter": 1.5}, []),
        ({"variable": "env.n", "operator": "clear"}, []),
        ({"variable": "env.n", "operator": "set", "parameter": "{sys.query}"}, []),
        ({"variable": "env.n", "operator": "set"}, [("incomplete_row", "variables[0]")]),
        ({"operator": "clear"}, [("incomplete_row", "variables[0]")]),
        ({"variable": "env.n", "operator": "double", "parameter": 2}, [("bad_operator", "variables[0].operator")]),
        ({"variable": "env.n", "operator": "+=", "parameter": "env.m"}, [("not_a_number", "variables[0].parameter")]),
        ({"variable": "env.n", "operator": "+=", "parameter": True}, [("not_a_number", "variables[0].parameter")]),
    ],
)
def test_assignment_that_cannot_be_carried_out_gets_a_warning(row: dict[str, Any], expected: list[tuple[str, str]]):
    assert warnings_of("VariableAssigner", {"variables": [row]}) == expected


def test_categorize_without_a_model_gets_a_warning():
    assert warnings_of("Categorize", {"llm_id": ""}) == [("no_model", "llm_id")]
    assert warnings_of("Categorize", {"llm_id": "echo"}) == []


@pytest.mark.parametrize(
    ("params", "is_missing"),
    [
        ({"retrieval_from": "dataset", "dataset_ids": [], "kb_ids": []}, True),
        ({"dataset_ids": []}, True),
        ({"retrieval_from": "dataset", "dataset_ids": ["begin@base"]}, False),
        ({"kb_ids": ["a"]}, False),
        ({"memory_ids": ["a"]}, False),
        ({"retrieval_from": "memory"}, False),
    ],
)
def test_retrieval_without_a_knowledge_base_gets_a_warning(params: dict[str, Any], is_missing: bool):
    assert warnings_of("Retrieval", params) == ([("no_dataset", "dataset_ids")] if is_missing else [])


@pytest.mark.parametrize(
    ("security", "field"),
    [
        ({"auth_type": "token", "token": {"token_header": "X-Token", "token_value": ""}}, "token.token_value"),
        ({"auth_type": "basic"}, "basic_auth.password"),
        ({"auth_type": "jwt", "jwt": {"secret": ""}}, "jwt.secret"),
        ({"auth_type": "token", "token": {"token_header": "X-Token", "token_value": "t"}}, None),
        ({"auth_type": "none", "allow_anonymous": True}, None),
    ],
)
def test_webhook_without_its_secret_gets_a_warning(security: dict[str, Any], field: str | None):
    expected = [("no_credentials", f"security.{field}")] if field else []
    assert warnings_of("Begin", {"mode": "Webhook", "security": security}) == expected
    assert warnings_of("Begin", {"mode": "conversational", "security": security}) == []


@pytest.mark.parametrize("url", [None, "", " "])
def test_searxng_without_an_address_gets_a_warning(url: str | None):
    assert warnings_of("SearXNG", {"searxng_url": url}) == [("no_address", "searxng_url")]
    assert warnings_of("SearXNG", {"searxng_url": "{env.searx}"}) == []


@pytest.mark.parametrize(
    ("component", "params", "expected"),
    [
        ("Message", {"content": ["{{ {sys.query} | upper }} {% if a %}b{% endif %}"]}, []),
        ("Message", {"content": ["fine", "{% if %}"]}, [("bad_template", "content[1]")]),
        ("Message", {"content": "{{ a b }}"}, [("bad_template", "content[0]")]),
        ("Message", {"content": ["{# no template unless it does not stream"]}, []),
        ("Message", {"content": ["{# never closed"], "stream": False}, [("bad_template", "content[0]")]),
        ("StringTransform", {"method": "merge", "script": "{% for %}"}, [("bad_template", "script")]),
        ("StringTransform", {"method": "split", "script": "{% for %}"}, []),
        ("Message", {"content": [7, None]}, []),
    ],
)
def test_template_that_does_not_parse_gets_a_warning(
    component: str, params: dict[str, Any], expected: list[tuple[str, str]]
):
    assert warnings_of(component, params) == expected


def test_templates_are_parsed_up_to_a_limit():
    texts = ["{{ x }}" + " " * parameter_warnings.MAX_TEMPLATE_CHARS, "{% if %}"]

    assert warnings_of("Message", {"content": texts}) == []


@pytest.mark.parametrize("component", ["Categorize", "Iteration", "Loop", "Message", "Switch", "VariableAssigner"])
@pytest.mark.parametrize("value", [None, 7, "text", ["text", 7, None, [], {}], {"a": {"to": 3}}])
def test_check_of_parameters_of_any_wrong_type_does_not_fail(component: str, value: Any):
    fields = (
        "conditions content items_ref llm_id logical_operator loop_termination_condition loop_variables "
        "max_concurrency maximum_loop_count variables"
    )

    warnings_of(component, dict.fromkeys(fields.split(), value))
