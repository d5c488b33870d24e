"""Texts with references: the text form of a value, and the filling of a text with values.

Upstream writes values in different forms, by the kind of parameter:

    value_text    prompts, `set` of VariableAssigner: null is "", text unchanged, everything else JSON
    display_text  Messages and merges: the same, but file descriptors are removed from the text
    tips_text     forms: null is `null`, lists are joined with commas
    plain_text    URLs and headers: Python's text form

Values are looked up once, inserted unchanged, and never read as templates. `{item}`, `{index}` and `{result}` are
references inside an Iteration and plain text elsewhere. Jinja in a text is rendered by
`components/text/templates/jinja.py`.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from canvas.document import references
from canvas.document.references import ReferenceMatch
from canvas.errors import UnresolvedReference
from components.text.templates import jinja

Lookup: TypeAlias = Callable[[str], Any]
TextForm: TypeAlias = Callable[[Any], str]

DOWNLOAD_INFO_KEY = "include_download_info_in_content"
_NOT_IN_JINJA_NAMES = re.compile(r"[@:.]")


def json_text(value: Any) -> str:
    """Return a value as JSON on one line, with spaces after separators and without escapes for other alphabets."""
    return json.dumps(value, ensure_ascii=False)


def value_text(value: Any) -> str:
    """Return a value's text form in prompts: null is empty, text unchanged, everything else JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def plain_text(value: Any) -> str:
    """Return a value's text form in URLs and headers: null is empty, everything else as Python prints it (`True`)."""
    return "" if value is None else str(value)


def tips_text(value: Any) -> str:
    """Return a value's text form in forms: list items joined with commas, null as `null`."""
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return value if isinstance(value, str) else json_text(value)


def display_text(value: Any, files: list[dict[str, Any]] | None = None, *, delimiter: str | None = None) -> str:
    """Return a value's text form in Messages: like `value_text`, but file descriptors give "" and are added to `files`.

    If any of the descriptors has `include_download_info_in_content`, they are text as well, without that key. With a
    delimiter, lists are joined with it.
    """
    found = _files_in(value)
    if found is None:
        if isinstance(value, list) and delimiter is not None:
            return delimiter.join(str(item) for item in value)
        return value_text(value)
    described, single = found
    bare = [{key: part for key, part in file.items() if key != DOWNLOAD_INFO_KEY} for file in described]
    if files is not None:
        files.extend(bare)
    if not any(file.get(DOWNLOAD_INFO_KEY) for file in described):
        return ""
    return json_text(bare[0] if single else bare)


def format_text(text: str, lookup: Lookup, to_text: TextForm = value_text) -> str:
    """Return the text with every reference replaced by the text form of its value."""
    return fill(text, resolve_texts([text], lookup, to_text))


def resolve_texts(texts: Iterable[str], lookup: Lookup, to_text: TextForm = value_text) -> dict[str, str]:
    """Return the text form of every reference in the texts, by expression, in order of first mention."""
    return {expression: to_text(value) for expression, value in resolve_values(texts, lookup).items()}


def resolve_values(texts: Iterable[str], lookup: Lookup) -> dict[str, Any]:
    """Return the value of every reference in the texts, each looked up once.

    Raises UnresolvedReference for an unknown node or global. An alias outside of an Iteration is not a reference.
    """
    values: dict[str, Any] = {}
    for found in find_references(texts):
        if found.expression in values:
            continue
        try:
            values[found.expression] = lookup(found.expression)
        except UnresolvedReference:
            if not found.ref.is_alias:
                raise
    return values


def input_value(param: Any, lookup: Lookup, is_reference: Callable[[str], bool]) -> Any:
    """Return the value of a declared input's parameter: a single reference keeps its type, other texts are filled."""
    if not isinstance(param, str):
        return param
    return lookup(param) if is_reference(param) else format_text(param, lookup)


def find_references(texts: Iterable[str]) -> Iterator[ReferenceMatch]:
    """Yield every reference and alias in the texts, each as often as it occurs."""
    for text in texts:
        yield from references.find(text, with_aliases=True)


def split_references(text: str) -> Iterator[str | ReferenceMatch]:
    """Yield the parts of a text in order: non-empty literal texts, and references."""
    position = 0
    for found in references.find(text, with_aliases=True):
        if found.start > position:
            yield text[position : found.start]
        yield found
        position = found.end
    if position < len(text):
        yield text[position:]


def fill(text: str, texts: Mapping[str, str]) -> str:
    """Return the text with the references in `texts` replaced; other references stay unchanged."""
    return "".join(
        part if isinstance(part, str) else texts.get(part.expression, text[part.start : part.end])
        for part in split_references(text)
    )


def looks_like_jinja(text: str) -> bool:
    """Return whether a text contains Jinja: a block in `{% %}`, or double braces beside references."""
    rest = " ".join(part for part in split_references(text) if isinstance(part, str))
    block = rest.find("{%")
    return "{{" in rest or "}}" in rest or (block >= 0 and rest.find("%}", block + 2) >= 0)


def render(text: str, texts: Mapping[str, str]) -> str:
    """Render the text as a Jinja template, with its references bound to their text forms.

    References may occur anywhere, also in expressions, where they can also be written with underscores (`begin@x` as
    `begin_x`). If rendering fails, Jinja's part of the text stays unchanged. Raises NodeFailure for a text that does
    not parse.
    """
    prefix = "ref_"
    while prefix in text:
        prefix += "_"
    markers: dict[str, str] = {}
    source: list[str] = []
    for part in split_references(text):
        if isinstance(part, str):
            source.append(part)
        elif part.expression in texts:
            marker = f"{prefix}{len(markers)}_"
            markers[marker] = texts[part.expression]
            source.append(marker)
        else:
            source.append(text[part.start : part.end])
    names = {_NOT_IN_JINJA_NAMES.sub("_", expression): value for expression, value in texts.items()}
    try:
        return jinja.render("".join(source), markers, names)
    except jinja.RenderFailed:
        return fill(text, texts)


def _files_in(value: Any) -> tuple[list[dict[str, Any]], bool] | None:
    """Return the file descriptors of a value and whether it is a single one; None if it is anything else."""
    if isinstance(value, str):
        if not value.lstrip().startswith(("{", "[")) or "doc_id" not in value:
            return None
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if _is_file(value):
        return [value], True
    if isinstance(value, list) and value and all(_is_file(item) for item in value):
        return value, False
    return None


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and {"doc_id", "filename", "mime_type"} <= value.keys()
