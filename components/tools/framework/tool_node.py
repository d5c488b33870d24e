"""A tool as a node of a canvas.

Every argument of the tool is a parameter of the node. A text that is a single reference keeps the type of the value; in
other texts references are replaced where they resolve, and text that only looks like a reference stays as written.

If `exception_method` is `comment` and there is a default value, a failed tool does not fail its node: the default
becomes `result` and the tool's main output, and the error is stored as `_SUPPRESSED_ERROR` (docs/tools.md, row T6).
"""

from collections.abc import Mapping
from typing import Any

from canvas.errors import NodeTimeout, UnresolvedReference
from canvas.outcome import Failed, Finished, Outcome
from components.base import Component
from components.context import NodeContext
from components.text.templates import templates
from components.tools.framework.base import Argument, TextWithReferences, Tool, ToolParams, ToolRun
from components.tools.framework.time_limits import timeout_text
from providers.models.limits.pausable_timeout import PausableTimeout

RESULT, SUPPRESSED = "result", "_SUPPRESSED_ERROR"
_SHARE_OF_LIMIT = 0.98  # just before the worker cancels the attempt, so that the author's default still applies


def tool_component(tool: Tool[Any]) -> Component[Any]:
    """Return the component that runs a tool."""

    async def run(params: ToolParams, ctx: NodeContext) -> Outcome:
        cleared = _cleared_outputs(tool, params, ctx)
        done = await _run_tool(tool, params, ctx)
        if done.error is None:
            return Finished(outputs={**cleared, **done.outputs})
        default = params.exception_default_value
        if params.exception_method == "comment" and default:
            main = {tool.main_output: default} if tool.main_output != "json" else {}
            return Finished(outputs={**cleared, **done.outputs, **main, RESULT: default, SUPPRESSED: done.error})
        return Failed(done.error, done.code, outputs={**cleared, **done.outputs})

    return Component(tool.name, tool.params, run, tool.effect)


async def _run_tool(tool: Tool[Any], params: ToolParams, ctx: NodeContext) -> ToolRun:
    limit = ctx.time_limit(tool.name)
    try:
        async with PausableTimeout(limit * _SHARE_OF_LIMIT):
            return await tool.run(params, _resolve_arguments(tool, params, ctx), ctx)
    except TimeoutError:
        return ToolRun({}, None, timeout_text(limit, tool.name), NodeTimeout.code)
    except UnresolvedReference as unknown:
        return ToolRun({}, None, unknown.message, unknown.code)


def _resolve_arguments(tool: Tool[Any], params: ToolParams, ctx: NodeContext) -> dict[str, Any]:
    """Return the node's value for each argument and record the values as the node's inputs; null is left out."""
    arguments: dict[str, Any] = {}
    apart = tool.unresolved_arguments(params)
    for name, argument in tool.arguments.items():
        stored = tool.stored_value(params, name, argument)
        if stored is None:
            continue
        value = arguments[name] = resolve_argument(argument, stored, ctx, keep_references=name in apart)
        ctx.note_input(
            name, {"text": value.text, "values": value.values} if isinstance(value, TextWithReferences) else value
        )
    return arguments


def resolve_argument(argument: Argument, stored: Any, ctx: NodeContext, *, keep_references: bool = False) -> Any:
    """Return an author's stored value for an argument with its references, also those in a list, resolved.

    With `keep_references`, a text with references is returned as TextWithReferences, unless it is a single reference.
    Raises UnresolvedReference for a single reference to something that the canvas does not have.
    """
    if argument.type != "array" or not isinstance(stored, list):
        return _resolve_value(stored, ctx, keep_references=keep_references)
    items: list[Any] = []
    for item in stored:
        value = _resolve_value(item, ctx)
        items += value if isinstance(value, list) and not isinstance(item, list) else [value]
    return items


def _resolve_value(value: Any, ctx: NodeContext, *, keep_references: bool = False) -> Any:
    """Return a value with its references resolved; with `keep_references`, text and references separately."""
    if not isinstance(value, str):
        return value
    if ctx.is_reference(value):
        return ctx.lookup(value)
    found = list(templates.find_references([value]))
    if len(found) == 1 and value.strip() == value[found[0].start : found[0].end]:
        is_text = found[0].ref.is_alias and not ctx.exists(found[0].expression)
        return value if is_text else ctx.lookup(found[0].expression)
    known = {mention.expression for mention in found if ctx.exists(mention.expression)}
    if keep_references and known:
        return TextWithReferences(value, {name: ctx.lookup(name) for name in sorted(known)})
    return templates.fill(value, {name: templates.value_text(ctx.lookup(name)) for name in known})


def _cleared_outputs(tool: Tool[Any], params: ToolParams, ctx: NodeContext) -> dict[str, None]:
    """Return null for every declared output and for outputs of the node's previous run (docs/tools.md, row T2)."""
    declared = list(params.outputs) if isinstance(params.outputs, Mapping) else []
    left = [name for name in (*tool.outputs, RESULT, SUPPRESSED) if ctx.previous_output(name) is not None]
    return dict.fromkeys([*declared, *left])
