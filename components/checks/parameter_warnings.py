"""Warnings about parameters that are accepted but will fail or do nothing when the node runs: incomplete rows, unknown
operators, loops that never run, templates that do not parse.

Upstream accepts all of these, so they do not keep a canvas from being stored and run.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from jinja2 import TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from canvas.document.document import Document, Entry
from canvas.validation.findings import Finding, warning
from canvas.validation.reference_scan import REFERENCE_OPERATORS, rows
from components.nodes.data.variable_assigner import WITHOUT_PARAMETER
from components.text.comparison import OPERATOR_ALIASES, ORDER_OPERATORS, TEXT_OPERATORS
from components.text.templates import templates

Params: TypeAlias = Mapping[str, Any]

MAX_TEMPLATE_CHARS = 400_000  # characters of templates in one canvas that are checked for syntax

_OPERATORS = frozenset({*TEXT_OPERATORS, *ORDER_OPERATORS, "=", "≠", "empty", "not empty", *OPERATOR_ALIASES})
_LOOP_OPERATORS = _OPERATORS | {"is", "is not"}
_ARITHMETIC = frozenset({"+=", "-=", "*=", "/="})
_ASSIGNING = REFERENCE_OPERATORS | frozenset(WITHOUT_PARAMETER) | _ARITHMETIC | {"set"}
_FAILS = "so the node fails"


@dataclass(frozen=True, slots=True)
class ParameterWarning:
    field: str
    code: str
    reason: str


def find_warnings(document: Document) -> Iterator[Finding]:
    """Yield every warning about the parameters of single nodes."""
    left = MAX_TEMPLATE_CHARS
    for entry in document.entries.values():
        check = _BY_COMPONENT.get(entry.component)
        warnings = list(check(entry.params)) if check else []
        for field, text in _templates(entry):
            left -= len(text)
            if left >= 0 and (broken := _syntax_error(text)) is not None:
                warnings.append(
                    ParameterWarning(field, "bad_template", f"the template does not parse, {_FAILS}: {broken}")
                )
        for found in warnings:
            yield warning(entry, found.field, found.code, found.reason.rstrip("."))


# -- containers -------------------------------------------------------------------------------------------------------


def _loop(params: Params) -> Iterator[ParameterWarning]:
    for place, row in rows(params.get("loop_variables")):
        if row.get("variable") and not _is_complete_variable(row):
            reason = f"the variable {row['variable']} needs type, input_mode (constant or variable) and value, {_FAILS}"
            yield ParameterWarning(f"loop_variables[{place}]", "incomplete_row", reason)
    operator = params.get("logical_operator") or "and"
    if operator not in ("and", "or"):
        yield ParameterWarning(
            "logical_operator", "bad_operator", f"{_short(operator)} is neither and nor or, {_FAILS}"
        )
    conditions = params.get("loop_termination_condition")
    for place, row in rows(conditions):
        yield from _condition(f"loop_termination_condition[{place}]", row)
    if not conditions and operator == "and":
        reason = (
            "it has no condition, which counts as met under and, so the body never runs. "
            "Add a condition, or set logical_operator to or"
        )
        yield ParameterWarning("loop_termination_condition", "loop_never_runs", reason)
    yield from _maximum(params.get("maximum_loop_count"))


def _is_complete_variable(row: Params) -> bool:
    mode, value = row.get("input_mode"), row.get("value")
    if not row.get("type") or mode not in ("constant", "variable"):
        return False
    return bool(value) if mode == "variable" else value is not None


def _condition(field: str, row: Params) -> Iterator[ParameterWarning]:
    mode = row.get("input_mode") or "constant"
    if not row.get("variable") or not row.get("operator"):
        yield ParameterWarning(field, "incomplete_row", f"it needs a variable and an operator, {_FAILS}")
    elif str(row["operator"]) not in _LOOP_OPERATORS:
        reason = f"{_short(row['operator'])} is not a valid operator, so the node fails unless the value is null"
        yield ParameterWarning(f"{field}.operator", "bad_operator", reason)
    if mode not in ("constant", "variable"):
        yield ParameterWarning(
            f"{field}.input_mode", "bad_mode", f"{_short(mode)} is neither constant nor variable, {_FAILS}"
        )


def _maximum(count: Any) -> Iterator[ParameterWarning]:
    field = "maximum_loop_count"
    maximum = 0.0 if count is None or count == "" else _number(count)
    if maximum is None:
        yield ParameterWarning(field, "not_a_number", f"{_short(count)} is not a number, {_FAILS}")
    elif maximum <= 0:
        yield ParameterWarning(
            field, "loop_never_runs", "with a maximum of 0 the body never runs. Set how often it may run"
        )


def _iteration(params: Params) -> Iterator[ParameterWarning]:
    if not params.get("items_ref"):
        yield ParameterWarning("items_ref", "no_list", f"it is empty, {_FAILS}. Enter a reference to a list")
    concurrency = params.get("max_concurrency")
    number = 0.0 if concurrency is None or concurrency == "" else _number(concurrency)
    if number is None or not number.is_integer():
        reason = f"{_short(concurrency)} is not a whole number, so the setting is ignored"
        yield ParameterWarning("max_concurrency", "not_a_number", reason)


# -- rows -------------------------------------------------------------------------------------------------------------


def _switch(params: Params) -> Iterator[ParameterWarning]:
    for place, group in rows(params.get("conditions")):
        items = [(number, item) for number, item in rows(group.get("items")) if str(item.get("cpn_id") or "").strip()]
        if not items:
            reason = "it compares nothing, so it never holds. Give it an item, or remove it"
            yield ParameterWarning(f"conditions[{place}].items", "never_holds", reason)
        for number, item in items:
            if str(item.get("operator")) not in _OPERATORS:
                reason = f"{_short(item.get('operator'))} is not a valid operator, {_FAILS}"
                yield ParameterWarning(f"conditions[{place}].items[{number}].operator", "bad_operator", reason)


def _assigner(params: Params) -> Iterator[ParameterWarning]:
    for place, row in rows(params.get("variables")):
        field, operator, parameter = f"variables[{place}]", row.get("operator"), row.get("parameter")
        if not row.get("variable") or not operator or (parameter is None and operator not in WITHOUT_PARAMETER):
            yield ParameterWarning(
                field, "incomplete_row", f"it needs a variable, an operator and a parameter, {_FAILS}"
            )
        elif str(operator) not in _ASSIGNING:
            reason = f"{_short(operator)} is not a valid operator, so the variable becomes null"
            yield ParameterWarning(f"{field}.operator", "bad_operator", reason)
        elif operator in _ARITHMETIC and (isinstance(parameter, bool) or not isinstance(parameter, int | float)):
            reason = (
                f"{_short(parameter)} is not a number, so the variable becomes an ERROR text. "
                "References are not resolved here"
            )
            yield ParameterWarning(f"{field}.parameter", "not_a_number", reason)


def _categorize(params: Params) -> Iterator[ParameterWarning]:
    if not params.get("llm_id"):
        yield ParameterWarning("llm_id", "no_model", f"no model is chosen, {_FAILS}. Choose one")


def _searxng(params: Params) -> Iterator[ParameterWarning]:
    if not str(params.get("searxng_url") or "").strip():
        reason = "it is empty, so the node finds nothing. Enter the address of a SearXNG instance"
        yield ParameterWarning("searxng_url", "no_address", reason)


def _retrieval(params: Params) -> Iterator[ParameterWarning]:
    source = params.get("retrieval_from")
    if source == "memory" or params.get("dataset_ids") or params.get("kb_ids"):
        return
    if source == "dataset":
        reason = f"no knowledge base is chosen, {_FAILS}. Choose one, or make one with easel kb create"
        yield ParameterWarning("dataset_ids", "no_dataset", reason)
    elif not params.get("memory_ids"):
        reason = "no knowledge base or memory is chosen, so the node finds nothing. Choose one"
        yield ParameterWarning("dataset_ids", "no_dataset", reason)


_CREDENTIALS: Mapping[str, tuple[str, str]] = {
    "token": ("token", "token_value"),
    "basic": ("basic_auth", "password"),
    "jwt": ("jwt", "secret"),
}
"""The block and the secret of each kind of a webhook's credentials."""


def _begin(params: Params) -> Iterator[ParameterWarning]:
    security = params.get("security")
    if params.get("mode") != "Webhook" or not isinstance(security, Mapping):
        return
    block, secret = _CREDENTIALS.get(str(security.get("auth_type")), ("", ""))
    values = security.get(block)
    if block and not (isinstance(values, Mapping) and values.get(secret)):
        reason = "it is empty, so the webhook refuses every call. Enter a secret that only its callers know"
        yield ParameterWarning(f"security.{block}.{secret}", "no_credentials", reason)


_BY_COMPONENT: Mapping[str, Callable[[Params], Iterator[ParameterWarning]]] = {
    "Begin": _begin,
    "Categorize": _categorize,
    "Iteration": _iteration,
    "Loop": _loop,
    "Retrieval": _retrieval,
    "SearXNG": _searxng,
    "Switch": _switch,
    "VariableAssigner": _assigner,
}


# -- templates --------------------------------------------------------------------------------------------------------


def _templates(entry: Entry) -> Iterator[tuple[str, str]]:
    """Yield (field, text) of every text that is rendered as a template."""
    params = entry.params
    match entry.component:
        case "Message":
            content = params.get("content")
            texts: list[Any] = [content] if isinstance(content, str) else content if isinstance(content, list) else []
            for place, text in enumerate(texts):
                if isinstance(text, str) and (params.get("stream") is False or templates.looks_like_jinja(text)):
                    yield f"content[{place}]", text
        case "StringTransform":
            script = params.get("script")
            if params.get("method") == "merge" and isinstance(script, str) and templates.looks_like_jinja(script):
                yield "script", script
        case _:
            pass


def _syntax_error(text: str) -> str | None:
    """Return why a text does not parse, or None if it does. References are replaced by a name, as in rendering."""
    source = "".join(
        part if isinstance(part, str) else text[part.start : part.end] if part.ref.is_alias else "ref"
        for part in templates.split_references(text)
    )
    try:
        ImmutableSandboxedEnvironment().parse(source)
    except TemplateSyntaxError as error:
        return error.message or "it is not a valid template"
    except RecursionError:
        return "it is nested too deeply"
    return None


def _number(value: Any) -> float | None:
    """Return the value as a finite number, also if it is written as text; None if it is not one."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
