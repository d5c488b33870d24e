"""Texts with references in them, where the reference swallows blanks, keeps braces and takes names for patterns."""

import pytest

from canvas.outcome import Finished
from components.nodes.flow.message import message
from tests.deviations.told import Stage, Told, drawn, makes, rest_differs, says, states, without_blanks
from tests.fakes import FakeContext, run

# -- E1: blanks ------------------------------------------------------------------------------------------------------


@states("E1", case="message_spaces_around_ref")
def test_blanks_around_a_reference_stay_in_a_message(told: Told):
    assert told.answer == "a hello b  hello  c hello d hello."


@states("E1", case="assign_set_text")
def test_blanks_around_a_reference_stay_in_what_is_assigned(told: Told):
    assert told.answer == "s=new q and old!"
    assert told.runs[0].globals["env.s"] == "new q and old!"


@states("E1", case="dataops_blanks_in_update")
def test_blanks_around_a_reference_stay_in_an_updated_row(told: Told):
    assert told.outputs("DataOperations:D") == {"result": [{"id": 9, "name": "a q b", "extra": None}]}


@states("E1", case="invoke_blanks_in_url")
def test_blanks_around_a_reference_stay_in_an_address(told: Told):
    assert told.played.http_requests == [["GET", "/echo?q=a%20q%20b"]]


@states("E1", case="ragflow_customer_feedback_dispatcher_positive")
def test_blanks_stay_where_a_template_puts_them(told: Told):
    assert told.answer == "Customer's original review: I love it \n\nFinal review category is: Positive review"


@states("E1", case="ragflow_customer_feedback_dispatcher_negative")
def test_line_breaks_around_a_reference_stay_too(told: Told):
    assert told.answer == "Customer's original review: It broke\n\nFinal review category is: \nAfter-sales issues"


@pytest.mark.parametrize(
    "told",
    [
        "assign_set_text",
        "dataops_blanks_in_update",
        "ragflow_customer_feedback_dispatcher_positive",
        "ragflow_customer_feedback_dispatcher_negative",
    ],
    indirect=True,
)
@states("E1")
def test_but_for_its_blanks_nothing_is_different(told: Told):
    assert rest_differs(told, without_blanks, without_blanks) is None


# -- E2, E3: braces and names ----------------------------------------------------------------------------------------


@states("E2", case="message_double_brace_ref_jinja")
def test_two_pairs_of_braces_are_one_reference(told: Told):
    assert told.answer == "v=hello; w=hello"


@states("E2", case="message_stream_false_double_brace")
def test_two_pairs_of_braces_are_one_reference_in_a_text_that_does_not_stream(told: Told):
    assert told.answer == "A hello B u-7 C"


@states("E2")
def test_any_balanced_run_of_braces_with_or_without_blanks_is_one_reference(stage: Stage):
    text = "{sys.query}|{{sys.query}}|{{ sys.query }}|{{{sys.query}}}|{ sys.query }"

    told = stage.play(
        drawn(
            "begin -> StringTransform:T -> Message:Out", {"StringTransform:T": makes(text), "Message:Out": says(text)}
        )
    )

    assert told.answer == "q|q|q|q|q"
    assert told.outputs("StringTransform:T") == {"result": "q|q|q|q|q"}


@states("E2")
def test_what_else_stands_in_two_pairs_of_braces_is_a_template(stage: Stage):
    told = stage.play(drawn("begin -> Message:Out", {"Message:Out": says("{sys.query}{{ sys_query | upper }}")}))

    assert told.answer == "qQ"


@states("E3", case="string_merge_name_in_text")
def test_a_text_that_looks_like_the_inner_name_of_a_reference_stays_a_text(told: Told):
    assert told.answer == "VAL and sys_query"


@states("E3", case="variables_chain_nodes")
def test_a_reference_inside_of_the_name_of_another_one_does_not_touch_it(told: Told):
    assert told.answer == "<xqy//>"


@states("E3", case="message_jinja_filter")
def test_a_filter_takes_the_value_of_a_reference(told: Told):
    assert told.answer == "HELLO / 5"
    assert rest_differs(told, str) is None


@states("E3")
def test_a_value_is_no_pattern_and_no_template(stage: Stage):
    query = r"\1 \g<0> {{ 7 * 7 }} {sys.user_id}"

    told = stage.play(
        drawn("begin -> Message:Out", {"Message:Out": says("{sys.query}{% if 1 %}!{% endif %}")}),
        {"query": query, "user_id": "u"},
    )

    assert told.answer == f"{query}!"


# -- E4: what is not there -------------------------------------------------------------------------------------------


@states("E4", case="message_upper_case_ref")
def test_a_reference_to_nothing_fails_its_node_and_no_more(told: Told):
    assert told.error == "Can't find variable: 'SYS.QUERY'"
    assert told.outputs("Message:Out")["_ERROR"] == told.finished("Message:Out")["error"] == told.error


@states("E4", case="variables_env_dotted_path")
def test_a_variable_has_no_members_and_asking_for_one_fails_the_node(told: Told):
    assert told.outputs("Message:Out")["_ERROR"] == told.error == "Can't find variable: 'env.o.k'"


@states("E4", case="load_without_globals")
def test_a_document_without_variables_fails_where_one_is_read(told: Told):
    assert told.outputs("Message:Out")["_ERROR"] == told.error == "Can't find variable: 'env.u'"


@states("E4")
def test_an_author_may_provide_for_a_reference_to_nothing(stage: Stage):
    params = {
        "StringTransform:T": {**makes("{env.none}"), "exception_method": "goto", "exception_goto": ["Message:Saved"]},
        "Message:Out": says("not here"),
        "Message:Saved": says("saved"),
    }

    told = stage.play(drawn("begin -> StringTransform:T -> Message:Out; Message:Saved", params))

    assert (told.answer, told.error) == ("saved", "")
    assert told.outputs("StringTransform:T")["_ERROR"] == "Can't find variable: 'env.none'"


# -- E26: aliases ----------------------------------------------------------------------------------------------------


@states("E26")
def test_item_index_and_result_are_known_in_every_text_inside_an_iteration(stage: Stage):
    params = {
        "Iteration:L": {"items_ref": "env.items", "outputs": {"lines": {"ref": "StringTransform:T@result"}}},
        "StringTransform:T": makes("{index}:{item}"),
        "Message:In": says("{item}={result};"),
        "Message:Out": says("{Iteration:L@lines}"),
    }
    inside = {"Iteration:L": "IterationItem:I -> StringTransform:T -> Message:In"}

    told = stage.play(drawn("begin -> Iteration:L -> Message:Out", params, inside=inside, env={"items": ["a", "b"]}))

    assert told.answer == 'a=a;b=b;["0:a", "1:b"]'


@states("E26")
def test_outside_of_an_iteration_they_are_plain_text():
    ctx = FakeContext()

    outcome = run(message, says("{item} {index}"), ctx)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "{item} {index}"
