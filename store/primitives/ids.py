"""Ids are UUIDv7 (RFC 9562, 5.7), so that rows sort, and are partitioned, by the time they were created."""

import secrets
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

NO_ID = UUID(int=0)
"""An id that no row has, and that is before all others."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RANDOM_BITS = 74  # the bits that version, variant and the 48 bits of milliseconds leave
_STEP_BITS = 32
_VERSION = 0x7 << 76
_VARIANT = 0b10 << 62

_lock = threading.Lock()
_last = 0


def new_id() -> UUID:
    """Return an id greater than every one that this process has created before, even if the clock was set back.

    Within a millisecond ids increase by random steps; a long burst borrows from the next millisecond.
    """
    global _last
    now = time.time_ns() // 1_000_000 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    with _lock:
        _last = value = max(now, _last + 1 + secrets.randbits(_STEP_BITS))
    return _uuid(value)


def first_id_at(moment: datetime) -> UUID:
    """Return the lower bound of all ids created at `moment` (to the millisecond) or later."""
    return UUID(int=(moment - _EPOCH) // timedelta(milliseconds=1) << 80)


def created_at_of(id: UUID) -> datetime:  # noqa: A002 - what it is
    """Return when a UUIDv7 was created."""
    return _EPOCH + timedelta(milliseconds=id.int >> 80)


def _uuid(value: int) -> UUID:
    milliseconds = value >> _RANDOM_BITS
    high = value >> 62 & 0xFFF
    low = value & (1 << 62) - 1
    return UUID(int=milliseconds << 80 | _VERSION | high << 64 | _VARIANT | low)


def id_at(moment: datetime, bits: int) -> UUID:
    """Return the UUIDv7 of a moment (to the millisecond) whose random bits are the lowest of `bits`."""
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    return _uuid(milliseconds << _RANDOM_BITS | bits & ((1 << _RANDOM_BITS) - 1))
