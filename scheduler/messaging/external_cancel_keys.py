"""Cancel keys of external ids: `{external id}-cancel` in Redis, which any program may set.

Such a key names no tenant: it cancels the open run with that external id of every tenant. A key applies to the runs
that were open when it was set. So a start, an answer and the end of a run delete the keys of their external ids; for
each other open run that such a key applies to, the run's own cancel key is set first.
"""

from collections.abc import Collection, Sequence

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.ids import RunId
from scheduler.messaging.redis_bus import Bus, external_keys, run_keys
from store.db.database import Database
from store.db.transaction import AfterCommitQuery, Transaction
from store.runs import external_ids
from store.runs.run_rows import RunRow

log = structlog.get_logger()


def delete_keys_of(tx: Transaction, bus: Bus, names: Collection[str], run_id: RunId) -> None:
    """Delete the cancel keys of external ids of a run; other open runs that they cancel get a key of their own."""
    known = {name: external_keys(name) for name in names}
    are_set = bus.find_set_keys([key for keys in known.values() for key in keys])
    if not are_set:
        return
    others: Sequence[RunId] = ()
    for name, keys in known.items():
        if not are_set.isdisjoint(keys):
            others = [*others, *external_ids.find_open_runs(tx, name, run_id)]
    for other in others:
        bus.set_cancel_key(other)
    bus.delete_keys(are_set - {key for other in others for key in run_keys(other)})


class ExternalIdsOfRun:
    """The external ids of a run that ends; they are queried together with the commit of its end."""

    __slots__ = ("_behind", "_bus", "_database", "_run_id", "_text")

    def __init__(self, tx: Transaction, row: RunRow, database: Database, bus: Bus) -> None:
        self._run_id = row.id
        self._text = row.external_id
        self._behind: AfterCommitQuery = tx.query_after_commit(external_ids.KEYS_OF_RUN, run_id=row.id)
        self._database = database
        self._bus = bus

    def delete_keys(self) -> None:
        """Delete the cancel keys of all of them. After an error a key may remain, until the next start of that id."""
        names = {*(self._behind.scalar() or ()), *((self._text,) if self._text is not None else ())}
        if not names:
            return
        try:
            with self._database.statements() as tx:
                delete_keys_of(tx, self._bus, names, self._run_id)
        except SQLAlchemyError as error:
            log.warning("cancel_keys_not_forgotten", run_id=str(self._run_id), error=str(error).partition("\n")[0])


def may_have_external_ids(row: RunRow) -> bool:
    """Whether a run may have external ids: from its start, or from a later answer."""
    return row.external_id is not None or row.first_event > 1
