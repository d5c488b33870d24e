"""A cache of compiled versions, one per process. Versions never change, so entries do not expire."""

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock

from canvas.document import parsing
from canvas.document.document import Document
from canvas.graph.canvas import EMPTY_CANVAS, Canvas, compile_canvas
from canvas.ids import VersionId
from store.agents import versions
from store.agents.versions import VersionGone
from store.db.transaction import Transaction

MAX_VERSIONS = 256


@dataclass(frozen=True, slots=True)
class CompiledVersion:
    """A version's document, and the canvas compiled from it."""

    document: Document
    canvas: Canvas
    computed: dict[tuple[str, int], object] = field(default_factory=dict[tuple[str, int], object])
    """Results that other modules have computed once per node: (name of the result, node number) -> result."""


MISSING_VERSION = CompiledVersion(Document(entries={}, raw={"components": {}, "globals": {}}), EMPTY_CANVAS)
"""Shown in place of a version that is gone."""


class VersionCache:
    """Compiled versions by id, the most recently used ones. Threads may share it."""

    def __init__(self, max_versions: int = MAX_VERSIONS) -> None:
        self._max_versions = max_versions
        self._compiled: OrderedDict[VersionId, CompiledVersion] = OrderedDict()
        self._compiling: dict[VersionId, Lock] = {}
        self._lock = Lock()

    def get(self, tx: Transaction, version_id: VersionId) -> CompiledVersion:
        """Return a version, read and compiled once per process. Raises VersionGone.

        Threads that ask for a version while another thread compiles it wait for that thread.
        """
        with self._lock:
            found = self._compiled.get(version_id)
            if found is not None:
                self._compiled.move_to_end(version_id)
                return found
            lock = self._compiling.setdefault(version_id, Lock())
        with lock:
            with self._lock:
                found = self._compiled.get(version_id)
            return found or self._compile(tx, version_id)

    def _compile(self, tx: Transaction, version_id: VersionId) -> CompiledVersion:
        try:
            document = parsing.parse(versions.get(tx, version_id).dsl)
            compiled = CompiledVersion(document, compile_canvas(document))
            with self._lock:
                self._compiled[version_id] = compiled
                while len(self._compiled) > self._max_versions:
                    self._compiled.popitem(last=False)
            return compiled
        finally:
            with self._lock:
                self._compiling.pop(version_id, None)

    def get_or_empty(self, tx: Transaction, version_id: VersionId) -> CompiledVersion:
        """Return a version for pages that only show runs and sessions; an empty one if it is gone."""
        try:
            return self.get(tx, version_id)
        except VersionGone:
            return MISSING_VERSION

    def canvas(self, tx: Transaction, version_id: VersionId) -> Canvas:
        """Return the canvas of a version. Raises VersionGone."""
        return self.get(tx, version_id).canvas
