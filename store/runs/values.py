"""Outputs of nodes and variables of a run, as a particular activation may see them.

An activation reads what was applied before it was activated, from earlier levels, in its own isolation region and the
regions around it. Of several writers the last one in canonical order counts (docs/protocol.md, "Ready, and canonical
order"). A retry reads the same values as the first attempt.

A query searches the reader's region backwards from the reader's order key, and an enclosing region backwards from the
key of the container that the reader is in. So the cost of a read does not depend on how many items ran before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import bindparam, text, update

from canvas.ids import ActivationId, RunId
from canvas.state.order_key import OrderKey
from canvas.state.run_state import container_entry, scope_key
from store.db.transaction import Transaction
from store.primitives.json_codec import encode
from store.tables.runs import indexed_part_of, node_values

_LATEST_FIRST = f"{indexed_part_of('v.order_key')} desc, v.order_key desc"
"""The order of the index. Order keys with the same indexed part are compared in full."""

_WINDOWS = """
    unnest(cast(:regions as bytea[]), cast(:befores as bytea[]), cast(:edges as bytea[]), cast(:revisions as int[]))
      as r(region, before, edge, revision)
"""
_IS_VISIBLE = f"""
    join activations a on a.run_id = v.run_id and a.id = v.activation_id
    where v.run_id = :run_id and v.order_key >= r.region and v.order_key <= r.edge
      and {indexed_part_of("v.order_key")} between {indexed_part_of("r.region")} and {indexed_part_of("r.edge")}
      and (v.order_key < r.before or v.order_key = r.edge) and v.region = r.region and a.applied_rev <= r.revision
"""

LATEST_OUTPUTS = text(f"""
    select requested.node_id, latest.order_key, latest.activation_id,
      case when latest.activation_id = requested.cached then null else latest.outputs end,
      case when latest.activation_id = requested.cached then null else latest.large end
    from unnest(cast(:nodes as text[]), cast(:kept as uuid[])) as requested(node_id, cached)
    cross join lateral (
        select seen.* from {_WINDOWS}
        cross join lateral (
            select v.outputs, v.large, v.order_key, v.activation_id, {indexed_part_of("v.order_key")} as beginning
            from node_values v {_IS_VISIBLE}
            and v.node_id = requested.node_id and v.container_entry <> :not_in order by {_LATEST_FIRST} limit 1
        ) seen order by seen.beginning desc, seen.order_key desc limit 1
    ) latest
""")  # noqa: S608 (constants only)

LATEST_OUTPUTS_IN_REGION = text(f"""
    select requested.node_id, latest.order_key, latest.activation_id, latest.outputs, latest.large
    from unnest(cast(:nodes as text[])) as requested(node_id)
    cross join lateral (
        select v.outputs, v.large, v.order_key, v.activation_id
        from node_values v join activations a on a.run_id = v.run_id and a.id = v.activation_id
        where v.run_id = :run_id and v.node_id = requested.node_id and v.region = :region and v.order_key <= :edge
          and {indexed_part_of("v.order_key")} <= {indexed_part_of("cast(:edge as bytea)")}
          and a.applied_rev <= :revision
        order by {_LATEST_FIRST} limit 1
    ) latest
""")  # noqa: S608 (constants only)

OUTPUT_WRITERS = text(f"""
    select requested.node_id, coalesce(latest.activation_id, awaited.activation_id)
    from unnest(cast(:nodes as text[])) as requested(node_id)
    left join lateral (
        select seen.activation_id from {_WINDOWS}
        cross join lateral (
            select v.order_key, v.activation_id, {indexed_part_of("v.order_key")} as beginning
            from node_values v {_IS_VISIBLE} and v.node_id = requested.node_id order by {_LATEST_FIRST} limit 1
        ) seen order by seen.beginning desc, seen.order_key desc limit 1
    ) latest on true
    left join lateral (
        select v.activation_id from node_values v
        join activations a on a.run_id = v.run_id and a.id = v.activation_id
        join unnest(cast(:regions as bytea[]), cast(:revisions as int[])) as r(region, revision)
          on r.region = v.region and a.applied_rev <= r.revision
        where latest.activation_id is null and v.run_id = :run_id and v.node_id = requested.node_id
        order by {_LATEST_FIRST} limit 1
    ) awaited on true
""")  # noqa: S608 (constants only)
"""Which activation wrote the outputs that a reader sees: as LATEST_OUTPUTS, else as AWAITED_OUTPUTS."""

VARIABLE_WRITERS = text(f"""
    select requested.name, latest.activation_id
    from unnest(cast(:names as text[])) as requested(name)
    cross join lateral (
        select seen.activation_id from {_WINDOWS}
        cross join lateral (
            select v.order_key, v.activation_id, {indexed_part_of("v.order_key")} as beginning
            from variables v {_IS_VISIBLE} and v.name = requested.name order by {_LATEST_FIRST} limit 1
        ) seen order by seen.beginning desc, seen.order_key desc limit 1
    ) latest
""")  # noqa: S608 (constants only)

AWAITED_OUTPUTS = text(f"""
    select requested.node_id, latest.order_key, latest.activation_id, latest.outputs, latest.large
    from unnest(cast(:nodes as text[]), cast(:passes as text[]), cast(:items as int[]))
      as requested(node_id, container_entry, item)
    cross join lateral (
        select v.order_key, v.activation_id, v.outputs, v.large from node_values v
        join activations a on a.run_id = v.run_id and a.id = v.activation_id
        join unnest(cast(:regions as bytea[]), cast(:revisions as int[])) as r(region, revision)
          on r.region = v.region and a.applied_rev <= r.revision
        where v.run_id = :run_id and v.node_id = requested.node_id
          and (requested.container_entry is null
            or v.container_entry = requested.container_entry and v.item = requested.item)
        order by {_LATEST_FIRST} limit 1
    ) latest
""")  # noqa: S608 (constants only)

LATEST_VARIABLES = text(f"""
    select requested.name, latest.order_key, latest.activation_id,
      case when latest.activation_id = requested.cached then null else latest.value end,
      case when latest.activation_id = requested.cached then null else latest.large end
    from unnest(cast(:names as text[]), cast(:kept as uuid[])) as requested(name, cached)
    cross join lateral (
        select seen.* from {_WINDOWS}
        cross join lateral (
            select v.value, v.large, v.order_key, v.activation_id, {indexed_part_of("v.order_key")} as beginning
            from variables v {_IS_VISIBLE}
            and v.name = requested.name order by {_LATEST_FIRST} limit 1
        ) seen order by seen.beginning desc, seen.order_key desc limit 1
    ) latest
""")  # noqa: S608 (constants only)

MAX_ITEM = 2**31 - 1

ITERATION_OUTPUTS = text(f"""
    select v.node_id, v.item, v.outputs, v.large
    from node_values v join activations a on a.run_id = v.run_id and a.id = v.activation_id
    where v.run_id = :run_id and v.container_entry = :container_entry and v.node_id = any(cast(:nodes as text[]))
      and v.item < :before and a.applied_rev <= :revision
    order by v.item, {indexed_part_of("v.order_key")}, v.order_key
""")  # noqa: S608 (constants only)

FINAL_OUTPUTS = text(f"""
    select distinct on (v.node_id) v.node_id, v.outputs, v.order_key, v.large
    from node_values v join activations a on a.run_id = v.run_id and a.id = v.activation_id
    where v.run_id = :run_id and v.region = '' and a.applied_rev is not null
    order by v.node_id, {_LATEST_FIRST}
""")  # noqa: S608 (constants only)

FINAL_VARIABLES = text(f"""
    select distinct on (v.name) v.name, v.value, v.order_key, v.large
    from variables v join activations a on a.run_id = v.run_id and a.id = v.activation_id
    where v.run_id = :run_id and v.region = '' and a.applied_rev is not null
    order by v.name, {_LATEST_FIRST}
""")  # noqa: S608 (constants only)

PREVIOUS_OUTPUTS = text(f"""
    select mine.node_id, mine.outputs, mine.large, before.outputs as left_before, before.large as large_before
    from node_values mine
    cross join lateral (
        select v.outputs, v.large
        from node_values v join activations a on a.run_id = v.run_id and a.id = v.activation_id
        where v.run_id = :run_id and v.node_id = mine.node_id and v.region = mine.region
          and v.order_key < mine.order_key and {indexed_part_of("v.order_key")} <= {indexed_part_of("mine.order_key")}
          and a.applied_rev is not null
        order by {_LATEST_FIRST} limit 1
    ) before
    where mine.run_id = :run_id and mine.activation_id = :activation_id
""")  # noqa: S608 (constants only)
PUT_OUTPUTS = (
    update(node_values)
    .where(
        node_values.c.run_id == bindparam("of_run"),
        node_values.c.activation_id == bindparam("of_activation"),
        node_values.c.node_id == bindparam("of_node"),
    )
    .values(outputs=bindparam("new_outputs"), names=bindparam("new_names"), large=bindparam("new_large"))
)

PUT_ON_BEHALF = text("""
    insert into node_values (run_id, activation_id, node_id, container_entry, item, order_key, region, outputs, inputs,
      names)
    select a.run_id, a.id, a.node_id, :container_entry, :item, a.order_key, a.region, cast(:outputs as json), '{}',
      cast(:names as text[])
    from activations a where a.run_id = :run_id and a.id = :activation_id
    on conflict (run_id, activation_id, node_id) do update set outputs = excluded.outputs, names = excluded.names,
      large = null
""")
SCOPE = text("select scope from activations where run_id = :run_id and id = :activation_id")

INPUTS = text(f"""
    select v.inputs, v.large from node_values v
    where v.run_id = :run_id and v.node_id = :node_id and v.region = '' order by {_LATEST_FIRST} limit 1
""")  # noqa: S608 (constants only)

INPUTS_AND_OUTPUTS = text("""
    select v.node_id, v.inputs, v.outputs, v.large from node_values v
    where v.run_id = :run_id and v.activation_id = :activation_id and v.node_id = :node_id
""")


@dataclass(frozen=True, slots=True)
class ReadView:
    """What a reader may see: its order key and, for each region around it, the last visible revision.

    `limits` is ordered from the outermost region to the reader's own.
    """

    run_id: RunId
    order_key: OrderKey
    limits: Sequence[tuple[bytes, int]]

    def windows(self) -> dict[str, list[Any]]:
        """Return the query parameters; for each region: the first level out of sight, the last key, the last revision.

        A region's key begins with the key of the container whose item it is. That container is on the window's edge: it
        is the only writer of its level that the reader sees.
        """
        regions = [region for region, _ in self.limits]
        own = self.order_key.level_key
        return {
            "regions": regions,
            "befores": [*(inner[: len(outer) + 4] for outer, inner in pairwise(regions)), own],
            "edges": [*(inner[:-4] for inner in regions[1:]), own],
            "revisions": [revision for _, revision in self.limits],
        }


@dataclass(frozen=True, slots=True)
class RunValues:
    """Values by node and by variable name, each with the order key of its writer."""

    outputs: Mapping[str, tuple[Mapping[str, Any], bytes]]
    variables: Mapping[str, tuple[Any, bytes]]


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value, the activation that wrote it, and the order key of that activation."""

    order_key: bytes
    activation: ActivationId
    value: Any


PendingValues = Callable[[], dict[str, StoredValue]]
"""A query that was sent; the call waits for its values."""

CachedValues = Mapping[str, StoredValue]
"""Outputs by node, or values by variable, that the reader has cached. A stored value never changes."""


def query_outputs(
    tx: Transaction, view: ReadView, nodes: Iterable[str], *, cached: CachedValues | None = None, not_in: str = "-"
) -> PendingValues:
    """Query the latest visible outputs of some nodes; the call of the result returns them by node.

    An output that is cached and still the latest is not fetched again. `not_in`: ignore outputs from iterations of this
    container entry.
    """
    node_ids = sorted(set(nodes))
    if not node_ids:
        return dict
    if len(view.limits) == 1 and not cached and not_in == "-":  # one region: the reader is not in a parallel item
        ((region, revision),) = view.limits
        here = {"region": region, "edge": view.order_key.level_key, "revision": revision}
        sent = tx.send(LATEST_OUTPUTS_IN_REGION, run_id=view.run_id, nodes=node_ids, **here)
    else:
        ids = _activation_ids(node_ids, cached)
        sent = tx.send(LATEST_OUTPUTS, run_id=view.run_id, nodes=node_ids, kept=ids, not_in=not_in, **view.windows())
    return lambda: _read_values(sent.rows(), cached or {}, tx.large.outputs)


def query_awaited_outputs(
    tx: Transaction, view: ReadView, nodes: Mapping[str, tuple[str, int] | None]
) -> PendingValues:
    """Query the latest outputs of nodes that the reader has waited for, wherever their order keys are.

    `nodes` maps a node to the iteration (entry of its container, item) that the reader shares with it; None: it is in
    another container.
    """
    if not nodes:
        return dict
    passes = [shared[0] if shared else None for shared in nodes.values()]
    items = [shared[1] if shared else None for shared in nodes.values()]
    regions, revisions = [region for region, _ in view.limits], [revision for _, revision in view.limits]
    sent = tx.send(
        AWAITED_OUTPUTS,
        run_id=view.run_id,
        nodes=list(nodes),
        passes=passes,
        items=items,
        regions=regions,
        revisions=revisions,
    )
    return lambda: _read_values(sent.rows(), {}, tx.large.outputs)


def query_variables(
    tx: Transaction, view: ReadView, names: Iterable[str], *, cached: CachedValues | None = None
) -> PendingValues:
    """Query the latest visible values of some variables by name; a cached value is not fetched again."""
    unique_names = sorted(set(names))
    if not unique_names:
        return dict
    ids = _activation_ids(unique_names, cached)
    sent = tx.send(LATEST_VARIABLES, run_id=view.run_id, names=unique_names, kept=ids, **view.windows())
    return lambda: _read_values(sent.rows(), cached or {}, tx.large.variable)


def find_writers(
    tx: Transaction, view: ReadView, nodes: Iterable[str], names: Iterable[str]
) -> tuple[dict[str, ActivationId], dict[str, ActivationId]]:
    """Return which activations wrote the outputs of nodes and the variables that a reader sees, by node and by name.

    Those that nothing has written in this run are left out. No values are read.
    """
    windows = view.windows()
    outputs = tx.send(OUTPUT_WRITERS, run_id=view.run_id, nodes=sorted(set(nodes)), **windows)
    variables = tx.send(VARIABLE_WRITERS, run_id=view.run_id, names=sorted(set(names)), **windows)
    return (
        {node_id: writer for node_id, writer in outputs.rows() if writer is not None},
        {row[0]: row[1] for row in variables.rows()},
    )


def _activation_ids(names: Sequence[str], cached: CachedValues | None) -> list[ActivationId | None]:
    return [cached[name].activation if cached and name in cached else None for name in names]


def _read_values(
    rows: Sequence[Any], cached: CachedValues, load: Callable[[str, Any, Any], Any]
) -> dict[str, StoredValue]:
    values: dict[str, StoredValue] = {}
    for name, order_key, activation, value, large in rows:
        stored = cached.get(name)
        if stored is None or stored.activation != activation:
            stored = StoredValue(bytes(order_key), activation, load(name, value, large))
        values[name] = stored
    return values


def load_iteration_outputs(
    tx: Transaction, run_id: RunId, entry: str, nodes: Iterable[str], revision: int, *, before: int = MAX_ITEM
) -> list[tuple[str, int, Mapping[str, Any]]]:
    """Return (node, item, outputs) of body nodes in the iterations of a container entry, in item order.

    `before`: only items with smaller numbers.
    """
    filters = {"container_entry": entry, "nodes": sorted(set(nodes)), "revision": revision, "before": before}
    rows = tx.rows(ITERATION_OUTPUTS, run_id=run_id, **filters)
    return [(node, item, tx.large.outputs(node, outputs, large)) for node, item, outputs, large in rows]


def load_final(tx: Transaction, run_id: RunId, *, with_large: bool = True) -> RunValues:
    """Return what a run has written so far outside of parallel items: the last outputs of each node, and the variables.

    `with_large` False: only the names of outputs are needed; values that are in files are null.
    """
    large = tx.large
    outputs = {
        node: (large.outputs(node, outputs_row, aside) if with_large else outputs_row, bytes(order_key))
        for node, outputs_row, order_key, aside in tx.rows(FINAL_OUTPUTS, run_id=run_id)
    }
    variables = {
        name: (large.variable(name, value, aside), bytes(order_key))
        for name, value, order_key, aside in tx.rows(FINAL_VARIABLES, run_id=run_id)
    }
    return RunValues(outputs, variables)


def load_inputs(tx: Transaction, run_id: RunId, node_id: str) -> dict[str, Any]:
    """Return a node's inputs from its last execution; {} if it has not run."""
    latest = tx.rows(INPUTS, run_id=run_id, node_id=node_id)
    return (tx.large.inputs(node_id, *latest[0]) or {}) if latest else {}


def copy_previous_outputs(tx: Transaction, run_id: RunId, activation_id: ActivationId) -> None:
    """Add the outputs of earlier iterations to those of a failed activation that could not see them.

    Any other node shows them too. Needed for overlapping items (canvas/graph/parallel_items.py), once the earlier ones
    have ended, in the advance that reports the failure.
    """
    for node_id, mine, large, before, large_before in tx.rows(
        PREVIOUS_OUTPUTS, run_id=run_id, activation_id=activation_id
    ):
        aside = (large or {}).get("outputs", {})
        left = {
            name: value
            for name, value in before.items()
            if not name.startswith("_") and mine.get(name) is None and name not in aside
        }
        if left:
            outputs = {**left, **{name: value for name, value in mine.items() if name not in left}}
            left_aside = {name: file for name, file in (large_before or {}).get("outputs", {}).items() if name in left}
            aside = {**aside, **left_aside}
            tx.execute(
                PUT_OUTPUTS,
                of_run=run_id,
                of_activation=activation_id,
                of_node=node_id,
                new_outputs=outputs,
                new_names=list(outputs),
                new_large={**(large or {}), "outputs": aside} if large or aside else None,
            )


def put_outputs(tx: Transaction, run_id: RunId, activation_id: ActivationId, outputs: Mapping[str, Any]) -> None:
    """Write an activation's outputs on behalf of its worker; the caller holds the run's lock."""
    scope = scope_key(tx.scalar(SCOPE, run_id=run_id, activation_id=activation_id))
    tx.execute(
        PUT_ON_BEHALF,
        run_id=run_id,
        activation_id=activation_id,
        container_entry=container_entry(scope),
        item=scope[-1][2] if scope else 0,
        outputs=encode(outputs),
        names=list(outputs),
    )


def put_error(tx: Transaction, run_id: RunId, activation: ActivationId, node_id: str, error: str) -> None:
    """Store a failure that no worker stored: of a lost worker, or of a container because of its items.

    It is added to the outputs that are already there.
    """
    before = tx.rows(INPUTS_AND_OUTPUTS, run_id=run_id, activation_id=activation, node_id=node_id)
    if not before:
        put_outputs(tx, run_id, activation, {"_ERROR": error})
    for _, _, outputs, large in before:
        new = {**outputs, "_ERROR": error}
        of = {"of_run": run_id, "of_activation": activation, "of_node": node_id}
        tx.execute(PUT_OUTPUTS, **of, new_outputs=new, new_names=list(new), new_large=large)
