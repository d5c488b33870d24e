"""Pins: the descriptions of MCP servers' tools as they were first seen. A changed description is refused until
approved.

A pin is created when a server is registered, when a version that offers the tool is published, when the tenant approves
a tool, or at the first call of a tool without a pin. The first one counts; only an approval replaces it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from canvas.document.mcp_tools import digest_of, offered_tools
from canvas.ids import TenantId
from store.db.transaction import Transaction
from store.tables.mcp import mcp_servers as servers
from store.tables.mcp import mcp_tools as tools


@dataclass(frozen=True, slots=True)
class Pin:
    """A tool as it was seen."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(repr=False)
    digest: bytes = field(repr=False)
    seen_at: datetime


_own_server = (servers.c.tenant_id == bindparam("of_tenant"), servers.c.id == bindparam("of_server"))
_offered = insert(tools).from_select(
    ["server_id", "tenant_id", "name", "description", "schema", "digest"],
    select(
        servers.c.id,
        servers.c.tenant_id,
        bindparam("named", type_=tools.c.name.type),
        bindparam("described", type_=tools.c.description.type),
        bindparam("takes", type_=tools.c.schema.type),
        bindparam("seen", type_=tools.c.digest.type),
    ).where(*_own_server),
)
PIN = _offered.on_conflict_do_nothing()
APPROVE = _offered.on_conflict_do_update(
    index_elements=[tools.c.server_id, tools.c.name],
    set_={
        "description": _offered.excluded.description,
        "schema": _offered.excluded.schema,
        "digest": _offered.excluded.digest,
        "seen_at": func.now(),
    },
)
DIGEST = select(tools.c.digest).where(
    tools.c.tenant_id == bindparam("of_tenant"),
    tools.c.server_id == bindparam("of_server"),
    tools.c.name == bindparam("named"),
)
PINS = (
    select(tools.c.name, tools.c.description, tools.c.schema, tools.c.digest, tools.c.seen_at)
    .where(tools.c.tenant_id == bindparam("of_tenant"), tools.c.server_id == bindparam("of_server"))
    .order_by(tools.c.name)
)
FORGET = delete(tools).where(tools.c.tenant_id == bindparam("of_tenant"), tools.c.server_id == bindparam("of_server"))


def pin(
    tx: Transaction, tenant_id: TenantId, server_id: UUID, name: str, description: str, schema: Mapping[str, Any]
) -> bytes | None:
    """Return the digest of a tool's pin; pin this description if there is none. None if there is no such server."""
    tx.execute(PIN, **_values(tenant_id, server_id, name, description, schema))
    return tx.scalar(DIGEST, of_tenant=tenant_id, of_server=server_id, named=name)


def approve(
    tx: Transaction, tenant_id: TenantId, server_id: UUID, name: str, description: str, schema: Mapping[str, Any]
) -> None:
    """Pin a tool as it is described here, whatever was pinned."""
    tx.execute(APPROVE, **_values(tenant_id, server_id, name, description, schema))


def list_pins(tx: Transaction, tenant_id: TenantId, server_id: UUID) -> list[Pin]:
    """Return the pins of a server's tools, by name."""
    return [Pin(*row) for row in tx.rows(PINS, of_tenant=tenant_id, of_server=server_id)]


def delete_pins(tx: Transaction, tenant_id: TenantId, server_id: UUID) -> None:
    """Delete the pins of a server, because its address has changed."""
    tx.execute(FORGET, of_tenant=tenant_id, of_server=server_id)


def pin_offered_tools(tx: Transaction, tenant_id: TenantId, dsl: Mapping[str, Any]) -> None:
    """Pin the tools that the Agents of a published document offer and that have no pin yet."""
    for offer in offered_tools(dsl):
        try:
            server_id = UUID(offer.server)
        except ValueError:
            continue  # an id of another system, so not a server of this tenant
        tx.execute(PIN, **_values(tenant_id, server_id, offer.name, offer.description, offer.schema))


def _values(
    tenant_id: TenantId, server_id: UUID, name: str, description: str, schema: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "of_tenant": tenant_id,
        "of_server": server_id,
        "named": name,
        "described": description,
        "takes": dict(schema),
        "seen": digest_of(description, schema),
    }
