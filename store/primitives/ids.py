"""Ids: UUIDv7, so that rows sort and partitions cut by the time they were made (RFC 9562, 5.7)."""

import secrets
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RANDOM_BITS = 74  # all that version and variant leave beside the 48 bits of milliseconds
_STEP_BITS = 32
_VERSION = 0x7 << 76
_VARIANT = 0b10 << 62

_lock = threading.Lock()
_last = 0


def new_id() -> UUID:
    """An id greater than every one this process has made before, clock stepped back or not.

    Within a millisecond ids go up in random steps; a run of them that is too long borrows from the next millisecond.
    """
    global _last
    now = time.time_ns() // 1_000_000 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    with _lock:
        _last = value = max(now, _last + 1 + secrets.randbits(_STEP_BITS))
    return _uuid(value)


def first_id_at(moment: datetime) -> UUID:
    """The lower bound of all ids made at `moment` (to the millisecond) or later."""
    return UUID(int=(moment - _EPOCH) // timedelta(milliseconds=1) << 80)


def moment_of(id: UUID) -> datetime:  # noqa: A002 - what it is
    """When a UUIDv7 was made."""
    return _EPOCH + timedelta(milliseconds=id.int >> 80)


def _uuid(value: int) -> UUID:
    milliseconds = value >> _RANDOM_BITS
    high = value >> 62 & 0xFFF
    low = value & (1 << 62) - 1
    return UUID(int=milliseconds << 80 | _VERSION | high << 64 | _VARIANT | low)
