"""Find the run that a path names, by its id or its external id."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

from canvas.errors import NotFound
from canvas.ids import RunId, TenantId
from store.db.transaction import Transaction
from store.primitives.ids import created_at_of
from store.runs import external_ids

ID_VERSION = 7  # of the UUIDs that are ids of runs; they contain when they were created


def find_run_id(tx: Transaction, tenant_id: TenantId, written: str, retention: timedelta | None = None) -> RunId:
    """Return the id of the tenant's run with this id or external id. Raises NotFound, like `run_not_found`."""
    run_id = external_ids.find_run(tx, tenant_id, written)
    if run_id is None:
        raise run_not_found(written, retention)
    return run_id


def run_not_found(written: str, retention: timedelta | None = None) -> NotFound:
    """Return the error about a run that the tenant does not have.

    With the time for which runs are kept, the error of an id that is older says that the run may have been deleted.
    """
    created_at = _created_at(written)
    if retention is None or created_at is None or created_at > datetime.now(UTC) - retention:
        return NotFound(f"There is no run {written[:64]}.")
    return NotFound(
        f"There is no run {written}. It may have been deleted: the id is from {created_at:%Y-%m-%d}, and runs are kept "
        f"for {retention.days} days.",
        retention_days=retention.days,
    )


def _created_at(written: str) -> datetime | None:
    """Return when the id of a run was created, None for any other text."""
    with suppress(ValueError, OverflowError):
        run_id = UUID(written)
        return created_at_of(run_id) if run_id.version == ID_VERSION else None
    return None
