"""Parameters in other shapes than the main ones are converted to them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import conditions, parsing
from canvas.errors import InvalidCanvas


def parsed_params(component: str, **params: Any) -> dict[str, Any]:
    document = parsing.parse({"components": {"x": {"obj": {"component_name": component, "params": params}}}})
    return dict(document.entries["x"].params)


def test_dumped_document_has_the_parameters_as_they_were_written():
    document = parsing.parse({"components": {"x": {"obj": {"component_name": "Message", "params": {"text": "hi"}}}}})

    assert document.entries["x"].params == {"content": ["hi"]}
    assert parsing.dump(document)["components"]["x"]["obj"]["params"] == {"text": "hi"}


@pytest.mark.parametrize("component", ["LLM", "Agent", "Categorize", "Browser"])
def test_models_may_be_named_by_model_id(component: str):
    assert parsed_params(component, model_id="m@F")["llm_id"] == "m@F"
    assert parsed_params(component, model_id="m@F", llm_id="other")["llm_id"] == "other"


def test_prompts_as_text_become_messages():
    assert parsed_params("LLM", system_prompt="S", user_prompt="U") == {
        "sys_prompt": "S",
        "prompts": [{"role": "user", "content": "U"}],
    }
    assert parsed_params("LLM", prompts="U")["prompts"] == [{"role": "user", "content": "U"}]


def test_empty_prompts_stay_empty_so_that_their_check_refuses_them():
    assert parsed_params("LLM", prompts="") == {"prompts": ""}
    assert parsed_params("Message", content="") == {"content": []}


def test_prompts_of_the_role_system_join_the_system_prompt():
    prompts = [{"role": "system", "content": "B"}, {"role": "user", "content": "U"}]

    params = parsed_params("LLM", sys_prompt="A", prompts=prompts)

    assert params == {"sys_prompt": "A\nB", "prompts": [{"role": "user", "content": "U"}]}


def test_an_agent_keeps_the_prompt_that_is_the_default_of_its_argument():
    params = parsed_params("Agent", user_prompt="do X", prompts=[{"role": "user", "content": "U"}])

    assert params == {"user_prompt": "do X", "prompts": [{"role": "user", "content": "U"}]}


def test_input_in_a_generate_prompt_becomes_references_to_upstream_nodes():
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


def test_agent_tools_may_be_names_and_their_parameters_are_converted():
    sub = {"component_name": "agent", "name": "Sub", "params": {"model_id": "m"}}

    params = parsed_params("Agent", tools=["tavily_search", sub], outputs={"structured_output": {"a": 1}})

    assert params["tools"] == [
        {"component_name": "TavilySearch", "name": "TavilySearch", "params": {}},
        {"component_name": "Agent", "name": "Sub", "params": {"llm_id": "m"}},
    ]
    assert params["outputs"] == {"structured": {"a": 1}}


def test_llm_enabled_tools_become_agent_tools_only_if_they_are_names():
    described = [{"component_name": "TavilySearch", "params": {}}]

    assert parsed_params("Agent", llm_enabled_tools=["tavily_search"])["tools"][0]["component_name"] == "TavilySearch"
    assert parsed_params("Agent", llm_enabled_tools=described) == {"llm_enabled_tools": described}


@pytest.mark.parametrize("params", [{"messages": ["a"]}, {"text": "a"}, {"content": "a"}, {"content": ["a"]}])
def test_content_of_a_message_may_be_in_any_of_its_fields(params: dict[str, Any]):
    assert parsed_params("Message", **params) == {"content": ["a"]}


def test_categories_may_be_rows_a_list_or_single_values():
    rows = parsed_params("Categorize", items=[{"name": "a", "uuid": "u", "examples": [{"value": "x"}], "to": "M"}])
    listed = parsed_params(
        "Categorize", categories=[{"name": "a", "examples": "x\ny", "to": ["M"]}], default_category="a"
    )
    main = parsed_params("Categorize", category_description={"a": {"to": "M", "examples": "x"}})

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

    params = parsed_params("Switch", cases=cases, default=["E"])

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

    params = parsed_params("Switch", conditions=groups, default="C")

    first, second = params["conditions"]
    assert (first["logical_operator"], first["to"]) == ("or", ["A"])
    assert first["items"] == [{"cpn_id": "begin@x", "operator": "≥", "value": 3}]
    assert second["items"] == [{"cpn_id": "sys.q", "operator": "=", "value": "v"}]
    assert params["end_cpn_ids"] == ["C"]


def test_switch_in_the_main_shape_is_not_changed():
    params = {
        "conditions": [
            {"logical_operator": "and", "items": [{"cpn_id": "a@b", "operator": "=", "value": "v"}], "to": ["A"]}
        ],
        "end_cpn_ids": ["B"],
    }

    assert parsed_params("Switch", **params) == params


@pytest.mark.parametrize(
    "text", ["{a@b} > 1 and {c@d} > 2 or {e@f} > 3", "{a@b}", "", "> 3", "{a@b} ==", "{a@b} > null", "__import__('os')"]
)
def test_invalid_condition_is_refused_with_the_name_of_the_node(text: str):
    with pytest.raises(InvalidCanvas) as caught:
        parsed_params("Switch", cases=[{"condition": text, "to": "A"}])

    assert (caught.value.node, caught.value.field) == ("x", "cases[0].condition")


@pytest.mark.parametrize(
    ("literal", "value"),
    [("''", ""), ('""', ""), ("'", "'"), ("'a'", "a"), ("'a\"", "'a\""), ("-1.5", -1.5), ("a", "a")],
)
def test_literal_is_unquoted_only_between_two_equal_quotes(literal: str, value: Any):
    assert conditions.parse_condition(f"{{a@b}} == {literal}").clauses[0].right == value


@given(st.text(alphabet="{}ab@. <>=!andor'\"\\containsnull0", max_size=60))
def test_any_text_is_parsed_as_a_condition_or_refused(text: str):
    try:
        condition = conditions.parse_condition(text)
    except conditions.BadCondition:
        return
    assert condition.clauses
    assert condition.negate().negate() == condition


def test_continue_condition_of_a_loop_is_negated_into_a_termination_condition():
    params = parsed_params(
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


def test_loop_conditions_may_compare_references_or_be_objects():
    compared = parsed_params("Loop", condition="{begin@i} != {begin@end}")
    objects = parsed_params("Loop", loop_termination_condition=[{"var": "{{begin@s}}", "op": "eq", "value": "done"}])

    assert compared["loop_termination_condition"] == [
        {"variable": "begin@i", "operator": "=", "input_mode": "variable", "value": "begin@end"}
    ]
    assert objects["loop_termination_condition"] == [{"variable": "begin@s", "operator": "is", "value": "done"}]


def test_item_var_of_an_iteration_is_replaced_in_its_whole_body():
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


def test_child_id_used_as_an_output_collects_the_content_of_the_child():
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
    params = parsed_params(
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
def test_field_aliases_are_converted_to_their_main_names(component: str, params: dict[str, Any], main: dict[str, Any]):
    assert main.items() <= parsed_params(component, **params).items()
