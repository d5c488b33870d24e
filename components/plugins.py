"""Tools from outside: whatever packages of this environment offer under the entry-point group `easel.tools` (tools 8).

    [project.entry-points."easel.tools"]
    bad_calculator = "my_package:BadCalculator"

What is offered is a `Tool` (components/tools/framework/base.py), or a plain object: `get_metadata()` or `metadata`
gives `{name, displayName, description, displayDescription, parameters: {name: {type, description, displayDescription,
required}}}`, `invoke(**arguments)` gives a text and may be a coroutine function, and `effects` says what repeating a
call means: `none`, `idempotent` or `external`. A class is instantiated once. Only names that the deployment allows are
imported at all; what is broken, and a name that is taken, is logged and left out.
"""

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import structlog

from components import registry
from components.base import Effect
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult

log = structlog.get_logger()

GROUP = "easel.tools"
EVERY = "*"  # among the allowed names: all of them

EFFECTS: Mapping[str, Effect] = {"none": "pure", "idempotent": "idempotent", "external": "unsafe"}


@dataclass(frozen=True, slots=True)
class Plugin:
    """A tool from outside, and what it says about itself."""

    entry: str
    tool: Tool[Any]
    metadata: Mapping[str, Any]


_loaded: dict[str, Plugin] = {}


def load(allowed: Collection[str], offered: Iterable[EntryPoint] | None = None) -> None:
    """Make the allowed plugins known to canvases. Safe to call again: what is loaded stays as it is."""
    if not allowed:
        return
    for entry in entry_points(group=GROUP) if offered is None else offered:
        if entry.name in _loaded or not (EVERY in allowed or entry.name in allowed):
            continue
        try:
            plugin = plugin_of(entry.name, entry.load())
            registry.add(plugin.tool)
        except Exception as error:  # noqa: BLE001 (somebody else's code may raise anything; the others are still wanted)
            log.warning("plugin_left_out", plugin=entry.name, error=f"{type(error).__name__}: {error}")
        else:
            _loaded[entry.name] = plugin
            log.info("plugin_loaded", plugin=entry.name, tool=plugin.tool.name, effect=plugin.tool.effect)


def loaded() -> Sequence[Plugin]:
    """The plugins of this process, in the order in which they came."""
    return list(_loaded.values())


def plugin_of(entry: str, offered: Any) -> Plugin:
    """What an entry point has led to, as a tool. Raises ValueError that says what it lacks."""
    if isinstance(offered, Tool):
        return Plugin(entry, offered, _described(offered))
    made = offered() if isinstance(offered, type) else offered
    told = made.get_metadata() if hasattr(made, "get_metadata") else getattr(made, "metadata", None)
    if not isinstance(told, Mapping) or not isinstance(told.get("name"), str) or not told["name"].isidentifier():
        raise ValueError("its metadata has no name that is one word")
    invoke = getattr(made, "invoke", None)
    if not callable(invoke):
        raise ValueError("it has no function `invoke`")
    effects = str(getattr(made, "effects", told.get("effects")))
    if effects not in EFFECTS:
        raise ValueError(f"it must declare `effects`: {', '.join(EFFECTS)}")
    tool = Tool(
        told["name"],
        told["name"].lower(),
        ToolParams,
        description=value_text(told.get("description")),
        arguments=_arguments(told.get("parameters") or {}),
        call=_calling(invoke),
        effect=EFFECTS[effects],
        empty=None,
        main_output="content",
        outputs=("content",),
    )
    return Plugin(entry, tool, told)


def _arguments(parameters: Any) -> dict[str, Argument]:
    if not isinstance(parameters, Mapping):
        raise ValueError("its parameters are no object")
    found = dict[str, Argument]()
    for name, told in parameters.items():
        if not isinstance(told, Mapping) or not str(name).isidentifier():
            raise ValueError(f"its parameter {name} is not described")
        description = value_text(told.get("description"))
        found[str(name)] = Argument(
            str(told.get("type") or "string"),
            description,
            required=bool(told.get("required")),
            default=told.get("default"),
        )
    return found


def _calling(invoke: Callable[..., Any]) -> Callable[[ToolParams, Mapping[str, Any], NodeContext], Any]:
    async def call(params: ToolParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
        if inspect.iscoroutinefunction(invoke):
            told = await invoke(**arguments)
        else:
            told = await asyncio.to_thread(invoke, **arguments)
        return ToolResult({"content": value_text(told)}, answer=value_text(told))

    return call


def _described(tool: Tool[Any]) -> dict[str, Any]:
    """A full tool in the words of a plain one."""
    parameters = {
        name: {
            "type": argument.type,
            "description": argument.description,
            "displayDescription": argument.description,
            "required": argument.required,
        }
        for name, argument in tool.arguments.items()
    }
    told = {"name": tool.name, "displayName": tool.name, "description": tool.description}
    return {**told, "displayDescription": tool.description, "parameters": parameters}
