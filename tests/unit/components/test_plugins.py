"""Plugins of other packages become components and tools of Agents, if they are allowed and valid."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from canvas.outcome import Failed, Finished
from components import plugins, registry, tools
from components.nodes.agent.tool_set import parse_entry, tool_function
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from providers.models.chat.scripted import Script
from tests.fakes import FakeContext, run
from tests.unit.components.nodes.agent.agents import Log, ask, calls


class BadCalculator:
    """RAGFlow's sample plugin: adds two numbers and 100."""

    effects = "none"

    @classmethod
    def get_metadata(cls) -> Mapping[str, Any]:
        number = {"type": "number", "description": "A number", "displayDescription": "A number", "required": True}
        return {
            "name": "bad_calculator",
            "displayName": "Calculator",
            "description": "Adds two numbers.",
            "displayDescription": "Adds two numbers.",
            "parameters": {"a": number, "b": number},
        }

    def invoke(self, a: float, b: float) -> str:
        return str(a + b + 100)


class Waiting:
    """An asynchronous plugin with external effects."""

    effects = "external"
    metadata: Mapping[str, Any] = {"name": "Waiting", "description": "Waits.", "parameters": {}}

    async def invoke(self) -> str:
        raise ValueError("nobody came")


class Undeclared(BadCalculator):
    effects = ""


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class NameInUse(Waiting):
    metadata: Mapping[str, Any] = {"name": "retrieval", "parameters": {}}


async def _full(params: ToolParams, arguments: Mapping[str, Any], ctx: Any) -> ToolResult:
    return ToolResult({"formalized_content": f"full: {arguments['q']}"})


FULL = Tool("FullTool", "full_tool", ToolParams, "Full.", {"q": Argument("string", "q", required=True)}, _full, "pure")


@dataclass
class PluginLog(Log):
    """Records why plugins were skipped."""

    errors: list[str] = field(default_factory=list)

    def warning(self, event: str, **fields: Any) -> None:
        super().warning(event)
        self.errors.append(fields["error"])

    def info(self, event: str, **_: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginLog]:
    """Record what is logged, and unload the plugins after the test."""
    registries: list[dict[str, Any]] = [tools._by_name, registry._by_name, plugins._loaded]  # pyright: ignore[reportPrivateUsage] (no product ever unloads a plugin)
    before = [dict(each) for each in registries]
    monkeypatch.setattr(plugins, "log", logged := PluginLog())
    yield logged
    for each, contents in zip(registries, before, strict=True):
        each.clear()
        each.update(contents)


def no_agent(_: Any) -> Any:
    raise AssertionError("no test here has a sub-agent")


def entry_points(*names: str) -> list[EntryPoint]:
    """Return entry points for these names of this module."""
    return [EntryPoint(name.lower(), f"{__name__}:{name}", plugins.GROUP) for name in names]


def test_plugin_class_becomes_a_component_of_its_name():
    plugins.load({"badcalculator"}, entry_points("BadCalculator"))
    component = registry.find("Bad_Calculator")

    assert component is not None
    outcome = run(component, {"a": "{x@n}", "b": 2}, FakeContext(values={"x": {"n": 1}}))

    assert outcome == Finished(outputs={"content": "103"})
    assert component.effect == "pure"


def test_metadata_of_a_plugin_becomes_the_schema_of_an_agents_tool():
    plugins.load({"*"}, entry_points("BadCalculator"))
    script = Script([{"last_role": "user", **calls(("bad_calculator_0", {"a": 1, "b": 2}))}, {"reply": "It is 103."}])

    outcome, _ = ask(script, tools=["bad_calculator"])

    assert isinstance(outcome, Finished)
    assert outcome.outputs["use_tools"] == [
        {"name": "bad_calculator_0", "arguments": {"a": 1, "b": 2}, "results": "103"}
    ]
    function = tool_function(parse_entry("bad_calculator", no_agent), 0).schema["function"]
    assert function["description"] == "Adds two numbers."
    assert function["parameters"]["required"] == ["a", "b"]


def test_exception_of_a_plugin_is_the_error_of_its_node():
    plugins.load({"waiting"}, entry_points("Waiting"))
    component = registry.find("Waiting")

    assert component is not None
    outcome = run(component, {}, FakeContext())

    assert isinstance(outcome, Failed)
    assert outcome.error == "nobody came"
    assert tool_function(parse_entry("waiting", no_agent), 0).effect == "unsafe"


def test_plugin_that_is_a_tool_is_loaded_unchanged():
    plugins.load({"*"}, entry_points("FULL"))
    component = registry.find("fulltool")

    assert component is not None
    outcome = run(component, {"q": "x"}, FakeContext())

    assert isinstance(outcome, Finished)
    assert outcome.outputs["formalized_content"] == "full: x"
    (plugin,) = plugins.list_loaded()
    assert plugin.metadata["parameters"]["q"]["required"] is True


@pytest.mark.parametrize("allowed", [set[str](), {"waiting"}])
def test_plugin_that_is_not_allowed_is_not_imported(allowed: set[str], log: PluginLog):
    nowhere = [EntryPoint("nowhere", "no_such_package:Thing", plugins.GROUP)]

    plugins.load(allowed, [*entry_points("BadCalculator"), *nowhere])

    assert registry.find("bad_calculator") is None
    assert log.warnings == []


def test_broken_plugins_are_skipped_and_the_others_are_loaded(log: PluginLog):
    nowhere = [EntryPoint("nowhere", "no_such_package:Thing", plugins.GROUP)]

    plugins.load({"*"}, [*nowhere, *entry_points("Undeclared", "Broken", "NameInUse", "BadCalculator")])
    plugins.load({"*"}, entry_points("BadCalculator"))

    assert [plugin.tool.name for plugin in plugins.list_loaded()] == ["bad_calculator"]
    assert log.errors == [
        "ModuleNotFoundError: No module named 'no_such_package'",
        "ValueError: it must declare `effects` as one of none, idempotent, external",
        "RuntimeError: no licence",
        "ValueError: the name retrieval is already in use. Choose another one.",
    ]


def test_second_plugin_of_the_same_name_is_refused(log: PluginLog):
    again = EntryPoint("again", f"{__name__}:BadCalculator", plugins.GROUP)

    plugins.load({"*"}, [*entry_points("BadCalculator"), again])

    assert log.errors == ["ValueError: the name bad_calculator is already in use. Choose another one."]
