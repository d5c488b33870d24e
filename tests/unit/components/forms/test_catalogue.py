"""The catalogue of forms: schemas hold for the recorded documents, and describe what components and tools read."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from canvas.document import drawing
from components import registry
from components.base import Params
from components.forms.catalogue import catalogue, defaults_of, form_of, form_schema
from components.forms.nodes import FORMS, GROUPS
from components.forms.tools import TOOL_FORMS

RECORDINGS = Path(__file__).parents[4] / "tests/recordings"
CATALOGUE = catalogue()
COMPONENTS = {each["name"]: each for each in CATALOGUE["components"]}
TOOLS = {each["name"]: each for each in CATALOGUE["tools"]}

NOT_IN_FORMS = {  # parameters of a run that an editor's form has in another way, or not at all
    "temperature_enabled", "top_p_enabled", "presence_penalty_enabled", "frequency_penalty_enabled",
    "max_tokens_enabled", "custom_header", "wrap_single", "function_name",
}  # fmt: skip


def iterate_graphs(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("graph"), dict) and isinstance(value["graph"].get("nodes"), list):
            yield value["graph"]
        for inner in value.values():
            yield from iterate_graphs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from iterate_graphs(inner)


def recorded_forms() -> Iterator[tuple[str, str, Any]]:
    """Yield (file, component, form) of each drawn node."""
    for path in sorted(RECORDINGS.rglob("*.json")):
        for graph in iterate_graphs(json.loads(path.read_text())):
            for node in drawing.parse_drawing(graph).nodes.values():
                yield path.name, node.label, dict(node.form)


def test_every_form_of_the_recorded_documents_is_valid_by_its_schema() -> None:
    validators = {name: Draft202012Validator(each["params"]) for name, each in COMPONENTS.items()}
    checked = 0

    for file, component, form in recorded_forms():
        validator = validators.get(component)
        if validator is None:
            continue
        errors = [f"{file} {component} {error.json_path}: {error.message}" for error in validator.iter_errors(form)]
        assert errors == []
        checked += bool(form)

    assert checked > 100


def test_every_field_of_the_recorded_forms_of_described_components_is_described() -> None:
    unknown = {
        (component, name)
        for _, component, form in recorded_forms()
        if component in COMPONENTS
        for name in form.keys() - COMPONENTS[component]["params"]["properties"].keys()
    }

    assert unknown == set()


@pytest.mark.parametrize("name", list(COMPONENTS))
def test_schemas_are_valid_and_every_field_has_title_type_and_place(name: str) -> None:
    params = COMPONENTS[name]["params"]

    Draft202012Validator.check_schema(params)

    for field in params["properties"].values():
        assert field["title"]
        assert "type" in field or "enum" in field
        assert "x-easel-order" in field or field["x-easel-widget"] == "hidden"


@pytest.mark.parametrize("name", list(COMPONENTS))
def test_component_has_a_description_for_every_field_and_each_parameter_that_it_reads(name: str) -> None:
    fields = COMPONENTS[name]["params"]["properties"]
    found = registry.find(name)
    own = set(found.params.model_fields) - set(Params.model_fields) if found is not None else set()

    assert all(field["description"] for field in fields.values())
    assert own - NOT_IN_FORMS - fields.keys() == set()


@pytest.mark.parametrize("name", [name for name in COMPONENTS if name != "Note"])
def test_options_of_a_field_are_accepted_by_the_component(name: str) -> None:
    form, found = form_of(name), registry.find(name)
    assert form is not None
    assert found is not None
    for field in form.fields:
        for option in field.schema.get("enum", field.schema.get("examples", ())):
            if option and field.name in found.params.model_fields:
                try:
                    found.params.model_validate({field.name: option})
                except ValueError as error:
                    assert f"\n{field.name}\n" not in str(error), (field.name, option)  # noqa: PT017


@pytest.mark.parametrize("name", list(COMPONENTS))
def test_defaults_of_a_new_node_are_valid_by_its_schema(name: str) -> None:
    Draft202012Validator(COMPONENTS[name]["params"]).validate(COMPONENTS[name]["defaults"])


def test_every_component_and_tool_is_listed_with_a_group_that_exists() -> None:
    listed = {found.name for found in registry.COMPONENTS.values()} - {"Bing"}

    assert listed | {"Note"} == COMPONENTS.keys()
    assert {each["group"] for each in COMPONENTS.values()} <= GROUPS.keys()
    assert set(TOOLS) == {name for name, each in COMPONENTS.items() if each["tool"]} - {"Agent"}


@pytest.mark.parametrize("name", list(COMPONENTS))
def test_secret_parameters_have_the_widget_of_secrets(name: str) -> None:
    found = registry.find(name)
    secrets = found.params.secrets if found is not None else ()

    for secret in secrets:
        if "." not in secret:
            assert COMPONENTS[name]["params"]["properties"][secret]["x-easel-widget"] == "secret"


def test_every_component_and_tool_of_easel_is_described() -> None:  # A28
    assert COMPONENTS.keys() == FORMS.keys() | TOOL_FORMS.keys()
    assert TOOL_FORMS.keys() == TOOLS.keys()


@pytest.mark.parametrize("name", list(TOOLS))
def test_tool_has_parameters_apart_from_the_arguments_that_a_model_gives(name: str) -> None:
    tool = TOOLS[name]

    Draft202012Validator.check_schema(tool["arguments"])

    assert tool["arguments"]["type"] == "object"
    assert not tool["params"]["properties"].keys() & tool["arguments"]["properties"].keys()


def test_unknown_component_has_no_form() -> None:
    assert form_of("Nothing") is None


def test_fields_of_any_shape_stay_in_a_document() -> None:
    form = form_of("LLM")
    assert form is not None
    Draft202012Validator(form_schema(form)).validate({**defaults_of(form), "unknown": {"a": [1]}})


def test_secret_fields_are_named_as_fields_of_the_form() -> None:
    found = {each["name"]: each["secrets"] for each in catalogue()["components"]}
    tools = {each["name"]: each["secrets"] for each in catalogue()["tools"]}

    assert (found["Begin"], found["Invoke"], found["LLM"]) == (["security"], ["headers", "proxy"], [])
    assert (found["TavilySearch"], tools["TavilySearch"]) == (["api_key"], ["api_key"])
