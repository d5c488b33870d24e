"""Canvases to measure with. Their nodes are the cheapest of the real ones, and each gives 1 KB.

A VariableAggregator reads what the node before it gave and gives it on, as the control's tasks do; the first one reads
the query, which is 1 KB of text. An LLM waits for a model that takes its time (`bench.waiting_server`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

QUERY = "x" * 990
MODEL = "wait-{wait_ms}@OpenAI-API-Compatible"
LARGE = "StringTransform:large"
KILOBYTES = 1024  # of the large output: a megabyte

Params = dict[str, Any]


def chain(nodes: int, *, wait_ms: int = 0, has_large_output: bool = False) -> Mapping[str, Any]:
    """`nodes` nodes in a row, Begin among them.

    `has_large_output`: the third one gives 1 MB, which none of those after it reads.
    """
    inner: dict[str, Params] = {}
    reads = "sys.query"
    for number in range(nodes - 1):
        if has_large_output and number == 1:
            inner[LARGE] = {"method": "merge", "script": f"{{{reads}}}" * KILOBYTES, "delimiters": [","]}
            continue
        name, params = _node(number, wait_ms, reads)
        inner[name], reads = params, f"{name}@out"
    after = [*([name] for name in list(inner)[1:]), []]
    parts = [_part(name, params, then) for (name, params), then in zip(inner.items(), after, strict=True)]
    return _canvas([_part("begin", {}, list(inner)[:1]), *parts])


def fan(width: int, *, wait_ms: int = 0) -> Mapping[str, Any]:
    """Begin, `width` nodes side by side, and their join."""
    branches = dict(_node(number, wait_ms, "sys.query") for number in range(width))
    join = "VariableAggregator:join"
    reads = f"{next(iter(branches))}@{'content' if wait_ms else 'out'}"
    parts = [_part(name, params, [join]) for name, params in branches.items()]
    return _canvas([_part("begin", {}, list(branches)), *parts, _part(join, _passing_on(reads), [])])


def _node(number: int, wait_ms: int, reads: str) -> tuple[str, Params]:
    if not wait_ms:
        return f"VariableAggregator:{number}", _passing_on(reads)
    name = f"LLM:{number}"
    asked = {"role": "user", "content": f"{{sys.query}} {name}"}
    return name, {"llm_id": MODEL.format(wait_ms=wait_ms), "prompts": [asked]}


def _passing_on(reads: str) -> Params:
    return {"groups": [{"group_name": "out", "variables": [{"value": reads}]}]}


def _part(name: str, params: Params, then: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    component = "Begin" if name == "begin" else name.partition(":")[0]
    return name, {"obj": {"component_name": component, "params": params}, "downstream": list(then)}


def _canvas(parts: Sequence[tuple[str, Mapping[str, Any]]]) -> Mapping[str, Any]:
    return {"components": dict(parts)}
