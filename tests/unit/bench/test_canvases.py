"""The canvases that `easel bench` measures with."""

from collections.abc import Mapping
from typing import Any

import pytest

from bench import canvases
from bench.side import Work
from canvas.document import parsing
from canvas.validation import check
from components.checks.check import findings_of

CHAINS = [
    (canvases.chain(5), 5),
    (canvases.chain(20, wait_ms=50), 20),
    (canvases.chain(40, has_large_output=True), 40),
]
FANS = [(canvases.fan(3), Work(3, is_fan=True)), (canvases.fan(7, wait_ms=100), Work(7, is_fan=True, wait_ms=100))]


def components(canvas: Mapping[str, Any]) -> Mapping[str, Any]:
    return canvas["components"]


@pytest.mark.parametrize("canvas", [canvas for canvas, _ in [*CHAINS, *FANS]])
def test_every_canvas_can_run(canvas: Mapping[str, Any]):
    assert check.errors_of(findings_of(parsing.parse(canvas))) == []


@pytest.mark.parametrize(("canvas", "nodes"), CHAINS)
def test_a_chain_is_one_way_through_all_of_its_nodes(canvas: Mapping[str, Any], nodes: int):
    way, name = list[str](), "begin"
    while name:
        way.append(name)
        name = next(iter(components(canvas)[name]["downstream"]), "")

    assert len(way) == nodes == len(components(canvas)) == Work(nodes).nodes


@pytest.mark.parametrize(("canvas", "work"), FANS)
def test_a_fan_has_a_first_node_and_a_join_around_its_branches(canvas: Mapping[str, Any], work: Work):
    branches = components(canvas)["begin"]["downstream"]

    assert len(branches) == work.size
    assert {tuple(components(canvas)[name]["downstream"]) for name in branches} == {("VariableAggregator:join",)}
    assert len(components(canvas)) == work.nodes


def test_nobody_reads_the_large_output():
    canvas = components(canvases.chain(10, has_large_output=True))

    assert len(canvas[canvases.LARGE]["obj"]["params"]["script"]) >= canvases.KILOBYTES
    assert all(canvases.LARGE not in str(node["obj"]) for node in canvas.values())
