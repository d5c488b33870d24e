"""ExcelProcessor reads, merges, transforms and writes spreadsheets."""

import base64
import io
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from openpyxl import Workbook, load_workbook
from pydantic import ValidationError

from canvas.document import parsing
from canvas.errors import NodeFailure, UnresolvedReference
from canvas.outcome import Finished
from components.nodes.data.excel_processor import ExcelProcessorParams, excel_processor
from components.nodes.flow.message import message
from components.text.extraction import spreadsheets, tables
from tests.fakes import FakeContext, run

PEOPLE = [["id", "name"], [1, "a"], [2, "b"]]
VALUES = [["id", "v"], [2, 20], [3, 30]]
TWO_SHEETS = {"S1": PEOPLE, "S2": VALUES}


def workbook(**sheets: list[list[Any]]) -> bytes:
    book = Workbook()
    book.remove(book.worksheets[0])
    for name, rows in sheets.items():
        page = book.create_sheet(name)
        for row in rows:
            page.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def descriptor(file_id: str, name: str) -> dict[str, Any]:
    return {"id": file_id, "name": name, "mime_type": "application/octet-stream", "created_by": "t"}


def context_with(value: Any, **stored: bytes) -> FakeContext:
    return FakeContext(values={"A": {"f": value}}, stored=stored)


def one_workbook() -> FakeContext:
    return context_with(descriptor("x", "one.xlsx"), x=workbook(**TWO_SHEETS))


def outputs(ctx: FakeContext, **params: Any) -> dict[str, Any]:
    outcome = run(excel_processor, {"input_files": ["A@f"], **params}, ctx)
    assert isinstance(outcome, Finished)
    return dict(outcome.outputs)


def write_output(ctx: FakeContext, value: Any, **params: Any) -> dict[str, Any]:
    ctx.values["A"] = {"d": value}
    return outputs(ctx, operation="output", input_files=[], transform_data="{A@d}", **params)


def saved_file(ctx: FakeContext) -> tuple[str, bytes]:
    [(name, data, _)] = ctx.saved.values()
    return name, data


# -- read ---------------------------------------------------------------------------------------------------------


def test_every_sheet_of_a_file_is_read_into_rows():
    result = outputs(one_workbook())

    assert result["data"] == {
        "one.xlsx_S1": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
        "one.xlsx_S2": [{"id": 2, "v": 20}, {"id": 3, "v": 30}],
    }
    assert result["summary"].splitlines() == [
        "**one.xlsx_S1**: 2 rows, 2 columns (id, name)",
        "**one.xlsx_S2**: 2 rows, 2 columns (id, v)",
    ]
    assert result["markdown"].startswith(
        "### one.xlsx_S1\n\n| id | name |\n| --- | --- |\n| 1 | a |\n| 2 | b |\n\n### "
    )


@pytest.mark.parametrize(
    ("selection", "keys"),
    [("first", ["one.xlsx"]), ("S2", ["one.xlsx"]), ("S2,S1,S9", ["one.xlsx_S1", "one.xlsx_S2"])],
)
def test_file_with_one_selected_sheet_is_keyed_by_its_file_name(selection: str, keys: list[str]):
    assert list(outputs(one_workbook(), sheet_selection=selection)["data"]) == keys


def test_summary_of_a_large_sheet_is_shortened():
    ctx = context_with(descriptor("x", "w.csv"), x=b"a,b,c,d,e,f\n" + b"1,2,3,4,5,6\n" * 12)

    result = outputs(ctx)

    assert result["summary"] == "**w.csv**: 12 rows, 6 columns (a, b, c, d, e...)"
    assert result["markdown"].count("| 1 | 2 |") == 10
    assert len(result["data"]["w.csv"]) == 12


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        (descriptor("c", "c.CSV"), ["c.CSV"]),
        ({"file_id": "c", "filename": "f.csv"}, ["f.csv"]),
        ({"doc_id": "c", "format": "csv", "file_name": "out.csv"}, ["out.csv"]),
        ({"id": "x"}, ["unknown.xlsx"]),
        ([descriptor("c", "c.csv"), descriptor("x", "x.xlsx"), "no file"], ["c.csv", "x.xlsx"]),
        ([descriptor("c", "c.csv"), descriptor("c", "c.csv")], ["c.csv", "c.csv (2)"]),
        (f"data:application/vnd.ms-excel;base64,{base64.b64encode(workbook(S=PEOPLE)).decode()}", ["uploaded.xlsx"]),
        (f"data:text/csv;charset=utf-8;base64,{base64.b64encode(b'a').decode()}", ["uploaded.csv"]),
    ],
)
def test_file_references_of_every_shape_are_read(value: Any, keys: list[str]):
    assert list(outputs(context_with(value, c=b"a\n1", x=workbook(S=PEOPLE)))["data"]) == keys


@pytest.mark.parametrize("value", ["some text", {"name": "no id"}, 5, None, [], [[descriptor("c", "c.csv")]]])
def test_values_that_are_not_files_are_skipped(value: Any):
    assert outputs(context_with(value, c=b"a\n1")) == {
        "data": {}, "summary": "No Excel files found", "markdown": "No data"
    }  # fmt: skip


@pytest.mark.parametrize("expression", ["begin@doc", "{sys.files}"])
def test_files_of_forms_and_uploads_are_read_instead_of_their_texts(expression: str):
    ctx = FakeContext(
        values={"begin": {"doc": ["TEXT"]}}, globals={"sys.files": ["TEXT"]},
        raw_files={expression.strip("{}"): [descriptor("c", "c.csv")]}, stored={"c": b"a\n1"},
    )  # fmt: skip

    assert outputs(ctx, input_files=[expression])["data"] == {"c.csv": [{"a": 1}]}
    assert ctx.inputs == {expression.strip("{}"): ["c.csv"]}


def test_empty_input_reports_that_no_files_were_found():
    assert outputs(FakeContext(), input_files=[])["summary"] == "No Excel files found"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (descriptor("bad", "bad.xlsx"), '"bad.xlsx" .* save it again'),
        (descriptor("gone", "gone.xlsx"), '"gone" is not there'),
        ("data:;base64,A", "data URI"),
    ],
)
def test_unreadable_file_is_an_error_and_the_others_are_read(value: Any, reason: str):
    result = outputs(context_with([value, descriptor("c", "c.csv")], bad=b"no workbook", c=b"a\n1"))

    assert list(result["data"]) == ["c.csv"]
    [error] = result["errors"]
    assert re.search(reason, error)


def test_unresolved_reference_fails_the_node():
    with pytest.raises(UnresolvedReference, match="Nobody@f"):
        outputs(FakeContext(), input_files=["{Nobody@f}"])


def test_a_missing_library_fails_the_node(monkeypatch: pytest.MonkeyPatch):
    async def run_in_this_process(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setitem(sys.modules, "openpyxl", None)
    monkeypatch.setattr(spreadsheets, "in_limited_process", run_in_this_process)

    with pytest.raises(NodeFailure, match=r"easel\[docs\]"):
        outputs(context_with(descriptor("x", "x.xlsx"), x=b""))
    with pytest.raises(NodeFailure, match=r"easel\[docs\]"):
        write_output(FakeContext(), [{"a": 1}])


def test_files_that_are_too_large_together_fail_the_node(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "MAX_CELLS", 3)

    with pytest.raises(NodeFailure, match="more than 3 cells together"):
        outputs(context_with([descriptor("c", "c.csv")] * 2, c=b"a\n1\n2"))


# -- merge --------------------------------------------------------------------------------------------------------


def test_sheets_are_stacked():
    result = outputs(one_workbook(), operation="merge")

    assert result["data"]["merged"] == [
        {"id": 1, "name": "a", "v": None},
        {"id": 2, "name": "b", "v": None},
        {"id": 2, "name": None, "v": 20},
        {"id": 3, "name": None, "v": 30},
    ]
    assert result["summary"] == "Merged 2 sources into 4 rows, 3 columns"
    assert result["markdown"].splitlines()[2] == "| 1 | a |  |"


def test_sheets_are_joined_on_a_column():
    result = outputs(one_workbook(), operation="merge", merge_strategy="join", join_on="id")

    assert result["data"]["merged"] == [
        {"id": 1, "name": "a", "v": None},
        {"id": 2, "name": "b", "v": 20},
        {"id": 3, "name": None, "v": 30},
    ]


def test_empty_sheet_is_ignored_in_a_join():
    ctx = context_with(descriptor("x", "x.xlsx"), x=workbook(S1=PEOPLE, Blank=[]))

    result = outputs(ctx, operation="merge", merge_strategy="join", join_on="id")

    assert result["data"]["merged"] == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_join_without_a_column_stacks_the_sheets():
    assert len(outputs(one_workbook(), operation="merge", merge_strategy="join")["data"]["merged"]) == 4


def test_a_column_to_join_on_must_be_in_every_sheet():
    with pytest.raises(NodeFailure, match=r'"name" .* one.xlsx, S2'):
        outputs(one_workbook(), operation="merge", merge_strategy="join", join_on="name")


def test_markdown_of_a_merge_shows_twenty_rows():
    ctx = context_with(descriptor("c", "c.csv"), c=b"a\n" + b"1\n" * 30)

    assert outputs(ctx, operation="merge")["markdown"].count("| 1 |") == 20


def test_merge_without_files_is_empty():
    assert outputs(FakeContext(), operation="merge", input_files=[]) == {
        "data": {}, "summary": "No data to merge", "markdown": ""
    }  # fmt: skip


# -- transform ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "data", "markdown"),
    [
        (
            [{"a": 1, "b": "x"}, {"a": 2}],
            [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
            "| a | b |\n| --- | --- |\n| 1 | x |\n| 2 |  |",
        ),
        ({"a": 1}, [{"a": 1}], "| a |\n| --- |\n| 1 |"),
        ({"S": [{"a": 1}, {}]}, {"S": [{"a": 1}, {}]}, "### S\n\n| a |\n| --- |\n| 1 |\n|  |"),
        ([["a"], [1]], [{"a": 1}], "| a |\n| --- |\n| 1 |"),
        ("a text", {"raw": "a text"}, ""),
        (7, {"raw": "7"}, ""),
        ([], [], ""),
    ],
)
def test_transform_converts_values_to_rows_and_markdown(value: Any, data: Any, markdown: str):
    ctx = FakeContext(globals={"env.d": value})

    assert outputs(ctx, operation="transform", transform_data="env.d") == {
        "data": data, "summary": "Transformed data ready for processing", "markdown": markdown
    }  # fmt: skip
    assert ctx.inputs == {"env.d": value}


@pytest.mark.parametrize("params", [{}, {"transform_data": "env.n"}, {"transform_data": " "}])
def test_transform_without_data_has_only_a_summary(params: dict[str, Any]):
    result = outputs(FakeContext(globals={"env.n": None}), operation="transform", **params)

    assert result == {"data": {}, "summary": "No data to transform", "markdown": ""}


# -- output -------------------------------------------------------------------------------------------------------


def test_sheets_are_written_into_a_workbook():
    ctx = FakeContext()

    result = write_output(ctx, {"A": [{"x": 1}], "B/1": [{"y": "=1+1"}]}, output_filename="report")

    name, data = saved_file(ctx)
    pages = load_workbook(io.BytesIO(data)).worksheets
    assert name == "report.xlsx"
    assert [(page.title, page["A1"].value, page["A2"].value) for page in pages] == [("A", "x", 1), ("B_1", "y", "=1+1")]
    assert pages[1]["A2"].data_type == "s"
    assert result["summary"] == "Generated report.xlsx with 2 sheet(s), 2 total rows"
    expected = {"doc_id": next(iter(ctx.saved)), "format": "xlsx", "file_name": "report.xlsx"}
    assert result["attachment"].items() >= expected.items()


def test_csv_file_has_only_the_first_of_several_sheets():
    ctx = FakeContext()

    result = write_output(ctx, {"A": [{"x": 1}, {"x": None}], "B": [{"y": 1}]}, output_format="csv")

    assert saved_file(ctx) == ("output.csv", b'x\n1\n""\n')
    assert result["summary"] == "Generated output.csv with 1 sheet(s), 2 total rows"


@pytest.mark.parametrize(
    ("value", "title"), [([{"x": 1}], "Sheet1"), ({"x": 1}, "Sheet1"), ([["x"], [1]], "Sheet1"), ([1], "Sheet1")]
)
def test_rows_are_written_into_one_sheet(value: Any, title: str):
    ctx = FakeContext()

    write_output(ctx, value)

    [page] = load_workbook(io.BytesIO(saved_file(ctx)[1])).worksheets
    assert (page.title, page["A2"].value) == (title, 1)


def test_data_that_was_read_can_be_written():
    ctx = one_workbook()
    data = outputs(ctx)["data"]

    assert write_output(ctx, data)["summary"] == "Generated output.xlsx with 2 sheet(s), 4 total rows"


@pytest.mark.parametrize("value", ["text", 5, True, None, {}])
def test_value_without_rows_is_not_written(value: Any):
    ctx = FakeContext()

    result = write_output(ctx, value)

    assert result["summary"].startswith("No data to write")
    assert "attachment" not in result
    assert not ctx.saved


@pytest.mark.parametrize("value", ["The year was good.", 5, {}])
def test_a_value_without_rows_is_named_among_the_errors(value: Any):
    result = write_output(FakeContext(), value)

    assert result["errors"] == [f"No file was made of this value, which has no rows: {tables.text_of(value)}"]


@pytest.mark.parametrize(
    "answer",
    [
        '[{"name": "Ann", "age": 3}, {"name": "Bo"}]',
        'Here it is:\n```json\n[{"name": "Ann", "age": 3}, {"name": "Bo"}]\n```\nAnything else?',
        '<think>[]</think>[{"name": "Ann", "age": 3}, {"name": "Bo",}]',
        '{"Sheet1": [{"name": "Ann", "age": 3}, {"name": "Bo"}]}',
    ],
)
def test_json_text_of_a_model_becomes_a_file(answer: str):
    ctx = FakeContext()

    result = write_output(ctx, answer)

    assert result["summary"] == "Generated output.xlsx with 1 sheet(s), 2 total rows"
    [page] = load_workbook(io.BytesIO(saved_file(ctx)[1])).worksheets
    assert list(page.values) == [("name", "age"), ("Ann", 3), ("Bo", None)]


def test_json_text_of_a_model_is_transformed():
    ctx = FakeContext(globals={"env.d": '```json\n[{"a": 1}]\n```'})

    assert outputs(ctx, operation="transform", transform_data="env.d")["data"] == [{"a": 1}]


def test_a_message_offers_the_file_that_was_made_as_a_download():
    ctx = FakeContext()
    attachment = write_output(ctx, [{"a": 1}], output_filename="sales", output_format="csv")["attachment"]
    ctx.values["X"] = {"attachment": attachment}

    outcome = run(message, {"content": ["Your file: {X@attachment}"]}, ctx)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "Your file: "
    [download] = outcome.outputs["downloads"]
    assert (download["filename"], download["mime_type"], download["size"]) == ("sales.csv", "text/csv", 4)
    url = f"/api/v1/agents/attachments/{download['doc_id']}/download"
    assert download["download_url"] == f"{url}?ext=csv&mime_type=text%2Fcsv"


def test_summary_reports_a_file_that_cannot_be_written():
    result = write_output(FakeContext(), [{str(column): 1 for column in range(16_385)}])

    assert result["summary"].startswith("output.xlsx was not made: ")
    assert result["data"] == {}


@pytest.mark.parametrize(
    ("filename", "name"),
    [
        ("a/b\\c", "a_b_c.xlsx"),
        ("../../x", "_.._x.xlsx"),
        ("t.xlsx", "t.xlsx"),
        ("", "output.xlsx"),
        (None, "output.xlsx"),
    ],
)
def test_file_name_contains_no_folder(filename: Any, name: str):
    ctx = FakeContext()

    write_output(ctx, [{"x": 1}], output_filename=filename)

    assert saved_file(ctx)[0] == name


# -- alternative params and validation ----------------------------------------------------------------------------


def parse_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the params as the parser passes them to the component of a stored canvas."""
    nodes = {
        "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["E:1"], "upstream": []},
        "E:1": {"obj": {"component_name": "ExcelProcessor", "params": params}, "downstream": [], "upstream": ["begin"]},
    }
    return dict(parsing.parse({"components": nodes}).entries["E:1"].params)


def test_grid_is_written_as_one_sheet_with_the_given_name():
    ctx = FakeContext(globals={"env.grid": [["x", "y"], [1, 2]]})
    params = parse_params({"operation": "write", "output_data": "{env.grid}", "sheet_name": "Data"})

    outcome = run(excel_processor, params, ctx)

    assert isinstance(outcome, Finished)
    [page] = load_workbook(io.BytesIO(saved_file(ctx)[1])).worksheets
    assert page.title == "Data"
    assert [[cell.value for cell in row] for row in page.iter_rows()] == [["x", "y"], [1, 2]]


def test_grid_may_be_a_literal_in_the_canvas():
    ctx = FakeContext()

    run(excel_processor, parse_params({"operation": "write", "output_data": [["x"], [1]], "output_format": "csv"}), ctx)

    assert saved_file(ctx)[1] == b"x\n1\n"


def test_file_and_sheet_can_be_named_in_the_alternative_params():
    ctx = one_workbook()

    outcome = run(excel_processor, parse_params({"operation": "read", "file_ref": "{A@f}", "sheet_name": "S2"}), ctx)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["data"] == {"one.xlsx": [{"id": 2, "v": 20}, {"id": 3, "v": 30}]}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"operation": "delete"}, r"\[ExcelProcessor\] Operation 'delete'"),
        ({"operation": None}, r"\[ExcelProcessor\] Operation"),
        ({"operation": ["read"]}, r"\[ExcelProcessor\] Operation"),
        ({"output_format": "xls"}, r"\[ExcelProcessor\] Output format 'xls'"),
        ({"output_format": {}}, r"\[ExcelProcessor\] Output format"),
    ],
)
def test_invalid_params_are_refused_when_the_canvas_is_loaded(params: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=message):
        ExcelProcessorParams.model_validate(params)
