"""Parameters in other shapes than the main ones mean the same."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import conditions, parsing
from canvas.errors import InvalidCanvas


def unfolded(component: str, **params: Any) -> dict[str, Any]:
    document = parsing.parse({"components": {"x": {"obj": {"component_name": component, "params": params}}}})
    return dict(document.entries["x"].params)


def test_the_stored_document_keeps_the_shape_its_author_wrote():
    document = parsing.parse({"components": {"x": {"obj": {"component_name": "Message", "params": {"text": "hi"}}}}})

    assert document.entries["x"].params == {"content": ["hi"]}
    assert parsing.dump(document)["components"]["x"]["obj"]["params"] == {"text": "hi"}


@pytest.mark.parametrize("component", ["LLM", "Agent", "Categorize", "Browser"])
def test_models_may_be_named_by_model_id(component: str):
    assert unfolded(component, model_id="m@F")["llm_id"] == "m@F"
    assert unfolded(component, model_id="m@F", llm_id="other")["llm_id"] == "other"


def test_prompts_as_text_become_messages():
    assert unfolded("LLM", system_prompt="S", user_prompt="U") == {
        "sys_prompt": "S",
        "prompts": [{"role": "user", "content": "U"}],
    }
    assert unfolded("LLM", prompts="U")["prompts"] == [{"role": "user", "content": "U"}]


def test_empty_prompts_stay_empty_so_that_their_check_refuses_them():
    assert unfolded("LLM", prompts="") == {"prompts": ""}
    assert unfolded("Message", content="") == {"content": []}


def test_prompts_of_the_role_system_join_the_system_prompt():
    prompts = [{"role": "system", "content": "B"}, {"role": "user", "content": "U"}]

    params = unfolded("LLM", sys_prompt="A", prompts=prompts)

    assert params == {"sys_prompt": "A\nB", "prompts": [{"role": "user", "content": "U"}]}


def test_an_agent_keeps_the_prompt_that_is_the_default_of_its_argument():
    params = unfolded("Agent", user_prompt="do X", prompts=[{"role": "user", "content": "U"}])

    assert params == {"user_prompt": "do X", "prompts": [{"role": "user", "content": "U"}]}


def test_generate_puts_the_texts_of_its_upstream_nodes_where_input_stands():
    document = parsing.parse(
        {
            "components": {
                "begin": {"name": "Begin", "downstream": ["Retrieval:r", "Generate:g"]},
                "Retrieval:r": {"name": "Retrieval", "downstream": ["Generate:g"]},
                "Generate:g": {"name": "Generate", "params": {"prompt": "Use {input}."}},
            }
        }
    )

    assert document.entries["LLM:g"].params["sys_prompt"] == "Use {Retrieval:r@formalized_content}."


def test_an_agents_tools_may_be_names_and_their_own_params_are_unfolded():
    sub = {"component_name": "agent", "name": "Sub", "params": {"model_id": "m"}}

    params = unfolded("Agent", tools=["tavily_search", sub], outputs={"structured_output": {"a": 1}})

    assert params["tools"] == [
        {"component_name": "TavilySearch", "name": "TavilySearch", "params": {}},
        {"component_name": "Agent", "name": "Sub", "params": {"llm_id": "m"}},
    ]
    assert params["outputs"] == {"structured": {"a": 1}}


def test_enabled_tools_are_an_agents_tools_where_they_are_named_and_nothing_where_they_are_described():
    described = [{"component_name": "TavilySearch", "params": {}}]

    assert unfolded("Agent", llm_enabled_tools=["tavily_search"])["tools"][0]["component_name"] == "TavilySearch"
    assert unfolded("Agent", llm_enabled_tools=described) == {"llm_enabled_tools": described}


@pytest.mark.parametrize("params", [{"messages": ["a"]}, {"text": "a"}, {"content": "a"}, {"content": ["a"]}])
def test_a_message_takes_its_alternatives_from_any_of_its_fields(params: dict[str, Any]):
    assert unfolded("Message", **params) == {"content": ["a"]}


def test_categories_come_as_rows_as_a_list_or_with_single_values():
    rows = unfolded("Categorize", items=[{"name": "a", "uuid": "u", "examples": [{"value": "x"}], "to": "M"}])
    listed = unfolded("Categorize", categories=[{"name": "a", "examples": "x\ny", "to": ["M"]}], default_category="a")
    main = unfolded("Categorize", category_description={"a": {"to": "M", "examples": "x"}})

    assert rows["category_description"] == {"a": {"examples": ["x"], "to": ["M"]}}
    assert listed["category_description"] == {"a": {"examples": ["x", "y"], "to": ["M"]}}
    assert listed["default_category"] == "a"
    assert main["category_description"] == {"a": {"examples": ["x"], "to": ["M"]}}


def test_switch_cases_as_text_become_groups():
    cases = [
        {"condition": "{sys.n} > 5 and {begin@x} contains 'a and b'", "to": "A"},
        {"condition": "{sys.flag} == true or {sys.x} != null", "to": ["B", "C"]},
        {"condition": "{{ sys.q }} == some words", "to": "D"},
    ]

    params = unfolded("Switch", cases=cases, default=["E"])

    assert [(group["logical_operator"], group["to"]) for group in params["conditions"]] == [
        ("and", ["A"]),
        ("or", ["B", "C"]),
        ("and", ["D"]),
    ]
    assert [group["items"] for group in params["conditions"]] == [
        [
            {"cpn_id": "sys.n", "operator": ">", "value": "5"},
            {"cpn_id": "begin@x", "operator": "contains", "value": "a and b"},
        ],
        [
            {"cpn_id": "sys.flag", "operator": "=", "value": "true"},
            {"cpn_id": "sys.x", "operator": "not empty", "value": ""},
        ],
        [{"cpn_id": "sys.q", "operator": "=", "value": "some words"}],
    ]
    assert params["end_cpn_ids"] == ["E"]


def test_switch_groups_of_clauses_become_groups_of_items():
    groups = [
        {"op": "or", "clauses": [{"left": "{{begin@x}}", "op": "ge", "right": 3}], "to": "A"},
        {"logical_operator": "and", "items": [{"var": "{{sys.q}}", "op": "eq", "value": "v"}], "to": ["B"]},
    ]

    params = unfolded("Switch", conditions=groups, default="C")

    first, second = params["conditions"]
    assert (first["logical_operator"], first["to"]) == ("or", ["A"])
    assert first["items"] == [{"cpn_id": "begin@x", "operator": "≥", "value": 3}]
    assert second["items"] == [{"cpn_id": "sys.q", "operator": "=", "value": "v"}]
    assert params["end_cpn_ids"] == ["C"]


def test_a_switch_in_the_main_shape_is_not_touched():
    params = {
        "conditions": [
            {"logical_operator": "and", "items": [{"cpn_id": "a@b", "operator": "=", "value": "v"}], "to": ["A"]}
        ],
        "end_cpn_ids": ["B"],
    }

    assert unfolded("Switch", **params) == params


@pytest.mark.parametrize(
    "text", ["{a@b} > 1 and {c@d} > 2 or {e@f} > 3", "{a@b}", "", "> 3", "{a@b} ==", "{a@b} > null", "__import__('os')"]
)
def test_a_condition_that_cannot_be_read_is_refused_naming_the_node(text: str):
    with pytest.raises(InvalidCanvas) as caught:
        unfolded("Switch", cases=[{"condition": text, "to": "A"}])

    assert (caught.value.node, caught.value.field) == ("x", "cases[0].condition")


@given(st.text(alphabet="{}ab@. <>=!andor'\"\\containsnull0", max_size=60))
def test_any_text_is_a_condition_or_a_bad_one(text: str):
    try:
        condition = conditions.parse_condition(text)
    except conditions.BadCondition:
        return
    assert condition.clauses
    assert condition.negate().negate() == condition


def test_a_condition_to_go_on_with_becomes_the_opposite_one_to_end_with():
    params = unfolded(
        "Loop",
        condition="{n} < 3 and {word} == 'go'",
        max_iterations=10,
        loop_variables=[{"variable": "n", "type": "number", "input_mode": "constant", "value": 0}],
    )

    assert params["loop_termination_condition"] == [
        {"variable": "x@n", "operator": "≥", "input_mode": "constant", "value": 3},
        {"variable": "env.word", "operator": "is not", "input_mode": "constant", "value": "go"},
    ]
    assert (params["logical_operator"], params["maximum_loop_count"]) == ("or", 10)


def test_a_loop_may_compare_with_a_reference_and_with_condition_objects():
    compared = unfolded("Loop", condition="{begin@i} != {begin@end}")
    objects = unfolded("Loop", loop_termination_condition=[{"var": "{{begin@s}}", "op": "eq", "value": "done"}])

    assert compared["loop_termination_condition"] == [
        {"variable": "begin@i", "operator": "=", "input_mode": "variable", "value": "begin@end"}
    ]
    assert objects["loop_termination_condition"] == [{"variable": "begin@s", "operator": "is", "value": "done"}]


def test_an_iterations_own_name_for_its_item_is_understood_in_its_whole_body():
    document = parsing.parse(
        {
            "components": {
                "Iteration:o": {"name": "Iteration", "params": {"items": "{begin@l}", "item_var": "cur"}},
                "Iteration:i": {
                    "name": "Iteration",
                    "params": {"items_ref": "{cur.parts}"},
                    "parent_id": "Iteration:o",
                },
                "Message:m": {
                    "name": "Message",
                    "params": {"text": "{cur} {{ cur }} {item}"},
                    "parent_id": "Iteration:i",
                },
                "Message:outside": {"name": "Message", "params": {"text": "{cur}"}},
            }
        }
    )

    outer, inner = document.entries["Iteration:o"].params, document.entries["Iteration:i"].params
    assert (outer["items_ref"], outer["wrap_single"]) == ("{begin@l}", True)
    assert inner == {"items_ref": "{IterationItem:o@item.parts}"}
    assert document.entries["Message:m"].params == {
        "content": ["{IterationItem:o@item} {{ IterationItem:o@item }} {item}"]
    }
    assert document.entries["Message:outside"].params == {"content": ["{cur}"]}


def test_a_child_id_used_as_an_output_collects_what_the_child_said():
    document = parsing.parse(
        {
            "components": {
                "iteration:0": {"name": "Iteration", "params": {"items_ref": "sys.files"}},
                "generate:1": {"name": "Generate", "parent_id": "iteration:0"},
                "Message:m": {
                    "name": "Message",
                    "params": {"text": "All: {iteration:0@generate:1}, {iteration:0@other:2}"},
                },
            }
        }
    )

    assert document.entries["Message:m"].params["content"] == ["All: {iteration:0@generate_1}, {iteration:0@other:2}"]
    assert document.entries["iteration:0"].params["outputs"] == {
        "generate_1": {"type": "array", "ref": "generate:1@content"}
    }


def test_assignments_overwrite_with_references_and_set_texts():
    params = unfolded(
        "VariableAssigner",
        assignments=[{"target": "env.a", "source": "{begin@x}"}, {"target": "env.b", "source": "Hi {env.a}"}],
    )

    assert params["variables"] == [
        {"variable": "env.a", "operator": "overwrite", "parameter": "{begin@x}"},
        {"variable": "env.b", "operator": "set", "parameter": "Hi {env.a}"},
    ]


@pytest.mark.parametrize(
    ("component", "params", "main"),
    [
        (
            "ExcelProcessor",
            {"operation": "write", "output_data": "a@b"},
            {"operation": "output", "transform_data": "a@b"},
        ),
        ("ExcelProcessor", {"file_ref": "a@f", "sheet_name": "S"}, {"input_files": ["a@f"], "sheet_selection": "S"}),
        ("PDFGenerator", {"header": "H", "output_format": "md"}, {"header_text": "H", "output_format": "markdown"}),
        ("DataOperations", {"query": [{"input": "a@b"}]}, {"query": ["a@b"]}),
        ("DataOperations", {"query": "a@b", "select_keys": [{"name": "k"}]}, {"query": ["a@b"], "select_keys": ["k"]}),
        (
            "Fillup",
            {"inputs": [{"key": "k", "type": "line"}]},
            {"inputs": {"k": {"key": "k", "type": "line"}}, "enable_tips": False},
        ),
        ("UserFillUp", {"inputs": []}, {"inputs": {}}),
        ("Browser", {"prompt": "P"}, {"prompts": "P"}),
    ],
)
def test_other_names_of_fields_are_understood(component: str, params: dict[str, Any], main: dict[str, Any]):
    assert main.items() <= unfolded(component, **params).items()
