"""The documentation agrees with the code: settings, components, events, log lines, links and names of tests."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

import pytest
from pydantic import AliasChoices

from canvas.document import component_names, parsing
from canvas.events import run_events
from components import registry, tools
from components.base import Component, Params
from components.tools.framework.base import Tool, ToolParams
from components.tools.framework.retired import RETIRED
from providers.models.vendors.accounts import accounts_from_toml
from providers.models.vendors.vendors import vendors
from settings import TIME_LIMITS, Settings
from tests import line_links

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OPERATIONS = (DOCS / "operations.md").read_text(encoding="utf-8")
DSL = (DOCS / "dsl.md").read_text(encoding="utf-8")
TOOLS = (DOCS / "tools.md").read_text(encoding="utf-8")
GUARANTEES = (DOCS / "guarantees.md").read_text(encoding="utf-8")
MODELS = (DOCS / "models.md").read_text(encoding="utf-8")
EVENTS = DOCS / "events.md"

PAGES = sorted(
    page
    for page in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part == "node_modules" for part in page.relative_to(ROOT).parts)
)
RETIRED_NAMES = {tool.name for tool in RETIRED}
LISTED: Mapping[str, Component[Any]] = {
    component.name: component for component in registry.COMPONENTS.values() if component.name not in RETIRED_NAMES
}
EXAMPLES = re.compile(r"^```json\n(.*?)^```", re.MULTILINE | re.DOTALL)


def without_code(text: str) -> str:
    """Return a page without its code blocks, where brackets and backticks have another meaning."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: its headings as GitHub spells them in links."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(text: str, heading: str) -> str:
    """Return the text below a heading, up to the next one of its level or above."""
    level = heading.index(" ")
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{level}}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"there is no heading {heading!r}"
    return found[1]


def in_backticks(text: str) -> set[str]:
    """Return all texts in backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))


def own_fields(params: type[Params]) -> set[str]:
    """Return the parameters that a component adds to those of every node, as canvases spell them."""
    shared = ToolParams.model_fields if issubclass(params, ToolParams) else Params.model_fields
    return {field.alias or name for name, field in params.model_fields.items() if name not in shared}


def description_of(name: str) -> str:
    """Return the description of a component or tool; Agent and DeepResearch have the parameters of an LLM too."""
    if tools.find(name) is not None:
        return section(TOOLS, f"## {name}")
    documented = section(DSL, f"### {name}")
    return documented + without_code(section(DSL, "### LLM")) if name in ("Agent", "DeepResearch") else documented


# -- links -----------------------------------------------------------------------------------------------------------


def dead_links(page: Path) -> Iterator[str]:
    """Yield the links of a page to files and headings of this repository that do not exist."""
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_dead = not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target))
        if not re.match(r"[a-z]+:", link) and is_dead:
            yield link


def test_every_link_has_a_target() -> None:
    dead = [f"{page.relative_to(ROOT)}: {link}" for page in PAGES for link in dead_links(page)]

    assert PAGES
    assert dead == []


def test_dead_links_are_detected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](#a-heading) [b](page.md#a-heading) [c](https://c.example) [d](#d) [e](e.md)")

    assert list(dead_links(page)) == ["#d", "e.md"]


def test_links_of_the_tour_lead_to_the_lines_that_they_name() -> None:
    text = line_links.PAGE.read_text("utf-8")

    assert len(list(line_links.links(text))) > 20
    assert line_links.wrong_links(text) == [], "run `python -m tests.line_links`"


@pytest.mark.parametrize(
    "link", ["[`Executor`](../worker/execution/executor.py#L1)", "[`Gone`](../worker/execution/executor.py#L1)"]
)
def test_link_to_a_wrong_line_is_detected(link: str) -> None:
    assert line_links.wrong_links(link)


# -- operations.md ---------------------------------------------------------------------------------------------------


def variables() -> Iterator[tuple[str, Any]]:
    """Yield every variable of the settings with its default."""
    for name, field in Settings.model_fields.items():
        alias = field.validation_alias
        spellings = alias.choices if isinstance(alias, AliasChoices) else [f"EASEL_{name.upper()}"]
        yield from ((str(spelling), field.default if field.default_factory is None else ...) for spelling in spellings)


def format_default(default: Any) -> str:
    """Return a default as the table writes it, without its backticks."""
    match default:
        case None:
            return "none"
        case bool():
            return str(default).lower()
        case timedelta():
            units = (("d", 86_400_000), ("m", 60_000), ("s", 1000), ("ms", 1))
            whole = round(default.total_seconds() * 1000)
            return next(f"{whole // size} {unit}" for unit, size in units if whole % size == 0)
        case _:
            return str(default)


def documented_default(table: str, variable: str) -> str | None:
    """Return the default in the row of a variable."""
    row = re.search(rf"^\| [^|]*`{variable}`[^|]* \| ([^|]*) \|", table, re.MULTILINE)
    return row and row[1].strip("` ")


def test_every_setting_is_in_the_table_with_its_default() -> None:
    table = section(OPERATIONS, "## Settings")
    documented = {variable: documented_default(table, variable) for variable, _ in variables()}
    computed = {variable for variable, default in variables() if default is ... or variable.endswith("SECRET_KEY")}

    assert [variable for variable in computed if not documented[variable]] == []
    assert {variable: documented[variable] for variable in documented.keys() - computed} == {
        variable: format_default(default) for variable, default in variables() if variable not in computed
    }


def test_the_table_has_no_setting_that_the_code_lacks() -> None:
    documented = re.findall(r"`((?:EASEL|LLM)_[A-Z_]+)`", section(OPERATIONS, "## Settings"))

    assert set(documented) - {variable for variable, _ in variables()} == set()


@pytest.mark.parametrize("package", ["api", "scheduler", "worker", "components", "providers"])
def test_every_warning_and_error_in_the_logs_is_explained(package: str) -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / package).rglob("*.py")]
    logged = {line for source in sources for line in re.findall(r'log\.(?:warning|error)\(\s*"(\w+)"', source)}

    assert logged
    assert logged - in_backticks(section(OPERATIONS, "## What the logs mean")) == set()


def test_example_of_a_model_account_can_be_read(tmp_path: Path) -> None:
    block = re.search(r"^```toml\n(.*?)^```", OPERATIONS, re.MULTILINE | re.DOTALL)
    assert block
    file = tmp_path / "models.toml"
    file.write_text(block[1])

    (account,) = accounts_from_toml(file, {"OPENAI_API_KEY": "a key"})

    assert (account.factory, account.api_key) == ("OpenAI", "a key")


# -- models.md -------------------------------------------------------------------------------------------------------


def test_example_of_an_account_with_models_can_be_read(tmp_path: Path) -> None:
    block = re.search(r"^```toml\n(.*?)^```", MODELS, re.MULTILINE | re.DOTALL)
    assert block
    file = tmp_path / "models.toml"
    file.write_text(block[1])

    (account,) = accounts_from_toml(file, {"GPU_KEY": "a key"})

    assert {name: set(model.kinds) for name, model in account.models.items()} == {
        "qwen3-32b": {"chat"},
        "bge-m3": {"embedding"},
    }


def test_every_vendor_is_in_the_table_with_its_address_and_dialect() -> None:
    for factory, vendor in vendors().items():
        (address,) = re.findall(rf"^\| `{re.escape(factory)}` \| (.+) \| `{vendor.dialect}` \|$", MODELS, re.MULTILINE)
        assert not vendor.base_url or address == f"`{vendor.base_url}`", factory


# -- dsl.md ----------------------------------------------------------------------------------------------------------


def test_every_component_has_its_heading_with_each_of_its_parameters() -> None:
    undocumented = {
        name: own_fields(component.params) - in_backticks(description_of(name)) for name, component in LISTED.items()
    }

    assert {name: fields for name, fields in undocumented.items() if fields} == {}


def test_every_described_component_exists() -> None:
    components = re.findall(r"^### (.+)$", section(DSL, "## Components"), re.MULTILINE)
    described = re.findall(r"^## (.+)$", TOOLS, re.MULTILINE)

    assert sorted(components + described) == sorted(LISTED)


def test_the_parameters_of_every_node_and_every_tool_are_described() -> None:
    assert set(Params.model_fields) - in_backticks(section(DSL, "## Every node")) == set()
    assert ToolParams.model_fields.keys() - Params.model_fields.keys() <= in_backticks(TOOLS)


def time_limit(name: str) -> str:
    """Return the sentence that documents the time limit of a component."""
    if LISTED[name].needed_seconds is not None:
        return "Time limit: what"
    limit = TIME_LIMITS[name]
    return f"Time limit: {'none' if limit == inf else f'{limit:g} s'}."


def test_time_limit_of_every_component_is_documented() -> None:
    assert [name for name in LISTED if time_limit(name) not in description_of(name).replace("\n", " ")] == []


def test_overview_of_tools_has_a_row_for_each_that_agrees_with_the_code() -> None:
    row = re.compile(
        r"^\| \[(\w+)\]\(#(\w+)\) \| `(\w+)` \| [^|]+ \| (\d+) s \| ([^|]+) \| `(\w+)` \| [^|]+ \|$", re.MULTILINE
    )
    documented = row.findall(section(TOOLS, "### Overview"))
    listed = {tool.name: tool for tool in tools.TOOLS.values() if tool.name not in RETIRED_NAMES}

    assert sorted(documented) == sorted(
        (name, name.lower(), tool.function, str(TIME_LIMITS[name]), rate_limit_text(tool), tool.effect)
        for name, tool in listed.items()
    )


def rate_limit_text(tool: Tool[Any]) -> str:
    """Return the rate limit of a tool as the overview writes it."""
    if tool.rate_limit is None:
        return "-"
    with_key = f"; {tool.rate_limit.with_key} with a key" if tool.rate_limit.with_key else ""
    return f"{tool.rate_limit.requests} in {tool.rate_limit.seconds:g} s{with_key}"


def test_every_component_with_parameters_has_an_example() -> None:
    assert [
        name for name in LISTED if own_fields(LISTED[name].params) and not EXAMPLES.search(description_of(name))
    ] == []


def test_every_example_is_a_node_without_findings() -> None:
    for name in LISTED:
        for example in EXAMPLES.findall(description_of(name)):
            node = {"obj": {"component_name": name, "params": json.loads(example)}, "downstream": []}
            assert registry.check(parsing.parse({"components": {"begin": node}})) == [], name


def test_list_of_unsupported_components_is_complete_and_correct() -> None:
    documented = in_backticks(section(DSL, "## Not there yet"))
    unsupported = (set(component_names.COMPONENTS) | set(component_names.TOOLS)) - set(LISTED)

    assert unsupported - documented == set()
    assert documented & set(LISTED) == set()


# -- events.md and guarantees.md -------------------------------------------------------------------------------------


@pytest.mark.skipif(not EVENTS.exists(), reason="events are described on another page")
def test_every_event_is_described() -> None:
    wire_names = {value for name, value in vars(run_events).items() if name.isupper() and isinstance(value, str)}
    documented = EVENTS.read_text(encoding="utf-8")

    assert {name for name in wire_names - {run_events.CANCELLED_TEXT} if name not in documented} == set()


def test_every_test_that_a_guarantee_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", GUARANTEES)

    assert named
    assert [f"{path}::{test}" for path, test in named if not _exists(ROOT / path, test)] == []


def _exists(path: Path, test: str) -> bool:
    return path.exists() and re.search(rf"def {test}\(", path.read_text(encoding="utf-8")) is not None
