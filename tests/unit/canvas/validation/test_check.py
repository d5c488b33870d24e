"""Errors and warnings about a canvas before it runs, by node and field."""

from typing import Any

import pytest

from canvas.document import parsing
from canvas.validation import check as validation
from canvas.validation.findings import Finding

Node = dict[str, Any]
_FIRST_VARIABLE = "loop_variables[0].value"


def node(component: str, *downstream: str, inside: str | None = None, **params: Any) -> Node:
    entry = {"obj": {"component_name": component, "params": params}, "downstream": list(downstream), "upstream": []}
    return {**entry, "parent_id": inside} if inside else entry


def goto(*nodes: str) -> dict[str, Any]:
    """Return the parameters of a node whose failure leads to these nodes."""
    return {"exception_method": "goto", "exception_goto": list(nodes)}


def check(**nodes: Node) -> list[Finding]:
    """Return every finding about a canvas of these nodes; `__` in a name stands for the colon of an id."""
    document = parsing.parse({"components": {name.replace("__", ":"): entry for name, entry in nodes.items()}})
    errors, warnings = validation.check(document)
    return [*errors, *warnings]


def findings(**nodes: Node) -> list[tuple[str, str | None, str | None]]:
    return [(found.severity, found.node, found.field) for found in check(**nodes)]


def codes(**nodes: Node) -> list[tuple[str, str | None, str | None]]:
    return [(found.code, found.node, found.field) for found in check(**nodes)]


def test_valid_canvas_has_no_findings():
    assert (
        findings(
            begin=node("Begin", "Switch:s"),
            Switch__s=node("Switch", conditions=[{"items": [], "to": ["Iteration:i"]}], end_cpn_ids=["Message:m"]),
            Iteration__i=node("Iteration", "Message:m", items_ref="sys.files"),
            IterationItem__i=node("IterationItem", "LLM:l", inside="Iteration:i"),
            LLM__l=node("LLM", "IterationItem:i", inside="Iteration:i", sys_prompt="{item} {IterationItem:i@index}"),
            Message__m=node("Message", content=["{sys.query} {LLM:l@content} {{ sys_query | upper }} mail a@b.c"]),
        )
        == []
    )


def test_a_canvas_without_begin_cannot_run():
    assert findings() == [("error", None, "components")]
    assert findings(Message__m=node("Message")) == [("error", None, "components")]


def test_edge_to_an_unknown_node_is_an_error_and_a_branch_to_one_is_a_warning():
    assert findings(begin=node("Begin", "Message:x")) == [("error", "begin", "downstream")]
    assert findings(
        begin=node("Begin", "Switch:s", "Categorize:c"),
        Switch__s=node("Switch", conditions=[{"to": ["x"]}], end_cpn_ids="y", **goto("z")),
        Categorize__c=node("Categorize", category_description={"a": {"to": ["w"]}}),
    ) == [
        ("warning", "Switch:s", "conditions[0].to"),
        ("warning", "Switch:s", "end_cpn_ids"),
        ("warning", "Switch:s", "exception_goto"),
        ("warning", "Categorize:c", "category_description.a.to"),
    ]


def test_a_node_that_leads_to_itself_is_an_error():
    assert findings(begin=node("Begin", "Message:m"), Message__m=node("Message", "Message:m")) == [
        ("error", "Message:m", "downstream")
    ]


def test_a_cycle_is_a_warning_at_its_first_node():
    assert findings(
        begin=node("Begin", "Message:a"),
        Message__a=node("Message", "Message:b"),
        Message__b=node("Message", "Message:a"),
    ) == [("warning", "Message:a", "downstream")]


def test_cycle_through_an_answer_has_no_findings():
    assert (
        findings(begin=node("Begin", "Answer:a"), Answer__a=node("Answer", "LLM:b"), LLM__b=node("LLM", "Answer:a"))
        == []
    )


def test_unreachable_node_is_a_warning():
    assert findings(begin=node("Begin"), Message__m=node("Message")) == [("warning", "Message:m", None)]


def test_edge_into_a_body_from_outside_is_an_error():
    assert findings(
        begin=node("Begin", "Loop:l", "Message:m"),
        Loop__l=node("Loop"),
        LoopItem__i=node("LoopItem", "Message:m", inside="Loop:l"),
        Message__m=node("Message", inside="Loop:l"),
    ) == [("error", "begin", "downstream")]


def test_edge_out_of_a_body_is_a_warning():
    assert findings(
        begin=node("Begin", "Loop:l"),
        Loop__l=node("Loop"),
        LoopItem__i=node("LoopItem", "Message:m", inside="Loop:l"),
        Message__m=node("Message", "Message:after", inside="Loop:l"),
        Message__after=node("Message"),
    ) == [("warning", "Message:m", "downstream")]


@pytest.mark.parametrize(
    ("component", "inside"),
    [
        ("IterationItem", None),
        ("IterationItem", "Loop:l"),
        ("LoopItem", "Iteration:i"),
        ("ExitLoop", None),
        ("ExitLoop", "Iteration:i"),
    ],
)
def test_item_node_or_exit_outside_of_its_container_is_an_error(component: str, inside: str | None):
    found = findings(
        begin=node("Begin", "Loop:l", "Iteration:i", *([] if inside else ["x"])),
        Loop__l=node("Loop"),
        LoopItem__l=node("LoopItem", "a", *(["x"] if inside == "Loop:l" else []), inside="Loop:l"),
        a=node("Message", inside="Loop:l"),
        Iteration__i=node("Iteration"),
        IterationItem__i=node("IterationItem", "b", *(["x"] if inside == "Iteration:i" else []), inside="Iteration:i"),
        b=node("Message", inside="Iteration:i"),
        x=node(component, inside=inside),
    )

    assert found == [("error", "x", "parent_id")]


def test_second_item_node_of_a_container_is_a_warning():
    assert findings(
        begin=node("Begin", "Loop:l"),
        Loop__l=node("Loop"),
        LoopItem__a=node("LoopItem", "Message:m", inside="Loop:l"),
        LoopItem__b=node("LoopItem", inside="Loop:l"),
        Message__m=node("Message", inside="Loop:l"),
    ) == [("warning", "LoopItem:b", "parent_id")]


def test_parent_that_is_not_an_existing_container_is_an_error():
    found = findings(
        begin=node("Begin", "Message:a", "Message:b"),
        Message__a=node("Message", inside="Loop:none"),
        Message__b=node("Message", inside="begin"),
    )

    assert ("error", "Message:a", "parent_id") in found
    assert ("error", "Message:b", "parent_id") in found


@pytest.mark.parametrize("form", ["UserFillUp", "Answer"])
@pytest.mark.parametrize(("concurrency", "count"), [(1, 0), (None, 0), (2, 1), ("3", 1), (2.0, 1)])
def test_form_in_parallel_items_is_an_error(concurrency: object, count: int, form: str):
    found = findings(
        begin=node("Begin", "Iteration:i"),
        Iteration__i=node("Iteration", max_concurrency=concurrency),
        IterationItem__i=node("IterationItem", "Loop:l", inside="Iteration:i"),
        Loop__l=node("Loop", inside="Iteration:i"),
        LoopItem__l=node("LoopItem", f"{form}:f", inside="Loop:l"),
        **{f"{form}__f": node(form, inside="Loop:l")},
    )

    assert found == [("error", f"{form}:f", "parent_id")] * count


@pytest.mark.parametrize(
    ("component", "params", "field"),
    [
        ("Message", {"content": ["ok", "{LLM:none@content}"]}, "content[1]"),
        ("Message", {"content": ["{env.none}"]}, "content[0]"),
        ("Message", {"content": ["{SYS.QUERY}"]}, "content[0]"),
        ("Message", {"anything": "LLM:none@content"}, "anything"),
        ("Agent", {"tools": [{"component_name": "ArXiv", "params": {"query": "{env.none}"}}]}, "tools[0].params.query"),
        ("Iteration", {"items_ref": "env.none"}, "items_ref"),
        ("Iteration", {"items_ref": "the list"}, "items_ref"),
        ("ListOperations", {"query": "none@x"}, "query"),
        ("LLM", {"visual_files_var": "env.none"}, "visual_files_var"),
        ("Loop", {"loop_variables": [{"variable": "n", "input_mode": "variable", "value": "env.no"}]}, _FIRST_VARIABLE),
    ],
)
def test_unknown_reference_is_a_warning_at_its_field(component: str, params: Node, field: str):
    found = codes(begin=node("Begin", "x"), x=node(component, **params))

    assert ("unknown_reference", "x", field) in found
    assert "unknown_reference" not in codes(begin=node("Begin", "x"), x=node(component))


@pytest.mark.parametrize(
    ("component", "params"),
    [
        ("CodeExec", {"script": "print(f'{sys.version} {item}')", "arguments": {"a": "sys.query"}}),
        ("Message", {"content": ["{sys.query}"], "description": "{env.none}", "debug_inputs": {"x": "{env.none}"}}),
        ("Message", {"content": ["write to a@b.c, {x}, {{ y | upper }}"]}),
        ("LLM", {"outputs": {"content": {"type": "string", "value": "said {env.none}"}}}),
        ("Begin", {"prologue": "Ask me about {env.none}"}),
    ],
)
def test_text_that_is_not_evaluated_contains_no_references(component: str, params: Node):
    assert codes(begin=node("Begin", "x"), x=node(component, **params)) == []


def test_loop_variables_may_be_referred_to_by_their_bare_names():
    assert (
        codes(
            begin=node("Begin", "Loop:l"),
            Loop__l=node(
                "Loop",
                loop_variables=[{"variable": "count", "input_mode": "constant", "value": 0, "type": "number"}],
                loop_termination_condition=[{"variable": "count", "operator": "≥", "value": 3}],
            ),
            LoopItem__l=node("LoopItem", "Switch:s", inside="Loop:l"),
            Switch__s=node(
                "Switch",
                conditions=[{"items": [{"cpn_id": "count", "operator": "empty"}], "to": ["Message:m"]}],
                end_cpn_ids=["Message:m"],
                inside="Loop:l",
            ),
            Message__m=node("Message", inside="Loop:l"),
        )
        == []
    )


@pytest.mark.parametrize("text", ["{item}", "say {{ index }}", "{Result}"])
def test_alias_outside_of_an_iteration_is_a_warning(text: str):
    loop = {"Loop__l": node("Loop"), "LoopItem__l": node("LoopItem", "Message:b", inside="Loop:l")}

    found = codes(
        begin=node("Begin", "Message:a", "Loop:l", "Iteration:i"),
        Message__a=node("Message", content=[text]),
        **loop,
        Message__b=node("Message", content=[text], inside="Loop:l"),
        Iteration__i=node("Iteration", items_ref="sys.files"),
        IterationItem__i=node("IterationItem", "Loop:in", inside="Iteration:i"),
        Loop__in=node("Loop", inside="Iteration:i"),
        LoopItem__in=node("LoopItem", "Message:c", inside="Loop:in"),
        Message__c=node("Message", content=[text], inside="Loop:in"),
    )

    assert found == [("alias_outside", "Message:a", "content[0]"), ("alias_outside", "Message:b", "content[0]")]


def test_template_variable_named_item_is_not_an_alias():
    text = "{% for item in [1, 2] %}{{ item }}{% endfor %}"

    assert codes(begin=node("Begin", "Message:m"), Message__m=node("Message", content=[text])) == []


def test_warning_about_an_unknown_output_lists_the_existing_outputs():
    document = parsing.parse(
        {
            "components": {
                "begin": node("Begin", "LLM:a"),
                "LLM:a": node("LLM", "Message:m"),
                "Message:m": node("Message", content=["{LLM:a@content} {LLM:a@text.x} {LLM:a@_ERROR}"]),
            }
        }
    )

    _, found = validation.check(document, lambda entry: {"thinking", "content"} if entry.component == "LLM" else None)

    assert [finding.message for finding in found] == [
        "Node Message:m: it refers to LLM:a@text.x, and LLM:a has no such output, so it reads nothing. "
        "It has content, thinking."
    ]


def test_edge_of_a_router_that_no_branch_names_is_a_warning():
    assert codes(
        begin=node("Begin", "Switch:s"),
        Switch__s=node("Switch", "Message:a", "Message:b", conditions=[{"to": ["Message:a"]}], end_cpn_ids="Message:a"),
        Message__a=node("Message"),
        Message__b=node("Message"),
    ) == [("edge_never_taken", "Switch:s", "downstream"), ("unreached", "Message:b", None)]


def test_endless_cycle_has_another_code_than_a_cycle_with_an_exit():
    branch: Node = {"conditions": [{"to": ["Message:a"]}], "end_cpn_ids": ["Message:out"]}

    endless = check(
        begin=node("Begin", "Message:a"),
        Message__a=node("Message", "Message:b"),
        Message__b=node("Message", "Message:a"),
    )
    bounded = codes(
        begin=node("Begin", "Message:a"),
        Message__a=node("Message", "Switch:s"),
        Switch__s=node("Switch", **branch),
        Message__out=node("Message"),
    )

    assert [(found.code, found.node) for found in endless] == [("endless_cycle", "Message:a")]
    assert "1,000 times" in endless[0].message
    assert bounded == [("cycle", "Message:a", "downstream")]


def test_a_body_without_nodes_is_a_warning_at_its_container():
    assert codes(
        begin=node("Begin", "Loop:l", "Iteration:i"),
        Loop__l=node("Loop"),
        LoopItem__l=node("LoopItem", inside="Loop:l"),
        Iteration__i=node("Iteration"),
    ) == [("empty_body", "Loop:l", None), ("empty_body", "Iteration:i", None)]


def test_iteration_output_from_outside_of_its_body_is_a_warning():
    outputs = {"good": {"ref": "Message:in@content"}, "bad": {"ref": "Message:out@content"}}

    assert codes(
        begin=node("Begin", "Message:out"),
        Message__out=node("Message", "Iteration:i"),
        Iteration__i=node("Iteration", outputs=outputs),
        IterationItem__i=node("IterationItem", "Message:in", inside="Iteration:i"),
        Message__in=node("Message", inside="Iteration:i"),
    ) == [("collects_nothing", "Iteration:i", "outputs.bad.ref")]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"exception_goto": ["Message:m"]}, "goto_without_method"),
        ({"exception_method": "goto"}, "goto_without_target"),
        ({"exception_method": "goto", "exception_goto": []}, "goto_without_target"),
        ({"exception_method": "comment"}, "comment_without_default"),
        ({"exception_method": "retry"}, "unknown_exception_method"),
        ({"exception_method": "goto", "exception_goto": ["Message:m"]}, None),
        ({"exception_method": "comment", "exception_default_value": "sorry"}, None),
        ({"exception_method": None, "exception_goto": None, "exception_default_value": "sorry"}, None),
    ],
)
def test_incomplete_failure_handling_is_a_warning(params: Node, code: str | None):
    found = codes(begin=node("Begin", "LLM:l"), LLM__l=node("LLM", "Message:m", **params), Message__m=node("Message"))

    assert [finding[0] for finding in found if finding[0] != "never_called"] == ([code] if code else [])


def test_goto_without_a_method_reaches_no_node():
    found = codes(begin=node("Begin", exception_goto=["Message:m"]), Message__m=node("Message"))

    assert found == [("goto_without_method", "begin", "exception_goto"), ("unreached", "Message:m", None)]


def test_finding_contains_the_display_name_and_the_missing_node():
    document = parsing.parse(
        {
            "components": {"begin": node("Begin", "Message:x")},
            "graph": {"nodes": [{"id": "begin", "data": {"name": "Start"}}]},
        }
    )

    [finding], _ = validation.check(document)

    assert finding.message == (
        'Node "Start" (begin): it leads to Message:x, which does not exist. Remove the edge or add the node.'
    )


def test_a_chain_of_thousands_of_nodes_is_checked():
    nodes = {f"Message:{number}": node("Message", f"Message:{number + 1}") for number in range(2000)}
    components = {"begin": node("Begin", "Message:0"), **nodes, "Message:2000": node("Message")}

    errors, warnings = validation.check(parsing.parse({"components": components}))

    assert errors == []
    assert list(warnings) == []
