"""Plugins: tools that installed packages offer under the entry-point group `easel.tools`.

    [project.entry-points."easel.tools"]
    bad_calculator = "my_package:BadCalculator"

A plugin is a `Tool` (components/tools/framework/base.py) or a plain object: `get_metadata()` or `metadata` gives
`{name, displayName, description, displayDescription, parameters: {name: {type, description, displayDescription,
required}}}`; `invoke(**arguments)` returns a text and may be a coroutine function; `effects` names the effect of
repeating a call: `none`, `idempotent` or `external`. A class is instantiated once. Only entry points that the
deployment allows are imported. A broken plugin, or one whose name is in use, is logged and skipped.
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
ALL_PLUGINS = "*"  # in the list of allowed names: all names

EFFECTS: Mapping[str, Effect] = {"none": "pure", "idempotent": "idempotent", "external": "unsafe"}


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded plugin: its tool and its own metadata."""

    entry: str
    tool: Tool[Any]
    metadata: Mapping[str, Any]


_loaded: dict[str, Plugin] = {}


def load(allowed: Collection[str], candidates: Iterable[EntryPoint] | None = None) -> None:
    """Load the allowed plugins and register their tools. A second call keeps what is already loaded."""
    if not allowed:
        return
    for entry in entry_points(group=GROUP) if candidates is None else candidates:
        if entry.name in _loaded or not (ALL_PLUGINS in allowed or entry.name in allowed):
            continue
        try:
            plugin = build_plugin(entry.name, entry.load())
            registry.register_tool(plugin.tool)
        except Exception as error:  # noqa: BLE001 (a plugin's code may raise anything; the other plugins are still loaded)
            log.warning("plugin_left_out", plugin=entry.name, error=f"{type(error).__name__}: {error}")
        else:
            _loaded[entry.name] = plugin
            log.info("plugin_loaded", plugin=entry.name, tool=plugin.tool.name, effect=plugin.tool.effect)


def list_loaded() -> Sequence[Plugin]:
    """Return the loaded plugins of this process, in the order in which they were loaded."""
    return list(_loaded.values())


def build_plugin(entry: str, target: Any) -> Plugin:
    """Build a plugin from the object that an entry point names. Raises ValueError with what the object lacks."""
    if isinstance(target, Tool):
        return Plugin(entry, target, _metadata_of(target))
    made = target() if isinstance(target, type) else target
    metadata = made.get_metadata() if hasattr(made, "get_metadata") else getattr(made, "metadata", None)
    if (
        not isinstance(metadata, Mapping)
        or not isinstance(metadata.get("name"), str)
        or not metadata["name"].isidentifier()
    ):
        raise ValueError("its metadata must have a `name` that is a valid identifier")
    invoke = getattr(made, "invoke", None)
    if not callable(invoke):
        raise ValueError("it must have a function `invoke`")
    effects = str(getattr(made, "effects", metadata.get("effects")))
    if effects not in EFFECTS:
        raise ValueError(f"it must declare `effects` as one of {', '.join(EFFECTS)}")
    tool = Tool(
        metadata["name"],
        metadata["name"].lower(),
        ToolParams,
        description=value_text(metadata.get("description")),
        arguments=_arguments(metadata.get("parameters") or {}),
        call=_wrap_invoke(invoke),
        effect=EFFECTS[effects],
        empty_outputs=None,
        main_output="content",
        outputs=("content",),
    )
    return Plugin(entry, tool, metadata)


def _arguments(parameters: Any) -> dict[str, Argument]:
    if not isinstance(parameters, Mapping):
        raise ValueError("its `parameters` must be an object")
    found = dict[str, Argument]()
    for name, details in parameters.items():
        if not isinstance(details, Mapping) or not str(name).isidentifier():
            raise ValueError(f"its parameter {name} must be an object under a name that is a valid identifier")
        description = value_text(details.get("description"))
        found[str(name)] = Argument(
            str(details.get("type") or "string"),
            description,
            required=bool(details.get("required")),
            default=details.get("default"),
        )
    return found


def _wrap_invoke(invoke: Callable[..., Any]) -> Callable[[ToolParams, Mapping[str, Any], NodeContext], Any]:
    async def call(params: ToolParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
        if inspect.iscoroutinefunction(invoke):
            result = await invoke(**arguments)
        else:
            result = await asyncio.to_thread(invoke, **arguments)
        return ToolResult({"content": value_text(result)}, answer=value_text(result))

    return call


def _metadata_of(tool: Tool[Any]) -> dict[str, Any]:
    """Return the metadata of a `Tool`, in the form in which plain objects give theirs."""
    parameters = {
        name: {
            "type": argument.type,
            "description": argument.description,
            "displayDescription": argument.description,
            "required": argument.required,
        }
        for name, argument in tool.arguments.items()
    }
    names = {"name": tool.name, "displayName": tool.name, "description": tool.description}
    return {**names, "displayDescription": tool.description, "parameters": parameters}
