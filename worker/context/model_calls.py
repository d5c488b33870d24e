"""The model calls of one attempt, collected until its next journal entry or its report stores them.

So a call costs no round trip of its own, and a run whose nodes ask no model stores nothing. If the worker is lost, the
calls since the last journal entry are lost with it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.graph.passwords import NO_PASSWORDS, PasswordMask
from providers.errors import redact
from providers.models.recording.model_calls import ModelCall
from store.primitives.ids import new_id
from store.primitives.json_codec import encode
from store.runs.activations import Claim
from store.runs.model_calls import CallBatch, CallRow
from worker.context.call_bodies import BodyParts
from worker.context.outcomes import sanitize_text
from worker.context.usage_counts import usage_counts

log = structlog.get_logger()

MAX_BATCH_BYTES = 4 * 2**20  # of the parts that are stored at once; the database stores a megabyte in a second
MAX_CALLS = 2_000  # of one attempt
MAX_ERROR_CHARS = 2_000

CallDetail = Literal["full", "usage", "off"]


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """What is stored of model calls. `hidden`: ids of nodes and names of components whose bodies are not stored."""

    detail: CallDetail = "full"
    hidden: frozenset[str] = frozenset()

    @property
    def is_on(self) -> bool:
        """Return whether anything is stored."""
        return self.detail != "off"

    def stores_bodies(self, claim: Claim, call: ModelCall) -> bool:
        """Return whether the bodies of a call are stored."""
        names = {claim.node_id, claim.component, *call.place.components}
        return self.detail == "full" and not names & self.hidden


@dataclass(eq=False)
class CallLog:
    """Collects the calls of one attempt. For several threads.

    `secrets` and `passwords` return what to mask in bodies and errors. If passwords cannot be read, no bodies are
    stored.
    """

    claim: Claim
    policy: CallPolicy
    secrets: Callable[[], Sequence[str]] = tuple
    passwords: Callable[[], PasswordMask] = PasswordMask
    _calls: list[tuple[UUID, ModelCall]] = field(default_factory=list[tuple[UUID, ModelCall]])
    _number: int = 0
    _stored: set[UUID] = field(default_factory=set[UUID])  # digests of parts that this attempt has stored
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, call: ModelCall) -> None:
        """Add a call that begins."""
        with self._lock:
            self._number += 1
            if self._number <= MAX_CALLS:
                self._calls.append((new_id(), call))
            elif self._number == MAX_CALLS + 1:
                log.warning("model_calls_not_recorded", node_id=self.claim.node_id, most=MAX_CALLS)

    def discard(self, call: ModelCall) -> None:
        """Remove a call that was not sent."""
        with self._lock:
            self._calls = [entry for entry in self._calls if entry[1] is not call]

    def take_ended(self) -> CallBatch | None:
        """Remove the calls that have ended and return them for storing; None if there are none."""
        with self._lock:
            ended = [entry for entry in self._calls if entry[1].status is not None]
            self._calls = [entry for entry in self._calls if entry[1].status is None]
        return self._batch(ended)

    def take_all(self) -> CallBatch | None:
        """Remove all calls and return them for storing; those that have not ended count as cancelled."""
        with self._lock:
            calls, self._calls = self._calls, []
        for _, call in calls:
            call.end("cancelled")
        return self._batch(calls)

    def mark_stored(self, batch: CallBatch) -> None:
        """Note that a batch is stored, so that its parts are not sent again."""
        self._stored |= batch.parts.keys()

    def restore(self, batch: CallBatch) -> None:
        """Take back a batch that could not be stored, for the next journal entry or the report."""
        with self._lock:
            self._calls = [*batch.calls, *self._calls]

    def _batch(self, calls: Sequence[tuple[UUID, ModelCall]]) -> CallBatch | None:
        if not calls:
            return None
        passwords = self._read_passwords()
        bodies = BodyParts(self._find_secrets(calls), passwords or NO_PASSWORDS)
        rows: list[CallRow] = []
        size = 0
        for call_id, call in calls:
            request, response = None, None
            is_hidden = passwords is None or not self.policy.stores_bodies(self.claim, call)
            if self.policy.detail == "full" and is_hidden:
                request = {"hidden": True}
            elif self.policy.detail == "full":
                parts = BodyParts(bodies.secrets, bodies.passwords)
                request, response = parts.request_of(call), parts.response_of(call)
                new = {digest: text for digest, text in parts.parts.items() if not self._is_known(digest, bodies)}
                more = sum(map(len, new.values()))
                if size + more > MAX_BATCH_BYTES:
                    request, response = {"$cut": parts.bytes}, None
                else:
                    size += more
                    bodies.parts |= new
            error = "" if passwords is None else bodies.passwords.text(redact(call.error, *call.spec.secrets))
            rows.append(
                _row(self.claim, call_id, call, error, encode(request) if request is not None else None, response)
            )
        return CallBatch(calls, rows, dict(sorted(bodies.parts.items())))

    def _is_known(self, digest: UUID, bodies: BodyParts) -> bool:
        return digest in self._stored or digest in bodies.parts

    def _read_passwords(self) -> PasswordMask | None:
        try:
            return self.passwords()
        except SQLAlchemyError as error:
            log.warning("model_calls_without_bodies", error=str(error).partition("\n")[0])
            return None

    def _find_secrets(self, calls: Sequence[tuple[UUID, ModelCall]]) -> Sequence[str]:
        if self.policy.detail != "full":
            return ()
        keys = {secret for _, call in calls for secret in call.spec.secrets}
        return sorted({*keys, *self.secrets()})


def _row(
    claim: Claim, call_id: UUID, call: ModelCall, error: str, request: str | None, response: str | None
) -> CallRow:
    progress = call.progress
    return CallRow(
        id=call_id,
        activation_id=claim.id,
        attempt=claim.attempt,
        round=call.place.key,
        kind=call.kind,
        model=sanitize_text(call.spec.id),
        account=sanitize_text(call.spec.account or call.spec.factory),
        began=call.began,
        first_token=call.first_token,
        ended=call.ended or time.monotonic(),
        status=call.status or "cancelled",
        error=sanitize_text(error)[:MAX_ERROR_CHARS] or None,
        tries=progress.tries,
        waited_ms=round(1000 * progress.waited),
        usage=usage_counts(call.usage),
        request=request,
        response=response,
    )
