"""StringTransform: split a text into a list, or merge several values into a text.

DSL: `method` (`split`, `merge`), `split_ref`, `script`, `delimiters`. Splitting tries the delimiters in order at each
position; merging joins lists with the first delimiter.
"""

from typing import Any

from pydantic import Field, field_validator

from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components.base import Params, component
from components.context import NodeContext
from components.text.splitting import split_at
from components.text.templates import templates

METHODS = ("split", "merge")
MAX_JOINED_CHARS = 16 * 1024 * 1024  # characters that delimiters may add to a list


class StringTransformParams(Params):
    default_outputs = ("result",)
    later_outputs = ()

    method: Any = "split"
    split_ref: Any = ""
    script: Any = ""
    delimiters: Any = Field(default=(",",), validate_default=True)

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: Any) -> Any:
        if method not in METHODS:
            raise ValueError(f"Method {method!r} is not supported. Use one of {', '.join(METHODS)}.")
        return method

    @field_validator("delimiters")
    @classmethod
    def _some_delimiters(cls, delimiters: Any) -> tuple[str, ...]:
        texts = (delimiters,) if isinstance(delimiters, str) else delimiters
        if not delimiters or not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"Delimiters {delimiters!r} must be a list of texts that is not empty.")
        return tuple(texts)


@component("StringTransform", StringTransformParams, effect="pure")
def string_transform(params: StringTransformParams, ctx: NodeContext) -> Finished:
    return Finished(outputs={"result": _split(params, ctx) if params.method == "split" else _merge(params, ctx)})


def _split(params: StringTransformParams, ctx: NodeContext) -> list[str]:
    line = templates.input_value((params.model_extra or {}).get("line"), ctx.lookup, ctx.is_reference)
    source = line or ctx.lookup(str(params.split_ref or "")) or ""
    if not isinstance(source, str):
        raise NodeFailure(f"The input variable is not a string: {params.split_ref} is of type {type(source).__name__}.")
    return split_at(source, params.delimiters)


def _merge(params: StringTransformParams, ctx: NodeContext) -> str:
    script = templates.value_text(params.script)
    values = templates.resolve_values([script], ctx.lookup)
    delimiter = params.delimiters[0]
    for expression, value in values.items():
        if isinstance(value, list) and len(value) * len(delimiter) > MAX_JOINED_CHARS:
            raise NodeFailure(
                f"{expression}: its {len(value):,} items, joined with the delimiter, make too long a text."
            )
    texts = {name: templates.display_text(value, delimiter=delimiter) for name, value in values.items()}
    for expression, text in texts.items():
        ctx.note_input(expression, text)
    return templates.render(script, texts) if templates.looks_like_jinja(script) else templates.fill(script, texts)
