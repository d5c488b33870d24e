"""What an attempt stores beside its report: files, evidence, its journal, and the trace of its tool calls.

All of it is durable when the call returns. Storing it twice changes nothing: the next attempt of the activation finds
what this one has stored.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.errors import AttemptStopped, NodeFailure, NotFound
from canvas.graph.passwords import PasswordMask
from components.context import ToolCallPosition
from scheduler.messaging.redis_bus import Bus
from store.db.database import Database
from store.db.db_errors import is_outage
from store.files.blobs import Blobs
from store.runs import attempt_records, model_calls
from store.runs.activations import Claim
from store.runs.attempt_records import CallPosition
from store.runs.model_calls import CallBatch
from store.tenants import uploads
from worker.context import outcomes
from worker.context.model_calls import CallLog

log = structlog.get_logger()

_ID_KEYS = ("id", "file_id", "doc_id")


@dataclass(frozen=True, slots=True)
class AttemptStorage:
    """Stores and reads for one attempt."""

    claim: Claim
    database: Database
    blobs: Blobs | None
    bus: Bus
    passwords: Callable[[], PasswordMask] = PasswordMask  # of the run, which no stored tool call contains
    may_cite: bool = True  # whether a node of the canvas may cite; else references are not read
    recorded: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Journal entries of a recorded run, which count as those of an earlier attempt."""

    # -- files --------------------------------------------------------------------------------------------------
    async def read(self, descriptor: Mapping[str, Any]) -> bytes:
        """Return the bytes of a file of the tenant. Raises NodeFailure if there is no such file."""
        return await asyncio.to_thread(self._read, descriptor)

    def _read(self, descriptor: Mapping[str, Any]) -> bytes:
        named = next((str(descriptor[key]) for key in _ID_KEYS if descriptor.get(key)), "")
        try:
            file_id, blobs = UUID(named), self._require_blobs()
            with self.database.statements() as tx:
                file = uploads.get_for_run(tx, self.claim.tenant_id, file_id, self.claim.run_id)
            return blobs.get(file.sha256)
        except (NotFound, ValueError) as error:
            name = descriptor.get("name") or descriptor.get("filename") or named
            raise NodeFailure(f'The file "{name}" is not there. Upload it again.') from error

    async def save(self, name: str, data: bytes, mime_type: str, place: str) -> Mapping[str, Any]:
        """Store a produced file. The same name and place in the same activation is the same file."""
        return await asyncio.to_thread(self._save, name, data, mime_type, place)

    def _save(self, name: str, data: bytes, mime_type: str, place: str) -> Mapping[str, Any]:
        name = outcomes.sanitize_json(name)
        file_id = uuid5(self.claim.id, f"{place}/{name}")
        claim = self.claim
        content = uploads.store_content(self._require_blobs(), name, mime_type, data)
        with self.database.transaction() as tx:
            uploads.put_row(tx, claim.tenant_id, file_id, content, run_id=claim.run_id)
        return {"doc_id": file_id.hex, "filename": name, "mime_type": mime_type, "size": len(data)}

    def _require_blobs(self) -> Blobs:
        if self.blobs is None:
            raise NodeFailure("This worker has no file storage. Set EASEL_FILES_DIR.")
        return self.blobs

    # -- evidence -----------------------------------------------------------------------------------------------
    async def cite(self, chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> list[int]:
        """Add evidence to the turn's references; return the display number of each chunk."""
        cited = outcomes.sanitize_json(chunks), outcomes.sanitize_json(documents)
        return await asyncio.to_thread(self.cite_now, *cited)

    def cite_now(self, chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> list[int]:
        """Add evidence like `cite`, on the calling thread. The chunks and documents must be storable JSON."""
        claim = self.claim
        with self.database.transaction() as tx:
            return attempt_records.add_citations(tx, claim.run_id, claim.message_id, claim.id, chunks, documents)

    async def references(self) -> Mapping[str, Any]:
        """Return the turn's references so far."""
        if not self.may_cite:
            return {"chunks": {}, "doc_aggs": {}}
        return await asyncio.to_thread(self._references)

    def _references(self) -> Mapping[str, Any]:
        with self.database.statements() as tx:
            return attempt_records.load_citations(tx, self.claim.run_id, self.claim.message_id)

    # -- the journal --------------------------------------------------------------------------------------------
    async def journal_get(self, key: str) -> Any:
        """Return what an earlier attempt of this activation recorded; None if nothing. The first does not read."""
        if key in self.recorded:
            return self.recorded[key]
        if self.claim.attempt <= 1:
            return None
        return await asyncio.to_thread(self._journal_get, key)

    def _journal_get(self, key: str) -> Any:
        with self.database.statements() as tx:
            return attempt_records.get_journal_entry(tx, self.claim, key)

    async def journal_put(self, key: str, value: Any, calls: CallLog | None = None) -> bool:
        """Record a value; return False if the key had one before, which stays.

        The model calls that have ended are stored with it. Raises AttemptStopped if the attempt has lost its lease:
        whatever it did next would be done twice.
        """
        is_new = await asyncio.to_thread(self._journal_put, key, outcomes.sanitize_json(value), calls)
        if is_new is None:
            raise AttemptStopped("lease")
        return is_new

    def _journal_put(self, key: str, value: Any, calls: CallLog | None) -> bool | None:
        batch = calls.take_ended() if calls is not None else None
        if calls is None or batch is None:
            return self._put_entry(key, value, None)
        try:
            is_new = self._put_entry(key, value, batch)
        except SQLAlchemyError as error:
            if is_outage(error):
                calls.restore(batch)
                raise
            log.warning("model_calls_not_stored", error=str(error).partition("\n")[0])
            return self._put_entry(key, value, None)  # they may be the reason, and no node fails because of them
        if is_new is not None:
            calls.mark_stored(batch)
        return is_new

    def _put_entry(self, key: str, value: Any, calls: CallBatch | None) -> bool | None:
        with self.database.transaction() as tx:
            is_new = attempt_records.put_journal_entry(tx, self.claim, key, value)
            if is_new is not None:
                model_calls.write(tx, self.claim.run_id, [calls])
            return is_new

    async def trace(self, call: Mapping[str, Any], at: ToolCallPosition | None = None) -> None:
        """Store a tool call for people, and publish the calls under the Redis key that RAGFlow's clients read.

        A replayed call is stored and not published: the attempt that made it has published it.
        """
        await asyncio.to_thread(self._trace, outcomes.sanitize_json(call), at or ToolCallPosition())

    def _trace(self, call: Mapping[str, Any], at: ToolCallPosition) -> None:
        claim = self.claim
        call = self.passwords().value(call)
        position = CallPosition(claim.id, claim.attempt, at.round, at.ordinal, at.has_failed, at.is_replayed)
        with self.database.transaction() as tx:
            attempt_records.add_tool_call(tx, claim.run_id, claim.message_id, claim.node_id, call, position)
            if at.is_replayed:
                return
            tool_calls = attempt_records.list_tool_calls(tx, claim.run_id, claim.message_id)
        self.bus.publish_trace(claim.conversation_id, claim.message_id, tool_calls)
