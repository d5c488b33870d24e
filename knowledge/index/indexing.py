"""Indexing: keeps what searches in knowledge bases and memories need, beside the traffic (docs/tools.md).

Rows of the previous release are converted, and large bases get indexes. A row that waits is the job, as in
`knowledge/bases/ingestion.py`.
"""

import asyncio

import structlog
from sqlalchemy.exc import DBAPIError

from knowledge.index import tokenizer
from store.db.database import Database
from store.knowledge import chunk_indexes, former_rows

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
        """Do one job; return False if none waits. A build continues in its thread if the caller is cancelled."""
        return await asyncio.to_thread(self._next)

    def _next(self) -> bool:
        with self._database.transaction() as tx:
            if former_rows.convert(tx, lambda text, language: sorted(tokenizer.passage_words(text, language))):
                return True
        with self._database.transaction() as tx:
            base = chunk_indexes.claim(tx)
        if base is None:
            return False
        try:
            chunk_indexes.build(self._database, base)
        except DBAPIError as error:  # another worker tries again when the claim has expired
            log.error("knowledge_index_not_built", base_id=str(base.id), error=str(error.orig).partition("\n")[0])
        else:
            log.info("knowledge_index_built", base_id=str(base.id))
        return True
