"""The open scopes of a run: one row each, read and written by folds only."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert

from canvas.checkpoint import scope_from_json, scope_to_json
from canvas.plan import Decision
from canvas.state import Report, Scope, ScopeKey, entry_text, scope_key, scope_text
from store.database import Transaction
from store.schema import scopes

SCOPES = select(scopes.c.key, scopes.c.state).where(scopes.c.run_id == bindparam("of_run"))
SCOPES_NAMED = SCOPES.where(scopes.c.key == func.any(bindparam("keys")))
_scope = insert(scopes)
PUT_SCOPE = _scope.on_conflict_do_update(index_elements=["run_id", "key"], set_={"state": _scope.excluded["state"]})
DROP_SCOPES = delete(scopes).where(scopes.c.run_id == bindparam("of_run"))
DROP_SCOPE = delete(scopes).where(scopes.c.run_id == bindparam("of_run"), scopes.c.key == bindparam("of_key"))


def read(tx: Transaction, run_id: UUID, reports: Sequence[Report] | None) -> dict[ScopeKey, Scope]:
    """The scopes that reports name and those around them; all of the run's for None."""
    if reports is None:
        found = tx.rows(SCOPES, of_run=run_id)
    else:
        keys = {""} | {
            scope_text(report.scope[:depth]) for report in reports for depth in range(1, len(report.scope) + 1)
        }
        found = tx.rows(SCOPES_NAMED, of_run=run_id, keys=sorted(keys))
    return {scope_key(name): scope_from_json(scope_key(name), state) for name, state in found}


def put(tx: Transaction, run_id: UUID, decision: Decision) -> None:
    """Write the scopes that a decision has changed; at the end of a run there are none."""
    if decision.is_over:
        tx.run(DROP_SCOPES, of_run=run_id)
        return
    for key in decision.removed:
        tx.run(DROP_SCOPE, of_run=run_id, of_key=scope_text(key))
    changed = [decision.run.scopes[key] for key in decision.scopes if key in decision.run.scopes]
    tx.run_many(
        PUT_SCOPE,
        [{"run_id": run_id, "key": scope_text(scope.key), "state": scope_to_json(scope)} for scope in changed],
    )


LAST_SCOPE = text("""
    select scope from activations where run_id = :run_id and node_id = :node_id
      and (folded_rev is not null or status not in ('done', 'closed'))
    order by place desc limit 1
""")

HIDE = text("""
    update activations set folded_rev = null
    where run_id = :run_id
      and case when starts_with(scope, :prefix) then substr(scope, length(:prefix) + 1)::int > :shown end
""")
NODE_OF = text("select node_id from activations where run_id = :run_id and id = :activation_id")


def hide_untold(tx: Transaction, run_id: UUID) -> None:
    """A run ends early: what overlapping items have done ahead of their turn is as if no fold had ever seen it."""
    for key, scope in read(tx, run_id, None).items():
        for container in scope.containers.values():
            if not container.overlaps:
                continue
            node_id = tx.scalar(NODE_OF, run_id=run_id, activation_id=container.activation)
            entry = entry_text((*key, (node_id, container.ordinal, 0)))
            tx.run(HIDE, run_id=run_id, prefix=f"{entry}.", shown=container.shown)


def last_of(tx: Transaction, run_id: UUID, node_id: str) -> str | None:
    """The scope of a node's last activation in canonical order."""
    return tx.scalar(LAST_SCOPE, run_id=run_id, node_id=node_id)
