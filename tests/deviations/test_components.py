"""Single components: values that the reference rejects, choices that it makes at random, and outputs that it omits."""

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
from tests.deviations.observed_run import CaseResult, CaseRunner, covers_rows, dsl_of, message_params, switch_params
from tests.fakes import FakeContext, FakeHttp, run
from tests.unit.components.nodes.agent.agents import Log


def outputs(component: Any, params: dict[str, Any], ctx: FakeContext) -> Any:
    outcome = run(component, params, ctx)
    assert isinstance(outcome, Finished)
    return outcome.outputs


# -- E5, E16: routers ------------------------------------------------------------------------------------------------


@covers_rows("E5", case="switch_bool_vs_text")
def test_switch_compares_a_boolean_with_its_name(result: CaseResult):
    assert result.answers == ["yes", "no", "yes"]


@covers_rows("E5", case="switch_empty")
def test_switch_checks_numbers_and_booleans_for_emptiness(result: CaseResult):
    assert result.answers == ["yes", "no", "no", "yes", "no", "yes", "no", "yes", "no", "yes"]


@covers_rows("E5")
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
def test_switch_compares_a_number_with_a_text_without_an_error(left: Any, operator: str, operand: str, holds: bool):
    params = switch_params("env.v", operator, operand, ["yes"], ["no"])

    outcome = run(switch, params, FakeContext(globals={"env.v": left}))

    assert isinstance(outcome, Routed)
    assert list(outcome.to) == (["yes"] if holds else ["no"])


@covers_rows("E16")
def test_switch_target_may_be_a_single_text(case_runner: CaseRunner):
    params = {
        "Switch:S": switch_params("sys.query", "=", "q", "Message:Yes", "Message:No"),
        "Message:Yes": message_params("yes"),
        "Message:No": message_params("no"),
    }
    document = dsl_of("begin -> Switch:S -> Message:Yes, Message:No", params)

    result = case_runner.run(document, {"query": "q"}, {"query": "other"})

    assert result.answers == ["yes", "no"]


@covers_rows("E16")
def test_category_target_may_be_a_single_text(case_runner: CaseRunner):
    categories = {"order": {"to": "Message:Yes"}, "other": {"to": "Message:No"}}
    params = {
        "Categorize:C": {"llm_id": "test-model", "category_description": categories},
        "Message:Yes": message_params("yes"),
        "Message:No": message_params("no"),
    }

    result = case_runner.run(
        dsl_of("begin -> Categorize:C -> Message:Yes, Message:No", params), llm=[{"reply": "order"}]
    )

    assert (result.answer, result.outputs("Categorize:C")["_next"]) == ("yes", ["Message:Yes"])


# -- E8, E9, E19: lists and objects ----------------------------------------------------------------------------------


@covers_rows("E8")
@pytest.mark.parametrize("value", [3, True, None, ["a"], {"k": 1}])
def test_row_can_be_updated_with_a_value_that_is_not_a_text(value: Any):
    params = {"query": ["env.r"], "operations": "append_or_update", "updates": [{"key": "n", "value": value}]}

    updated = outputs(data_operations, params, FakeContext(globals={"env.r": [{"id": 1}]}))

    assert updated["result"] == [{"id": 1, "n": value}]


@covers_rows("E8")
def test_combining_rows_does_not_change_them():
    rows = [{"tags": ["a"]}, {"tags": ["b"]}]

    combined = outputs(
        data_operations, {"query": ["env.r"], "operations": "combine"}, FakeContext(globals={"env.r": rows})
    )

    assert combined["result"] == {"tags": ["a", "b"]}
    assert rows == [{"tags": ["a"]}, {"tags": ["b"]}]


@covers_rows("E9")
def test_list_operation_sets_its_three_outputs_regardless_of_the_declared_ones():
    params = {"query": "env.l", "operations": "head", "n": 2, "outputs": {"result": {}}}

    values = outputs(list_operations, params, FakeContext(globals={"env.l": [1, 2, 3]}))

    assert values == {"result": [1, 2], "first": 1, "last": 2}


@covers_rows("E9")
@pytest.mark.parametrize("keys", ["a,b", ["a", "b"]])
def test_sort_keys_may_be_a_text_or_a_list(keys: Any):
    rows = [{"a": 2, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 1}]
    params = {"query": "env.l", "operations": "sort", "sort_by": keys}

    ordered = outputs(list_operations, params, FakeContext(globals={"env.l": rows}))

    assert ordered["result"] == [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}]


@covers_rows("E19")
def test_aggregator_variables_may_be_plain_texts():
    groups = [{"group_name": "first", "variables": ["env.none", "{env.some}"]}]
    ctx = FakeContext(globals={"env.none": None, "env.some": "here"})

    assert outputs(variable_aggregator, {"groups": groups}, ctx)["first"] == "here"


# -- E13, E24: Messages ----------------------------------------------------------------------------------------------


@covers_rows("E13")
def test_message_content_may_be_a_single_text():
    assert outputs(message, {"content": "Hello"}, FakeContext())["content"] == "Hello"


@covers_rows("E13")
def test_message_alternative_is_the_same_per_attempt_and_may_differ_per_visit():
    def message_text(**fields: Any) -> str:
        return outputs(message, {"content": list("abcdef")}, FakeContext(**fields))["content"]

    assert len({message_text(run_id="r", visit=0) for _ in range(9)}) == 1
    assert len({message_text(run_id="r", visit=visit) for visit in range(40)}) == 6


@covers_rows("E24")
@pytest.mark.parametrize(("output_format", "expected"), [("PDF", "pdf"), ("Markdown", "markdown"), ("xLsX", "xlsx")])
def test_file_format_is_recognised_in_any_letter_case(output_format: str, expected: str):
    assert parse_format(output_format) == expected


# -- E14: spreadsheets -----------------------------------------------------------------------------------------------

FILES = [{"id": name, "name": f"{name}.csv", "created_by": "t"} for name in ("one", "two")]
CSV = {"one": b"id,v\n1,\n", "two": b"id,v\n2,x\n"}


@covers_rows("E14")
def test_spreadsheet_list_is_read_completely_with_null_for_empty_cells():
    ctx = FakeContext(values={"A": {"f": FILES}}, stored=CSV)

    data = outputs(excel_processor, {"operation": "read", "input_files": ["A@f"]}, ctx)["data"]

    assert data == {"one.csv": [{"id": 1, "v": None}], "two.csv": [{"id": 2, "v": "x"}]}
    assert not any(isinstance(cell, float) and math.isnan(cell) for rows in data.values() for cell in rows[0].values())


@covers_rows("E14")
def test_spreadsheet_from_a_form_is_read_from_its_file_descriptor():
    ctx = FakeContext(values={"begin": {"f": ["File: one.csv"]}}, raw_files={"begin@f": FILES[:1]}, stored=CSV)

    data = outputs(excel_processor, {"operation": "read", "input_files": ["begin@f"]}, ctx)["data"]

    assert list(data) == ["one.csv"]


# -- E15: headers of a request ---------------------------------------------------------------------------------------

SECRET = "s3cret-of-the-caller"


@pytest.fixture
def tables(case_runner: CaseRunner, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The tables whose rows contain a header that the caller of a run has sent."""
    options = {"custom_header": {"Authorization": SECRET}}
    monkeypatch.setattr(runner, "RunRequest", partial(RunRequest, options=options))
    case_runner.run(dsl_of("begin -> Message:Out", {"Message:Out": message_params("hi")}))
    with case_runner.engine.database.transaction() as tx:
        return {table.name for table in metadata.sorted_tables if SECRET in str(tx.rows(select(table)))}


@covers_rows("E15")
def test_header_of_the_caller_is_not_stored_in_clear_text(tables: set[str]):
    assert tables == set()


# -- E17: forms ------------------------------------------------------------------------------------------------------


@covers_rows("E17")
def test_form_without_fields_does_not_wait():
    assert isinstance(run(user_fill_up, {"inputs": [], "tips": "hi"}, FakeContext()), Finished)


@covers_rows("E17")
def test_form_fields_in_a_list_are_identified_by_key_or_name():
    fields = [{"key": "a", "name": "A", "type": "line"}, {"name": "b", "type": "line"}]

    outcome = run(user_fill_up, {"inputs": fields}, FakeContext())

    assert isinstance(outcome, WaitingForInput)
    assert list(outcome.inputs) == ["a", "b"]


# -- E25: files for a browser ----------------------------------------------------------------------------------------


@covers_rows("E25")
def test_browser_upload_from_a_private_address_is_skipped(tmp_path: Path):
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
