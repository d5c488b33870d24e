"""Iteration and IterationItem: run a body once for every element of a list.

DSL of Iteration: `items_ref`, `outputs {name: {ref: "<child>@<output>"}}`, `max_concurrency`. Iteration opens the body
and clears the outputs that it will collect. IterationItem runs before each iteration and once after the last one. It
reads the list each time, so that the body may change the elements still to come, and outputs the next element, or ends
the container with the collected outputs. With `max_concurrency` above 1 the items run in parallel, and null counts as
an empty list. Otherwise the engine may overlap items where this has no visible effect; this module is not involved.
"""

from collections.abc import Mapping
from typing import Any

from canvas.errors import NodeFailure
from canvas.graph import parallel_items
from canvas.outcome import ContainerExited, ContainerOpened, NextIteration
from components.base import Params, component
from components.context import NodeContext

RESULTS = "_result"  # the output of parallel items: a list of {item, index, "<child>": outputs}


class IterationParams(Params):
    later_outputs = ()

    items_ref: Any = ""
    variable: Any = None
    max_concurrency: Any = 0
    wrap_single: Any = False  # the DSL wrote `items`: a value that is not a list counts as a list of one

    @property
    def concurrency(self) -> int:
        """How many items run in parallel."""
        return max(1, parallel_items.requested_concurrency({"max_concurrency": self.max_concurrency}))

    @property
    def collecting_outputs(self) -> list[str]:
        """The names of the outputs that collect values from the body."""
        declared = self.outputs if isinstance(self.outputs, Mapping) else {}
        return [name for name, output in declared.items() if isinstance(output, Mapping) and output.get("ref")]


class IterationItemParams(Params):
    later_outputs = ("index", "item", "result")


@component("Iteration", IterationParams, effect="pure")
def iteration(params: IterationParams, ctx: NodeContext) -> ContainerOpened:
    count = len(_items(params, ctx))
    return ContainerOpened(
        count=count, concurrency=params.concurrency, outputs=dict.fromkeys(params.collecting_outputs)
    )


@component("IterationItem", IterationItemParams, effect="pure")
def iteration_item(params: IterationItemParams, ctx: NodeContext) -> NextIteration | ContainerExited:
    parent = IterationParams.model_validate(dict(ctx.parent_params()))
    items = _items(parent, ctx)
    index = ctx.scope_item
    if index < len(items):
        return NextIteration(outputs={"item": items[index], "result": items[index], "index": index})
    outputs = dict(ctx.container_outputs())
    collected = ctx.collected_lists()
    if parent.concurrency > 1:
        outputs.update({name: list(collected.get(name, ())) for name in (*parent.collecting_outputs, RESULTS)})
    elif index:
        outputs.update(collected)
    return ContainerExited(container=outputs)


def _items(params: IterationParams, ctx: NodeContext) -> list[Any]:
    """Return the list to iterate over. Raises NodeFailure if the value is not a list."""
    items = ctx.lookup(str(params.items_ref or ""))
    if isinstance(items, list):
        return items
    if items is None and params.concurrency > 1:
        return []
    if items is not None and params.wrap_single:
        return [items]
    raise NodeFailure(f"{params.items_ref} must be an array, but its type is {type(items).__name__}")
