"""The caches of what nodes read. They save statements and nothing else: each entry is a copy of rows that stay."""

from dataclasses import dataclass, field

from worker.caches.history import HistoryCache
from worker.caches.list_sources import ListCache
from worker.caches.outputs import OutputCache
from worker.caches.run_inputs import RunInputsCache


@dataclass(frozen=True, slots=True)
class ValueCaches:
    """The caches of one worker."""

    outputs: OutputCache = field(default_factory=OutputCache)
    run_inputs: RunInputsCache = field(default_factory=RunInputsCache)
    lists: ListCache = field(default_factory=ListCache)
    history: HistoryCache = field(default_factory=HistoryCache)


def value_caches(is_on: bool) -> ValueCaches:
    """Return a worker's caches; caches that never have anything if they are switched off."""
    return ValueCaches() if is_on else ValueCaches(OutputCache(0), RunInputsCache(0), ListCache(0), HistoryCache(0))
