"""Find the run that a path names, by its id or its external id."""

from canvas.errors import NotFound
from canvas.ids import RunId, TenantId
from store.db.transaction import Transaction
from store.runs import external_ids


def find_run_id(tx: Transaction, tenant_id: TenantId, written: str) -> RunId:
    """Return the id of the tenant's run with this id or external id. Raises NotFound."""
    run_id = external_ids.find_run(tx, tenant_id, written)
    if run_id is None:
        raise run_not_found(written)
    return run_id


def run_not_found(written: str) -> NotFound:
    """Return the error about a run that the tenant does not have."""
    return NotFound(f"There is no run {written[:64]}.")
