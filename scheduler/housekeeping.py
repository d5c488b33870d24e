"""What must be done now and then: partitions for the weeks to come, and idempotency keys whose day is over."""

from datetime import datetime

import structlog
from sqlalchemy.exc import SQLAlchemyError

from store import idempotency, partitions
from store.database import Database

log = structlog.get_logger()

MOST_BATCHES = 100  # of keys that are forgotten at a time; more come in only above 14 a second


def keep_house(database: Database, now: datetime) -> None:
    """Do all of it; what fails is logged, and done the next time."""
    try:
        with database.transaction() as tx:
            made = partitions.ensure(tx, now)
        forgotten = 0
        for _ in range(MOST_BATCHES):
            with database.transaction() as tx:
                batch = idempotency.forget_expired(tx)
            forgotten += batch
            if batch < idempotency.BATCH:
                break
    except SQLAlchemyError as error:
        log.warning("housekeeping_failed", error=str(error).splitlines()[0])
        return
    if made or forgotten:
        log.info("house_kept", partitions=made, idempotency_keys=forgotten)
