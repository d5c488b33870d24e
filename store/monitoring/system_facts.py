"""What the database tells about the processes: queue probes, the sweeper, and the open activations of all tenants."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from store.db.transaction import Transaction
from store.monitoring import queue_probes, server_info
from store.monitoring.queue_probes import SweeperObservation

MAX_COUNTED = 10_000
PROBED_QUEUE = "nodes"

COUNTS = text("""
    select
        (select count(*) from (select from activations where status = 'ready' limit :most) r) as ready,
        (select count(*) from (select from activations where status = 'running' limit :most) r) as running,
        (select count(*) from (select from activations where status = 'reported' limit :most) r) as reported
""")  # each reads a partial index


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """Facts of one moment. `activations` counts by status, up to MAX_COUNTED and one more."""

    now: datetime
    activations: Mapping[str, int]
    probe_returned: datetime | None
    """When the latest queue probe that returned was sent; None if none has returned."""
    sweeper: SweeperObservation | None


def load_facts(tx: Transaction) -> SystemFacts:
    """Return the facts."""
    counts = tx.one_or_none(COUNTS, most=MAX_COUNTED + 1)
    assert counts is not None
    return SystemFacts(
        server_info.read_clock(tx),
        counts,
        queue_probes.latest_return(tx, PROBED_QUEUE),
        queue_probes.last_observation(tx),
    )
