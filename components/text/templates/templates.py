"""Text with references: how a value reads in a text, and how a text is filled with values.

Each resolver of the specification (components 1.4) is a form of `filled` with another way to write a value:

    B, C  value_text    prompts, `set` of the assigner: null is "", text as it is, everything else JSON
    D, E  shown         Messages and merges: the same, but files are taken out of the text
    F     tips_text     forms: null is `null`, lists are joined with commas
    G     plain_text    addresses and headers: Python's own text form

Values are looked up once, put in as they are, and never read as templates themselves. `{item}`, `{index}` and
`{result}` are references inside an Iteration and plain text elsewhere. What is left in a text that looks like Jinja
is rendered by `components/text/templates/jinja.py`.
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

SHOW = "include_download_info_in_content"
_UNNAMEABLE = re.compile(r"[@:.]")


def json_text(value: Any) -> str:
    """JSON as canvases show it: one line, blanks after separators, no escapes for other alphabets."""
    return json.dumps(value, ensure_ascii=False)


def value_text(value: Any) -> str:
    """Resolvers B and C: null is empty, text is itself, everything else is JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def plain_text(value: Any) -> str:
    """Resolver G: null is empty, everything else is written Python's way (`True`, `[1]`)."""
    return "" if value is None else str(value)


def tips_text(value: Any) -> str:
    """Resolver F: the items of a list are joined with commas, null is the word `null`."""
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return value if isinstance(value, str) else json_text(value)


def shown(value: Any, files: list[dict[str, Any]] | None = None, *, delimiter: str | None = None) -> str:
    """Resolvers D and E: like `value_text`, but descriptors of files are no text and join `files`.

    They are text after all (without the key that asks for it) if any of them has `include_download_info_in_content`.
    With a delimiter, lists are joined with it.
    """
    found = _files_in(value)
    if found is None:
        if isinstance(value, list) and delimiter is not None:
            return delimiter.join(str(item) for item in value)
        return value_text(value)
    described, single = found
    bare = [{key: part for key, part in file.items() if key != SHOW} for file in described]
    if files is not None:
        files.extend(bare)
    if not any(file.get(SHOW) for file in described):
        return ""
    return json_text(bare[0] if single else bare)


def format_text(text: str, lookup: Lookup, to_text: TextForm = value_text) -> str:
    """The text with every reference replaced by the text form of its value."""
    return filled(text, texts_of([text], lookup, to_text))


def texts_of(texts: Iterable[str], lookup: Lookup, to_text: TextForm = value_text) -> dict[str, str]:
    """The text form of every reference that some texts make, by expression, in order of first mention."""
    return {expression: to_text(value) for expression, value in values_of(texts, lookup).items()}


def values_of(texts: Iterable[str], lookup: Lookup) -> dict[str, Any]:
    """The value of every reference that some texts make, each looked up once.

    Raises UnresolvedReference for an unknown node or global. An alias outside of an Iteration is no reference.
    """
    values: dict[str, Any] = {}
    for found in mentions(texts):
        if found.expression in values:
            continue
        try:
            values[found.expression] = lookup(found.expression)
        except UnresolvedReference:
            if not found.ref.is_alias:
                raise
    return values


def input_value(param: Any, lookup: Lookup, is_reference: Callable[[str], bool]) -> Any:
    """What a parameter of a declared input stands for: a whole reference keeps its type, other texts are filled."""
    if not isinstance(param, str):
        return param
    return lookup(param) if is_reference(param) else format_text(param, lookup)


def mentions(texts: Iterable[str]) -> Iterator[ReferenceMatch]:
    """Every reference and alias in some texts, as often as it is written."""
    for text in texts:
        yield from references.find(text, with_aliases=True)


def pieces(text: str) -> Iterator[str | ReferenceMatch]:
    """The text cut at its references, in order: literal parts, never empty, and references."""
    position = 0
    for found in references.find(text, with_aliases=True):
        if found.start > position:
            yield text[position : found.start]
        yield found
        position = found.end
    if position < len(text):
        yield text[position:]


def filled(text: str, texts: Mapping[str, str]) -> str:
    """The text with the references that `texts` knows replaced; others stay as they are written."""
    return "".join(
        piece if isinstance(piece, str) else texts.get(piece.expression, text[piece.start : piece.end])
        for piece in pieces(text)
    )


def looks_like_jinja(text: str) -> bool:
    """Whether more than references is in braces: a block, or a pair of them (components 3.3)."""
    rest = " ".join(piece for piece in pieces(text) if isinstance(piece, str))
    block = rest.find("{%")
    return "{{" in rest or "}}" in rest or (block >= 0 and rest.find("%}", block + 2) >= 0)


def rendered(text: str, texts: Mapping[str, str]) -> str:
    """The text as a Jinja template, its references bound to their text forms.

    References may stand anywhere, in expressions too, and are known there under their flattened names as well
    (`begin@x` as `begin_x`). A failure while rendering leaves Jinja's part of the text as it is written; a text that
    does not parse raises NodeFailure.
    """
    prefix = "ref_"
    while prefix in text:
        prefix += "_"
    markers: dict[str, str] = {}
    source: list[str] = []
    for piece in pieces(text):
        if isinstance(piece, str):
            source.append(piece)
        elif piece.expression in texts:
            marker = f"{prefix}{len(markers)}_"
            markers[marker] = texts[piece.expression]
            source.append(marker)
        else:
            source.append(text[piece.start : piece.end])
    names = {_UNNAMEABLE.sub("_", expression): value for expression, value in texts.items()}
    try:
        return jinja.render("".join(source), markers, names)
    except jinja.RenderFailed:
        return filled(text, texts)


def _files_in(value: Any) -> tuple[list[dict[str, Any]], bool] | None:
    """The descriptors a value consists of, and whether it is a single one; None if it is anything else."""
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
