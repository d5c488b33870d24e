"""Outputs of containers: what they collect from the passes of their bodies.

In sequential items a node has one slot per output: a child that did not run in a pass contributes its earlier value.
Parallel items have a copy each, so a child that did not run contributes null.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from canvas.graph.canvas import Canvas, Node

PassOutputs = tuple[str, int, Mapping[str, Any]]
"""(node id, item, outputs) of one activation in a body."""


def output_refs(params: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return output name -> (child id, its output) from a container's params; a `ref` is split at its first `@`."""
    outputs = params.get("outputs")
    found: dict[str, tuple[str, str]] = {}
    for name, output in outputs.items() if isinstance(outputs, Mapping) else ():
        ref = output.get("ref") if isinstance(output, Mapping) else None
        if isinstance(ref, str) and ref:
            child, _, root = ref.strip("{} ").partition("@")
            found[name] = (child, root)
    return found


def collected_refs(canvas: Canvas, container: Node) -> dict[str, tuple[str, str]]:
    """Return the refs of an Iteration to its direct children; refs into containers among these collect nothing."""
    children = {child.id for child in canvas.children(container.number)}
    return {name: ref for name, ref in output_refs(container.params).items() if ref[0] in children}


def collect(
    refs: Mapping[str, tuple[str, str]],
    passes: Iterable[PassOutputs],
    count: int,
    before: Mapping[str, Mapping[str, Any]] | None,
) -> dict[str, list[Any]]:
    """Return the list of each output over `count` passes. `passes` are in item order, later activations last.

    `before` has the outputs of each child when the container was entered; None for parallel items.
    """
    outputs_of_pass: dict[tuple[str, int], Mapping[str, Any]] = {}
    for node, item, outputs in passes:
        outputs_of_pass[node, item] = outputs
    collected: dict[str, list[Any]] = {}
    for name, (child, root) in refs.items():
        slot = before.get(child, {}).get(root, "") if before is not None else None
        values: list[Any] = []
        for item in range(count):
            outputs = outputs_of_pass.get((child, item))
            if outputs is not None:
                slot = outputs.get(root, "")
            elif before is None:
                slot = None
            values.append(slot)
        collected[name] = values
    return {name: values for name, values in collected.items() if values or before is None}


def outputs_per_item(passes: Iterable[PassOutputs], item_node: str, count: int) -> list[dict[str, Any]]:
    """Return the output `_result` of parallel items: {item, index, "<child>": {outputs}} of each item."""
    results: list[dict[str, Any]] = [{"item": None, "index": index} for index in range(count)]
    for node, item, outputs in passes:
        shown = {name: value for name, value in outputs.items() if not name.startswith("_")}
        if item < count and node == item_node:
            results[item]["item"] = outputs.get("item")
        elif item < count:
            results[item][node] = shown
    return results


def collected_children(refs: Mapping[str, tuple[str, str]]) -> Sequence[str]:
    """Return the ids of the children whose outputs are collected."""
    return sorted({child for child, _ in refs.values()})
