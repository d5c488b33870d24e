"""What must be done now and then: partitions for the weeks to come, and idempotency keys whose day is over."""

from datetime import datetime

import structlog
from sqlalchemy.exc import SQLAlchemyError

from store import idempotency, partitions
from store.database import Database

log = structlog.get_logger()


def keep_house(database: Database, now: datetime) -> None:
    """Do all of it; what fails is logged, and done the next time."""
    try:
        with database.transaction() as tx:
            made = partitions.ensure(tx, now)
        with database.transaction() as tx:
            forgotten = idempotency.forget_expired(tx)
    except SQLAlchemyError as error:
        log.warning("housekeeping_failed", error=str(error).splitlines()[0])
        return
    if made or forgotten:
        log.info("house_kept", partitions=made, idempotency_keys=forgotten)
