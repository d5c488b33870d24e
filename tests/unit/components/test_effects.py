"""Effect classes: every component declares its own, by its parameters, and docs/dsl.md lists them."""

import re
from pathlib import Path
from typing import Any

import pytest

from components import registry, tools
from components.tools.framework.base import ToolParams

DSL = (Path(__file__).parents[3] / "docs" / "dsl.md").read_text(encoding="utf-8")

NOT_IDEMPOTENT_TOOLS = {"Bing": "pure", "CodeExec": "keyed", "Email": "keyed", "WenCai": "pure"}


def effect_of(component: str, params: dict[str, Any]) -> str:
    found = registry.find(component)
    assert found is not None
    return found.effect_of(found.params.model_validate(params))


@pytest.mark.parametrize("component", sorted({found.name for found in registry.COMPONENTS.values()} - {"WenCai"}))
def test_effect_class_of_every_component_is_documented(component: str):
    found = registry.find(component)
    assert found is not None
    if tools.find(component) is not None:
        assert found.effect == NOT_IDEMPOTENT_TOOLS.get(component, "idempotent")
        return

    rows = re.findall(r"^\| `(pure|idempotent|keyed|unsafe)` \|.*\|(.*)\|$", DSL, re.MULTILINE)

    assert found.effect in [effect for effect, named in rows if re.search(rf"\b{component}\b", named)]


def test_every_tool_is_idempotent_except_the_listed_ones():
    effects = {tool.name: tool.effect for tool in tools.TOOLS.values()}

    assert {name: effect for name, effect in effects.items() if effect != "idempotent"} == NOT_IDEMPOTENT_TOOLS


@pytest.mark.parametrize(
    ("component", "params", "effect"),
    [
        ("Invoke", {"url": "x"}, "idempotent"),
        ("Invoke", {"url": "x", "method": "POST"}, "keyed"),
        ("Invoke", {"url": "x", "method": "patch", "on_unknown": ""}, "keyed"),
        ("Invoke", {"url": "x", "method": "delete", "on_unknown": "ask"}, "unsafe"),
        ("Message", {"content": ["hi"]}, "idempotent"),
        ("Message", {"content": ["hi"], "memory_ids": ["m"]}, "keyed"),
        ("Agent", {"llm_id": "m"}, "idempotent"),
        ("Agent", {"llm_id": "m", "tools": [{"component_name": "Wikipedia"}]}, "keyed"),
        ("Browser", {"llm_id": "m"}, "unsafe"),
        ("CodeExec", {}, "keyed"),
    ],
)
def test_effect_class_of_a_node_depends_on_its_parameters(component: str, params: dict[str, Any], effect: str):
    assert effect_of(component, params) == effect


def test_tool_without_an_effect_class_cannot_be_created():
    with pytest.raises(TypeError, match="effect"):
        tools.Tool("Send", "send", ToolParams, "Sends.", {}, tools.TAVILY_SEARCH.call)  # type: ignore[call-arg]  # the point
