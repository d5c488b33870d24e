"""Idempotency keys: a request that is sent again within a day gets the run that the first one started."""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import bindparam, delete, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert

from canvas.errors import Conflict
from store.database import Transaction
from store.schema import idempotency_keys as keys

KEPT = timedelta(hours=24)
BATCH = 500

_offered = insert(keys).values(
    tenant_id=bindparam("tenant_id"),
    route=bindparam("route"),
    key=bindparam("key"),
    digest=bindparam("digest"),
    run_id=bindparam("run_id"),
)
CLAIM = _offered.on_conflict_do_update(
    index_elements=[keys.c.tenant_id, keys.c.route, keys.c.key],
    set_={"digest": _offered.excluded.digest, "run_id": _offered.excluded.run_id, "created_at": func.now()},
    where=keys.c.created_at < func.now() - KEPT,
).returning(keys.c.run_id)
FIRST = select(keys.c.digest, keys.c.run_id).where(
    keys.c.tenant_id == bindparam("tenant_id"), keys.c.route == bindparam("route"), keys.c.key == bindparam("key")
)
_EXPIRED = (
    select(keys.c.tenant_id, keys.c.route, keys.c.key)
    .where(keys.c.created_at < func.now() - KEPT)
    .order_by(keys.c.created_at)
    .limit(BATCH)
    .with_for_update(skip_locked=True)
)
FORGET_EXPIRED = delete(keys).where(tuple_(keys.c.tenant_id, keys.c.route, keys.c.key).in_(_EXPIRED))


def claim(tx: Transaction, tenant_id: UUID, route: str, key: str, digest: bytes, run_id: UUID) -> UUID | None:
    """None if the key is new, and now stands for `run_id`; else the run of the first request.

    `digest` is the SHA-256 of the request: the same key with another request is a Conflict. A second request at the
    same time waits here until the first has committed or rolled back.
    """
    if tx.scalar(CLAIM, tenant_id=tenant_id, route=route, key=key, digest=digest, run_id=run_id):
        return None
    first = tx.one_or_none(FIRST, tenant_id=tenant_id, route=route, key=key)
    if first is None:  # it expired and was forgotten between the two statements
        return claim(tx, tenant_id, route, key, digest, run_id)
    if first["digest"] != digest:
        raise Conflict(f'The idempotency key "{key}" belongs to another request. Use a new key for a new request.')
    return first["run_id"]


def forget_expired(tx: Transaction) -> int:
    """Remove up to 500 keys that are past their day; how many."""
    return tx.run(FORGET_EXPIRED)
