"""Agents that are offered as tools of Easel's own MCP server. An agent is offered only if its owner exposes it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import and_, bindparam, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from canvas.errors import Conflict, InvalidRequest, NotFound
from canvas.ids import CanvasId, TenantId, VersionId
from store.db.transaction import Transaction
from store.tables.mcp import mcp_agents as agents
from store.tables.tenants import canvases, versions

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ExposedAgent:
    """An agent as a tool, with the version that was published last."""

    canvas_id: CanvasId
    version_id: VersionId
    name: str  # of the tool
    title: str
    description: str
    published_at: datetime
    dsl: Mapping[str, Any] = field(repr=False)


_newest = versions.alias("newest")
_latest = (
    select(_newest.c.id)
    .where(
        _newest.c.tenant_id == agents.c.tenant_id,
        _newest.c.canvas_id == agents.c.canvas_id,
        _newest.c.released,
        _newest.c.deleted_at.is_(None),
    )
    .order_by(_newest.c.created_at.desc(), _newest.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
EXPOSED = (
    select(
        agents.c.canvas_id, versions.c.id, agents.c.name, canvases.c.title, canvases.c.description,
        versions.c.updated_at, versions.c.dsl,
    )
    .join(canvases, and_(canvases.c.id == agents.c.canvas_id, canvases.c.tenant_id == agents.c.tenant_id))
    .join(versions, versions.c.id == _latest)
    .where(agents.c.tenant_id == bindparam("of_tenant"))
    .order_by(agents.c.name)
)  # fmt: skip
EXPOSED_AS = EXPOSED.where(agents.c.name == bindparam("named"))
NAME_OF = select(agents.c.name).where(
    agents.c.tenant_id == bindparam("of_tenant"), agents.c.canvas_id == bindparam("of_canvas")
)
_own = select(canvases.c.id, canvases.c.tenant_id, bindparam("named", type_=agents.c.name.type).label("name")).where(
    canvases.c.tenant_id == bindparam("of_tenant"), canvases.c.id == bindparam("of_canvas")
)
_put = insert(agents).from_select(["canvas_id", "tenant_id", "name"], _own)
EXPOSE = _put.on_conflict_do_update(index_elements=[agents.c.canvas_id], set_={"name": _put.excluded.name})
HIDE = delete(agents).where(agents.c.tenant_id == bindparam("of_tenant"), agents.c.canvas_id == bindparam("of_canvas"))


def expose(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, name: str) -> str:
    """Offer an agent as a tool of this name, which replaces its earlier name; return the name.

    Raises NotFound for an unknown agent, InvalidRequest for a name that clients do not accept, Conflict for a name in
    use.
    """
    if not NAME.fullmatch(name):
        raise InvalidRequest(f"{name!r} is not a valid tool name. Use 1 to 64 of A-Z, a-z, 0-9, _ and -.", field="name")
    try:
        with tx.savepoint():
            hit = tx.execute(EXPOSE, of_tenant=tenant_id, of_canvas=canvas_id, named=name)
    except IntegrityError as error:
        raise Conflict(f'Another agent is the tool "{name}" already. Pick another name.') from error
    if not hit:
        raise NotFound("canvas not found.")
    return name


def hide(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> None:
    """Stop offering an agent; does nothing if it was not offered."""
    tx.execute(HIDE, of_tenant=tenant_id, of_canvas=canvas_id)


def tool_name_of(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> str | None:
    """Return the tool name of an agent; None if it is not offered."""
    return tx.scalar(NAME_OF, of_tenant=tenant_id, of_canvas=canvas_id)


def list_exposed(tx: Transaction, tenant_id: TenantId) -> list[ExposedAgent]:
    """Return a tenant's agents that are offered and have a published version, by name."""
    return [_agent(row) for row in tx.rows(EXPOSED, of_tenant=tenant_id)]


def find_exposed(tx: Transaction, tenant_id: TenantId, name: str) -> ExposedAgent | None:
    """Return the agent that is offered under a tool name; None if there is none."""
    rows = tx.rows(EXPOSED_AS, of_tenant=tenant_id, named=name)
    return _agent(rows[0]) if rows else None


def make_tool_name(title: str, canvas_id: CanvasId) -> str:
    """Return a tool name made from an agent's title, or from its id if the title has no usable characters."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", title).strip("_")[:64]
    return name or f"agent_{canvas_id.hex[-12:]}"


def _agent(row: Any) -> ExposedAgent:
    canvas_id, version_id, name, title, description, published_at, dsl = row
    return ExposedAgent(canvas_id, version_id, name, title, description or "", published_at, dsl)
