"""Check whether the credentials of open streams are still valid, those of many streams in one statement."""

import asyncio
from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool

from store.db.database import Database
from store.tenants import viewer_sessions
from store.tenants.viewer_sessions import Credential, EndReason

JOIN_TIME = 0.02  # seconds in which checks are collected


class CredentialChecks:
    """The checks of a process. They belong to one event loop."""

    def __init__(self) -> None:
        self._requested = set[Credential]()
        self._reading: asyncio.Task[Mapping[Credential, EndReason]] | None = None

    async def find_end(self, database: Database, credential: Credential) -> EndReason | None:
        """Return why a credential is no longer valid; None if it is. Raises SQLAlchemyError."""
        self._requested.add(credential)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(database))
            self._reading.add_done_callback(_mark_error_retrieved)
        ended = await asyncio.shield(self._reading)  # if one stream is cancelled, the others still need the check
        return ended.get(credential)

    async def _read(self, database: Database) -> Mapping[Credential, EndReason]:
        await asyncio.sleep(JOIN_TIME)
        requested, self._requested, self._reading = self._requested, set[Credential](), None
        return await run_in_threadpool(_find_ended, database, requested)


def _find_ended(database: Database, credentials: set[Credential]) -> Mapping[Credential, EndReason]:
    with database.statements() as tx:
        return viewer_sessions.find_ended(tx, credentials)


def _mark_error_retrieved(reading: asyncio.Task[Mapping[Credential, EndReason]]) -> None:
    """Mark the error of a check as retrieved. Streams that still wait got it; if none does, it is not needed."""
    if not reading.cancelled():
        reading.exception()
