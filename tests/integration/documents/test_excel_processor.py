"""ExcelProcessor reads spreadsheets, merges them, prepares data for them, and writes them."""

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
    made = Workbook()
    made.remove(made.worksheets[0])
    for name, rows in sheets.items():
        page = made.create_sheet(name)
        for row in rows:
            page.append(row)
    file = io.BytesIO()
    made.save(file)
    return file.getvalue()


def descriptor(file_id: str, name: str) -> dict[str, Any]:
    return {"id": file_id, "name": name, "mime_type": "application/octet-stream", "created_by": "t"}


def given(value: Any, **stored: bytes) -> FakeContext:
    return FakeContext(values={"A": {"f": value}}, stored=stored)


def one_workbook() -> FakeContext:
    return given(descriptor("x", "one.xlsx"), x=workbook(**TWO_SHEETS))


def outputs(ctx: FakeContext, **params: Any) -> dict[str, Any]:
    outcome = run(excel_processor, {"input_files": ["A@f"], **params}, ctx)
    assert isinstance(outcome, Finished)
    return dict(outcome.outputs)


def written(ctx: FakeContext, value: Any, **params: Any) -> dict[str, Any]:
    ctx.values["A"] = {"d": value}
    return outputs(ctx, operation="output", input_files=[], transform_data="{A@d}", **params)


def saved(ctx: FakeContext) -> tuple[str, bytes]:
    [(name, data, _)] = ctx.saved.values()
    return name, data


# -- read ---------------------------------------------------------------------------------------------------------


def test_every_sheet_of_a_file_is_read_into_rows():
    found = outputs(one_workbook())

    assert found["data"] == {
        "one.xlsx_S1": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
        "one.xlsx_S2": [{"id": 2, "v": 20}, {"id": 3, "v": 30}],
    }
    assert found["summary"].splitlines() == [
        "**one.xlsx_S1**: 2 rows, 2 columns (id, name)",
        "**one.xlsx_S2**: 2 rows, 2 columns (id, v)",
    ]
    assert found["markdown"].startswith("### one.xlsx_S1\n\n| id | name |\n| --- | --- |\n| 1 | a |\n| 2 | b |\n\n### ")


@pytest.mark.parametrize(
    ("selection", "keys"),
    [("first", ["one.xlsx"]), ("S2", ["one.xlsx"]), ("S2,S1,S9", ["one.xlsx_S1", "one.xlsx_S2"])],
)
def test_a_file_of_which_one_sheet_is_read_is_known_by_its_name_alone(selection: str, keys: list[str]):
    assert list(outputs(one_workbook(), sheet_selection=selection)["data"]) == keys


def test_a_wide_and_long_sheet_is_summed_up():
    ctx = given(descriptor("x", "w.csv"), x=b"a,b,c,d,e,f\n" + b"1,2,3,4,5,6\n" * 12)

    found = outputs(ctx)

    assert found["summary"] == "**w.csv**: 12 rows, 6 columns (a, b, c, d, e...)"
    assert found["markdown"].count("| 1 | 2 |") == 10
    assert len(found["data"]["w.csv"]) == 12


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
def test_files_come_in_many_shapes(value: Any, keys: list[str]):
    assert list(outputs(given(value, c=b"a\n1", x=workbook(S=PEOPLE)))["data"]) == keys


@pytest.mark.parametrize("value", ["some text", {"name": "no id"}, 5, None, [], [[descriptor("c", "c.csv")]]])
def test_what_is_no_file_is_passed_over(value: Any):
    assert outputs(given(value, c=b"a\n1")) == {
        "data": {}, "summary": "No Excel files found", "markdown": "No data"
    }  # fmt: skip


@pytest.mark.parametrize("expression", ["begin@doc", "{sys.files}"])
def test_files_of_forms_and_uploads_are_reached_behind_their_texts(expression: str):
    ctx = FakeContext(
        values={"begin": {"doc": ["TEXT"]}}, globals={"sys.files": ["TEXT"]},
        raw_files={expression.strip("{}"): [descriptor("c", "c.csv")]}, stored={"c": b"a\n1"},
    )  # fmt: skip

    assert outputs(ctx, input_files=[expression])["data"] == {"c.csv": [{"a": 1}]}
    assert ctx.inputs == {expression.strip("{}"): ["c.csv"]}


def test_without_files_there_is_nothing_to_read():
    assert outputs(FakeContext(), input_files=[])["summary"] == "No Excel files found"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (descriptor("bad", "bad.xlsx"), '"bad.xlsx" .* save it again'),
        (descriptor("gone", "gone.xlsx"), '"gone" is not there'),
        ("data:;base64,A", "data URI"),
    ],
)
def test_a_file_that_cannot_be_read_does_not_cost_the_others(value: Any, reason: str):
    found = outputs(given([value, descriptor("c", "c.csv")], bad=b"no workbook", c=b"a\n1"))

    assert list(found["data"]) == ["c.csv"]
    [error] = found["errors"]
    assert re.search(reason, error)


def test_a_reference_to_nothing_fails_the_node():
    with pytest.raises(UnresolvedReference, match="Nobody@f"):
        outputs(FakeContext(), input_files=["{Nobody@f}"])


def test_a_missing_library_fails_the_node(monkeypatch: pytest.MonkeyPatch):
    async def here(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setitem(sys.modules, "openpyxl", None)
    monkeypatch.setattr(spreadsheets, "in_limited_process", here)

    with pytest.raises(NodeFailure, match=r"easel\[docs\]"):
        outputs(given(descriptor("x", "x.xlsx"), x=b""))
    with pytest.raises(NodeFailure, match=r"easel\[docs\]"):
        written(FakeContext(), [{"a": 1}])


def test_files_that_are_too_large_together_fail_the_node(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "MAX_CELLS", 3)

    with pytest.raises(NodeFailure, match="more than 3 cells together"):
        outputs(given([descriptor("c", "c.csv")] * 2, c=b"a\n1\n2"))


# -- merge --------------------------------------------------------------------------------------------------------


def test_sheets_are_stacked():
    found = outputs(one_workbook(), operation="merge")

    assert found["data"]["merged"] == [
        {"id": 1, "name": "a", "v": None},
        {"id": 2, "name": "b", "v": None},
        {"id": 2, "name": None, "v": 20},
        {"id": 3, "name": None, "v": 30},
    ]
    assert found["summary"] == "Merged 2 sources into 4 rows, 3 columns"
    assert found["markdown"].splitlines()[2] == "| 1 | a |  |"


def test_sheets_are_joined_on_a_column():
    found = outputs(one_workbook(), operation="merge", merge_strategy="join", join_on="id")

    assert found["data"]["merged"] == [
        {"id": 1, "name": "a", "v": None},
        {"id": 2, "name": "b", "v": 20},
        {"id": 3, "name": None, "v": 30},
    ]


def test_an_empty_sheet_takes_no_part_in_a_join():
    ctx = given(descriptor("x", "x.xlsx"), x=workbook(S1=PEOPLE, Blank=[]))

    found = outputs(ctx, operation="merge", merge_strategy="join", join_on="id")

    assert found["data"]["merged"] == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_a_join_without_a_column_stacks():
    assert len(outputs(one_workbook(), operation="merge", merge_strategy="join")["data"]["merged"]) == 4


def test_a_column_to_join_on_must_be_in_every_sheet():
    with pytest.raises(NodeFailure, match=r'"name" .* one.xlsx, S2'):
        outputs(one_workbook(), operation="merge", merge_strategy="join", join_on="name")


def test_twenty_merged_rows_are_shown():
    ctx = given(descriptor("c", "c.csv"), c=b"a\n" + b"1\n" * 30)

    assert outputs(ctx, operation="merge")["markdown"].count("| 1 |") == 20


def test_nothing_merges_into_nothing():
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
def test_values_are_made_ready(value: Any, data: Any, markdown: str):
    ctx = FakeContext(globals={"env.d": value})

    assert outputs(ctx, operation="transform", transform_data="env.d") == {
        "data": data, "summary": "Transformed data ready for processing", "markdown": markdown
    }  # fmt: skip
    assert ctx.inputs == {"env.d": value}


@pytest.mark.parametrize("params", [{}, {"transform_data": "env.n"}, {"transform_data": " "}])
def test_without_data_there_is_only_a_summary(params: dict[str, Any]):
    found = outputs(FakeContext(globals={"env.n": None}), operation="transform", **params)

    assert found == {"data": {}, "summary": "No data to transform", "markdown": ""}


# -- output -------------------------------------------------------------------------------------------------------


def test_sheets_are_written_into_a_workbook():
    ctx = FakeContext()

    found = written(ctx, {"A": [{"x": 1}], "B/1": [{"y": "=1+1"}]}, output_filename="report")

    name, data = saved(ctx)
    pages = load_workbook(io.BytesIO(data)).worksheets
    assert name == "report.xlsx"
    assert [(page.title, page["A1"].value, page["A2"].value) for page in pages] == [("A", "x", 1), ("B_1", "y", "=1+1")]
    assert pages[1]["A2"].data_type == "s"
    assert found["summary"] == "Generated report.xlsx with 2 sheet(s), 2 total rows"
    told = {"doc_id": next(iter(ctx.saved)), "format": "xlsx", "file_name": "report.xlsx"}
    assert found["attachment"].items() >= told.items()


def test_of_several_sheets_a_csv_file_has_the_first():
    ctx = FakeContext()

    found = written(ctx, {"A": [{"x": 1}, {"x": None}], "B": [{"y": 1}]}, output_format="csv")

    assert saved(ctx) == ("output.csv", b'x\n1\n""\n')
    assert found["summary"] == "Generated output.csv with 1 sheet(s), 2 total rows"


@pytest.mark.parametrize(
    ("value", "title"), [([{"x": 1}], "Sheet1"), ({"x": 1}, "Sheet1"), ([["x"], [1]], "Sheet1"), ([1], "Sheet1")]
)
def test_rows_are_written_into_one_sheet(value: Any, title: str):
    ctx = FakeContext()

    written(ctx, value)

    [page] = load_workbook(io.BytesIO(saved(ctx)[1])).worksheets
    assert (page.title, page["A2"].value) == (title, 1)


def test_what_was_read_can_be_written():
    ctx = one_workbook()
    data = outputs(ctx)["data"]

    assert written(ctx, data)["summary"] == "Generated output.xlsx with 2 sheet(s), 4 total rows"


@pytest.mark.parametrize("value", ["text", 5, True, None, {}])
def test_what_has_no_rows_is_not_written(value: Any):
    ctx = FakeContext()

    found = written(ctx, value)

    assert found["summary"].startswith("No data to write")
    assert "attachment" not in found
    assert not ctx.saved


@pytest.mark.parametrize("value", ["The year was good.", 5, {}])
def test_a_value_without_rows_is_named_among_the_errors(value: Any):
    found = written(FakeContext(), value)

    assert found["errors"] == [f"No file was made of this value, which has no rows: {tables.text_of(value)}"]


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

    found = written(ctx, answer)

    assert found["summary"] == "Generated output.xlsx with 1 sheet(s), 2 total rows"
    [page] = load_workbook(io.BytesIO(saved(ctx)[1])).worksheets
    assert list(page.values) == [("name", "age"), ("Ann", 3), ("Bo", None)]


def test_json_text_of_a_model_is_made_ready():
    ctx = FakeContext(globals={"env.d": '```json\n[{"a": 1}]\n```'})

    assert outputs(ctx, operation="transform", transform_data="env.d")["data"] == [{"a": 1}]


def test_a_message_offers_the_file_that_was_made_as_a_download():
    ctx = FakeContext()
    attachment = written(ctx, [{"a": 1}], output_filename="sales", output_format="csv")["attachment"]
    ctx.values["X"] = {"attachment": attachment}

    told = run(message, {"content": ["Your file: {X@attachment}"]}, ctx)

    assert isinstance(told, Finished)
    assert told.outputs["content"] == "Your file: "
    [offered] = told.outputs["downloads"]
    assert (offered["filename"], offered["mime_type"], offered["size"]) == ("sales.csv", "text/csv", 4)
    place = f"/api/v1/agents/attachments/{offered['doc_id']}/download"
    assert offered["download_url"] == f"{place}?ext=csv&mime_type=text%2Fcsv"


def test_a_file_that_cannot_be_made_is_told_in_the_summary():
    found = written(FakeContext(), [{str(column): 1 for column in range(16_385)}])

    assert found["summary"].startswith("output.xlsx was not made: ")
    assert found["data"] == {}


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("a/b\\c", "a_b_c.xlsx"),
        ("../../x", "_.._x.xlsx"),
        ("t.xlsx", "t.xlsx"),
        ("", "output.xlsx"),
        (None, "output.xlsx"),
    ],
)
def test_a_file_name_names_no_folder(given_name: Any, name: str):
    ctx = FakeContext()

    written(ctx, [{"x": 1}], output_filename=given_name)

    assert saved(ctx)[0] == name


# -- the other shape and the checks ---------------------------------------------------------------------------------


def unfolded(params: dict[str, Any]) -> dict[str, Any]:
    """The params as a stored canvas with them gives them to the component."""
    nodes = {
        "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["E:1"], "upstream": []},
        "E:1": {"obj": {"component_name": "ExcelProcessor", "params": params}, "downstream": [], "upstream": ["begin"]},
    }
    return dict(parsing.parse({"components": nodes}).entries["E:1"].params)


def test_a_grid_is_written_as_one_sheet_of_the_name_it_is_given():
    ctx = FakeContext(globals={"env.grid": [["x", "y"], [1, 2]]})
    params = unfolded({"operation": "write", "output_data": "{env.grid}", "sheet_name": "Data"})

    outcome = run(excel_processor, params, ctx)

    assert isinstance(outcome, Finished)
    [page] = load_workbook(io.BytesIO(saved(ctx)[1])).worksheets
    assert page.title == "Data"
    assert [[cell.value for cell in row] for row in page.iter_rows()] == [["x", "y"], [1, 2]]


def test_a_grid_may_stand_in_the_canvas_itself():
    ctx = FakeContext()

    run(excel_processor, unfolded({"operation": "write", "output_data": [["x"], [1]], "output_format": "csv"}), ctx)

    assert saved(ctx)[1] == b"x\n1\n"


def test_one_file_and_one_sheet_can_be_named_in_the_other_shape():
    ctx = one_workbook()

    outcome = run(excel_processor, unfolded({"operation": "read", "file_ref": "{A@f}", "sheet_name": "S2"}), ctx)

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
def test_what_it_cannot_do_is_refused_when_the_canvas_is_loaded(params: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=message):
        ExcelProcessorParams.model_validate(params)
