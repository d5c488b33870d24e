"""Callbacks: the addresses that are told when runs end or wait, and the secrets that sign what they are sent.

A callback is told of the runs of one agent, of one run, or, if it has neither, of the runs that name it. Its secret
signs what it is sent; for a run's callback without a secret, that of the tenant does. Secrets are stored sealed. A
secret that was replaced signs too for a day, so that receivers have time to learn the new one.
"""

import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Interval, bindparam, case, delete, func, insert, null, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from canvas.errors import InvalidRequest, NotFound
from canvas.ids import CanvasId, RunId, TenantId
from store.db.transaction import Transaction
from store.primitives.encryption import EncryptionKey, seal, unseal
from store.primitives.ids import NO_ID, new_id
from store.tables.callbacks import callback_secrets, callbacks

PREFIX = "whsec_"
"""How the text of a secret begins (Standard Webhooks)."""
SECRET_BYTES = (24, 64)
FORMER_VALID_FOR = timedelta(days=1)
MAX_CALLBACKS = 100  # of a tenant, those of runs not counted
MAX_OF_RUN = 10
BATCH = 500


class CallbackEvent(StrEnum):
    """What a callback can be told."""

    SUCCEEDED = "run.succeeded"
    FAILED = "run.failed"
    CANCELLED = "run.cancelled"
    WAITING = "run.waiting"


TEST = "callback.test"
"""The event of a test, which a callback gets whatever its events are."""


class Include(StrEnum):
    """What the body of an event can have beside ids, status and usage."""

    OUTPUT = "output"


class DisabledBecause(StrEnum):
    """Why a callback is disabled: its owner did it, or its server answered 410."""

    OWNER = "owner"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Callback:
    """A stored callback, without its secret. `canvas_id` None: it is told of the runs that name it."""

    id: UUID
    canvas_id: CanvasId | None
    url: str = field(repr=False)  # may contain a key
    events: Sequence[str]
    include: Sequence[str]
    description: str
    disabled_at: datetime | None
    disabled_because: str | None
    former_until: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class RunCallback:
    """A callback of one run. `stored_id`: the stored callback whose address and secret it has.

    `secret`: a secret of its own; None: the tenant's signs. Only the API gives one, and seals it before it is stored.
    """

    events: Sequence[str]
    include: Sequence[str] = ()
    url: str = field(default="", repr=False)
    stored_id: UUID | None = None
    secret: str | None = field(default=None, repr=False)
    id: UUID = field(default_factory=new_id)
    sealed_secret: bytes | None = field(default=None, repr=False)


_listed = tuple(callbacks.c[name] for name in Callback.__dataclass_fields__)
_stored = (callbacks.c.tenant_id == bindparam("of_tenant"), callbacks.c.run_id.is_(None))
_is_it = (*_stored, callbacks.c.id == bindparam("of_callback"))
INSERT = insert(callbacks)
LIST = (
    select(*_listed)
    .where(
        *_stored,
        or_(bindparam("every", type_=callbacks.c.disabled_at.is_(None).type), callbacks.c.canvas_id == bindparam("of")),
        callbacks.c.id > bindparam("after"),
    )
    .order_by(callbacks.c.id)
    .limit(bindparam("most"))
)
COUNT = select(func.count()).select_from(callbacks).where(*_stored)
GET = select(*_listed).where(*_is_it)
CHANGE = (
    update(callbacks)
    .where(*_is_it)
    .values(
        url=bindparam("new_url"),
        events=bindparam("new_events", type_=callbacks.c.events.type),
        include=bindparam("new_include", type_=callbacks.c.include.type),
        description=bindparam("new_description"),
        disabled_at=case((bindparam("enabled"), null()), else_=func.coalesce(callbacks.c.disabled_at, func.now())),
        disabled_because=case(
            (bindparam("enabled"), null()), else_=func.coalesce(callbacks.c.disabled_because, DisabledBecause.OWNER)
        ),
    )
    .returning(*_listed)
)
DISABLE = text("""
    update callbacks set disabled_at = now(), disabled_because = 'gone'
    where tenant_id = :tenant_id and id = :callback_id and disabled_at is null
""")
ROTATE = (
    update(callbacks)
    .where(*_is_it)
    .values(
        sealed_former=callbacks.c.sealed_secret,
        former_until=func.now() + bindparam("valid_for", type_=Interval),
        sealed_secret=bindparam("new_secret"),
    )
    .returning(*_listed)
)
DELETE = delete(callbacks).where(*_is_it)
DELETE_NAMED = delete(callbacks).where(
    callbacks.c.tenant_id == bindparam("of_tenant"), callbacks.c.stored_id == bindparam("of_callback")
)
_secret = upsert(callback_secrets).values(tenant_id=bindparam("tenant_id"), sealed_secret=bindparam("sealed_secret"))
CREATE_SECRET = _secret.on_conflict_do_nothing()
READ_SECRET = select(callback_secrets).where(callback_secrets.c.tenant_id == bindparam("of_tenant"))
ROTATE_SECRET = _secret.on_conflict_do_update(
    index_elements=[callback_secrets.c.tenant_id],
    set_={
        "sealed_former": callback_secrets.c.sealed_secret,
        "former_until": func.now() + bindparam("valid_for", type_=Interval),
        "sealed_secret": _secret.excluded.sealed_secret,
    },
)
UNFLAGGED = text("""
    select id from runs
    where tenant_id = :tenant_id and canvas_id = :canvas_id and not has_callbacks
        and status in ('queued', 'running', 'waiting', 'stopping')
        and (origin is null or origin ->> 'kind' <> 'debug')
""")
FLAG = text("update runs set has_callbacks = true where id = :run_id and tenant_id = :tenant_id and not has_callbacks")
DELETE_OF_OLD_RUNS = text("""
    delete from callbacks where id in (
        select c.id from callbacks c
        where c.run_id is not null and c.created_at < :before
            and not exists (select from callback_deliveries d where d.callback_id = c.id)
            and not exists (select from runs r where r.id = c.run_id
                and r.status in ('queued', 'running', 'waiting', 'stopping'))
        limit :most for update skip locked)
""")


# -- secrets ----------------------------------------------------------------------------------------------------------
def new_secret() -> str:
    """Return a new secret, as receivers configure it."""
    return PREFIX + b64encode(secrets.token_bytes(32)).decode()


def check_secret(written: str, field_name: str) -> str:
    """Return a secret that a caller has given. Raises InvalidRequest, which names the field and not the value."""
    try:
        key = b64decode(written.removeprefix(PREFIX), validate=True) if written.startswith(PREFIX) else b""
    except ValueError:
        key = b""
    least, most = SECRET_BYTES
    if not least <= len(key) <= most:
        raise InvalidRequest(
            f"`{field_name}` must be {PREFIX} followed by {least} to {most} random bytes in Base64. Leave it out, and "
            "Easel makes one.",
            field=field_name,
        )
    return written


def key_of(secret: str) -> bytes:
    """Return the bytes that sign, of a secret."""
    return b64decode(secret.removeprefix(PREFIX))


def seal_secret(key: EncryptionKey, tenant_id: TenantId, callback_id: UUID, secret: str) -> bytes:
    """Return the secret of a callback as it is stored."""
    return seal(key, secret, _binding(tenant_id, callback_id))


def unseal_secrets(
    key: EncryptionKey, tenant_id: TenantId, callback_id: UUID, row: Mapping[str, Any], now: datetime
) -> list[str]:
    """Return the secrets that sign for a callback, the present one first. `row`: the columns that have them.

    Raises CannotUnseal.
    """
    return _unseal(key, _binding(tenant_id, callback_id), row, now)


def tenant_secrets(tx: Transaction, tenant_id: TenantId, key: EncryptionKey, now: datetime) -> list[str]:
    """Return the secrets that sign for runs' callbacks without one of their own; the first call makes the first."""
    tx.send(CREATE_SECRET, tenant_id=tenant_id, sealed_secret=seal(key, new_secret(), _binding_of_tenant(tenant_id)))
    row = tx.one_or_none(READ_SECRET, of_tenant=tenant_id)
    assert row is not None, "the statement before has inserted it, or found it"
    return _unseal(key, _binding_of_tenant(tenant_id), row, now)


def rotate_tenant_secret(tx: Transaction, tenant_id: TenantId, key: EncryptionKey) -> str:
    """Replace the tenant's secret; return the new one. The former one signs too for a day."""
    made = new_secret()
    sealed = seal(key, made, _binding_of_tenant(tenant_id))
    tx.execute(ROTATE_SECRET, tenant_id=tenant_id, sealed_secret=sealed, valid_for=FORMER_VALID_FOR)
    return made


# -- stored callbacks -------------------------------------------------------------------------------------------------
def create(
    tx: Transaction,
    tenant_id: TenantId,
    callback_id: UUID,
    *,
    canvas_id: CanvasId | None,
    url: str,
    events: Sequence[str],
    include: Sequence[str],
    description: str,
    sealed_secret: bytes,
) -> Callback:
    """Store a callback. Raises InvalidRequest if the tenant has too many."""
    if tx.scalar(COUNT, of_tenant=tenant_id) >= MAX_CALLBACKS:
        raise InvalidRequest(f"There are {MAX_CALLBACKS} callbacks, the maximum. Delete one first.")
    tx.send(
        INSERT,
        id=callback_id,
        tenant_id=tenant_id,
        canvas_id=canvas_id,
        url=url,
        events=list(events),
        include=list(include),
        description=description,
        sealed_secret=sealed_secret,
    )
    return get(tx, tenant_id, callback_id)


def list_callbacks(
    tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId | None = None, *, after: UUID = NO_ID, limit: int
) -> list[Callback]:
    """Return stored callbacks of a tenant, or of one agent, after one of them, the oldest first."""
    chosen = {"every": canvas_id is None, "of": canvas_id or NO_ID}
    return [Callback(*row) for row in tx.rows(LIST, of_tenant=tenant_id, **chosen, after=after, most=limit)]


def get(tx: Transaction, tenant_id: TenantId, callback_id: UUID) -> Callback:
    """Return a stored callback. Raises NotFound."""
    row = tx.one_or_none(GET, of_tenant=tenant_id, of_callback=callback_id)
    if row is None:
        raise not_found(callback_id.hex)
    return Callback(**row)


def change(
    tx: Transaction,
    tenant_id: TenantId,
    callback_id: UUID,
    *,
    url: str,
    events: Sequence[str],
    include: Sequence[str],
    description: str,
    is_enabled: bool,
) -> Callback:
    """Replace what a stored callback has beside its secret. Raises NotFound."""
    row = tx.one_or_none(
        CHANGE,
        of_tenant=tenant_id,
        of_callback=callback_id,
        new_url=url,
        new_events=list(events),
        new_include=list(include),
        new_description=description,
        enabled=is_enabled,
    )
    if row is None:
        raise not_found(callback_id.hex)
    return Callback(**row)


def rotate(tx: Transaction, tenant_id: TenantId, callback_id: UUID, sealed_secret: bytes) -> Callback:
    """Replace the secret of a stored callback; the former one signs too for a day. Raises NotFound."""
    row = tx.one_or_none(
        ROTATE, of_tenant=tenant_id, of_callback=callback_id, new_secret=sealed_secret, valid_for=FORMER_VALID_FOR
    )
    if row is None:
        raise not_found(callback_id.hex)
    return Callback(**row)


def disable_gone(tx: Transaction, tenant_id: TenantId, callback_id: UUID) -> None:
    """Disable a callback whose server has answered that it is gone (410)."""
    tx.execute(DISABLE, tenant_id=tenant_id, callback_id=callback_id)


def remove(tx: Transaction, tenant_id: TenantId, callback_id: UUID) -> None:
    """Delete a stored callback and what names it; its pending deliveries end as dead. Raises NotFound."""
    if not tx.execute(DELETE, of_tenant=tenant_id, of_callback=callback_id):
        raise not_found(callback_id.hex)
    tx.execute(DELETE_NAMED, of_tenant=tenant_id, of_callback=callback_id)


def not_found(written: str) -> NotFound:
    """Return the error for a callback that the tenant does not have."""
    return NotFound(f"There is no callback {written[:64]}.")


# -- callbacks of runs ------------------------------------------------------------------------------------------------
def put_of_run(tx: Transaction, tenant_id: TenantId, run_id: RunId, given: Sequence[RunCallback]) -> None:
    """Store the callbacks of a run. It must have the flag, or get it (`flag_run`)."""
    for each in given:
        assert each.secret is None, "the API seals secrets before"
        tx.send(
            INSERT,
            id=each.id,
            tenant_id=tenant_id,
            run_id=run_id,
            stored_id=each.stored_id,
            url=each.url,
            events=list(each.events),
            include=list(each.include),
            sealed_secret=each.sealed_secret,
        )


def unflagged_runs(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> list[RunId]:
    """Return the open runs of an agent that had no callback when they began; runs of one node are not told."""
    return [run_id for (run_id,) in tx.rows(UNFLAGGED, tenant_id=tenant_id, canvas_id=canvas_id)]


def flag_run(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> None:
    """Flag a locked run: the trigger inserts deliveries of it from now on."""
    tx.send(FLAG, run_id=run_id, tenant_id=tenant_id)


def delete_of_old_runs(tx: Transaction, before: datetime) -> int:
    """Delete up to 500 callbacks of runs that are over, and whose deliveries were deleted; return how many."""
    return tx.execute(DELETE_OF_OLD_RUNS, before=before, most=BATCH)


def _unseal(key: EncryptionKey, binding: str, row: Mapping[str, Any], now: datetime) -> list[str]:
    found = [unseal(key, row["sealed_secret"], binding)]
    if row["sealed_former"] is not None and row["former_until"] > now:
        found.append(unseal(key, row["sealed_former"], binding))
    return found


def _binding(tenant_id: TenantId, callback_id: UUID) -> str:
    return f"callbacks/{tenant_id}/{callback_id}"


def _binding_of_tenant(tenant_id: TenantId) -> str:
    return f"callback_secrets/{tenant_id}"
