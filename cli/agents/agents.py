"""Find the agent that a command names by id or title."""

from contextlib import suppress
from uuid import UUID

from canvas.errors import NotFound
from canvas.ids import CanvasId, TenantId
from store.agents import canvas_list
from store.agents.canvases import StoredCanvas
from store.db.transaction import Transaction


def find(tx: Transaction, tenant_id: TenantId, named: str) -> StoredCanvas:
    """Return the agent of that id or title, without its draft. Raises NotFound."""
    filters = canvas_list.CanvasFilter(title=named)
    with suppress(ValueError):
        filters = canvas_list.CanvasFilter(ids=[CanvasId(UUID(named))])
    found, _ = canvas_list.page(tx, tenant_id, filters, limit=1)
    if not found:
        raise NotFound(f'There is no agent "{named}". `easel agents` lists them; `easel import FILE` adds one.')
    return found[0]
