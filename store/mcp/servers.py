"""The MCP servers of a tenant: addresses, headers and secrets (sealed), and which of their tools may be called."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Row, Uuid, any_, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from canvas.errors import Conflict, NotFound
from canvas.ids import TenantId
from store.db.transaction import Transaction
from store.primitives.encryption import CannotUnseal, EncryptionKey, seal, unseal
from store.primitives.ids import new_id
from store.tables.mcp import mcp_servers as servers


@dataclass(frozen=True, slots=True)
class ServerFields:
    """What a tenant configures for a server. `call_seconds` limits one call; `allowed` None: any tool may be called."""

    name: str
    url: str = field(repr=False)
    server_type: str
    description: str = ""
    headers: Mapping[str, str] = field(repr=False, default_factory=dict[str, str])
    variables: Mapping[str, str] = field(repr=False, default_factory=dict[str, str])
    call_seconds: float = 10.0
    allowed: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A registered server."""

    id: UUID
    fields: ServerFields
    created_at: datetime
    updated_at: datetime


_FIELD_COLUMNS = (
    "name", "description", "server_type", "sealed_url", "sealed_headers", "sealed_variables", "call_seconds", "allowed",
)  # fmt: skip
_this = (servers.c.tenant_id == bindparam("of_tenant"), servers.c.id == bindparam("server_id"))
_SHOWN = select(servers.c.id, *(servers.c[name] for name in _FIELD_COLUMNS), servers.c.created_at, servers.c.updated_at)
SERVER = _SHOWN.where(*_this)
SERVERS = (
    _SHOWN.where(servers.c.tenant_id == bindparam("of_tenant"))
    .where(or_(bindparam("keywords") == "", func.strpos(func.lower(servers.c.name), bindparam("keywords")) > 0))
    .order_by(servers.c.created_at.desc(), servers.c.id.desc())
)
BY_NAME = _SHOWN.where(servers.c.tenant_id == bindparam("of_tenant"), servers.c.name == bindparam("named"))
REGISTERED = select(servers.c.id).where(
    servers.c.tenant_id == bindparam("of_tenant"), servers.c.id == any_(bindparam("ids", type_=ARRAY(Uuid)))
)
INSERT = insert(servers).values(
    {name: bindparam(name) for name in ("id", "tenant_id", *_FIELD_COLUMNS)},
)
UPDATE = (
    update(servers)
    .where(*_this)
    .values({name: bindparam(f"new_{name}", type_=servers.c[name].type) for name in _FIELD_COLUMNS})
    .values(updated_at=func.now())
)
DELETE = delete(servers).where(*_this)


def add(tx: Transaction, tenant_id: TenantId, fields: ServerFields, key: EncryptionKey) -> UUID:
    """Register a server; return its id. Raises Conflict if the tenant has a server of that name."""
    server_id = new_id()
    values = _columns(tenant_id, server_id, fields, key)
    try:
        with tx.savepoint():
            tx.execute(INSERT, id=server_id, tenant_id=tenant_id, **values)
    except IntegrityError as error:
        raise _name_conflict(fields.name) from error
    return server_id


def get(tx: Transaction, tenant_id: TenantId, server_id: UUID, key: EncryptionKey) -> ServerRow:
    """Return a server. Raises NotFound, also for another tenant's server, and CannotUnseal."""
    rows = tx.rows(SERVER, of_tenant=tenant_id, server_id=server_id)
    if not rows:
        raise NotFound("MCP server not found.")
    return _server(tenant_id, rows[0], key)


def filter_registered(tx: Transaction, tenant_id: TenantId, ids: Sequence[UUID]) -> set[UUID]:
    """Return those of the ids that are servers of the tenant."""
    return {row.id for row in tx.rows(REGISTERED, of_tenant=tenant_id, ids=list(ids))}


def find(tx: Transaction, tenant_id: TenantId, name: str, key: EncryptionKey) -> ServerRow | None:
    """Return the server of that name; None if there is none."""
    rows = tx.rows(BY_NAME, of_tenant=tenant_id, named=name)
    return _server(tenant_id, rows[0], key) if rows else None


def list_servers(tx: Transaction, tenant_id: TenantId, key: EncryptionKey, keywords: str = "") -> list[ServerRow]:
    """Return a tenant's servers whose names contain the keywords, newest first."""
    return [_server(tenant_id, row, key) for row in tx.rows(SERVERS, of_tenant=tenant_id, keywords=keywords.lower())]


def change(tx: Transaction, tenant_id: TenantId, server_id: UUID, fields: ServerFields, key: EncryptionKey) -> None:
    """Replace all fields of a server. Raises NotFound, and Conflict if the name is taken."""
    values = {f"new_{name}": value for name, value in _columns(tenant_id, server_id, fields, key).items()}
    try:
        with tx.savepoint():
            hit = tx.execute(UPDATE, of_tenant=tenant_id, server_id=server_id, **values)
    except IntegrityError as error:
        raise _name_conflict(fields.name) from error
    if not hit:
        raise NotFound("MCP server not found.")


def remove(tx: Transaction, tenant_id: TenantId, server_id: UUID) -> None:
    """Delete a server with its secrets and pins. Raises NotFound."""
    if not tx.execute(DELETE, of_tenant=tenant_id, server_id=server_id):
        raise NotFound("MCP server not found.")


def _columns(tenant_id: TenantId, server_id: UUID, fields: ServerFields, key: EncryptionKey) -> dict[str, Any]:
    place = _binding(tenant_id, server_id)
    return {
        "name": fields.name,
        "description": fields.description,
        "server_type": fields.server_type,
        "sealed_url": seal(key, fields.url, f"{place}/url"),
        "sealed_headers": seal(key, json.dumps(dict(fields.headers)), f"{place}/headers"),
        "sealed_variables": seal(key, json.dumps(dict(fields.variables)), f"{place}/variables"),
        "call_seconds": fields.call_seconds,
        "allowed": list(fields.allowed) if fields.allowed is not None else None,
    }


def _server(tenant_id: TenantId, row: Row[Any], key: EncryptionKey) -> ServerRow:
    place = _binding(tenant_id, row.id)
    try:
        fields = ServerFields(
            name=row.name,
            url=unseal(key, row.sealed_url, f"{place}/url"),
            server_type=row.server_type,
            description=row.description,
            headers=json.loads(unseal(key, row.sealed_headers, f"{place}/headers")),
            variables=json.loads(unseal(key, row.sealed_variables, f"{place}/variables")),
            call_seconds=row.call_seconds,
            allowed=row.allowed,
        )
    except CannotUnseal as error:
        raise CannotUnseal(f'The MCP server "{row.name}": {error.message}') from error
    return ServerRow(row.id, fields, row.created_at, row.updated_at)


def _binding(tenant_id: TenantId, server_id: UUID) -> str:
    """Return what a sealed text is bound to: it can be opened in this row only."""
    return f"mcp_servers/{tenant_id}/{server_id}"


def _name_conflict(name: str) -> Conflict:
    return Conflict(f'An MCP server named "{name}" already exists. Pick another name.')
