"""Agents on the command line: found by id or title, stored by title."""

from contextlib import suppress
from typing import Any
from uuid import UUID

from canvas.errors import NotFound
from store import canvases, gallery, versions
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


def put(tx: Transaction, tenant_id: UUID, title: str, dsl: dict[str, Any]) -> tuple[UUID, bool]:
    """Store a document as the draft of the agent with that title; its id, and whether the agent is new."""
    found, _ = gallery.page(tx, tenant_id, gallery.Wanted(title=title), limit=1)
    if not found:
        return canvases.create(tx, tenant_id, title, dsl), True
    draft = canvases.get(tx, tenant_id, found[0].id).draft
    if versions.digest_of(draft) != versions.digest_of(dsl):
        canvases.update(tx, tenant_id, found[0].id, dsl=dsl)
    return found[0].id, False
