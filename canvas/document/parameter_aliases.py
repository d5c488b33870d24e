"""Conversion of params in other shapes, which some canvases have, to the main shapes, when a document is parsed.

The stored document remains as its author wrote it; only `Entry.params` changes. `normalize_parameters` converts one
entry at a time. `resolve_local_names` resolves names that have a meaning only inside a container: the item variable of
an Iteration, and `{iteration@child}`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from canvas.document import component_names, conditions, containers, drawing, references
from canvas.document.document import Entry

Params: TypeAlias = dict[str, Any]

_INPUT = re.compile(r"(?<!\{)\{++[ \t]*+input[ \t]*+\}+")
_CHILD = re.compile(r"([A-Za-z0-9_:]++)@([A-Za-z0-9_]++(?::[A-Za-z0-9_]++)++)")
_CHILD_IN_BRACES = re.compile(rf"(\{{[ \t]*+){_CHILD.pattern}([ \t]*+\}})")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXT_OUTPUT: Mapping[str, str] = {"StringTransform": "result", "Invoke": "result", "ListOperations": "result"}
_WITHOUT_TEXT = frozenset({"Begin", "Answer", "Switch", "Categorize", "Iteration", "Loop", "UserFillUp"})


def normalize_parameters(entries: Mapping[str, Entry], drawn: drawing.Drawing) -> dict[str, Entry]:
    """Return the entries with params in the main shapes. Raises InvalidCanvas if a condition cannot be parsed."""
    sources = _sources(entries)
    return {
        entry.id: replace(entry, params=_normalize_params(entry, entries, sources, drawn)) for entry in entries.values()
    }


def resolve_local_names(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Rewrite references to names that only an Iteration defines: its item variable, and a child id as an output."""
    local = dict(entries)
    bodies = containers.bodies(entries)
    for entry in entries.values():
        variable = entry.params.get("item_var") if entry.component == "Iteration" else None
        if isinstance(variable, str) and _WORD.fullmatch(variable) and variable not in references.ALIASES:
            _resolve_item_variable(local, bodies, entry.id, variable)
    if any(entry.component == "Iteration" for entry in local.values()):
        _resolve_collected_children(local)
    return local


def _normalize_params(
    entry: Entry, entries: Mapping[str, Entry], sources: Mapping[str, list[str]], drawn: drawing.Drawing
) -> Params:
    params = dict(entry.params)
    match entry.component:
        case "LLM":
            return _llm(params, [entries[source] for source in sources.get(entry.id, ())])
        case "Answer":
            return _answer(params, [entries[source] for source in sources.get(entry.id, ())], entries)
        case "Categorize":
            return _categorize(params, drawn.by_handle(entry.id))
        case "Switch":
            return conditions.switch_params(entry, params)
        case "Loop":
            return conditions.loop_params(entry, params)
        case _:
            return _normalize_alone(entry.component, params)


def _normalize_alone(component: str, params: Params) -> Params:
    """Normalize params whose main shape does not depend on other entries."""
    normalize = _NORMALIZERS.get(component)
    return normalize(params) if normalize else params


# -- models -----------------------------------------------------------------------------------------------------------


def _llm(params: Params, sources: list[Entry]) -> Params:
    if isinstance(prompt := params.get("prompt"), str) and not params.get("sys_prompt"):
        inputs = "\n".join(f"{{{source.id}@{_text_output(source)}}}" for source in sources)
        params["sys_prompt"] = _INPUT.sub(lambda _: inputs, prompt)
    return _prompts(_model(params))


def _text_output(entry: Entry) -> str:
    return (
        "formalized_content"
        if entry.component in component_names.TOOLS
        else _TEXT_OUTPUT.get(entry.component, "content")
    )


def _model(params: Params) -> Params:
    _move(params, "model_id", "llm_id")
    _move(params, "system_prompt", "sys_prompt")
    return params


def _prompts(params: Params, keep_user_prompt: bool = False) -> Params:
    """Convert prompts to a list of messages; those with the role `system` move to `sys_prompt`."""
    user_prompt = params.get("user_prompt")
    if "prompts" not in params and isinstance(user_prompt, str) and user_prompt:
        params["prompts"] = user_prompt
    if not keep_user_prompt:
        params.pop("user_prompt", None)
    prompts = params.get("prompts")
    if isinstance(prompts, str) and prompts:
        params["prompts"] = [{"role": "user", "content": prompts}]
    if isinstance(prompts, list) and any(map(_is_system, prompts)):
        system_texts = (str(prompt.get("content") or "") for prompt in prompts if _is_system(prompt))
        params["sys_prompt"] = "\n".join(text for text in (params.get("sys_prompt"), *system_texts) if text)
        params["prompts"] = [prompt for prompt in prompts if not _is_system(prompt)]
        if not params["prompts"]:
            del params["prompts"]
    return params


def _is_system(prompt: Any) -> bool:
    return isinstance(prompt, Mapping) and prompt.get("role") == "system"


def _agent(params: Params) -> Params:
    params = _prompts(_model(params), keep_user_prompt=True)
    enabled = params.get("llm_enabled_tools")
    if isinstance(enabled, list) and all(isinstance(tool, str) for tool in enabled):
        _move(params, "llm_enabled_tools", "tools")  # objects have no effect (docs/decisions/0011)
    if isinstance(tools := params.get("tools"), list):
        params["tools"] = [_tool(tool) for tool in tools]
    if isinstance(outputs := params.get("outputs"), Mapping) and outputs.get("structured_output"):
        rest = {key: value for key, value in outputs.items() if key != "structured_output"}
        params["outputs"] = {"structured": outputs["structured_output"], **rest}
    return params


def _tool(tool: Any) -> Any:
    """Convert a tool, written as a name or an object, to an object; params of a sub-agent are normalized too."""
    if isinstance(tool, str):
        name = component_names.canonical(tool)
        return {"component_name": name, "name": name, "params": {}}
    if not isinstance(tool, Mapping) or not isinstance(component := tool.get("component_name"), str):
        return tool
    name = component_names.canonical(component)
    params = tool.get("params")
    normalized = _normalize_alone(name, dict(params)) if isinstance(params, Mapping) else params
    return {**tool, "component_name": name, "params": {} if normalized is None else normalized}


def _categorize(params: Params, targets: Mapping[str, list[str]]) -> Params:
    params = _model(params)
    descriptions: Any = params.get("category_description") or {}
    if not descriptions and isinstance(items := params.get("items"), list):
        descriptions = drawing.category_rows(items, targets)
    if not descriptions and (categories := params.get("categories")):
        descriptions = _categories(categories)
    if isinstance(descriptions, Mapping):
        params["category_description"] = {name: _category(category) for name, category in descriptions.items()}
    return params


def _categories(categories: Any) -> Params:
    if isinstance(categories, Mapping):
        return {str(name): value if isinstance(value, Mapping) else {"to": value} for name, value in categories.items()}
    rows = [row for row in categories if isinstance(row, Mapping)] if isinstance(categories, list) else []
    return {str(row.get("name") or ""): {key: row[key] for key in row if key != "name"} for row in rows}


def _category(category: Any) -> Any:
    if not isinstance(category, Mapping):
        return category
    examples = category.get("examples")
    rows = examples.splitlines() if isinstance(examples, str) else drawing.values_of(examples, "value")
    return {**category, "examples": rows, "to": _as_list(category.get("to"))}


# -- messages and forms -----------------------------------------------------------------------------------------------


def _message(params: Params) -> Params:
    _move(params, "messages", "content")
    _move(params, "text", "content")
    content = params.get("content")
    if isinstance(content, str):
        params["content"] = [content] if content else []
    elif isinstance(content, list):
        params["content"] = drawing.values_of(content, "content")
    return params


def _answer(params: Params, sources: Sequence[Entry], entries: Mapping[str, Entry]) -> Params:
    """Set what an Answer shows: the texts of the nodes before it that no Message shows.

    Each comes with the node's output `_said`, which tells whether the text was shown before.
    """
    shown = [source for source in sources if source.component != "Message" and not _is_in_message(source, entries)]
    params["says"] = [
        {"text": f"{{{source.id}@{_text_output(source)}}}", "said": f"{{{source.id}@_said}}"} for source in shown
    ]
    return params


def _is_in_message(source: Entry, entries: Mapping[str, Entry]) -> bool:
    """Whether a Message directly after a node refers to its content."""
    behind = [entries[target] for target in source.downstream if target in entries]
    texts = [entry.params for entry in behind if entry.component == "Message"]
    return (source.id, "content") in references.names_in(texts).nodes


def _form(params: Params) -> Params:
    if isinstance(fields := params.get("inputs"), list):
        named = [field for field in fields if isinstance(field, Mapping)]
        params["inputs"] = {str(field.get("key") or field.get("name") or ""): field for field in named}
    return params


# -- containers and data ----------------------------------------------------------------------------------------------


def _iteration(params: Params) -> Params:
    if not params.get("items_ref") and isinstance(items := params.get("items"), str):
        params["items_ref"] = items
        params["wrap_single"] = True  # in this shape a value that is not a list counts as a list of one
    return params


def _assigner(params: Params) -> Params:
    rows = params.get("assignments")
    if not params.get("variables") and isinstance(rows, list):
        params["variables"] = [_assignment(row) for row in rows if isinstance(row, Mapping)]
    return params


def _assignment(row: Mapping[str, Any]) -> Params:
    source = row.get("source")
    is_reference = isinstance(source, str) and references.parse(source) is not None
    return {"variable": row.get("target"), "operator": "overwrite" if is_reference else "set", "parameter": source}


def _excel(params: Params) -> Params:
    if params.get("operation") == "write":
        params["operation"] = "output"
    if not params.get("input_files") and (file_ref := params.get("file_ref")):
        params["input_files"] = _as_list(file_ref)
    _move(params, "output_data", "transform_data")
    if "sheet_selection" not in params and params.get("sheet_name"):
        params["sheet_selection"] = params["sheet_name"]
    return params


def _document(params: Params) -> Params:
    for short in ("header", "footer", "watermark"):
        _move(params, short, f"{short}_text")
    if params.get("output_format") == "md":
        params["output_format"] = "markdown"
    return params


def _data_operations(params: Params) -> Params:
    for key, row in (("query", "input"), ("select_keys", "name"), ("remove_keys", "name")):
        if key in params:
            params[key] = drawing.values_of(_as_list(params[key]), row)
    return params


def _browser(params: Params) -> Params:
    _move(params, "prompt", "prompts")
    return _model(params)


_NORMALIZERS: Mapping[str, Callable[[Params], Params]] = {
    "Agent": _agent,
    "Begin": _form,
    "Browser": _browser,
    "DataOperations": _data_operations,
    "DocGenerator": _document,
    "ExcelProcessor": _excel,
    "Iteration": _iteration,
    "Message": _message,
    "UserFillUp": _form,
    "VariableAssigner": _assigner,
}


def _move(params: Params, alias: str, main: str) -> None:
    """Move the value of `alias` to `main`, unless `main` has a value."""
    if alias in params:
        value = params.pop(alias)
        if not params.get(main):
            params[main] = value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


# -- across entries ---------------------------------------------------------------------------------------------------


def _sources(entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    """Return, per node, the nodes with a text output that lead to it, in component order."""
    sources: dict[str, list[str]] = {}
    for entry in entries.values():
        if entry.component not in _WITHOUT_TEXT:
            for target in entry.downstream:
                sources.setdefault(target, []).append(entry.id)
    return sources


def _resolve_item_variable(
    local: dict[str, Entry], bodies: Mapping[str, Sequence[str]], container: str, variable: str
) -> None:
    """Rewrite `{variable}` in a container's body, and in containers inside of it, to a reference to its item."""
    item = next((it for it in bodies.get(container, ()) if local[it].component == "IterationItem"), None)
    if item is None:
        return
    pattern = re.compile(rf"(\{{[ \t]*+){re.escape(variable)}((?:\.[A-Za-z0-9_.-]++)?[ \t]*+\}})")
    todo = list(bodies[container])
    while todo:
        member = local[todo.pop()]
        params = _rewrite_texts(member.params, lambda text: pattern.sub(rf"\g<1>{item}@item\g<2>", text))
        local[member.id] = replace(member, params=params)
        todo += bodies.get(member.id, ())


def _resolve_collected_children(local: dict[str, Entry]) -> None:
    """Rewrite `{iteration:0@generate:1}`, the list of that child's `content`, to an output `generate_1`.

    The Iteration gets that output.
    """
    collected: dict[str, dict[str, str]] = {}

    def output(node: str, child: str) -> str:
        container, member = local.get(node), local.get(child)
        if container is None or member is None or container.component != "Iteration" or member.parent != node:
            return child
        name = child.replace(":", "_")
        collected.setdefault(node, {})[name] = child
        return name

    def rewrite(text: str) -> str:
        if bare := _CHILD.fullmatch(text):
            return f"{bare[1]}@{output(bare[1], bare[2])}"
        return _CHILD_IN_BRACES.sub(lambda found: f"{found[1]}{found[2]}@{output(found[2], found[3])}{found[4]}", text)

    for entry in list(local.values()):
        local[entry.id] = replace(entry, params=_rewrite_texts(entry.params, rewrite))
    for node, children in collected.items():
        outputs = local[node].params.get("outputs")
        added = {name: {"type": "array", "ref": f"{child}@content"} for name, child in children.items()}
        params = {**local[node].params, "outputs": {**added, **(outputs if isinstance(outputs, Mapping) else {})}}
        local[node] = replace(local[node], params=params)


def _rewrite_texts(value: Any, rewrite: Callable[[str], str]) -> Any:
    match value:
        case str() as text:
            return rewrite(text)
        case Mapping() as fields:
            return {key: _rewrite_texts(item, rewrite) for key, item in fields.items()}
        case list() as items:
            return [_rewrite_texts(item, rewrite) for item in items]
        case _:
            return value
