"""The passwords that people have entered into the forms of a run, read to mask them in what is shown or logged."""

from collections.abc import Mapping

from sqlalchemy import text

from canvas.graph.canvas import Canvas
from canvas.graph.passwords import NO_PASSWORDS, PasswordMask
from canvas.ids import RunId, TenantId
from store.db.transaction import Transaction
from store.primitives.json_codec import decode

ENTERED = text("""
    with mine as (
        select id, request, baseline from runs where id = :run_id and tenant_id = :tenant_id
    ), fields as (
        select * from unnest(cast(:nodes as text[]), cast(:names as text[])) as f(node, name)
    )
    select cast(v.outputs -> f.name as text) from fields f
    join node_values v on v.run_id = :run_id and v.node_id = f.node and exists (select from mine)
    union select cast(v.inputs -> f.name as text) from fields f
    join node_values v on v.run_id = :run_id and v.node_id = f.node and exists (select from mine)
    union select cast(a.answers -> f.name as text) from fields f
    join activations a on a.run_id = :run_id and a.node_id = f.node and exists (select from mine)
        and json_typeof(a.answers) = 'object'
    union select cast(given.form -> f.name as text) from fields f cross join mine cross join lateral (
        values (request -> 'inputs'), (baseline -> 'inputs'), (baseline -> 'first_request' -> 'inputs')
    ) as given(form) where json_typeof(given.form) = 'object'
    union select cast(baseline -> 'values' -> f.node -> f.name as text) from fields f cross join mine
""")
"""What a run has in its password fields, anywhere: as JSON, each value once."""


def load_mask(tx: Transaction, canvas: Canvas, tenant_id: TenantId, run_id: RunId) -> PasswordMask:
    """Return the mask of the passwords in a tenant's run. A canvas without password fields costs no statement."""
    fields: Mapping[str, frozenset[str]] = canvas.password_fields
    if not fields:
        return NO_PASSWORDS
    pairs = [(node, name) for node, names in fields.items() for name in sorted(names)]
    rows = tx.rows(
        ENTERED,
        run_id=run_id,
        tenant_id=tenant_id,
        nodes=[node for node, _ in pairs],
        names=[name for _, name in pairs],
    )
    return PasswordMask.of(fields, [decode(row[0]) for row in rows if row[0] is not None])
