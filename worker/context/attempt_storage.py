"""What an attempt stores beside its report: files, evidence, its journal, and the trace of its tool calls.

All of it is durable when the call returns. Storing it twice changes nothing: the next attempt of the activation finds
what this one has stored.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from canvas.errors import AttemptStopped, NodeFailure, NotFound
from scheduler.messaging.redis_bus import Bus
from store.db.database import Database
from store.files.blobs import Blobs
from store.runs import attempt_records
from store.runs.activations import Claim
from store.tenants import uploads
from worker.context import outcomes

_ID_KEYS = ("id", "file_id", "doc_id")


@dataclass(frozen=True, slots=True)
class AttemptStorage:
    """Stores and reads for one attempt."""

    claim: Claim
    database: Database
    blobs: Blobs | None
    bus: Bus
    may_cite: bool = True  # whether a node of the canvas may cite; else references are not read

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
        return await asyncio.to_thread(self._cite, outcomes.sanitize_json(chunks), outcomes.sanitize_json(documents))

    def _cite(self, chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> list[int]:
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
        if self.claim.attempt <= 1:
            return None
        return await asyncio.to_thread(self._journal_get, key)

    def _journal_get(self, key: str) -> Any:
        with self.database.statements() as tx:
            return attempt_records.get_journal_entry(tx, self.claim, key)

    async def journal_put(self, key: str, value: Any) -> bool:
        """Record a value; return False if the key had one before, which stays.

        Raises AttemptStopped if the attempt has lost its lease: whatever it did next would be done twice.
        """
        is_new = await asyncio.to_thread(self._journal_put, key, outcomes.sanitize_json(value))
        if is_new is None:
            raise AttemptStopped("lease")
        return is_new

    def _journal_put(self, key: str, value: Any) -> bool | None:
        with self.database.transaction() as tx:
            return attempt_records.put_journal_entry(tx, self.claim, key, value)

    async def trace(self, call: Mapping[str, Any]) -> None:
        """Store a tool call for people, and publish the calls under the Redis key that RAGFlow's clients read."""
        await asyncio.to_thread(self._trace, outcomes.sanitize_json(call))

    def _trace(self, call: Mapping[str, Any]) -> None:
        claim = self.claim
        with self.database.transaction() as tx:
            attempt_records.add_tool_call(tx, claim.run_id, claim.message_id, claim.node_id, call)
            tool_calls = attempt_records.list_tool_calls(tx, claim.run_id, claim.message_id)
        self.bus.publish_trace(claim.conversation_id, claim.message_id, tool_calls)
