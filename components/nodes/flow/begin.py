"""Begin: turn the request into outputs.

DSL: `mode`, `inputs` (the form), `layout_recognize`. If the request has no inputs, its query fills the form: an object
fills the fields it names, anything else the form's only field. Values preset in the form do not become outputs. A
webhook's payload becomes outputs unchanged, except for its `input`, which is shown as the input `request`. The output
`_files` keeps the descriptors of the form's files.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import field_validator

from canvas.outcome import Finished
from components.base import Params, component
from components.context import NodeContext
from components.nodes.flow import form_fields

MODES = ("conversational", "task", "Webhook")


class BeginParams(Params):
    later_outputs = ()
    secrets = (
        "security.token.token_value",
        "security.basic_auth.password",
        "security.jwt.secret",
        "security.hmac.secret",
    )

    mode: Any = "conversational"
    prologue: Any = ""
    layout_recognize: Any = ""

    @field_validator("mode")
    @classmethod
    def _known_mode(cls, mode: Any) -> Any:
        if mode not in MODES:
            raise ValueError(f"[Begin] Mode {mode!r} is not supported. Use one of {', '.join(MODES)}.")
        return mode


@component("Begin", BeginParams, effect="pure")
async def begin(params: BeginParams, ctx: NodeContext) -> Finished:
    form = form_fields.fields_of(params.inputs)
    for name, value in {**dict.fromkeys(form), **ctx.previous_inputs()}.items():
        ctx.note_input(name, value)
    outputs: dict[str, Any] = {}
    if params.mode == "Webhook":
        payload = ctx.webhook_payload or {}
        if "input" in payload:
            ctx.note_input("request", payload["input"])
        outputs.update((name, value) for name, value in payload.items() if name != "input")
    answers = ctx.answers or _from_query(form, ctx)
    for name, answer in answers.items():
        outputs[name] = await form_fields.resolve(name, answer, str(params.layout_recognize or ""), ctx)
        ctx.note_input(name, outputs[name])
    if files := form_fields.descriptors(answers):
        outputs[form_fields.FILES] = files
    return Finished(outputs=outputs)


def _from_query(form: Mapping[str, Any], ctx: NodeContext) -> Mapping[str, Any]:
    """Return the answers that the query stands for when the request has no inputs."""
    query = ctx.lookup("sys.query") if ctx.exists("sys.query") else None
    if not form or query is None or query == "":
        return {}
    if isinstance(query, Mapping):
        return {
            name: value if isinstance(value, Mapping) else {"value": value}
            for name, value in query.items()
            if name in form
        }
    return {name: {"value": query} for name in form} if len(form) == 1 else {}
