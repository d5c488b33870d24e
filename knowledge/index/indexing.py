"""Indexing: keeps what searches in knowledge bases and memories need, beside the traffic (docs/tools.md).

Rows of the previous release are converted, and large bases get indexes. A row that waits is the job, as in
`knowledge/bases/ingestion.py`.
"""

import asyncio

import structlog
from sqlalchemy.exc import DBAPIError

from components.text.extraction.file_kinds import LibraryMissing
from knowledge.index import tokenizer
from store.db.database import Database
from store.knowledge import chunk_indexes, former_rows
from store.knowledge.chunk_indexes import BuildCancelled, Cancellation, DueBase

log = structlog.get_logger()


class Indexing:
    """Converts a batch of rows, or builds the indexes of one base, for each call of `next`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run_all(self) -> None:
        """Do every job that waits."""
        while await self.next():
            pass

    async def next(self) -> bool:
        """Do one job; return False if none waits. A cancelled build is released to other workers."""
        if await asyncio.to_thread(self._convert):
            return True
        base = await asyncio.to_thread(self._claim)
        if base is None:
            return False
        cancellation = Cancellation()
        building = asyncio.create_task(asyncio.to_thread(self._build, base, cancellation))
        try:
            await asyncio.shield(building)
        except asyncio.CancelledError:
            cancellation.cancel()
            await building
            raise
        return True

    def _convert(self) -> bool:
        """Convert a batch of rows; return False if none waits, or this process lacks the library."""
        try:
            with self._database.transaction() as tx:
                return former_rows.convert(tx, _words_of) > 0
        except LibraryMissing as error:  # a worker that has it converts them
            log.warning("former_rows_not_converted", error=error.message)
            return False

    def _claim(self) -> DueBase | None:
        with self._database.transaction() as tx:
            return chunk_indexes.claim(tx)

    def _build(self, base: DueBase, cancellation: Cancellation) -> None:
        try:
            chunk_indexes.build(self._database, base, cancellation)
        except (DBAPIError, BuildCancelled) as error:
            if cancellation.is_cancelled:
                chunk_indexes.release(self._database, base)
                return
            reason = str(getattr(error, "orig", error)).partition("\n")[0]
            log.error("knowledge_index_not_built", base_id=str(base.id), error=reason)
        else:
            log.info("knowledge_index_built", base_id=str(base.id))


def _words_of(text: str, language: str) -> list[str]:
    return sorted(tokenizer.passage_words(text, language))
