"""Single components: values the reference cannot take, choices it makes by chance, and what it lets out."""

import asyncio
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from canvas.errors import AddressRefused
from canvas.outcome import Finished, Routed, WaitingForInput
from cli.conformance.play import runner
from components.browsing.uploads import UploadSource, fetch_files
from components.nodes.data.data_operations import data_operations
from components.nodes.data.excel_processor import excel_processor
from components.nodes.data.list_operations import list_operations
from components.nodes.data.variable_aggregator import variable_aggregator
from components.nodes.flow.message import message
from components.nodes.flow.message_file import parse_format
from components.nodes.flow.switch import switch
from components.nodes.flow.user_fill_up import user_fill_up
from providers.interfaces import HttpCall, HttpResponse, Services
from scheduler.coordinator.run_start import RunRequest
from store.tables.runs import metadata
from tests.deviations.told import Stage, Told, drawn, says, states, switches
from tests.fakes import FakeContext, FakeHttp, run
from tests.unit.components.nodes.agent.agents import Log


def outputs(component: Any, params: dict[str, Any], ctx: FakeContext) -> Any:
    outcome = run(component, params, ctx)
    assert isinstance(outcome, Finished)
    return outcome.outputs


# -- E5, E16: routers ------------------------------------------------------------------------------------------------


@states("E5", case="switch_bool_vs_text")
def test_a_boolean_can_be_compared_with_its_name(told: Told):
    assert told.answers == ["yes", "no", "yes"]


@states("E5", case="switch_empty")
def test_numbers_and_booleans_can_be_empty(told: Told):
    assert told.answers == ["yes", "no", "no", "yes", "no", "yes", "no", "yes", "no", "yes"]


@states("E5")
@pytest.mark.parametrize(
    ("left", "operator", "operand", "holds"),
    [
        (5, "=", "five", False),
        (5, "≠", "five", True),
        (5, "contains", "five", False),
        (True, "=", "TRUE", True),
        (0, "not empty", "", False),
    ],
)
def test_a_number_meets_a_word_without_an_error(left: Any, operator: str, operand: str, holds: bool):
    params = switches("env.v", operator, operand, ["yes"], ["no"])

    outcome = run(switch, params, FakeContext(globals={"env.v": left}))

    assert isinstance(outcome, Routed)
    assert list(outcome.to) == (["yes"] if holds else ["no"])


@states("E16")
def test_the_target_of_a_switch_may_be_one_text(stage: Stage):
    params = {
        "Switch:S": switches("sys.query", "=", "q", "Message:Yes", "Message:No"),
        "Message:Yes": says("yes"),
        "Message:No": says("no"),
    }
    document = drawn("begin -> Switch:S -> Message:Yes, Message:No", params)

    told = stage.play(document, {"query": "q"}, {"query": "other"})

    assert told.answers == ["yes", "no"]


@states("E16")
def test_the_target_of_a_category_may_be_one_text(stage: Stage):
    categories = {"order": {"to": "Message:Yes"}, "other": {"to": "Message:No"}}
    params = {
        "Categorize:C": {"llm_id": "test-model", "category_description": categories},
        "Message:Yes": says("yes"),
        "Message:No": says("no"),
    }

    told = stage.play(drawn("begin -> Categorize:C -> Message:Yes, Message:No", params), llm=[{"reply": "order"}])

    assert (told.answer, told.outputs("Categorize:C")["_next"]) == ("yes", ["Message:Yes"])


# -- E8, E9, E19: lists and objects ----------------------------------------------------------------------------------


@states("E8")
@pytest.mark.parametrize("value", [3, True, None, ["a"], {"k": 1}])
def test_a_row_can_be_updated_with_what_is_no_text(value: Any):
    params = {"query": ["env.r"], "operations": "append_or_update", "updates": [{"key": "n", "value": value}]}

    updated = outputs(data_operations, params, FakeContext(globals={"env.r": [{"id": 1}]}))

    assert updated["result"] == [{"id": 1, "n": value}]


@states("E8")
def test_combining_rows_leaves_them_as_they_were():
    rows = [{"tags": ["a"]}, {"tags": ["b"]}]

    combined = outputs(
        data_operations, {"query": ["env.r"], "operations": "combine"}, FakeContext(globals={"env.r": rows})
    )

    assert combined["result"] == {"tags": ["a", "b"]}
    assert rows == [{"tags": ["a"]}, {"tags": ["b"]}]


@states("E9")
def test_a_list_operation_sets_its_three_outputs_whatever_the_canvas_declares():
    params = {"query": "env.l", "operations": "head", "n": 2, "outputs": {"result": {}}}

    taken = outputs(list_operations, params, FakeContext(globals={"env.l": [1, 2, 3]}))

    assert taken == {"result": [1, 2], "first": 1, "last": 2}


@states("E9")
@pytest.mark.parametrize("keys", ["a,b", ["a", "b"]])
def test_keys_to_sort_by_are_a_text_or_a_list(keys: Any):
    rows = [{"a": 2, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 1}]
    params = {"query": "env.l", "operations": "sort", "sort_by": keys}

    ordered = outputs(list_operations, params, FakeContext(globals={"env.l": rows}))

    assert ordered["result"] == [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}]


@states("E19")
def test_what_an_aggregator_chooses_from_may_be_plain_texts():
    groups = [{"group_name": "first", "variables": ["env.none", "{env.some}"]}]
    ctx = FakeContext(globals={"env.none": None, "env.some": "here"})

    assert outputs(variable_aggregator, {"groups": groups}, ctx)["first"] == "here"


# -- E13, E24: Messages ----------------------------------------------------------------------------------------------


@states("E13")
def test_a_message_that_is_one_text_is_said_whole():
    assert outputs(message, {"content": "Hello"}, FakeContext())["content"] == "Hello"


@states("E13")
def test_a_second_attempt_says_the_same_and_another_visit_may_say_something_else():
    def said(**told: Any) -> str:
        return outputs(message, {"content": list("abcdef")}, FakeContext(**told))["content"]

    assert len({said(run_id="r", visit=0) for _ in range(9)}) == 1
    assert len({said(run_id="r", visit=visit) for visit in range(40)}) == 6


@states("E24")
@pytest.mark.parametrize(("output_format", "made"), [("PDF", "pdf"), ("Markdown", "markdown"), ("xLsX", "xlsx")])
def test_the_format_of_a_file_is_understood_in_any_case(output_format: str, made: str):
    assert parse_format(output_format) == made


# -- E14: spreadsheets -----------------------------------------------------------------------------------------------

FILES = [{"id": name, "name": f"{name}.csv", "created_by": "t"} for name in ("one", "two")]
CSV = {"one": b"id,v\n1,\n", "two": b"id,v\n2,x\n"}


@states("E14")
def test_a_list_of_files_is_read_whole_and_empty_cells_are_null():
    ctx = FakeContext(values={"A": {"f": FILES}}, stored=CSV)

    read = outputs(excel_processor, {"operation": "read", "input_files": ["A@f"]}, ctx)["data"]

    assert read == {"one.csv": [{"id": 1, "v": None}], "two.csv": [{"id": 2, "v": "x"}]}
    assert not any(isinstance(cell, float) and math.isnan(cell) for rows in read.values() for cell in rows[0].values())


@states("E14")
def test_files_from_a_form_are_read_though_the_form_shows_their_texts():
    ctx = FakeContext(values={"begin": {"f": ["File: one.csv"]}}, raw_files={"begin@f": FILES[:1]}, stored=CSV)

    read = outputs(excel_processor, {"operation": "read", "input_files": ["begin@f"]}, ctx)["data"]

    assert list(read) == ["one.csv"]


# -- E15: headers of a request ---------------------------------------------------------------------------------------

SECRET = "s3cret-of-the-caller"


@pytest.fixture
def tables(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The tables in whose rows a header stands that the caller of a run has sent along."""
    options = {"custom_header": {"Authorization": SECRET}}
    monkeypatch.setattr(runner, "RunRequest", partial(RunRequest, options=options))
    stage.play(drawn("begin -> Message:Out", {"Message:Out": says("hi")}))
    with stage.engine.database.transaction() as tx:
        return {table.name for table in metadata.sorted_tables if SECRET in str(tx.rows(select(table)))}


@states("E15")
def test_a_header_that_a_caller_sent_along_is_stored_nowhere_in_clear_text(tables: set[str]):
    assert tables == set()


# -- E17: forms ------------------------------------------------------------------------------------------------------


@states("E17")
def test_a_form_without_fields_is_none():
    assert isinstance(run(user_fill_up, {"inputs": [], "tips": "hi"}, FakeContext()), Finished)


@states("E17")
def test_fields_in_a_list_are_known_by_key_else_by_name():
    fields = [{"key": "a", "name": "A", "type": "line"}, {"name": "b", "type": "line"}]

    outcome = run(user_fill_up, {"inputs": fields}, FakeContext())

    assert isinstance(outcome, WaitingForInput)
    assert list(outcome.inputs) == ["a", "b"]


# -- E25: files for a browser ----------------------------------------------------------------------------------------


@states("E25")
def test_files_for_a_browser_are_fetched_under_guard_and_left_out_where_it_refuses(tmp_path: Path):
    def answer(call: HttpCall) -> HttpResponse:
        if "private" in call.url:
            raise AddressRefused("URL resolves to a non-public address (10.0.0.1), which is not allowed.")
        return HttpResponse(200, {}, b"bytes", call.url)

    http = FakeHttp(answer)
    sources = [UploadSource("http://private.test/a.txt"), UploadSource("https://public.test/b.txt")]
    ctx = FakeContext(services=Services(http), log=Log())

    files = asyncio.run(fetch_files(sources, tmp_path, 1000, ctx))

    assert [file.name for file in files] == ["b.txt"]
    assert [call.trusted for call in http.calls] == [False, False]
