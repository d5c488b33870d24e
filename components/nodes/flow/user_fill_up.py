"""UserFillUp: ask a person to fill in a form; the run waits for the answer.

DSL: `inputs` (the form), `tips` (a text with references), `enable_tips`, `layout_recognize`, `expires_after` (how long
the form waits; the engine enforces it). When the run reaches the form again, its values are cleared, so that a form in
a loop asks each time; only optional file fields keep their files. A form with no open field does not stop the run. Any
answer finishes the node, even if it leaves fields open. The output `_files` keeps the descriptors of the form's files.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import field_validator

from canvas.outcome import Finished, WaitingForInput
from canvas.routing import form_expiry
from components.base import Params, component
from components.context import NodeContext
from components.nodes.flow import form_fields
from components.text.templates import templates


class UserFillUpParams(Params):
    later_outputs = ("tips",)

    enable_tips: Any = True
    tips: Any = "Please fill in the form."
    layout_recognize: Any = ""
    expires_after: Any = None

    @field_validator("expires_after")
    @classmethod
    def _some_time(cls, expires_after: Any) -> Any:
        form_expiry.expires_after({"expires_after": expires_after})
        return expires_after


@component("UserFillUp", UserFillUpParams, effect="pure")
async def user_fill_up(params: UserFillUpParams, ctx: NodeContext) -> Finished | WaitingForInput:
    form = form_fields.fields_of(params.inputs)
    tips = _tips(params, ctx)
    shown = {"tips": tips} if params.enable_tips else {}
    for name, field in form.items():
        ctx.note_input(name, _previous_value(name, field, ctx))
    if not ctx.answers:
        return _ask(form, tips, shown, ctx)
    outputs: dict[str, Any] = {**_clear_values(form), **shown}  # a field without an answer keeps no earlier value
    for name, answer in ctx.answers.items():
        outputs[name] = await form_fields.resolve(name, answer, str(params.layout_recognize or ""), ctx)
        ctx.note_input(name, outputs[name])
    earlier = {name: files for name, files in _previous_files(form, ctx).items() if name not in ctx.answers}
    outputs |= _files({**earlier, **form_fields.descriptors(ctx.answers)}, ctx)
    return Finished(outputs=outputs)


def _tips(params: UserFillUpParams, ctx: NodeContext) -> str:
    if not params.enable_tips or not isinstance(params.tips, str):
        return ""
    return templates.format_text(params.tips, ctx.lookup, templates.tips_text)


def _ask(form: Mapping[str, Any], tips: str, shown: Mapping[str, Any], ctx: NodeContext) -> Finished | WaitingForInput:
    """Clear the form's values and wait for its open fields; finish at once if no field is open."""
    outputs: dict[str, Any] = {**_clear_values(form), **shown, **_files(_previous_files(form, ctx), ctx)}
    open_fields = {name: _question(field) for name, field in form.items() if _is_open(name, field, ctx)}
    if not open_fields:
        return Finished(outputs=outputs)
    return WaitingForInput(inputs=open_fields, tips=tips, outputs=outputs)


def _clear_values(form: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None for name, field in form.items() if isinstance(field, Mapping) and not _is_optional_file(field)}


def _is_open(name: str, field: Any, ctx: NodeContext) -> bool:
    if not isinstance(field, Mapping):
        return field is None
    if not _is_optional_file(field):
        return True  # its value has just been cleared
    return ctx.previous_output(name) in ([], "")  # null is a valid answer to an optional field


def _is_optional_file(field: Any) -> bool:
    return form_fields.is_file(field) and field.get("optional") is True


def _previous_value(name: str, field: Any, ctx: NodeContext) -> Any:
    return ctx.previous_output(name) if _is_optional_file(field) else None


def _previous_files(form: Mapping[str, Any], ctx: NodeContext) -> dict[str, Any]:
    """Return the descriptors of earlier files in optional file fields, whose texts are kept as well."""
    earlier = ctx.previous_output(form_fields.FILES)
    by_field: Mapping[str, Any] = earlier if isinstance(earlier, Mapping) else {}
    return {name: files for name, files in by_field.items() if _is_optional_file(form.get(name))}


def _files(files: Mapping[str, Any], ctx: NodeContext) -> dict[str, Any]:
    return {form_fields.FILES: files} if files or ctx.previous_output(form_fields.FILES) else {}


def _question(field: Any) -> dict[str, Any]:
    return {**field, "value": None} if isinstance(field, Mapping) else {"value": None}
