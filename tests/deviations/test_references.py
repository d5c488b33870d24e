"""Texts with references, where RAGFlow removes blanks, keeps braces and treats names as patterns."""

import pytest

from canvas.outcome import Finished
from components.nodes.flow.message import message
from tests.deviations.observed_run import (
    CaseResult,
    CaseRunner,
    covers_rows,
    dsl_of,
    first_remaining_difference,
    message_params,
    text_params,
    without_blanks,
)
from tests.fakes import FakeContext, run

# -- E1: blanks ------------------------------------------------------------------------------------------------------


@covers_rows("E1", case="message_spaces_around_ref")
def test_blanks_around_a_reference_stay_in_a_message(result: CaseResult):
    assert result.answer == "a hello b  hello  c hello d hello."


@covers_rows("E1", case="assign_set_text")
def test_blanks_around_a_reference_stay_in_an_assigned_value(result: CaseResult):
    assert result.answer == "s=new q and old!"
    assert result.runs[0].globals["env.s"] == "new q and old!"


@covers_rows("E1", case="dataops_blanks_in_update")
def test_blanks_around_a_reference_stay_in_an_updated_row(result: CaseResult):
    assert result.outputs("DataOperations:D") == {"result": [{"id": 9, "name": "a q b", "extra": None}]}


@covers_rows("E1", case="invoke_blanks_in_url")
def test_blanks_around_a_reference_stay_in_an_address(result: CaseResult):
    assert result.observed.http_requests == [["GET", "/echo?q=a%20q%20b"]]


@covers_rows("E1", case="ragflow_customer_feedback_dispatcher_positive")
def test_blanks_stay_where_a_template_puts_them(result: CaseResult):
    assert result.answer == "Customer's original review: I love it \n\nFinal review category is: Positive review"


@covers_rows("E1", case="ragflow_customer_feedback_dispatcher_negative")
def test_line_breaks_around_a_reference_stay_in_a_message(result: CaseResult):
    assert result.answer == "Customer's original review: It broke\n\nFinal review category is: \nAfter-sales issues"


@pytest.mark.parametrize(
    "result",
    [
        "assign_set_text",
        "dataops_blanks_in_update",
        "ragflow_customer_feedback_dispatcher_positive",
        "ragflow_customer_feedback_dispatcher_negative",
    ],
    indirect=True,
)
@covers_rows("E1")
def test_case_differs_from_its_recording_only_in_blanks(result: CaseResult):
    assert first_remaining_difference(result, without_blanks, without_blanks) is None


# -- E2, E3: braces and names ----------------------------------------------------------------------------------------


@covers_rows("E2", case="message_double_brace_ref_jinja")
def test_reference_in_double_braces_is_resolved(result: CaseResult):
    assert result.answer == "v=hello; w=hello"


@covers_rows("E2", case="message_stream_false_double_brace")
def test_reference_in_double_braces_is_resolved_without_streaming(result: CaseResult):
    assert result.answer == "A hello B u-7 C"


@covers_rows("E2")
def test_reference_in_any_number_of_balanced_braces_is_resolved(case_runner: CaseRunner):
    text = "{sys.query}|{{sys.query}}|{{ sys.query }}|{{{sys.query}}}|{ sys.query }"

    result = case_runner.run(
        dsl_of(
            "begin -> StringTransform:T -> Message:Out",
            {"StringTransform:T": text_params(text), "Message:Out": message_params(text)},
        )
    )

    assert result.answer == "q|q|q|q|q"
    assert result.outputs("StringTransform:T") == {"result": "q|q|q|q|q"}


@covers_rows("E2")
def test_other_expression_in_double_braces_is_a_template(case_runner: CaseRunner):
    result = case_runner.run(
        dsl_of("begin -> Message:Out", {"Message:Out": message_params("{sys.query}{{ sys_query | upper }}")})
    )

    assert result.answer == "qQ"


@covers_rows("E3", case="string_merge_name_in_text")
def test_text_that_equals_an_internal_reference_name_is_unchanged(result: CaseResult):
    assert result.answer == "VAL and sys_query"


@covers_rows("E3", case="variables_chain_nodes")
def test_reference_name_contained_in_another_name_does_not_change_it(result: CaseResult):
    assert result.answer == "<xqy//>"


@covers_rows("E3", case="message_jinja_filter")
def test_template_filter_gets_the_value_of_a_reference(result: CaseResult):
    assert result.answer == "HELLO / 5"
    assert first_remaining_difference(result, str) is None


@covers_rows("E3")
def test_value_is_neither_a_regular_expression_nor_a_template(case_runner: CaseRunner):
    query = r"\1 \g<0> {{ 7 * 7 }} {sys.user_id}"

    result = case_runner.run(
        dsl_of("begin -> Message:Out", {"Message:Out": message_params("{sys.query}{% if 1 %}!{% endif %}")}),
        {"query": query, "user_id": "u"},
    )

    assert result.answer == f"{query}!"


# -- E4: unresolved references ----------------------------------------------------------------------------------------


@covers_rows("E4", case="message_upper_case_ref")
def test_unresolved_reference_fails_only_its_node(result: CaseResult):
    assert result.error == "Can't find variable: 'SYS.QUERY'"
    assert result.outputs("Message:Out")["_ERROR"] == result.finished_data("Message:Out")["error"] == result.error


@covers_rows("E4", case="variables_env_dotted_path")
def test_reference_to_a_member_of_a_variable_fails_the_node(result: CaseResult):
    assert result.outputs("Message:Out")["_ERROR"] == result.error == "Can't find variable: 'env.o.k'"


@covers_rows("E4", case="load_without_globals")
def test_reference_in_a_document_without_variables_fails_the_node(result: CaseResult):
    assert result.outputs("Message:Out")["_ERROR"] == result.error == "Can't find variable: 'env.u'"


@covers_rows("E4")
def test_unresolved_reference_follows_the_exception_goto(case_runner: CaseRunner):
    params = {
        "StringTransform:T": {
            **text_params("{env.none}"),
            "exception_method": "goto",
            "exception_goto": ["Message:Saved"],
        },
        "Message:Out": message_params("not here"),
        "Message:Saved": message_params("saved"),
    }

    result = case_runner.run(dsl_of("begin -> StringTransform:T -> Message:Out; Message:Saved", params))

    assert (result.answer, result.error) == ("saved", "")
    assert result.outputs("StringTransform:T")["_ERROR"] == "Can't find variable: 'env.none'"


# -- E26: aliases ----------------------------------------------------------------------------------------------------


@covers_rows("E26")
def test_item_index_and_result_are_resolved_inside_an_iteration(case_runner: CaseRunner):
    params = {
        "Iteration:L": {"items_ref": "env.items", "outputs": {"lines": {"ref": "StringTransform:T@result"}}},
        "StringTransform:T": text_params("{index}:{item}"),
        "Message:In": message_params("{item}={result};"),
        "Message:Out": message_params("{Iteration:L@lines}"),
    }
    inside = {"Iteration:L": "IterationItem:I -> StringTransform:T -> Message:In"}

    result = case_runner.run(
        dsl_of("begin -> Iteration:L -> Message:Out", params, inside=inside, env={"items": ["a", "b"]})
    )

    assert result.answer == 'a=a;b=b;["0:a", "1:b"]'


@covers_rows("E26")
def test_item_and_index_are_plain_text_outside_of_an_iteration():
    ctx = FakeContext()

    outcome = run(message, message_params("{item} {index}"), ctx)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "{item} {index}"
