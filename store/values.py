"""Node outputs and variables of a run, as one node may see them.

A node reads what was folded before it was activated, from earlier waves, in its own region and those around it; of
several writers the last in canonical order (protocol.md, "What a node reads"). A retry reads what the first attempt
read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text

from canvas.place import Place
from store.database import Transaction

_VISIBLE = """
    join activations a on a.run_id = v.run_id and a.id = v.activation_id
    join unnest(cast(:regions as bytea[]), cast(:revisions as int[])) as r(region, revision)
      on r.region = v.region and a.folded_rev <= r.revision
    where v.run_id = :run_id and v.place < :before
"""

LATEST_OUTPUTS = text(f"""
    select wanted.node_id, found.outputs, found.place
    from unnest(cast(:nodes as text[])) as wanted(node_id)
    cross join lateral (
        select v.outputs, v.place from node_values v {_VISIBLE}
        and v.node_id = wanted.node_id and v.pass_of <> :not_in order by v.place desc limit 1
    ) found
""")  # noqa: S608 (constants only)

LATEST_VARIABLES = text(f"""
    select wanted.name, found.value, found.place
    from unnest(cast(:names as text[])) as wanted(name)
    cross join lateral (
        select v.value, v.place from variables v {_VISIBLE}
        and v.name = wanted.name order by v.place desc limit 1
    ) found
""")  # noqa: S608 (constants only)

OF_PASSES = text("""
    select v.node_id, v.item, v.outputs
    from node_values v join activations a on a.run_id = v.run_id and a.id = v.activation_id
    where v.run_id = :run_id and v.pass_of = :pass_of and v.node_id = any(cast(:nodes as text[]))
      and a.folded_rev <= :revision
    order by v.item, v.place
""")

FINAL_OUTPUTS = text("""
    select distinct on (v.node_id) v.node_id, v.outputs, v.place, v.names
    from node_values v join activations a on a.run_id = v.run_id and a.id = v.activation_id
    where v.run_id = :run_id and v.region = '' and a.folded_rev is not null
    order by v.node_id, v.place desc
""")

FINAL_VARIABLES = text("""
    select distinct on (v.name) v.name, v.value, v.place
    from variables v join activations a on a.run_id = v.run_id and a.id = v.activation_id
    where v.run_id = :run_id and v.region = '' and a.folded_rev is not null
    order by v.name, v.place desc
""")

INPUTS_AND_OUTPUTS = text("""
    select v.node_id, v.inputs, v.outputs from node_values v
    where v.run_id = :run_id and v.activation_id = :activation_id and v.node_id = :node_id
""")


@dataclass(frozen=True, slots=True)
class View:
    """Whose eyes we read with: a place, and for each region around it the revision it may see."""

    run_id: UUID
    place: Place
    limits: Sequence[tuple[bytes, int]]


@dataclass(frozen=True, slots=True)
class Known:
    """Values by node and by variable name, each with its writer's place."""

    outputs: Mapping[str, tuple[Mapping[str, Any], bytes]]
    variables: Mapping[str, tuple[Any, bytes]]


def latest(tx: Transaction, view: View, nodes: Iterable[str], names: Iterable[str], *, not_in: str = "-") -> Known:
    """The latest visible outputs of some nodes and values of some variables.

    `not_in` leaves out what was written in one entry of a container ("-" names none).
    """
    scope = {
        "run_id": view.run_id,
        "before": view.place.wave_key,
        "regions": [region for region, _ in view.limits],
        "revisions": [revision for _, revision in view.limits],
    }
    wanted_nodes, wanted_names = sorted(set(nodes)), sorted(set(names))
    outputs = tx.rows(LATEST_OUTPUTS, nodes=wanted_nodes, not_in=not_in, **scope) if wanted_nodes else ()
    values = tx.rows(LATEST_VARIABLES, names=wanted_names, **scope) if wanted_names else ()
    return Known(
        outputs={row[0]: (row[1], bytes(row[2])) for row in outputs},
        variables={row[0]: (row[1], bytes(row[2])) for row in values},
    )


def of_passes(
    tx: Transaction, run_id: UUID, entry: str, nodes: Iterable[str], revision: int
) -> list[tuple[str, int, Mapping[str, Any]]]:
    """(node, item, outputs) of body nodes in all passes of one entry of a container, in item order."""
    rows = tx.rows(OF_PASSES, run_id=run_id, pass_of=entry, nodes=sorted(set(nodes)), revision=revision)
    return [(row[0], row[1], row[2]) for row in rows]


def final(tx: Transaction, run_id: UUID) -> Known:
    """What a run has left so far outside of side-by-side items: the last outputs of each node, and variables."""
    outputs = {row[0]: (row[1], bytes(row[2])) for row in tx.rows(FINAL_OUTPUTS, run_id=run_id)}
    values = {row[0]: (row[1], bytes(row[2])) for row in tx.rows(FINAL_VARIABLES, run_id=run_id)}
    return Known(outputs, values)
