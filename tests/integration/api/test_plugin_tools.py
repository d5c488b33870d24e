"""The metadata of plugins over HTTP."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from components import plugins, registry, tools
from tests.integration.api.talking import Client


class Greeter:
    """A plugin in RAGFlow's format."""

    effects = "none"
    metadata = {  # noqa: RUF012 (as a plugin's author writes it)
        "name": "greeter",
        "displayName": "Greeter",
        "description": "Greets.",
        "displayDescription": "Greets.",
        "parameters": {"name": {"type": "string", "description": "Who", "displayDescription": "Who", "required": True}},
    }

    def invoke(self, name: str) -> str:
        return f"Hello, {name}!"


@pytest.fixture
def greeter() -> Iterator[None]:
    """Load the plugin for one test."""
    registries: list[dict[str, Any]] = [tools._by_name, registry._by_name, plugins._loaded]
    before = [dict(names) for names in registries]
    plugins.load({"greeter"}, [EntryPoint("greeter", f"{__name__}:Greeter", plugins.GROUP)])
    yield
    for names, previous in zip(registries, before, strict=True):
        names.clear()
        names.update(previous)


@pytest.mark.usefixtures("greeter")
def test_loaded_plugins_are_listed_with_their_metadata(workerless_client: Client):
    reply = workerless_client.http.get("/api/v1/plugin/tools").json()

    assert reply == {"code": 0, "message": "success", "data": [Greeter.metadata]}


@pytest.mark.usefixtures("greeter")
def test_canvas_with_a_loaded_plugin_is_accepted_and_with_an_unknown_one_refused(workerless_client: Client):
    node = {"obj": {"component_name": "Greeter", "params": {"name": "Ann"}}, "upstream": ["begin"], "downstream": []}
    begin = {"obj": {"component_name": "Begin", "params": {}}, "upstream": [], "downstream": ["Greeter:0"]}
    dsl = {"components": {"begin": begin, "Greeter:0": node}}

    accepted = workerless_client.http.post("/api/v1/agents", json={"title": "Greets", "dsl": dsl}).json()
    node["obj"]["component_name"] = "Stranger"
    refused = workerless_client.http.post("/api/v1/agents", json={"title": "Other", "dsl": dsl}).json()

    assert accepted["code"] == 0
    assert refused["code"] == 101
    assert "Can't import Stranger" in str(refused)
