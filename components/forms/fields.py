"""The fields of a form: a JSON Schema each, with a title, a description, and how to show it.

A node's form is what RAGFlow's editor stores in `data.form`. It differs from the parameters of a run: rows of a
Categorize are `items`, flags of model settings are in camel case. Schemas are as lenient as RAGFlow: a number may be
written as a text, and every field may be absent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]

WIDGET, WHEN, ORDER = "x-easel-widget", "x-easel-when", "x-easel-order"
SECTION = "x-easel-section"  # fields that a page folds: `model`, `failure`, `advanced`
ENTRY, NEW = "x-easel-entry", "x-easel-new"  # what an entry of a list is called, and what a new one is
WIDGETS = "x-easel-widgets"  # another widget, with the values of other fields for which it is shown
KINDS = "x-easel-kinds"  # the kinds of models that are offered
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form. `default` is what a new node has; without one a new node has no such field."""

    name: str
    schema: Schema
    default: Any = None
    has_default: bool = False

    def json_schema(self, order: int) -> dict[str, Any]:
        """Return the schema of the field with its place in the form."""
        default = {"default": self.default} if self.has_default else {}
        return {**self.schema, **default, ORDER: order}


def form_field(
    name: str,
    title: str,
    description: str,
    types: str | Sequence[str],
    *,
    default: Any = _ABSENT,
    widget: str = "",
    when: Schema | None = None,
    section: str = "",
    entry: str = "",
    **more: Any,
) -> FormField:
    """Return a field. `when`: values of other fields with which it is shown; `more`: further keywords of the schema.

    `section`: the fields that are folded with it; `entry`: what an entry of a list is called.
    """
    shown = _annotations(widget, when, section, entry)
    typed = types if isinstance(types, str) else list(types)
    schema = {"type": typed, "title": title, "description": description, **more, **shown}
    if default is _ABSENT:
        return FormField(name, schema)
    return FormField(name, schema, default, has_default=True)


def text(name: str, title: str, description: str, **more: Any) -> FormField:
    """Return a field with a text."""
    return form_field(name, title, description, ("string", "null"), **more)


def number(name: str, title: str, description: str, **more: Any) -> FormField:
    """Return a field with a number, which documents also write as a text."""
    return form_field(name, title, description, ("number", "string", "null"), **_with_widget("number", more))


def switch(name: str, title: str, description: str, **more: Any) -> FormField:
    """Return a field that is on or off."""
    return form_field(name, title, description, ("boolean", "null"), **more)


def choice(name: str, title: str, description: str, options: Sequence[Any], **more: Any) -> FormField:
    """Return a field with one of some values; an empty one counts as absent."""
    allowed = [*options, *(each for each in ("", None) if each not in options)]
    annotations = _annotations("choice", more.get("when"), more.get("section", ""), "")
    schema = {"title": title, "description": description, "enum": allowed, **annotations}
    return FormField(name, schema, more.get("default"), has_default="default" in more)


def suggestion(name: str, title: str, description: str, options: Sequence[Any], **more: Any) -> FormField:
    """Return a field with one of some texts, where documents may also have others: references, other spellings."""
    return text(name, title, description, **_with_widget("choice", {"examples": list(options), **more}))


def rows(name: str, title: str, description: str, properties: Schema, *, new: Any = None, **more: Any) -> FormField:
    """Return a field with a list of objects, of which `properties` are known. `new`: what is added."""
    items = {"type": "object", "properties": dict(properties)}
    widget = _with_widget("rows", {"items": items, **({NEW: new} if new is not None else {}), **more})
    return form_field(name, title, description, ("array", "null"), **widget)


def texts(name: str, title: str, description: str, **more: Any) -> FormField:
    """Return a field with a list of texts, or one text."""
    return form_field(name, title, description, ("array", "string", "null"), **_with_widget("texts", more))


def mapping(name: str, title: str, description: str, **more: Any) -> FormField:
    """Return a field with an object."""
    return form_field(name, title, description, ("object", "array", "null"), **more)


def _annotations(widget: str, when: Schema | None, section: str, entry: str) -> dict[str, Any]:
    """Return the annotations that are given."""
    found = {WIDGET: widget, WHEN: dict(when) if when else None, SECTION: section, ENTRY: entry}
    return {name: value for name, value in found.items() if value}


def _with_widget(widget: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"widget": widget, **more}
