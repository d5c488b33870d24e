"""Fields of a form: their schema, and the value of an answer. Begin and UserFillUp share them.

An answer is a bare value or `{value, type, optional}`. A file becomes its text, an object written as text becomes an
object. The descriptors of the files are kept by field in the output `_files`, so that a later node can still read the
bytes.
"""

import json
from collections.abc import Mapping
from typing import Any

from canvas.errors import NodeFailure
from components.context import NodeContext

FILES = "_files"  # the output with the descriptors


def fields_of(inputs: Any) -> dict[str, Any]:
    """Return the fields of a form by name, in order. A list of fields is keyed by `key`, else by `name`."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if not isinstance(inputs, list):
        return {}
    named = [(field.get("key") or field.get("name"), field) for field in inputs if isinstance(field, Mapping)]
    return {str(name): field for name, field in named if name}


def is_file(field: Any) -> bool:
    """Return whether a field, or an answer, is of a file type."""
    return isinstance(field, Mapping) and "file" in str(field.get("type") or "").lower()


def descriptors(answers: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the file descriptors in the answers, by field; fields without files are left out."""
    files = {name: _as_list(answer.get("value")) for name, answer in answers.items() if is_file(answer)}
    return {name: listed for name, listed in files.items() if listed}


async def resolve(name: str, answer: Any, layout_recognize: str, ctx: NodeContext) -> Any:
    """Return the value of an answer. Raises NodeFailure if a required file is missing."""
    if not isinstance(answer, Mapping):
        return answer
    value = answer.get("value")
    if is_file(answer):
        return await _file_texts(name, answer, value, layout_recognize, ctx)
    if answer.get("type") == "object" and isinstance(value, str) and value.strip():
        return _decode_json(value)
    return value


async def _file_texts(
    name: str, answer: Mapping[str, Any], value: Any, layout_recognize: str, ctx: NodeContext
) -> list[str] | None:
    if value is None or value == "":
        if answer.get("optional") is True:
            return None
        raise NodeFailure(f'Field "{name}" needs a file. Upload one, or make the field optional.', field=name)
    described = _as_list(value)
    for descriptor in described:
        if not isinstance(descriptor, Mapping):
            raise NodeFailure(f'Field "{name}": a file is an object {{id, name, mime_type, created_by}}.', field=name)
    return [await ctx.file_text(descriptor, layout_recognize) for descriptor in described]


def _as_list(value: Any) -> list[Any]:
    """Return one descriptor or several as a list."""
    if value is None or value == "":
        return []
    return value if isinstance(value, list) else [value]


def _decode_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return text
