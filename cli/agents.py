"""Agents on the command line: found by id or title."""

from contextlib import suppress
from uuid import UUID

from canvas.errors import NotFound
from store import gallery
from store.canvases import StoredCanvas
from store.transaction import Transaction


def find(tx: Transaction, tenant_id: UUID, named: str) -> StoredCanvas:
    """The agent of that id or title, without its draft. Raises NotFound."""
    wanted = gallery.Wanted(title=named)
    with suppress(ValueError):
        wanted = gallery.Wanted(ids=[UUID(named)])
    found, _ = gallery.page(tx, tenant_id, wanted, limit=1)
    if not found:
        raise NotFound(f'There is no agent "{named}". `easel agents` lists them; `easel import FILE` adds one.')
    return found[0]
