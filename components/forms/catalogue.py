"""The catalogue of components and tools for editors: JSON Schemas of their forms, defaults, outputs, handles.

Components are described in `components/forms/nodes.py`, tools in `components/forms/tools.py`. The forms of plugins
follow from their parameters and arguments: the type of a field is that of its default.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from canvas.document import drawing
from components import registry, tools
from components.base import Component, Params
from components.forms.fields import WIDGET, FormField, form_field, number, switch, text, texts
from components.forms.nodes import FORMS, GROUPS, Form
from components.forms.shared_fields import DESCRIPTION, ERRORS, OUTPUTS
from components.forms.tools import TOOL_FORMS, ToolForm
from components.tools.framework.base import Argument, Tool
from components.tools.framework.retired import RETIRED

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_WIDGETS: Mapping[str, str] = {
    "dataset_ids": "knowledge_base",
    "kb_ids": "knowledge_base",
    "llm_id": "model",
    "memory_ids": "memory",
    "prompts": "prompt",
    "query": "prompt",
    "rerank_id": "model",
    "script": "code",
    "sys_prompt": "prompt",
}
_OUTPUT_TYPES: Mapping[str, str] = {  # of outputs that a new node does not declare
    "attachment": "Object",
    "category": "string",
    "errors": "Array<string>",
    "memory_error": "string",
    "next": "Array<string>",
    "status_code": "integer",
    "thinking": "string",
    "tips": "string",
    "use_tools": "Array<Object>",
}
_TITLES: Mapping[str, str] = {  # of arguments whose name is not their title
    "cc_email": "Copy to",
    "q": "Query",
    "sql": "SQL",
    "stock_code": "Symbol",
    "to_email": "To",
}
_HIDDEN = frozenset({"function_name", "inputs", "custom_header", "says"})  # what authors do not write
_COMMON = frozenset(Params.model_fields)
_ANY = ("string", "number", "boolean", "object", "array", "null")


def catalogue() -> dict[str, Any]:
    """Return groups, components and tools as `GET /api/v1/components` shows them, without the build."""
    offered = {tool.name: tool for tool in tools.TOOLS.values() if tool.name not in RETIRED_NAMES}
    found = {component.name: component for component in registry.COMPONENTS.values()}
    names = [*FORMS, *sorted(found.keys() - FORMS.keys() - RETIRED_NAMES)]
    return {
        "groups": [{"id": name, "title": title} for name, title in GROUPS.items()],
        "components": [_component_json(name, found.get(name), offered.get(name)) for name in names],
        "tools": [_tool_json(offered[name], found[name]) for name in sorted(offered)],
    }


def form_of(name: str) -> Form | None:
    """Return the form of a component by its name; None for an unknown one."""
    found = registry.find(name)
    return FORMS.get(name) or (_infer_form(found, _tool_of(found)) if found is not None else None)


def form_schema(form: Form) -> dict[str, Any]:
    """Return the JSON Schema of a form. Fields that it does not name are allowed, as documents have them."""
    properties = {each.name: each.json_schema(order) for order, each in enumerate(form.fields)}
    further = {each.name: {**each.schema, WIDGET: "hidden"} for each in form.written}
    return {"$schema": DIALECT, "type": "object", "properties": {**properties, **further}}


def defaults_of(form: Form) -> dict[str, Any]:
    """Return the form of a new node, with its outputs."""
    values = {each.name: each.default for each in form.fields if each.has_default}
    outputs = {name: {"type": type_, "value": ""} for name, type_ in form.outputs.items()}
    return {**values, "outputs": outputs} if outputs and "outputs" not in values else values


def _component_json(name: str, component: Component[Any] | None, tool: Tool[Any] | None) -> dict[str, Any]:
    form = FORMS.get(name)
    if form is None:
        assert component is not None  # since the name is that of a form or of a component
        form = _infer_form(component, tool)
    return {
        "name": name,
        "title": form.title,
        "group": form.group,
        "description": form.description,
        "kind": form.kind,
        "node_type": form.node_type or drawing.node_type_of(name),
        "effect": component.effect if component is not None else None,
        "tool": tool is not None or name == "Agent",
        "params": form_schema(form),
        "defaults": defaults_of(form),
        "outputs": _outputs_json(name, form),
        "handles": dict(form.handles),
        "secrets": _secret_fields(component),
    }


def _outputs_json(name: str, form: Form) -> list[dict[str, str]]:
    """Return what a node of a component may set: the outputs of a new node, then those that some runs add."""
    later = sorted((registry.possible_outputs(name) or frozenset()) - form.outputs.keys())
    types = {output: _OUTPUT_TYPES.get(output, "unknown") for output in later}
    return [{"name": output, "type": type_} for output, type_ in {**form.outputs, **types}.items()]


def _tool_json(tool: Tool[Any], component: Component[Any]) -> dict[str, Any]:
    form = _infer_form(component, tool)
    own = tuple(each for each in form.fields if each.name not in tool.arguments)
    params = tool.params.model_construct()  # without the values that an author has to give
    return {
        "name": tool.name,
        "title": form.title,
        "group": form.group,
        "description": tool.description,
        "effect": tool.effect,
        "function": tool.function,
        "params": form_schema(Form(form.title, form.group, form.description, own)),
        "defaults": {each.name: each.default for each in own if each.has_default},
        "arguments": tool.schema(params, tool.function)["function"]["parameters"],
        "secrets": _secret_fields(component),
    }


def _secret_fields(component: Component[Any] | None) -> list[str]:
    """Return the fields of a form that may contain secrets, each as a whole: `security`, not `security.jwt.secret`."""
    if component is None:
        return []
    declared = (*component.params.secrets, *component.params.secret_headers)
    return sorted({name.partition(".")[0] for name in declared})


def _tool_of(component: Component[Any]) -> Tool[Any] | None:
    return next((tool for tool in tools.TOOLS.values() if tool.name == component.name), None)


def _infer_form(component: Component[Any], tool: Tool[Any] | None) -> Form:
    """Return a form that follows from the parameters of a component, and from the arguments of a tool."""
    names = tool.outputs if tool is not None else component.params.default_outputs
    described = TOOL_FORMS.get(component.name)
    if described is not None and tool is not None:
        fields = tuple(_tool_fields(tool, described))
    else:
        fields = tuple(_infer_fields(component, tool))
    title = described.title if described is not None else component.name
    own = {each.name for each in fields}
    description = tool.description if tool is not None else _first_line(component)
    return Form(
        title,
        "tools" if tool is not None else "other",
        description,
        (*fields, *(each for each in (*ERRORS, DESCRIPTION, OUTPUTS) if each.name not in own)),
        outputs={name: "Array<Object>" if name == "json" else "string" for name in names},
    )


def _tool_fields(tool: Tool[Any], described: ToolForm) -> Iterator[FormField]:
    """Yield the arguments of a call, which a node has too, and then what an author sets."""
    own = {each.name for each in described.fields}
    arguments = {each.name: each for each in described.arguments}
    for name, argument in tool.arguments.items():
        if name not in own:
            yield arguments.pop(name, None) or _of_argument(name, argument)
    yield from (*arguments.values(), *described.fields)


def _infer_fields(component: Component[Any], tool: Tool[Any] | None) -> Iterator[FormField]:
    arguments: Mapping[str, Argument] = tool.arguments if tool is not None else {}
    parameters = component.params.model_fields
    secrets = component.params.secrets
    for name, argument in arguments.items():
        if name not in parameters:
            yield _of_argument(name, argument)
    for name, parameter in parameters.items():
        if name in _HIDDEN or name in _COMMON:
            continue
        default = parameter.get_default(call_default_factory=True)
        description = arguments[name].description if name in arguments else ""
        yield _of_value(name, description, default, "secret" if name in secrets else _WIDGETS.get(name, ""))


def _of_argument(name: str, argument: Argument) -> FormField:
    """Return the field of an argument; every argument may be a reference, which is a text."""
    types = tuple(dict.fromkeys((argument.type, "string", "null")))
    more: dict[str, Any] = {"examples": list(argument.enum)} if argument.enum else {}
    widget = _WIDGETS.get(name, "prompt" if argument.is_free_text else "")
    if argument.default is not None:
        more["default"] = argument.default
    return form_field(name, _title(name), argument.description, types, widget=widget, **more)


def _of_value(name: str, description: str, default: Any, widget: str) -> FormField:
    title = _title(name)
    more: dict[str, Any] = {"widget": widget} if widget else {}
    match default:
        case bool():
            return switch(name, title, description, default=default, **more)
        case int() | float():
            return number(name, title, description, default=default, **more)
        case str() if widget == "secret":
            return form_field(name, title, description, ("string", "number", "null"), default=default, **more)
        case str():
            return text(name, title, description, default=default, **more)
        case list() | tuple():
            return texts(name, title, description, default=list(default), **more)
        case Mapping():
            return form_field(name, title, description, ("object", "string", "null"), default=dict(default), **more)
        case _:
            return form_field(name, title, description, _ANY, **more)


def _title(name: str) -> str:
    return _TITLES.get(name) or name.replace("_", " ").strip().capitalize()


def _first_line(component: Component[Any]) -> str:
    return (component.run.__doc__ or "").strip().partition("\n")[0]


RETIRED_NAMES = frozenset(tool.name for tool in RETIRED)
