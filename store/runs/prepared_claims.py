"""Prepared claims: what a task message carries of the activation that it announces.

The advance that makes an activation ready knows everything that its claim would return. A worker that executes a node
which only computes begins with that, and writes the claim with its report (docs/protocol.md, "Deferred claims"). If the
activation is the only one of its run that is ready or running, the run as the advance wrote it travels too, so that the
next advance need not read it ("Cached run state").

A prepared claim contains ids, numbers and node ids, but no text of a user and no secret: a run whose state has a
failure, a form or a message stream does not travel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from canvas.ids import ActivationId, LeaseId, RunId
from canvas.routing.decision import Activation
from canvas.state.order_key import OrderKey
from canvas.state.run_state import RunState, RunStatus, scope_text
from store.runs.activations import Claim, Deferral, claim_from_rows
from store.runs.run_rows import RunRow
from store.runs.scopes import PrefetchedScopes

FORMAT = 1
"""Version of the encoding. A message of another version is claimed before it is executed."""
MAX_SIZE = 8 * 2**10  # bytes; a larger one is not sent, because RabbitMQ limits the headers of a message


@dataclass(frozen=True, slots=True)
class CachedRun:
    """A run as an advance wrote it: everything that the next advance reads, unless the run changes in between."""

    row: RunRow
    scopes: PrefetchedScopes


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """The claim of an activation that is ready, without its lease, and its run if nothing else of it is in flight."""

    run: RunRow
    node_id: str
    component: str
    scope: str
    ordinal: int
    order_key: OrderKey
    limits: Sequence[Sequence[Any]] | None  # of enclosing regions
    activated_rev: int
    cached_run: CachedRun | None = None

    @property
    def read_limits(self) -> tuple[tuple[bytes, int], ...]:
        """(isolation region, revision) up to which the attempt may read."""
        enclosing = ((bytes.fromhex(region), upto) for region, upto in self.limits or ())
        return (*enclosing, (self.order_key.region, self.activated_rev))

    def encode(self) -> str | None:
        """Return the prepared claim as JSON; None if it cannot travel."""
        run = self.run
        if run.created_at is None:
            return None
        fields: dict[str, Any] = {
            "v": FORMAT,
            "node": [self.node_id, self.component, self.scope, self.ordinal],
            "order": [self.order_key.level, self.order_key.branch_path, self.order_key.region.hex()],
            "limits": self.limits,
            "rev": self.activated_rev,
            "of": [run.tenant_id, run.canvas_id, run.version_id, run.conversation_id, run.message_id],
            "turn": [run.first_event, run.history_upto, run.created_at, run.budgeted],
        }
        if self.cached_run is not None:
            row, known = self.cached_run.row, self.cached_run.scopes
            fields["run"] = [row.last_event, row.state, row.usage, row.external_id, row.previous_run]
            fields["scopes"] = [known.keys is None, [list(each) for each in known.load_rows()]]
        encoded = orjson.dumps(fields)
        if len(encoded) > MAX_SIZE:
            return None
        return encoded.decode()


def prepare(row: RunRow, revision: int, new: Activation) -> PreparedClaim | None:
    """Return the prepared claim of a new activation; None if its worker must claim it first, because it streams."""
    if new.stream_id is not None:
        return None
    scope = scope_text(new.scope)
    return PreparedClaim(row, new.node_id, new.component, scope, new.ordinal, new.order_key, new.limits, revision)


def prepare_promoted(row: RunRow, columns: Mapping[str, Any]) -> PreparedClaim | None:
    """Return the prepared claim of a promoted activation from its columns, as `prepare` does."""
    if columns["stream_id"] is not None:
        return None
    order_key = OrderKey(columns["level"], tuple((w, p) for w, p in columns["trail"]), bytes(columns["region"]))
    return PreparedClaim(
        run=row,
        node_id=columns["node_id"],
        component=columns["component"],
        scope=columns["scope"],
        ordinal=columns["ordinal"],
        order_key=order_key,
        limits=columns["limits"],
        activated_rev=columns["activated_rev"],
    )


def may_travel(state: RunState) -> bool:
    """Whether a run's state may be part of a message: it holds no text of a user, only numbers and node ids."""
    if state.failure is not None or state.forms or state.streams:
        return False
    containers = (each for scope in state.scopes.values() for each in scope.containers.values())
    return not any(each.error or each.deferred_events for each in containers)


@dataclass(frozen=True, slots=True)
class ReceivedClaim:
    """A prepared claim as a worker received it."""

    fields: Mapping[str, Any]
    run_id: RunId
    activation_id: ActivationId

    @property
    def node_id(self) -> str:
        """The node."""
        return self.fields["node"][0]

    @property
    def component(self) -> str:
        """The component of the node."""
        return self.fields["node"][1]

    def claim(self, lease_id: LeaseId, deferral: Deferral) -> Claim:
        """Return the claim under a lease of the receiver's, to be written later."""
        node_id, component, scope, ordinal = self.fields["node"]
        level, trail, region = self.fields["order"]
        columns = {
            "run_id": self.run_id,
            "id": self.activation_id,
            "lease_id": lease_id,
            "node_id": node_id,
            "component": component,
            "scope": scope,
            "ordinal": ordinal,
            "level": level,
            "trail": trail,
            "region": bytes.fromhex(region),
            "limits": self.fields["limits"],
            "activated_rev": self.fields["rev"],
            "attempt": 1,
            "crash_count": 0,
            "stream_id": None,
            "answers": None,
        }
        return claim_from_rows(columns, self._run_columns(), deferral)

    def cached_run(self) -> CachedRun | None:
        """Return the run as the advance wrote it, if it has travelled."""
        if "run" not in self.fields:
            return None
        last_event, state, usage, external_id, previous_run = self.fields["run"]
        columns = {
            "id": self.run_id,
            "status": RunStatus.RUNNING,
            "revision": self.fields["rev"],
            "last_event": last_event,
            "cancel_requested": False,
            "open_stream": None,
            "state": state,
            "usage": usage,
            "error": "",
            "external_id": external_id,
            "previous_run": UUID(previous_run) if previous_run else None,
        }
        has_all, rows = self.fields["scopes"]
        known = [(key, scope) for key, scope in rows]
        keys = None if has_all else frozenset(key for key, _ in known)
        row = RunRow.from_columns({**columns, **self._run_columns()})
        return CachedRun(row, PrefetchedScopes(keys, lambda: known))

    def _run_columns(self) -> dict[str, Any]:
        """Return the columns of the run that a claim carries, as `RunRow.claim_columns` does."""
        names = ("tenant_id", "canvas_id", "version_id", "conversation_id", "message_id")
        first_event, history_upto, created_at, budgeted = self.fields["turn"]
        return {
            **dict(zip(names, map(UUID, self.fields["of"]), strict=True)),
            "first_event": first_event,
            "history_upto": history_upto,
            "created_at": datetime.fromisoformat(created_at),
            "budgeted": budgeted,
        }


def decode(run_id: RunId, activation_id: ActivationId, encoded: object) -> ReceivedClaim | None:
    """Return the prepared claim of a message; None if it has none of this format."""
    if not isinstance(encoded, str):
        return None
    try:
        fields = orjson.loads(encoded)
    except ValueError:
        return None
    if not isinstance(fields, dict) or fields.get("v") != FORMAT:  # pyright: ignore[reportUnknownMemberType] (JSON)
        return None
    return ReceivedClaim(fields, run_id, activation_id)  # pyright: ignore[reportUnknownArgumentType] (JSON)
