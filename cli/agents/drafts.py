"""Store drafts from the command line under the title of their agent, with their secrets encrypted."""

from functools import cache
from typing import Any

from canvas.ids import CanvasId, TenantId
from cli.shell.actor import find_actor
from components import plugins, registry
from settings import load
from store.agents import canvas_list, canvas_secrets, canvases, versions
from store.agents.canvas_secrets import CanvasSecrets
from store.db.transaction import Transaction
from store.primitives.encryption import EncryptionKey
from store.primitives.ids import new_id
from store.tenants import audit
from store.tenants.audit import Action


def save_draft(tx: Transaction, tenant_id: TenantId, title: str, dsl: dict[str, Any]) -> tuple[CanvasId, bool]:
    """Store a document as the draft of the agent with that title; return its id and whether the agent is new.

    Secrets are encrypted. A mask stands for the secret that the agent already has; raises InvalidCanvas if it has none.
    """
    found, _ = canvas_list.page(tx, tenant_id, canvas_list.CanvasFilter(title=title), limit=1)
    if not found:
        canvas_id = CanvasId(new_id())
        sealed = canvas_secrets_of(tenant_id, canvas_id).seal_document(dsl)
        canvases.create(tx, tenant_id, title, sealed, canvas_id=canvas_id)
        audit.record(tx, tenant_id, find_actor(), Action.AGENT_CREATED, canvas_id, {"title": title})
        return canvas_id, True
    canvas_id = found[0].id
    draft = canvases.lock(tx, tenant_id, canvas_id).draft
    sealed = canvas_secrets.seal_saved(tx, canvas_secrets_of(tenant_id, canvas_id), dsl, draft)
    if versions.digest_of(draft) != versions.digest_of(sealed):
        canvases.update(tx, tenant_id, canvas_id, dsl=sealed)
        audit.record_save(tx, tenant_id, find_actor(), canvas_id)
    return canvas_id, False


def canvas_secrets_of(tenant_id: TenantId, canvas_id: CanvasId) -> CanvasSecrets:
    """Return the secrets of one canvas, with the key of this command's settings. Load the plugins that declare some."""
    _load_plugins(load().allowed_plugins)
    key = EncryptionKey.from_secret(load().encryption_secret())
    return CanvasSecrets.for_canvas(key, tenant_id, canvas_id, registry.secret_fields)


@cache
def _load_plugins(allowed: frozenset[str]) -> None:
    """Load the plugins once per process, however many canvases a command reads."""
    plugins.load(allowed)
