"""ExcelProcessor: read spreadsheets, merge them, prepare data for them, and write them.

DSL: `operation` (`read`, `merge`, `transform`, `output`), `input_files`, `sheet_selection`, `merge_strategy`,
`join_on`, `transform_data`, `output_format`, `output_filename`; in the other form of the DSL `write`, `file_ref`,
`output_data` and `sheet_name`. Files may also be lists and come from a form. A file that cannot be read counts as a
file without sheets, and the output `errors` gives the reason.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator

from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components.base import Params, component
from components.context import NodeContext
from components.produced_links import links_to_file
from components.text.extraction import spreadsheets, tables
from components.text.extraction.file_kinds import FileUnreadable, Kind, LibraryMissing, check_size, unreadable
from components.text.extraction.tables import Table
from components.text.json_in_text import read_json
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.text.sanitizer import without_reasoning

OPERATIONS = ("read", "merge", "transform", "output")
FORMATS: Mapping[str, str] = {"xlsx": spreadsheets.XLSX, "csv": spreadsheets.CSV}
ROWS_SHOWN = 10  # of each table
MERGED_ROWS_SHOWN = 20
NAMES_SHOWN = 5
MAX_SHOWN_CHARS = 200  # characters, in an error
_DATA_URI = re.compile(r"data:([^;,]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_NOT_IN_A_NAME = re.compile(r'[\\/:*?"<>|\x00-\x1f]')


class ExcelProcessorParams(Params):
    default_outputs = ("data", "summary", "markdown", "attachment")
    later_outputs = ("errors",)

    operation: Any = "read"
    input_files: Any = Field(default_factory=list[Any])
    sheet_selection: Any = "all"
    merge_strategy: Any = "concat"
    join_on: Any = ""
    transform_data: Any = ""
    transform_instructions: Any = ""
    output_format: Any = "xlsx"
    output_filename: Any = "output"
    sheet_name: Any = ""

    @field_validator("operation")
    @classmethod
    def _known_operation(cls, operation: Any) -> Any:
        operation = "output" if operation == "write" else operation
        if operation not in OPERATIONS:
            known = ", ".join(OPERATIONS)
            raise ValueError(f"[ExcelProcessor] Operation {operation!r} is not supported. Use one of {known}.")
        return operation

    @field_validator("output_format")
    @classmethod
    def _known_format(cls, output_format: Any) -> Any:
        if output_format not in tuple(FORMATS):
            known = ", ".join(FORMATS)
            raise ValueError(f"[ExcelProcessor] Output format {output_format!r} is not supported. Use one of {known}.")
        return output_format


@dataclass(frozen=True, slots=True)
class _File:
    """An input file: the descriptor of a stored file, or a data URI."""

    name: str
    descriptor: Mapping[str, Any]
    uri: str = ""  # a data URI instead of a stored file


@component("ExcelProcessor", ExcelProcessorParams, effect="idempotent")
async def excel_processor(params: ExcelProcessorParams, ctx: NodeContext) -> Finished:
    match params.operation:
        case "read":
            outputs = await _read(params, ctx)
        case "merge":
            outputs = await _merge(params, ctx)
        case "transform":
            outputs = await in_untrusted_thread(_transform, await _data(params, ctx))
        case _:
            outputs = await _write(params, ctx)
    return Finished(outputs={"data": {}, "summary": "", "markdown": "", **outputs})


# -- operations -------------------------------------------------------------------------------------------------------


async def _read(params: ExcelProcessorParams, ctx: NodeContext) -> dict[str, Any]:
    files, errors = await _tables(params, ctx, str(params.sheet_selection or "all"))
    found: dict[str, Table] = {}
    for name, sheets in files:
        for sheet, table in sheets.items():
            found[_free_key(name if len(sheets) == 1 else f"{name}_{sheet}", found)] = table
    if not found:
        return {"summary": "No Excel files found", "markdown": "No data", **errors}
    return {
        "data": {key: table.rows for key, table in found.items()},
        "summary": "\n".join(_describe(key, table) for key, table in found.items()),
        "markdown": _to_markdown(found),
        **errors,
    }


async def _merge(params: ExcelProcessorParams, ctx: NodeContext) -> dict[str, Any]:
    files, errors = await _tables(params, ctx, "all")
    sources = [(f"{name}, {sheet}", table) for name, sheets in files for sheet, table in sheets.items()]
    if not sources:
        return {"summary": "No data to merge", **errors}
    on = str(params.join_on or "") if params.merge_strategy == "join" else ""
    merged = await in_untrusted_thread(_merge_tables, sources, on)
    size = f"{len(merged.rows)} rows, {len(merged.columns)} columns"
    return {
        "data": {"merged": merged.rows},
        "summary": f"Merged {len(sources)} sources into {size}",
        "markdown": tables.to_markdown(merged, MERGED_ROWS_SHOWN),
        **errors,
    }


def _merge_tables(sources: Sequence[tuple[str, Table]], on: str) -> Table:
    non_empty = [(name, table) for name, table in sources if table.columns]
    if not on or not non_empty:
        return tables.stack([table for _, table in non_empty])
    for name, table in non_empty:
        if on not in table.columns:
            raise NodeFailure(f'Column "{on}" to join on is missing in {name}. Choose another column, or use concat.')
    merged = non_empty[0][1]
    for _, table in non_empty[1:]:
        merged = tables.join(merged, table, on)
    return merged


def _transform(value: Any) -> dict[str, Any]:
    if value is None:
        return {"summary": "No data to transform"}
    found = tables.from_value(value)
    if found is None:
        data, markdown = {"raw": tables.text_of(value)}, ""
    elif tables.has_sheets(value):
        data, markdown = value, _to_markdown(found)
    else:
        table = found[tables.ONLY_SHEET]
        data, markdown = table.rows, tables.to_markdown(table, ROWS_SHOWN)
    return {"data": data, "summary": "Transformed data ready for processing", "markdown": markdown}


async def _write(params: ExcelProcessorParams, ctx: NodeContext) -> dict[str, Any]:
    value = await _data(params, ctx)
    ending = str(params.output_format)
    name = f"{_file_name(str(params.output_filename or ''), ending)}.{ending}"
    try:
        sheets = await in_untrusted_thread(tables.from_value, value)
        if not sheets:
            return _not_written("No data to write: rows, or an object with lists of rows, are needed.", value)
        if list(sheets) == [tables.ONLY_SHEET] and params.sheet_name:
            sheets = {str(params.sheet_name): sheets[tables.ONLY_SHEET]}
        if ending == "csv":
            sheets = dict(list(sheets.items())[:1])
        content = await in_untrusted_thread(_content, sheets, ending)
        saved = await ctx.save_file(name, content, FORMATS[ending])
    except NodeFailure as failure:
        if failure.retryable or isinstance(failure, LibraryMissing):
            raise
        return {"summary": f"{name} was not made: {failure.message}", "errors": [failure.message]}
    rows = sum(len(table.rows) for table in sheets.values())
    return {
        "summary": f"Generated {name} with {len(sheets)} sheet(s), {rows} total rows",
        "attachment": _attachment(saved, ending, name),
    }


def _attachment(saved: Mapping[str, Any], ending: str, name: str) -> dict[str, Any]:
    """Return the output `attachment`: the file as other nodes read it, and as a Message offers it for download."""
    doc_id, mime_type = saved["doc_id"], FORMATS[ending]
    file = {"filename": name, "mime_type": mime_type, "size": saved["size"]}
    return {
        "doc_id": doc_id,
        "format": ending,
        "file_name": name,
        **file,
        **links_to_file(str(doc_id), ending, mime_type),
    }


def _not_written(reason: str, value: Any) -> dict[str, Any]:
    if value is None or value == "":
        return {"summary": reason}
    text = tables.text_of(value)
    beginning = text[:MAX_SHOWN_CHARS] + ("..." if len(text) > MAX_SHOWN_CHARS else "")
    return {"summary": reason, "errors": [f"No file was made of this value, which has no rows: {beginning}"]}


def _content(sheets: Mapping[str, Table], ending: str) -> bytes:
    return spreadsheets.write_csv(next(iter(sheets.values()))) if ending == "csv" else spreadsheets.write_xlsx(sheets)


# -- inputs -----------------------------------------------------------------------------------------------------------


async def _data(params: ExcelProcessorParams, ctx: NodeContext) -> Any:
    """Return the value to transform or to write. A text that is JSON, as models write it, is parsed."""
    value = _lookup_data(params, ctx)
    if not isinstance(value, str):
        return value
    found = await in_untrusted_thread(_parse_json, value)
    return value if found is None else found


def _parse_json(text: str) -> Any:
    """Return the object or array in a text, without a fence around it and reasoning before it; None for other texts."""
    bare = without_reasoning(text).strip()
    fenced = _FENCED.search(bare)
    bare = fenced[1].strip() if fenced else bare
    return read_json(bare) if bare.startswith(("{", "[")) else None


def _lookup_data(params: ExcelProcessorParams, ctx: NodeContext) -> Any:
    """Return the value of `transform_data`: of its reference, or the value that the canvas itself holds."""
    source = params.transform_data
    if not isinstance(source, str):
        return source
    if not source.strip():
        return None
    value = ctx.lookup(source)
    ctx.note_input(source.strip("{} "), value)
    return value


async def _tables(
    params: ExcelProcessorParams, ctx: NodeContext, selection: str
) -> tuple[list[tuple[str, dict[str, Table]]], dict[str, Any]]:
    """Return the sheets of each input file that has any, and `{"errors": [...]}` if files could not be read."""
    found: list[tuple[str, dict[str, Table]]] = []
    errors: list[str] = []
    cells_left = tables.MAX_CELLS
    for file in _files(params, ctx):
        try:
            content = await _bytes(file, ctx)
            sheets = await spreadsheets.read_tables(file.name, content, selection)
        except FileUnreadable as failure:
            errors.append(failure.message)
            continue
        cells_left -= sum(len(table.columns) * len(table.rows) for table in sheets.values())
        if cells_left < 0:
            raise NodeFailure(f"The input files have more than {tables.MAX_CELLS:,} cells together. Use fewer files.")
        if sheets:
            found.append((file.name, sheets))
    return found, {"errors": errors} if errors else {}


def _files(params: ExcelProcessorParams, ctx: NodeContext) -> list[_File]:
    sources = params.input_files
    files: list[_File] = []
    for source in sources if isinstance(sources, list | tuple) else [sources]:
        if not isinstance(source, str):
            files += _files_in(source)
            continue
        if not source.strip():
            continue
        found = _files_in(list(ctx.descriptors(source)) or ctx.lookup(source))
        ctx.note_input(source.strip("{} "), [file.name for file in found])
        files += found
    return files


def _files_in(value: Any) -> list[_File]:
    """Return the files in a value; other values are ignored."""
    if isinstance(value, list):
        return [file for item in value for file in _files_in(item) if not isinstance(item, list)]
    if isinstance(value, Mapping):
        if not any(value.get(key) for key in ("id", "file_id", "doc_id")):
            return []
        name = value.get("name") or value.get("filename") or value.get("file_name") or "unknown.xlsx"
        return [_File(str(name), value)]
    uri = _DATA_URI.match(value) if isinstance(value, str) else None
    if uri is None:
        return []
    return [_File("uploaded.csv" if uri[1].lower() == spreadsheets.CSV else "uploaded.xlsx", {}, value)]


async def _bytes(file: _File, ctx: NodeContext) -> bytes:
    try:
        data = await in_untrusted_thread(_decode_data_uri, file) if file.uri else await ctx.read_file(file.descriptor)
    except NodeFailure as failure:
        if failure.retryable or isinstance(failure, FileUnreadable):
            raise
        raise FileUnreadable(failure.message, file=file.name) from failure
    check_size(file.name, Kind.EXCEL, data)
    return data


def _decode_data_uri(file: _File) -> bytes:
    try:
        return base64.b64decode(file.uri.partition(",")[2])
    except ValueError as error:
        raise unreadable(file.name, Kind.EXCEL, "is not a complete data URI", "Send all of its base64 text.") from error


# -- texts of the result ----------------------------------------------------------------------------------------------


def _describe(key: str, table: Table) -> str:
    names = ", ".join(table.columns[:NAMES_SHOWN]) + ("..." if len(table.columns) > NAMES_SHOWN else "")
    return f"**{key}**: {len(table.rows)} rows, {len(table.columns)} columns ({names})"


def _to_markdown(found: Mapping[str, Table]) -> str:
    return "\n\n".join(f"### {key}\n\n{tables.to_markdown(table, ROWS_SHOWN)}" for key, table in found.items())


def _free_key(key: str, used: Mapping[str, Any]) -> str:
    """Return the key, or the first of `key (2)` and so on that is not in use: files may have the same name."""
    number, free = 1, key
    while free in used:
        number += 1
        free = f"{key} ({number})"
    return free


def _file_name(name: str, ending: str) -> str:
    """Return a file name without folders and without its extension."""
    bare = _NOT_IN_A_NAME.sub("_", name).strip(". ")
    bare = bare[: -len(ending) - 1] if bare.lower().endswith(f".{ending}") else bare
    return bare[:180] or "output"
