"""Cancel keys of external ids: `{external id}-cancel` in Redis, which any program may set.

Such a key names no tenant: it stops the open run of that external id of every tenant. A start, an answer and the end of
a run forget the keys of their external ids, for a key counts for the runs that were there when it was set. What other
open runs were told by it is kept as a key of each of these runs.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from scheduler.messaging.redis_bus import Bus, external_keys, run_keys
from store.db.database import Database
from store.db.transaction import AfterCommitQuery, Transaction
from store.runs import external_ids
from store.runs.run_rows import RunRow

log = structlog.get_logger()


def forget(tx: Transaction, bus: Bus, names: Collection[str], run_id: UUID) -> None:
    """Forget the cancel keys of external ids that lead to a run; other open runs keep what they were told."""
    known = {name: external_keys(name) for name in names}
    are_set = bus.which_are_set([key for keys in known.values() for key in keys])
    if not are_set:
        return
    others: Sequence[UUID] = ()
    for name, keys in known.items():
        if not are_set.isdisjoint(keys):
            others = [*others, *external_ids.open_runs_named(tx, name, run_id)]
    for other in others:
        bus.set_cancel_key(other)
    bus.delete_keys(are_set - {key for other in others for key in run_keys(other)})


class Names:
    """The external ids of a run that ends, asked for behind the commit of its end."""

    __slots__ = ("_behind", "_bus", "_database", "_run_id", "_text")

    def __init__(self, tx: Transaction, row: RunRow, database: Database, bus: Bus) -> None:
        self._run_id = row.id
        self._text = row.external_id
        self._behind: AfterCommitQuery = tx.behind_commit(external_ids.KEYS_OF_RUN, run_id=row.id)
        self._database = database
        self._bus = bus

    def forget(self) -> None:
        """Forget the cancel keys of all of them. What fails leaves a key that the next start of that id forgets."""
        names = {*(self._behind.scalar() or ()), *((self._text,) if self._text is not None else ())}
        if not names:
            return
        try:
            with self._database.statements() as tx:
                forget(tx, self._bus, names, self._run_id)
        except SQLAlchemyError as error:
            log.warning("cancel_keys_not_forgotten", run_id=str(self._run_id), error=str(error).partition("\n")[0])


def may_have_names(row: RunRow) -> bool:
    """Whether external ids may lead to a run: one that it was started with, or one that an answer came with."""
    return row.external_id is not None or row.first_event > 1
