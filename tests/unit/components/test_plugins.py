"""Plugins: what other packages offer becomes a node and an Agent's tool, if it is allowed and whole."""

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
    """RAGFlow's own sample, in our words: adds two numbers, and a hundred too much."""

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
    """A plugin that waits, and acts outside."""

    effects = "external"
    metadata: Mapping[str, Any] = {"name": "Waiting", "description": "Waits.", "parameters": {}}

    async def invoke(self) -> str:
        raise ValueError("nobody came")


class Undeclared(BadCalculator):
    effects = ""


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class Taken(Waiting):
    metadata: Mapping[str, Any] = {"name": "retrieval", "parameters": {}}


async def _full(params: ToolParams, arguments: Mapping[str, Any], ctx: Any) -> ToolResult:
    return ToolResult({"formalized_content": f"full: {arguments['q']}"})


FULL = Tool("FullTool", "full_tool", ToolParams, "Full.", {"q": Argument("string", "q", required=True)}, _full, "pure")


@dataclass
class Logged(Log):
    """Remembers why plugins were left out."""

    errors: list[str] = field(default_factory=list)

    def warning(self, event: str, **told: Any) -> None:
        super().warning(event)
        self.errors.append(told["error"])

    def info(self, event: str, **_: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Logged]:
    """What is logged. Nothing of what a test loads stays."""
    known: list[dict[str, Any]] = [tools._by_name, registry._by_name, plugins._loaded]  # pyright: ignore[reportPrivateUsage] (no product ever unloads a plugin)
    before = [dict(each) for each in known]
    monkeypatch.setattr(plugins, "log", logged := Logged())
    yield logged
    for each, was in zip(known, before, strict=True):
        each.clear()
        each.update(was)


def no_agent(_: Any) -> Any:
    raise AssertionError("nobody has a sub-agent here")


def offered(*names: str) -> list[EntryPoint]:
    """Entry points that lead to what stands here under these names."""
    return [EntryPoint(name.lower(), f"{__name__}:{name}", plugins.GROUP) for name in names]


def test_a_plain_plugin_is_a_node_of_its_name():
    plugins.load({"badcalculator"}, offered("BadCalculator"))
    component = registry.find("Bad_Calculator")

    assert component is not None
    outcome = run(component, {"a": "{x@n}", "b": 2}, FakeContext(values={"x": {"n": 1}}))

    assert outcome == Finished(outputs={"content": "103"})
    assert component.effect == "pure"


def test_an_agent_is_offered_what_a_plugin_describes():
    plugins.load({"*"}, offered("BadCalculator"))
    script = Script([{"last_role": "user", **calls(("bad_calculator_0", {"a": 1, "b": 2}))}, {"reply": "It is 103."}])

    outcome, _ = ask(script, tools=["bad_calculator"])

    assert isinstance(outcome, Finished)
    assert outcome.outputs["use_tools"] == [
        {"name": "bad_calculator_0", "arguments": {"a": 1, "b": 2}, "results": "103"}
    ]
    function = tool_function(parse_entry("bad_calculator", no_agent), 0).schema["function"]
    assert function["description"] == "Adds two numbers."
    assert function["parameters"]["required"] == ["a", "b"]


def test_what_a_plugin_raises_is_its_nodes_error():
    plugins.load({"waiting"}, offered("Waiting"))
    component = registry.find("Waiting")

    assert component is not None
    outcome = run(component, {}, FakeContext())

    assert isinstance(outcome, Failed)
    assert outcome.error == "nobody came"
    assert tool_function(parse_entry("waiting", no_agent), 0).effect == "unsafe"


def test_a_full_tool_is_taken_as_it_is():
    plugins.load({"*"}, offered("FULL"))
    component = registry.find("fulltool")

    assert component is not None
    outcome = run(component, {"q": "x"}, FakeContext())

    assert isinstance(outcome, Finished)
    assert outcome.outputs["formalized_content"] == "full: x"
    (plugin,) = plugins.list_loaded()
    assert plugin.metadata["parameters"]["q"]["required"] is True


@pytest.mark.parametrize("allowed", [set[str](), {"waiting"}])
def test_what_is_not_allowed_is_not_even_imported(allowed: set[str], log: Logged):
    nowhere = [EntryPoint("nowhere", "no_such_package:Thing", plugins.GROUP)]

    plugins.load(allowed, [*offered("BadCalculator"), *nowhere])

    assert registry.find("bad_calculator") is None
    assert log.warnings == []


def test_what_is_broken_is_left_out_and_the_others_are_loaded(log: Logged):
    nowhere = [EntryPoint("nowhere", "no_such_package:Thing", plugins.GROUP)]

    plugins.load({"*"}, [*nowhere, *offered("Undeclared", "Broken", "Taken", "BadCalculator")])
    plugins.load({"*"}, offered("BadCalculator"))

    assert [plugin.tool.name for plugin in plugins.list_loaded()] == ["bad_calculator"]
    assert log.errors == [
        "ModuleNotFoundError: No module named 'no_such_package'",
        "ValueError: it must declare `effects` as one of none, idempotent, external",
        "RuntimeError: no licence",
        "ValueError: the name retrieval is already in use. Choose another one.",
    ]


def test_of_two_plugins_with_one_name_the_first_counts(log: Logged):
    again = EntryPoint("again", f"{__name__}:BadCalculator", plugins.GROUP)

    plugins.load({"*"}, [*offered("BadCalculator"), again])

    assert log.errors == ["ValueError: the name bad_calculator is already in use. Choose another one."]
