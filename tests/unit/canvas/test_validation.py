"""What is wrong with a canvas is said before it runs, by node and field."""

from typing import Any

import pytest

from canvas import dsl, validation

Node = dict[str, Any]


def node(component: str, *downstream: str, inside: str | None = None, **params: Any) -> Node:
    entry = {"obj": {"component_name": component, "params": params}, "downstream": list(downstream), "upstream": []}
    return {**entry, "parent_id": inside} if inside else entry


def findings(**nodes: Node) -> list[tuple[str, str | None, str | None]]:
    document = dsl.parse({"components": {name.replace("__", ":"): entry for name, entry in nodes.items()}})
    return [(found.severity, found.node, found.field) for found in validation.check(document)]


def test_a_sound_canvas_has_no_findings():
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


def test_an_edge_to_nowhere_is_an_error_but_a_branch_to_nowhere_only_a_warning():
    assert findings(begin=node("Begin", "Message:x")) == [("error", "begin", "downstream")]
    assert findings(
        begin=node("Begin", "Switch:s", "Categorize:c"),
        Switch__s=node("Switch", conditions=[{"to": ["x"]}], end_cpn_ids="y", exception_goto=["z"]),
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


def test_a_cycle_through_an_answer_is_how_old_canvases_talk():
    assert (
        findings(begin=node("Begin", "Answer:a"), Answer__a=node("Answer", "LLM:b"), LLM__b=node("LLM", "Answer:a"))
        == []
    )


def test_a_node_that_no_way_leads_to_is_a_warning():
    assert findings(begin=node("Begin"), Message__m=node("Message")) == [("warning", "Message:m", None)]


def test_a_body_is_entered_through_its_container_only():
    assert findings(
        begin=node("Begin", "Loop:l", "Message:m"),
        Loop__l=node("Loop"),
        LoopItem__i=node("LoopItem", "Message:m", inside="Loop:l"),
        Message__m=node("Message", inside="Loop:l"),
    ) == [("error", "begin", "downstream")]


def test_leaving_a_body_by_an_edge_is_a_warning():
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
def test_item_nodes_and_exits_stand_inside_of_their_container(component: str, inside: str | None):
    found = findings(
        begin=node("Begin", "Loop:l", "Iteration:i", *([] if inside else ["x"])),
        Loop__l=node("Loop"),
        LoopItem__l=node("LoopItem", *(["x"] if inside == "Loop:l" else []), inside="Loop:l"),
        Iteration__i=node("Iteration"),
        IterationItem__i=node("IterationItem", *(["x"] if inside == "Iteration:i" else []), inside="Iteration:i"),
        x=node(component, inside=inside),
    )

    assert found == [("error", "x", "parent_id")]


def test_a_second_item_node_never_starts_anything():
    assert findings(
        begin=node("Begin", "Loop:l"),
        Loop__l=node("Loop"),
        LoopItem__a=node("LoopItem", inside="Loop:l"),
        LoopItem__b=node("LoopItem", inside="Loop:l"),
    ) == [("warning", "LoopItem:b", "parent_id")]


def test_a_parent_must_be_a_container_that_exists():
    found = findings(
        begin=node("Begin", "Message:a", "Message:b"),
        Message__a=node("Message", inside="Loop:none"),
        Message__b=node("Message", inside="begin"),
    )

    assert ("error", "Message:a", "parent_id") in found
    assert ("error", "Message:b", "parent_id") in found


@pytest.mark.parametrize(("concurrency", "count"), [(1, 0), (None, 0), (2, 1), ("3", 1), (2.0, 1)])
def test_nobody_can_be_asked_where_items_run_side_by_side(concurrency: object, count: int):
    found = findings(
        begin=node("Begin", "Iteration:i"),
        Iteration__i=node("Iteration", max_concurrency=concurrency),
        IterationItem__i=node("IterationItem", "Loop:l", inside="Iteration:i"),
        Loop__l=node("Loop", inside="Iteration:i"),
        LoopItem__l=node("LoopItem", "UserFillUp:f", inside="Loop:l"),
        UserFillUp__f=node("UserFillUp", inside="Loop:l"),
    )

    assert found == [("error", "UserFillUp:f", "parent_id")] * count


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"content": ["ok", "{LLM:none@content}"]}, "content[1]"),
        ({"content": ["{env.none}"]}, "content[0]"),
        ({"content": ["{SYS.QUERY}"]}, "content[0]"),
        ({"deep": {"cpn_id": "none@x"}}, "deep.cpn_id"),
        ({"items_ref": "env.none"}, "items_ref"),
        ({"anything": "LLM:none@content"}, "anything"),
    ],
)
def test_a_reference_to_something_unknown_is_a_warning_at_its_field(params: dict[str, Any], field: str):
    assert findings(begin=node("Begin", "Message:m"), Message__m=node("Message", **params)) == [
        ("warning", "Message:m", field)
    ]


def test_messages_show_the_name_that_the_author_gave_and_what_is_missing():
    document = dsl.parse(
        {
            "components": {"begin": node("Begin", "Message:x")},
            "graph": {"nodes": [{"id": "begin", "data": {"name": "Start"}}]},
        }
    )

    [finding] = validation.check(document)

    assert finding.message == 'Node "Start" (begin): it leads to Message:x, which does not exist.'


def test_a_chain_of_thousands_of_nodes_is_checked():
    nodes = {f"Message:{number}": node("Message", f"Message:{number + 1}") for number in range(5000)}
    components = {"begin": node("Begin", "Message:0"), **nodes, "Message:5000": node("Message")}

    assert validation.check(dsl.parse({"components": components})) == []
