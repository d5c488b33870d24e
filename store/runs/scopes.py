"""The open scopes of a run, one row each. Only advances read and write them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert

from canvas.ids import RunId
from canvas.routing.decision import Decision
from canvas.state.checkpoint import scope_from_json, scope_to_json
from canvas.state.run_state import Report, Scope, ScopeKey, container_entry, scope_key, scope_text
from store.db.transaction import Transaction
from store.primitives.json_codec import decode, encode
from store.tables.runs import indexed_part_of, scopes

SCOPES = select(scopes.c.key, scopes.c.state).where(scopes.c.run_id == bindparam("of_run"))
SCOPES_BY_KEY = SCOPES.where(scopes.c.key == func.any(bindparam("keys")))
_scope = insert(scopes)
PUT_SCOPE = _scope.on_conflict_do_update(index_elements=["run_id", "key"], set_={"state": _scope.excluded["state"]})
DROP_SCOPES = delete(scopes).where(scopes.c.run_id == bindparam("of_run"))
DROP_SCOPE = delete(scopes).where(scopes.c.run_id == bindparam("of_run"), scopes.c.key == bindparam("of_key"))


@dataclass(frozen=True, slots=True)
class PrefetchedScopes:
    """Scopes whose rows were queried: those with some keys, or all (`keys` None). `load_rows` waits for the rows."""

    keys: frozenset[str] | None
    load_rows: Callable[[], Sequence[Any]]


NO_SCOPES = PrefetchedScopes(None, list)
"""The scopes of a run that was created just now."""


def prefetch(tx: Transaction, run_id: RunId, keys: frozenset[str] | None) -> PrefetchedScopes:
    """Query scopes by their keys (None: all of the run) without waiting for the rows."""
    if keys is None:
        return PrefetchedScopes(None, tx.send(SCOPES, of_run=run_id).rows)
    return PrefetchedScopes(keys, tx.send(SCOPES_BY_KEY, of_run=run_id, keys=sorted(keys)).rows)


def read(
    tx: Transaction, run_id: RunId, keys: frozenset[str] | None, prefetched: PrefetchedScopes | None = None
) -> dict[ScopeKey, Scope]:
    """Return scopes by their keys (None: all of the run). Prefetched ones are not queried again."""
    rows: list[Any] = []
    if prefetched is not None and prefetched.keys is None:
        rows += [row for row in prefetched.load_rows() if keys is None or row[0] in keys]
    elif prefetched is not None and prefetched.keys is not None and keys is not None:
        rows += [row for row in prefetched.load_rows() if row[0] in keys]
        missing = keys - prefetched.keys
        rows += prefetch(tx, run_id, missing).load_rows() if missing else ()
    else:
        rows += prefetch(tx, run_id, keys).load_rows()
    return {scope_key(name): scope_from_json(scope_key(name), state) for name, state in rows}


def enclosing_scopes(reports: Iterable[Report]) -> frozenset[str]:
    """Return the keys of the scopes of some reports and of all scopes around them."""
    return frozenset(key for report in reports for key in scope_chain(report.scope)) | {""}


def scope_chain(scope: ScopeKey) -> list[str]:
    """Return the keys of a scope and of the scopes around it, from the outermost inwards."""
    return [scope_text(scope[:depth]) for depth in range(len(scope) + 1)]


def scopes_after(decision: Decision) -> PrefetchedScopes:
    """Return the scopes of a decision as its rows will be read after the commit."""
    rows = [(scope_text(key), decode(encode(scope_to_json(scope)))) for key, scope in decision.run.scopes.items()]
    return PrefetchedScopes(frozenset(key for key, _ in rows), lambda: rows)


def save_changes(tx: Transaction, run_id: RunId, decision: Decision) -> None:
    """Write the scopes that a decision changed; at the end of a run, delete them all."""
    if decision.is_over:
        tx.write(DROP_SCOPES, of_run=run_id)
        return
    for key in decision.closed_scopes:
        tx.write(DROP_SCOPE, of_run=run_id, of_key=scope_text(key))
    changed = [decision.run.scopes[key] for key in decision.changed_scopes if key in decision.run.scopes]
    tx.write_many(
        PUT_SCOPE,
        [{"run_id": run_id, "key": scope_text(scope.key), "state": scope_to_json(scope)} for scope in changed],
    )


LAST_SCOPE = text(f"""
    select scope from activations where run_id = :run_id and node_id = :node_id
      and (applied_rev is not null or status not in ('done', 'closed'))
    order by {indexed_part_of("order_key")} desc, order_key desc limit 1
""")  # noqa: S608 (constants only)

MARK_NOT_APPLIED = text("""
    update activations set applied_rev = null
    where run_id = :run_id
      and case when starts_with(scope, :prefix) then substr(scope, length(:prefix) + 1)::int > :shown end
""")
NODE_OF = text("select node_id from activations where run_id = :run_id and id = :activation_id")


def discard_deferred(tx: Transaction, run_id: RunId) -> None:
    """Mark as not applied what overlapping items did ahead of their turn, because the run ends early."""
    for key, scope in read(tx, run_id, None).items():
        for container in scope.containers.values():
            if not container.is_pipelined:
                continue
            node_id = tx.scalar(NODE_OF, run_id=run_id, activation_id=container.activation)
            entry = container_entry((*key, (node_id, container.ordinal, 0)))
            tx.execute(MARK_NOT_APPLIED, run_id=run_id, prefix=f"{entry}.", shown=container.first_open_item)


def last_scope_of(tx: Transaction, run_id: RunId, node_id: str) -> str | None:
    """Return the scope of a node's last activation in canonical order; None if it had none."""
    return tx.scalar(LAST_SCOPE, run_id=run_id, node_id=node_id)
