"""The models that a tenant has enabled: one account per vendor and instance, with its key sealed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, bindparam, delete, select
from sqlalchemy.dialects.postgresql import insert

from canvas.errors import NotFound
from canvas.ids import TenantId
from store.db.transaction import Transaction
from store.primitives.encryption import CannotUnseal, EncryptionKey, seal, unseal
from store.primitives.ids import new_id
from store.tables.tenants import model_accounts as accounts


@dataclass(frozen=True, slots=True)
class AccountRow:
    """A tenant's account with a vendor. `api_key` may be JSON text if a vendor needs several values.

    `models` maps a name to {kinds, context_tokens, is_tools, status}; `extra` has what is not secret (api_version).
    """

    factory: str
    instance: str = "default"
    base_url: str | None = None
    api_key: str = field(repr=False, default="")
    models: Mapping[str, Any] = field(default_factory=dict[str, Any])
    extra: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])
    status: str = "active"  # active | inactive


_COLUMNS = ("base_url", "sealed_key", "models", "extra", "status")
_insert = insert(accounts).values(
    id=bindparam("id"),
    tenant_id=bindparam("tenant_id"),
    factory=bindparam("factory"),
    instance=bindparam("instance"),
    **{name: bindparam(name) for name in _COLUMNS},
)
PUT = _insert.on_conflict_do_update(
    index_elements=[accounts.c.tenant_id, accounts.c.factory, accounts.c.instance],
    set_={name: _insert.excluded[name] for name in _COLUMNS},
)
ACCOUNTS_OF = (
    select(accounts.c.factory, accounts.c.instance, *(accounts.c[name] for name in _COLUMNS))
    .where(accounts.c.tenant_id == bindparam("tenant_id"))
    .order_by(accounts.c.factory, accounts.c.instance)
)
REMOVE = delete(accounts).where(
    accounts.c.tenant_id == bindparam("tenant_id"),
    accounts.c.factory == bindparam("factory"),
    accounts.c.instance == bindparam("instance"),
)


def put_account(tx: Transaction, tenant_id: TenantId, account: AccountRow, key: EncryptionKey) -> None:
    """Store an account; it replaces the one with the same vendor and instance."""
    place = _binding(tenant_id, account.factory, account.instance)
    tx.execute(
        PUT,
        id=new_id(),
        tenant_id=tenant_id,
        factory=account.factory,
        instance=account.instance,
        base_url=account.base_url,
        sealed_key=seal(key, account.api_key, place) if account.api_key else None,
        models=dict(account.models),
        extra=dict(account.extra),
        status=account.status,
    )


def list_accounts(tx: Transaction, tenant_id: TenantId, key: EncryptionKey | None = None) -> list[AccountRow]:
    """Return a tenant's accounts by vendor and instance; without an encryption key their `api_key` is empty.

    Raises CannotUnseal, naming the account, if a key was sealed under another encryption key.
    """
    return [_account(tenant_id, row, key) for row in tx.rows(ACCOUNTS_OF, tenant_id=tenant_id)]


def list_unreadable(tx: Transaction, tenant_id: TenantId, key: EncryptionKey) -> list[tuple[str, str]]:
    """Return the accounts, as vendor and instance, whose keys cannot be opened with this encryption key."""
    unreadable: list[tuple[str, str]] = []
    for row in tx.rows(ACCOUNTS_OF, tenant_id=tenant_id):
        try:
            _account(tenant_id, row, key)
        except CannotUnseal:
            unreadable.append((row.factory, row.instance))
    return unreadable


def remove(tx: Transaction, tenant_id: TenantId, factory: str, instance: str = "default") -> None:
    """Delete an account and its key. Raises NotFound if the tenant has no such account."""
    if not tx.execute(REMOVE, tenant_id=tenant_id, factory=factory, instance=instance):
        raise NotFound(f'The model account "{factory}" ({instance}) does not exist. List the tenant\'s models.')


def _account(tenant_id: TenantId, row: Row[Any], key: EncryptionKey | None) -> AccountRow:
    api_key = ""
    if row.sealed_key is not None and key is not None:
        try:
            api_key = unseal(key, row.sealed_key, _binding(tenant_id, row.factory, row.instance))
        except CannotUnseal as error:
            raise CannotUnseal(f'The key of model account "{row.factory}" ({row.instance}): {error.message}') from error
    return AccountRow(row.factory, row.instance, row.base_url, api_key, row.models, row.extra, row.status)


def _binding(tenant_id: TenantId, factory: str, instance: str) -> str:
    """Return what a sealed key is bound to: it can be opened in this row only."""
    return f"model_accounts/{tenant_id}/{factory}/{instance}"
