"""Idempotency keys: a request that is repeated within a day gets the reply of the first one.

A key is claimed in the transaction that carries out its request, so both are committed or neither is, whenever a
process crashes. The key of a request that started a run refers to the run; the key of any other request has its whole
reply.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, delete, func, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert

from canvas.errors import Conflict, InvalidRequest
from canvas.ids import RunId, TenantId
from store.db.transaction import Transaction
from store.tables.tenants import idempotency_keys as keys

KEY_LIFETIME = timedelta(hours=24)
BATCH = 500
MAX_LENGTH = 255  # characters


@dataclass(frozen=True, slots=True)
class FirstResponse:
    """The result of the first request with a key: the run that it started, or the reply that the caller stored."""

    run_id: RunId | None
    reply: Mapping[str, Any] | None


_insert = insert(keys).values(
    tenant_id=bindparam("tenant_id"),
    route=bindparam("route"),
    key=bindparam("key"),
    digest=bindparam("digest"),
    run_id=bindparam("run_id"),
    reply=bindparam("reply"),
)
CLAIM = _insert.on_conflict_do_update(
    index_elements=[keys.c.tenant_id, keys.c.route, keys.c.key],
    set_={
        **{name: _insert.excluded[name] for name in ("digest", "run_id", "reply")},
        "created_at": func.now(),
    },
    where=keys.c.created_at < func.now() - KEY_LIFETIME,
).returning(keys.c.key)
_is_it = (
    keys.c.tenant_id == bindparam("of_tenant"),
    keys.c.route == bindparam("of_route"),
    keys.c.key == bindparam("of_key"),
)
FIRST = select(keys.c.digest, keys.c.run_id, keys.c.reply).where(
    *_is_it, keys.c.created_at >= func.now() - KEY_LIFETIME
)
STORE_REPLY = update(keys).where(*_is_it).values(reply=bindparam("first_reply", type_=keys.c.reply.type))
_EXPIRED = (
    select(keys.c.tenant_id, keys.c.route, keys.c.key)
    .where(keys.c.created_at < func.now() - KEY_LIFETIME)
    .order_by(keys.c.created_at)
    .limit(BATCH)
    .with_for_update(skip_locked=True)
)
DELETE_EXPIRED = delete(keys).where(tuple_(keys.c.tenant_id, keys.c.route, keys.c.key).in_(_EXPIRED))


def validate_key(key: Any) -> str:
    """Return a valid key: 1 to 255 printable ASCII characters. Raises InvalidRequest."""
    if not isinstance(key, str) or not key.strip():
        raise InvalidRequest("The idempotency key is empty. Leave it out, or send a new random one for each request.")
    if len(key) > MAX_LENGTH:
        raise InvalidRequest(f"The idempotency key has more than {MAX_LENGTH} characters.")
    if not (key.isascii() and key.isprintable()):
        raise InvalidRequest("The idempotency key may hold printable ASCII characters only.")
    return key


def claim(
    tx: Transaction,
    tenant_id: TenantId,
    route: str,
    key: str,
    digest: bytes,
    run_id: RunId | None = None,
    reply: Mapping[str, Any] | None = None,
) -> FirstResponse | None:
    """Claim a key for this request and return None; or return the result of the first request with this key.

    `digest` is the SHA-256 of the request: the same key with another request raises Conflict. A second request at the
    same time waits here until the first has committed or rolled back.
    """
    names = {"tenant_id": tenant_id, "route": route, "key": key}
    if tx.scalar(CLAIM, **names, digest=digest, run_id=run_id, reply=reply) is not None:
        return None
    first = find(tx, tenant_id, route, key, digest)
    if first is None:  # it expired between the two statements
        return claim(tx, tenant_id, route, key, digest, run_id, reply)
    return first


def find(tx: Transaction, tenant_id: TenantId, route: str, key: str, digest: bytes) -> FirstResponse | None:
    """Return the result of the first request with a key; None if none has committed. Raises Conflict like `claim`."""
    first = tx.one_or_none(FIRST, of_tenant=tenant_id, of_route=route, of_key=key)
    if first is None:
        return None
    if first["digest"] != digest:
        raise Conflict(f'The idempotency key "{key}" belongs to another request. Use a new key for a new request.')
    return FirstResponse(first["run_id"], first["reply"])


def store_reply(tx: Transaction, tenant_id: TenantId, route: str, key: str, reply: Mapping[str, Any]) -> None:
    """Store the reply of a request that has claimed this key, in the same transaction."""
    tx.execute(STORE_REPLY, of_tenant=tenant_id, of_route=route, of_key=key, first_reply=reply)


def delete_expired(tx: Transaction) -> int:
    """Delete up to 500 expired keys; return how many."""
    return tx.execute(DELETE_EXPIRED)
